mod facts;
mod scenes;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::field::Path;

fn texts(errors: &[crate::FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn validate(schema: &Value, value: &Value, old: Option<&Value>) -> String {
    let compiled = Compiled::new(crate::parse(schema).unwrap());
    texts(&compiled.validate(value, old))
}

/// An object schema with a rule over some fields.
fn schema(rule: Value) -> Value {
    json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {
        "i": {"type": "integer"}, "j": {"type": "integer"}, "d": {"type": "number"},
        "s": {"type": "string"}, "b": {"type": "boolean"},
        "io": {"x-kubernetes-int-or-string": true},
        "l": {"type": "array", "items": {"type": "integer"}},
        "ls": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "objs": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "v": {"type": "integer"}}}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "o": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"},
            "namespace": {"type": "string"}, "a-b": {"type": "string"}, "dot.ted": {"type": "string"},
            "under__score": {"type": "string"}}},
        "t": {"type": "string", "format": "date-time"},
        "u": {"type": "string", "format": "duration"},
        "n": {"type": "string", "nullable": true},
        "bytes": {"type": "string", "format": "byte"},
    }})
}

fn holds(value: &Value, rules: &[&str]) {
    for rule in rules {
        assert_eq!(validate(&schema(json!({"rule": rule})), value, None), "", "{rule}");
    }
}

fn fails(value: &Value, rules: &[&str]) {
    for rule in rules {
        let text = validate(&schema(json!({"rule": rule})), value, None);
        assert_eq!(text, format!("<nil>: Invalid value: failed rule: {rule}"));
    }
}

fn object() -> Value {
    json!({
        "apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}},
        "i": 5, "j": -2, "d": 2, "s": "hello world", "b": true, "io": "50%",
        "l": [3, 1, 2], "ls": ["a", "b"], "set": ["x", "y"],
        "objs": [{"name": "a", "v": 1}, {"name": "b"}],
        "m": {"k1": "v1", "k-2": "v2"},
        "o": {"x": 1, "y": "why", "namespace": "ns", "a-b": "dash", "dot.ted": "dot", "under__score": "u"},
        "t": "2024-05-06T07:08:09Z", "u": "1h30m", "n": null, "bytes": "YWJj",
    })
}

#[test]
fn the_language() {
    holds(
        &object(),
        &[
            "self.i == 5 && self.j < 0 || false",
            "self.i + self.j * 2 == 1 && self.i / 2 == 2 && self.i % 2 == 1 && -self.i == -5",
            "self.d == 2.0 && self.d + 0.5 == 2.5 && self.d / 4.0 == 0.5",
            "self.i > self.d",
            "self.s == 'hello world' && self.s + '!' == \"hello world!\" && size(self.s) == 11",
            "self.s.size() == 11 && self.s < 'i'",
            "self.b ? self.i == 5 : self.i == 6",
            "!(self.i != 5)",
            "type(self.i) == int && type(self.s) == string && type(self.l) == list",
            "self.l[0] == 3 && self.l.size() == 3 && 2 in self.l && !(4 in self.l)",
            "self.l + [4] == [3, 1, 2, 4]",
            "self.m['k-2'] == 'v2' && 'k1' in self.m && self.m.k1 == 'v1' && size(self.m) == 2",
            "{'a': 1, 'b': 2}.a == 1 && {'a': 1} == {'a': 1}",
            "has(self.o.x) && has(self.m.k1) && !has(self.m.k2)",
            "dyn(self.i) == 5",
            "!has(self.n)",
        ],
    );
    fails(&object(), &["self.i == 6", "false", "self.l == [1, 2, 3]", "has(self.m.zz)"]);
}

#[test]
fn names_that_are_no_identifiers_are_escaped() {
    holds(
        &object(),
        &[
            "self.o.__namespace__ == 'ns'",
            "self.o.a__dash__b == 'dash' && self.o.dot__dot__ted == 'dot'",
            "self.o.under__underscores__score == 'u'",
        ],
    );
}

#[test]
fn macros() {
    holds(
        &object(),
        &[
            "self.l.all(x, x > 0) && self.l.exists(x, x == 2) && self.l.exists_one(x, x == 2)",
            "!self.l.all(x, x > 1) && !self.l.exists(x, x > 3) && !self.l.exists_one(x, x > 1)",
            "self.l.map(x, x * 2) == [6, 2, 4] && self.l.map(x, x > 1, x * 2) == [6, 4]",
            "self.l.filter(x, x > 1) == [3, 2]",
            "self.m.all(k, self.m[k].startsWith('v')) && self.m.exists(k, k == 'k1')",
            "self.objs.exists(o, o.name == 'b' && !has(o.v))",
            "self.objs.map(o, o.name).filter(n, n != 'a') == ['b']",
            "self.l.all(x, self.l.exists(y, x == y))",
            "cel.bind(x, self.i + 1, x * x == 36)",
            "self.l.all(i, v, self.l[i] == v) && self.m.exists(k, v, k == 'k1' && v == 'v1')",
            "self.l.transformList(i, v, v + i) == [3, 2, 4]",
            "self.m.transformMap(k, v, v + '!')['k1'] == 'v1!'",
            "self.objs.sortBy(o, o.name).map(o, o.name) == ['a', 'b']",
        ],
    );
}

#[test]
fn errors_are_absorbed_where_logic_decides() {
    holds(
        &object(),
        &[
            "self.l[9] == 1 || true",
            "true || self.l[9] == 1",
            "!(self.l[9] == 1 && false)",
            "self.objs.exists(o, o.v == 1)",
            "self.objs.exists(o, o.v == 9 || o.name == 'b')",
            "!self.objs.all(o, o.v == 2)",
        ],
    );
}

#[test]
fn optionals() {
    holds(
        &object(),
        &[
            "self.?i.orValue(0) == 5",
            "self.o.?x.hasValue() && self.m[?'zz'].hasValue() == false",
            "self.m.?zz.orValue('none') == 'none' && self.m[?'k1'].value() == 'v1'",
            "optional.of(1).optMap(x, x + 1).value() == 2 && !optional.none().hasValue()",
            "self.l[?9].orValue(7) == 7",
            "[?self.m.?zz, ?self.m.?k1] == ['v1']",
        ],
    );
}

#[test]
fn libraries() {
    holds(
        &object(),
        &[
            "self.s.contains('lo w') && self.s.startsWith('hello') && self.s.endsWith('world')",
            "self.s.matches('^hello') && !self.s.matches('^x')",
            "self.s.split(' ') == ['hello', 'world'] && ['a', 'b'].join('-') == 'a-b'",
            "self.s.upperAscii() == 'HELLO WORLD' && self.s.substring(6) == 'world'",
            "self.s.indexOf('o') == 4 && self.s.replace('l', 'L') == 'heLLo worLd'",
            "int('5') == 5 && string(self.i) == '5' && double(self.i) == 5.0",
            "self.l.isSorted() == false && self.l.sum() == 6 && self.l.max() == 3 && self.l.min() == 1",
            "sets.contains(self.ls, ['a']) && math.greatest(1, 2) == 2",
            "quantity('1Gi').isGreaterThan(quantity('1Mi')) && isQuantity('1k')",
            "isURL('https://a.b/c') && url('https://a.b:80/c').getHost() == 'a.b:80'",
            "isIP('1.2.3.4') && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
            "'%s-%d'.format(['a', 1]) == 'a-1'",
            "self.t < timestamp('2025-01-01T00:00:00Z') && self.t.getFullYear() == 2024",
            "self.u == duration('90m') && self.u > duration('1h')",
            "self.t + duration('1h') > self.t",
            "size(self.bytes) == 3",
            "type(self.io) == string && self.io.endsWith('%')",
        ],
    );
}

#[test]
fn metadata_is_visible_at_the_root() {
    holds(
        &object(),
        &[
            "self.metadata.name == 'n' && self.kind == 'K' && self.apiVersion == 'a/v1'",
            "!has(self.metadata.generateName)",
        ],
    );
}

#[test]
fn sets_compare_without_order() {
    let rule = schema(json!({"rule": "self.set == oldSelf.set"}));
    let with = |set: Value| json!({"set": set});
    let old = with(json!(["a", "b"]));
    assert_eq!(validate(&rule, &with(json!(["b", "a"])), Some(&old)), "");
    assert_ne!(validate(&rule, &with(json!(["b", "c"])), Some(&old)), "");
}

fn check(rule: Value, value: Value, expect: Expect) {
    expect.assert_eq(&validate(&schema(rule), &value, None));
}

#[test]
fn failures_say_what_the_author_wanted() {
    let bad = json!({"i": 1, "s": "x"});
    check(
        json!({"rule": "self.i > 1"}),
        bad.clone(),
        expect!["<nil>: Invalid value: failed rule: self.i > 1"],
    );
    check(
        json!({"rule": "self.i > 1", "message": " too small "}),
        bad.clone(),
        expect!["<nil>: Invalid value: too small"],
    );
    check(
        json!({"rule": "self.i > 1", "message": "m", "messageExpression": "'got ' + string(self.i)"}),
        bad.clone(),
        expect!["<nil>: Invalid value: got 1"],
    );
    check(
        json!({"rule": "self.i > 1", "message": "m", "messageExpression": "string(self.l[3])"}),
        bad.clone(),
        expect!["<nil>: Invalid value: m"],
    );
    check(
        json!({"rule": "self.i > 1", "messageExpression": "''"}),
        bad.clone(),
        expect!["<nil>: Invalid value: failed rule: self.i > 1"],
    );
    check(
        json!({"rule": "self.i > 1", "fieldPath": ".i"}),
        bad.clone(),
        expect!["i: Invalid value: failed rule: self.i > 1"],
    );
    for reason in ["Required", "Forbidden", "Duplicate", "Invalid"] {
        let rule = json!({"rule": "self.i > 1", "fieldPath": ".m.key", "message": "m",
            "reason": format!("FieldValue{reason}")});
        let text = validate(&schema(rule), &bad, None);
        let expected = match reason {
            "Required" => "m[key]: Required value: m",
            "Forbidden" => "m[key]: Forbidden: m",
            "Duplicate" => "m[key]: Duplicate value",
            _ => "m[key]: Invalid value: m",
        };
        assert_eq!(text, expected);
    }
}

#[test]
fn run_time_errors_are_reported() {
    check(
        json!({"rule": "self.i > 1"}),
        json!({}),
        expect![[r#"<nil>: Invalid value: "object": no such key: i evaluating rule: self.i > 1"#]],
    );
    check(
        json!({"rule": "self.l[0] == 1"}),
        json!({"l": []}),
        expect![[
            r#"<nil>: Invalid value: "object": index out of bounds: 0 evaluating rule: self.l[0] == 1"#
        ]],
    );
    check(
        json!({"rule": "1 / self.i == 1"}),
        json!({"i": 0}),
        expect![[
            r#"<nil>: Invalid value: "object": division by zero evaluating rule: 1 / self.i == 1"#
        ]],
    );
    check(
        json!({"rule": "self.i + 1 > 0"}),
        json!({"i": i64::MAX}),
        expect![[
            r#"<nil>: Invalid value: "object": integer overflow evaluating rule: self.i + 1 > 0"#
        ]],
    );
    check(
        json!({"rule": "self.io > 5"}),
        json!({"io": "x"}),
        expect![[
            r#"<nil>: Invalid value: "object": 'no such overload: _>_(string, int)': call arguments did not match a supported operator, function or macro signature for rule: self.io > 5"#
        ]],
    );
    check(
        json!({"rule": "self."}),
        json!({}),
        expect![[
            r#"<nil>: Invalid value: "object": rule compile error: compilation failed: Syntax error: no viable alternative at input '.'"#
        ]],
    );
}

#[test]
fn rules_wait_for_a_valid_object() {
    check(
        json!({"rule": "self.i > 1"}),
        json!({"i": "x"}),
        expect![[r#"
        i: Invalid value: "string": i in body must be of type integer: "string"
        <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"#]],
    );
}

#[test]
fn rules_stand_on_any_level() {
    let schema = json!({"type": "object", "properties": {
        "scalar": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'x'"}]},
        "list": {"type": "array", "x-kubernetes-validations": [{"rule": "self.size() < 2"}],
            "items": {"type": "object", "properties": {
                "x": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}}}},
        "map": {"type": "object", "additionalProperties": {"type": "string",
            "x-kubernetes-validations": [{"rule": "self != ''"}]}},
        "n": {"type": "string", "nullable": true, "x-kubernetes-validations": [{"rule": "self == 'x'"}]},
    }});
    let value = json!({"scalar": "y", "list": [{"x": 1}, {"x": 0}], "map": {"k": ""}, "n": null});
    expect![[r#"
        list: Invalid value: failed rule: self.size() < 2
        list[1].x: Invalid value: 0: failed rule: self > 0
        map[k]: Invalid value: "": failed rule: self != ''
        scalar: Invalid value: "y": failed rule: self == 'x'"#]]
    .assert_eq(&validate(&schema, &value, None));
}

#[test]
fn transition_rules_need_an_old_value() {
    let schema = json!({"type": "object", "properties": {
        "f": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"},
            "v": {"type": "number", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}},
        "opt": {"type": "string", "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true}]},
    }});
    let check = |new: Value, old: Option<Value>, expect: Expect| {
        expect.assert_eq(&validate(&schema, &new, old.as_ref()));
    };
    check(json!({"f": "y"}), None, expect![[""]]);
    check(json!({"f": "y"}), Some(json!({})), expect![[""]]);
    check(json!({"f": "y"}), Some(json!({"f": "y"})), expect![[""]]);
    check(
        json!({"f": "y"}),
        Some(json!({"f": "x"})),
        expect![[r#"f: Invalid value: "y": failed rule: self == oldSelf"#]],
    );
    let list = |v: f64| json!({"list": [{"k": "other", "v": 0}, {"k": "a", "v": v}]});
    check(list(1.2), Some(json!({"list": [{"k": "a", "v": 1.0}]})), expect![[""]]);
    check(
        list(0.9),
        Some(json!({"list": [{"k": "a", "v": 1.0}]})),
        expect!["list[1].v: Invalid value: 0.9: failed rule: self >= oldSelf"],
    );
    check(
        json!({"opt": "second"}),
        None,
        expect![[
            r#"opt: Invalid value: "second": failed rule: oldSelf.hasValue() || self == 'first'"#
        ]],
    );
    check(json!({"opt": "second"}), Some(json!({"opt": "first"})), expect![[""]]);
    check(json!({"opt": "first"}), None, expect![[""]]);
}

#[test]
fn failures_in_unchanged_values_are_forgiven() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'x'"}]},
        "list": {"type": "array", "items": {"type": "string",
            "x-kubernetes-validations": [{"rule": "self == 'x'"}]}},
        "b": {"type": "string"},
    }});
    let old = json!({"a": "bad", "list": ["bad"], "b": "1"});
    let check = |new: Value, expect: Expect| expect.assert_eq(&validate(&schema, &new, Some(&old)));
    check(json!({"a": "bad", "list": ["bad"], "b": "2"}), expect![[""]]);
    check(
        json!({"a": "worse", "list": ["bad"], "b": "2"}),
        expect![[r#"a: Invalid value: "worse": failed rule: self == 'x'"#]],
    );
    check(
        json!({"a": "bad", "list": ["bad", "x"], "b": "2"}),
        expect![[r#"list[0]: Invalid value: "bad": failed rule: self == 'x'"#]],
    );
}

#[test]
fn hostile_objects_cannot_burn_the_server() {
    let rule = "self.l.all(x, self.l.all(y, self.l.all(z, x + y + z >= 0)))";
    let list: Vec<i32> = vec![1; 10_000];
    let text = validate(&schema(json!({"rule": rule})), &json!({"l": list}), None);
    expect![[r#"<nil>: Invalid value: "object": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.l.all(x, self.l.all(y, self.l.all(z, x + y + z >= 0)))"#]].assert_eq(&text);
    let many = json!({"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.map(x, x).map(x, x).all(x, x > 0)"}]}}}});
    let rows = vec![vec![1; 1000]; 2000];
    let text = validate(&many, &json!({"l": rows}), None);
    assert!(
        text.ends_with(
            "validation failed due to running out of cost budget, no further validation rules will \
         be run"
        ),
        "{text}"
    );
}

#[test]
fn compiled_schemas_go_between_threads() {
    fn check<T: Send + Sync + Clone>(_: &T) {}
    let compiled = Compiled::new(crate::parse(&schema(json!({"rule": "self.i > 0"}))).unwrap());
    check(&compiled);
    let other = compiled.clone();
    let errors = std::thread::spawn(move || other.validate(&json!({"i": 0}), None)).join().unwrap();
    assert_eq!(errors.len(), 1);
}

/// [`schema`] with bounds, so that cost is no issue.
fn bounded(rule: Value) -> crate::Schema {
    let mut schema = schema(rule);
    for (_, property) in schema["properties"].as_object_mut().unwrap() {
        property["maxItems"] = 100.into();
        property["maxLength"] = 100.into();
        property["maxProperties"] = 100.into();
    }
    crate::parse(&schema).unwrap()
}

fn admit(rule: Value, expect: Expect) {
    expect.assert_eq(&texts(&check_rules(&bounded(rule), &Path::Root)));
}

#[test]
fn rules_that_work_are_admitted() {
    for rule in [
        "self.i == 5",
        "self.metadata.name == 'x'",
        "self.o.__namespace__ == ''",
        "self.l.all(x, x > 1)",
        "self.objs.exists(o, o.name == 'a')",
        "self.?i.hasValue()",
        "has(self.t) && self.t > timestamp('2024-01-01T00:00:00Z')",
        "self.m.all(k, k != '')",
        "cel.bind(x, self.i, x > 1)",
        "self.io == 5 || self.io == 'x'",
        "self.d > 1",
        "self.i > 1.5",
        "self.objs.map(o, o.name).exists(n, n == 'x')",
        "self.n == null",
        "self.l.all(i, v, i > v)",
        "self.set.isSorted()",
        "sets.contains(self.ls, ['a'])",
        "self.s.split(',').all(p, p.size() > 1)",
        "self.t - self.t < duration('1h')",
        "[1, 2].exists(x, x == self.i)",
        "(self.i > 1 ? self.s : 'x') == 'x'",
        "self.m.exists(k, self.m[k] == 'x')",
        "type(self.io) == int",
    ] {
        let errors = check_rules(&bounded(json!({"rule": rule})), &Path::Root);
        assert_eq!(texts(&errors), "", "{rule}");
    }
}

#[test]
fn rules_that_cannot_work_are_refused() {
    admit(
        json!({"rule": "self.i =="}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.i ==": compilation failed: ERROR: <input>:1:10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
         | self.i ==
         | .........^"#]],
    );
    admit(
        json!({"rule": "self.x == 1"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.x == 1": compilation failed: ERROR: <input>:1:5: undefined field 'x'
         | self.x == 1
         | ....^"#]],
    );
    admit(
        json!({"rule": "self.o.z == 1 && self.objs.all(o, o.z)"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.o.z == 1 && self.objs.all(o, o.z)": compilation failed: ERROR: <input>:1:7: undefined field 'z'
         | self.o.z == 1 && self.objs.all(o, o.z)
         | ......^"#]],
    );
    admit(
        json!({"rule": "self.metadata.labels.size() == 0"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.metadata.labels.size() == 0": compilation failed: ERROR: <input>:1:14: undefined field 'labels'
         | self.metadata.labels.size() == 0
         | .............^"#]],
    );
    admit(
        json!({"rule": "other == 1"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "other == 1": compilation failed: ERROR: <input>:1:1: undeclared reference to 'other' (in container '')
         | other == 1
         | ^"#]],
    );
    admit(
        json!({"rule": "foo(self.i)"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "foo(self.i)": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')
         | foo(self.i)
         | ^"#]],
    );
    admit(
        json!({"rule": "self.i.foo()"}),
        expect![[r#"
            x-kubernetes-validations[0].rule: Invalid value: "self.i.foo()": compilation failed: ERROR: <input>:1:7: undeclared reference to 'foo' (in container '')
             | self.i.foo()
             | ......^"#]],
    );
    admit(
        json!({"rule": "self.i"}),
        expect![[
            r#"x-kubernetes-validations[0].rule: Invalid value: "self.i": cel expression must evaluate to a bool"#
        ]],
    );
    admit(
        json!({"rule": "self.i == 'x'"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.i == 'x'": compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'
         | self.i == 'x'
         | .......^"#]],
    );
    admit(
        json!({"rule": "self.i < self.s"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.i < self.s": compilation failed: ERROR: <input>:1:8: found no matching overload for '_<_' applied to '(int, string)'
         | self.i < self.s
         | .......^"#]],
    );
    admit(
        json!({"rule": "self.i + self.s == 1"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.i + self.s == 1": compilation failed: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(int, string)'
         | self.i + self.s == 1
         | .......^"#]],
    );
    admit(
        json!({"rule": "self.i && true"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.i && true": compilation failed: ERROR: <input>:1:8: found no matching overload for '_&&_' applied to '(int, bool)'
         | self.i && true
         | .......^"#]],
    );
    admit(
        json!({"rule": "self.i.x == 1"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.i.x == 1": compilation failed: ERROR: <input>:1:7: type 'int' does not support field selection
         | self.i.x == 1
         | ......^"#]],
    );
    admit(
        json!({"rule": "self.o.all(x, true)"}),
        expect![[r#"
        x-kubernetes-validations[0].rule: Invalid value: "self.o.all(x, true)": compilation failed: ERROR: <input>:1:1: expression of type 'object' cannot be range of a comprehension (must be list, map, or dynamic)
         | self.o.all(x, true)
         | ^"#]],
    );
    admit(
        json!({"rule": "true", "messageExpression": "self.x"}),
        expect![[r#"
        x-kubernetes-validations[0].messageExpression: Invalid value: "self.x": messageExpression compilation failed: ERROR: <input>:1:5: undefined field 'x'
         | self.x
         | ....^"#]],
    );
    admit(
        json!({"rule": "true", "messageExpression": "1"}),
        expect![[
            r#"x-kubernetes-validations[0].messageExpression: Invalid value: "1": messageExpression must evaluate to a string"#
        ]],
    );
    admit(
        json!({"rule": "true", "optionalOldSelf": true}),
        expect![
            "x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
        ],
    );
    admit(
        json!({"rule": "1".repeat(20_000)}),
        expect![[
            r#"x-kubernetes-validations[0].rule: Invalid value: "1111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111": compilation failed: ERROR: <input>:1:1: expression is longer than 16384 bytes"#
        ]],
    );
    admit(
        json!({"rule": format!("self.i{} > 0", " + 1".repeat(600))}),
        expect![[
            r#"x-kubernetes-validations[0].rule: Invalid value: "self.i + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 +": compilation failed: ERROR: <input>:1:1: expression has more than 500 operators"#
        ]],
    );
}

#[test]
fn deep_expressions_do_not_overflow_the_stack() {
    let rule = format!("self.i{} > 0", " + 1".repeat(490));
    let schema = schema(json!({"rule": rule}));
    assert_eq!(texts(&check_rules(&crate::parse(&schema).unwrap(), &Path::Root)), "");
    assert_eq!(validate(&schema, &json!({"i": 1}), None), "");
    let nested = |depth: usize| {
        let rule = format!("{}self.b{}", "!(".repeat(depth), ")".repeat(depth));
        crate::parse(&self::schema(json!({"rule": rule}))).unwrap()
    };
    assert_eq!(texts(&check_rules(&nested(40), &Path::Root)), "");
    let text = texts(&check_rules(&nested(41), &Path::Root));
    assert!(text.ends_with("expression nests more than 40 levels deep"), "{text}");
}

#[test]
fn old_self_needs_correlation() {
    let rule = json!([{"rule": "self == oldSelf"}]);
    let item = json!({"type": "string", "x-kubernetes-validations": rule});
    let check = |schema: Value, expect: Expect| {
        let schema = json!({"type": "object", "properties": {"f": schema}});
        let schema = crate::parse(&schema).unwrap();
        expect.assert_eq(&texts(&check_rules(&schema, &Path::Root)));
    };
    check(
        json!({"type": "array", "items": item}),
        expect![[r#"
        properties[f].items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within properties[f]
        properties[f].items.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        : Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
    check(
        json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": item}}),
        expect![[
            r#"properties[f].properties[a].x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within properties[f]"#
        ]],
    );
    check(
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": item}}}),
        expect![[r#"
            properties[f].items.properties[k].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
            properties[f].items.properties[k].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
            : Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
}

#[test]
fn expensive_rules_are_refused() {
    let check = |schema: Value, expect: Expect| {
        let schema = crate::parse(&schema).unwrap();
        expect.assert_eq(&texts(&check_rules(&schema, &Path::Root)));
    };
    let list = |most: Option<u64>, rule: &str| {
        json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
            "l": {"type": "array", "maxItems": most, "items": {"type": "integer"}}}})
    };
    let nested = "self.l.all(x, self.l.all(y, x == y))";
    check(list(None, "self.l.all(x, x > 0)"), expect![[""]]);
    check(
        list(None, nested),
        expect![[r#"
        x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        : Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
    check(list(Some(1000), nested), expect![[""]]);
    check(
        list(Some(1800), nested),
        expect![
            "x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.9x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
        ],
    );
    check(
        list(Some(5000), nested),
        expect![[r#"
        x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 15.0x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        : Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of 1.5x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
    check(
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string",
            "x-kubernetes-validations": [{"rule": "self.contains('abc')"}]}}}}),
        expect![[r#"
            properties[l].items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
            properties[l].items.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
            : Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
    check(
        json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 100,
            "items": {"type": "string", "maxLength": 64,
            "x-kubernetes-validations": [{"rule": "self.contains('abc')"}]}}}}),
        expect![[""]],
    );
    let properties: serde_json::Map<String, Value> = (0..12)
        .map(|index| {
            let field = json!({"type": "array", "maxItems": 1340, "items": {"type": "integer"},
                "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y))"}]});
            (format!("f{index:02}"), field)
        })
        .collect();
    check(
        json!({"type": "object", "properties": properties}),
        expect![[r#"
        properties[f00].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f01].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f02].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f03].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f04].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f05].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f06].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f07].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f08].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f09].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f10].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f11].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.078030x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        properties[f00].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        properties[f01].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        properties[f02].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        properties[f03].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        : Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of 1.293636x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
}
