//! The meaning of rules upstream, group by group: each is accepted, and true on its object.

use serde_json::{Map, Value, json};

use super::super::*;
use crate::field::Path;

/// Fields `v1`, `v2`… with these schemas and values.
fn numbered(fields: &[(Value, Value)]) -> (Value, Value) {
    let name = |index: usize| format!("v{}", index + 1);
    let schemas: Map<String, Value> = fields
        .iter()
        .enumerate()
        .map(|(index, (schema, _))| (name(index), schema.clone()))
        .collect();
    let values: Map<String, Value> =
        fields.iter().enumerate().map(|(index, (_, value))| (name(index), value.clone())).collect();
    (json!({"type": "object", "properties": schemas}), Value::Object(values))
}

fn outcome(schema: &Value, value: &Value, rule: &str) -> String {
    let mut schema = schema.clone();
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    let schema = crate::parse(&schema).unwrap();
    let mut errors = check_rules(&schema, &Path::Root);
    // Cost has tests of its own; these schemas are without bounds.
    errors.retain(|error| error.reason != crate::Reason::Forbidden);
    if errors.is_empty() {
        errors = Compiled::new(schema).check_rules(value, None, &Path::Root);
    }
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn holds((schema, value): (Value, Value), rules: &[&str]) {
    let wrong: Vec<String> = rules
        .iter()
        .map(|rule| (rule, outcome(&schema, &value, rule)))
        .filter(|(_, text)| !text.is_empty())
        .map(|(rule, text)| format!("{rule}\n    {text}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn fails((schema, value): (Value, Value), rules: &[(&str, &str)]) {
    for (rule, text) in rules {
        let found = outcome(&schema, &value, rule);
        assert!(found.contains(text), "{rule}\n    {found}");
    }
}

fn typed(ty: &str) -> Value {
    json!({"type": ty})
}

fn text(format: &str) -> Value {
    json!({"type": "string", "format": format})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

#[test]
fn integers() {
    let group = || numbered(&[(typed("integer"), json!(i64::MAX)), (typed("integer"), json!(5))]);
    holds(
        group(),
        &[
            "self.v1 == 9223372036854775807",
            "self.v1 == self.v1 && self.v1 != self.v2",
            "type(self.v1) == int",
        ],
    );
    fails(
        group(),
        &[("self.v1 + 1 == 0", "integer overflow"), ("1 / 0 == 1 / 0", "division by zero")],
    );
}

#[test]
fn numbers() {
    holds(
        numbered(&[
            (typed("integer"), json!(5)),
            (typed("integer"), json!(10)),
            (typed("number"), json!(10.0)),
            (typed("number"), json!(10)),
        ]),
        &[
            "type(self.v3) == double && type(self.v4) == double",
            "double(self.v1) < self.v3 && double(self.v2) == self.v3",
            "self.v1 < int(self.v3) && self.v2 == int(self.v3)",
            "self.v1 < self.v3 && self.v2 <= self.v4 && self.v2 >= self.v4",
            "5 < 10.0 && 15 > 10.0 && double(10) == 10.0",
        ],
    );
}

#[test]
fn texts() {
    holds(
        numbered(&[(typed("string"), json!("Rook takes 👑"))]),
        &[
            "self.v1.startsWith('Rook') && !self.v1.startsWith('knight')",
            "self.v1.contains('takes') && self.v1.endsWith('👑')",
            "self.v1.matches('^[^0-9]*$') && !self.v1.matches('^[0-9]*$')",
            "size(self.v1) == 12",
            "self.v1.charAt(3) == 'k'",
            "self.v1.indexOf('o') == 1 && self.v1.indexOf('o', 2) == 2",
            "self.v1.replace(' ', 'x') == 'Rookxtakesx👑'",
            "self.v1.replace(' ', 'x', 1) == 'Rookxtakes 👑'",
            "self.v1.split(' ') == ['Rook', 'takes', '👑']",
            "self.v1.split(' ', 2) == ['Rook', 'takes 👑']",
            "self.v1.substring(5) == 'takes 👑' && self.v1.substring(0, 4) == 'Rook'",
            "self.v1.substring(4, 10).trim() == 'takes'",
            "self.v1.upperAscii() == 'ROOK TAKES 👑' && self.v1.lowerAscii() == 'rook takes 👑'",
            "'%o %o %o'.format([7, 8, 9]) == '7 10 11' && '%b'.format([7]) == '111'",
        ],
    );
    holds(numbered(&[(typed("string"), json!("l1\nl2"))]), &["self.v1 == 'l1\\nl2'"]);
    fails(
        numbered(&[(typed("string"), json!(""))]),
        &[(
            "self.v1.matches(')')",
            "compilation failed: ERROR: <input>:1:17: invalid matches argument",
        )],
    );
}

#[test]
fn bytes_durations_and_times() {
    holds(
        numbered(&[(text("byte"), json!("QUI="))]),
        &[
            "self.v1 == b'AB' && self.v1 == bytes('AB')",
            "type(self.v1) == bytes && size(self.v1) == 2",
        ],
    );
    holds(
        numbered(&[(text("duration"), json!("1h2m3s4ms"))]),
        &[
            "self.v1 == duration('1h2m') + duration('3s4ms')",
            "self.v1.getHours() == 1 && self.v1.getMinutes() == 62 && self.v1.getSeconds() == 3723",
            "type(self.v1) == google.protobuf.Duration",
        ],
    );
    fails(
        numbered(&[(text("duration"), json!("1h"))]),
        &[("duration('1') == self.v1", "<input>:1:10: invalid duration argument")],
    );
    holds(
        numbered(&[(text("date"), json!("1997-07-16"))]),
        &[
            "self.v1 == timestamp('1997-07-16T00:00:00.000Z')",
            "self.v1.getDate() == 16 && self.v1.getMonth() == 6 && self.v1.getFullYear() == 1997",
            "type(self.v1) == google.protobuf.Timestamp",
        ],
    );
    holds(
        numbered(&[(text("date-time"), json!("2011-08-18T19:03:37.010000000+01:00"))]),
        &[
            "self.v1 == timestamp('2011-08-18T19:03:37.010+01:00')",
            "self.v1 == timestamp('2011-08-18T00:00:00.000+01:00') + duration('19h3m37s10ms')",
        ],
    );
}

#[test]
fn conversions() {
    holds(
        numbered(&[
            (typed("integer"), json!(10)),
            (typed("number"), json!(10.0)),
            (typed("number"), json!(10.49)),
            (typed("boolean"), json!(true)),
            (typed("string"), json!("10")),
            (text("byte"), json!("MTA=")),
            (typed("string"), json!("1h2m3s4ms")),
            (text("duration"), json!("1h2m3s4ms")),
        ]),
        &[
            "int(self.v2) == self.v1 && int(self.v3) == self.v1 && int(self.v5) == self.v1",
            "double(self.v1) == self.v2 && double(self.v5) == self.v2",
            "bytes(self.v5) == self.v6 && string(self.v6) == self.v5",
            "string(self.v1) == self.v5 && string(self.v2) == '10' && string(self.v3) == '10.49'",
            "string(self.v4) == 'true' && bool('true') == self.v4",
            "duration(self.v7) == self.v8",
        ],
    );
}

#[test]
fn lists() {
    let group = || {
        let numbers = (list(typed("integer")), json!([1, 2, 3]));
        numbered(&[numbers.clone(), numbers])
    };
    holds(
        group(),
        &[
            "1 in self.v1 && self.v2[0] in self.v1 && !(0 in self.v1)",
            "self.v1 + self.v2 == [1, 2, 3, 1, 2, 3] && self.v1 + [4, 5] == [1, 2, 3, 4, 5]",
            "lists.range(4) == [0, 1, 2, 3] && lists.range(0) == []",
            "[5, 1, 2, 3].reverse() == [3, 2, 1, 5] && [].reverse() == []",
            "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1, 2, 3, 4].slice(4, 4) == []",
            "[4, 3, 2, 1].sort() == [1, 2, 3, 4] && ['d', 'a'].sort() == ['a', 'd']",
            "[-3, 1, -5, -2, 4].sortBy(e, -(e * e)) == [-5, 4, -3, -2, 1]",
            "['a', 'c', 'b', 'first'].sortBy(e, e == 'first' ? '' : e) == ['first', 'a', 'b', 'c']",
            "[-2, 5, -2, 1, 1, 5].distinct() == [-2, 5, 1]",
            "[[1], [2], [3, 4]].flatten() == [1, 2, 3, 4]",
            "['a', 'b', 'c'].join('-') == 'a-b-c' && ['a', 'b'].join() == 'ab'",
        ],
    );
    fails(
        group(),
        &[
            (
                "[1, 'a', false].filter(x, string(x) == 'a') == []",
                "expected type 'int' but found 'string'",
            ),
            ("self.v1[100] == 0", "index out of bounds: 100"),
        ],
    );
}

#[test]
fn sets() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": typed("string")});
    holds(
        numbered(&[(set.clone(), json!(["a", "b", "c"])), (set, json!(["a", "c", "b"]))]),
        &[
            "self.v1 == ['c', 'b', 'a'] && self.v1 == self.v2",
            "self.v2[0] in self.v1 && !('x' in self.v1)",
            "self.v1 + self.v2 == ['a', 'b', 'c']",
            "self.v1 + ['c', 'd'] == ['a', 'b', 'c', 'd']",
            "sets.contains(['a', 'b'], []) && !sets.contains(['a', 'b'], ['c'])",
            "sets.equivalent(['c', 'b', 'a'], ['b', 'c', 'a']) && !sets.intersects([], [])",
            "sets.intersects([1, 2], [2]) && sets.contains([[1, 2], [3, 4]], [[3, 4]])",
            "sets.contains([{'a': 1}, {'b': 2}], [{'b': 2}])",
        ],
    );
}

#[test]
fn list_maps() {
    let item = json!({"type": "object", "properties": {
        "k": typed("string"), "v": typed("string"), "v2": typed("string")}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"], "items": item});
    let group = || {
        let (map, item) = (&map, |k: &str, v: &str| json!({"k": k, "v": v}));
        numbered(&[
            (map.clone(), json!([item("a", "1"), item("b", "2")])),
            (map.clone(), json!([item("b", "2"), item("a", "1")])),
            (map.clone(), json!([item("b", "3"), item("a", "1")])),
            (map.clone(), json!([item("c", "4")])),
            (
                map.clone(),
                json!([item("a1", "b1"), item("a2", "b2"), {"k": "a3", "v": "b3", "v2": "z"}]),
            ),
        ])
    };
    holds(
        group(),
        &[
            "self.v1 == self.v2",
            "self.v1 + self.v3 == self.v3 && self.v3 + self.v1 == self.v1",
            "self.v1 == [self.v1[0], self.v1[1]] && self.v1 == [self.v1[1], self.v1[0]]",
            "self.v3 + [self.v1[0], self.v1[1]] == self.v1",
            "size(self.v1 + [self.v4[0]]) == 3",
            "has(self.v5[0].v) && self.v5.all(m, m.k.startsWith('a'))",
            "self.v5.all(m, !has(m.v2) || m.v2 == 'z') && self.v5.exists_one(m, m.k == 'a3')",
            "self.v5.exists(m, m.v2 == 'z') && !self.v5.all(m, m.v2 != 'z')",
            "self.v5.map(m, has(m.v2) && m.v2 == 'z', m.v2).size() == 1",
            "self.v5.existsOne(i, m, has(m.v2) && m.v2 == 'z')",
            "self.v5.transformList(i, m, has(m.v2) && m.v2 == 'z', m.v2).size() == 1",
        ],
    );
    fails(
        group(),
        &[
            ("self.v1 == {'k': 'a', 'v': '1'}", "no matching overload for '_==_'"),
            ("self.v5.all(m, m.v2 == 'z')", "no such key: v2"),
            ("self.v5.exists_one(m, m.v2 == 'z')", "no such key: v2"),
            ("self.v5.filter(m, m.v2 == 'z').size() == 1", "no such key: v2"),
            ("self.v5.map(m, m.v2).size() == 1", "no such key: v2"),
        ],
    );
}

#[test]
fn maps() {
    let map = |values: Value| json!({"type": "object", "additionalProperties": values});
    let group = || {
        numbered(&[
            (map(typed("string")), json!({"k1": "a", "k2": "b"})),
            (map(typed("integer")), json!({"b": 1, "d": 2})),
        ])
    };
    holds(
        group(),
        &[
            "'k1' in self.v1 && !('k3' in self.v1) && self.v1 == {'k1': 'a', 'k2': 'b'}",
            "!has(self.v2.a) && has(self.v2.b)",
            "self.v2.all(k, self.v2[k] > 0) && self.v2.exists_one(k, self.v2[k] == 2)",
            "self.v2.map(k, self.v2[k]).exists(v, v == 1)",
            "size(self.v2.filter(k, self.v2[k] > 1)) == 1",
            "self.v2.all(k, v, v > 0) && self.v2.existsOne(k, v, v == 2)",
            "self.v2.transformMap(k, v, v > 1, v + 1).size() == 1",
            "self.v2.transformMapEntry(k, v, v > 1, {k + '2': v + 1}).size() == 1",
            "self.v2.transformMapEntry(k, v, {k + '2': v + 1}).size() == 2",
        ],
    );
    fails(
        group(),
        &[
            ("self.v2['c'] == 1", "no such key: c"),
            ("{'k1': 'a', 'k2': 1} == {}", "expected type 'string' but found 'int'"),
        ],
    );
}

#[test]
fn objects() {
    let object = |fields: Value| json!({"type": "object", "properties": fields});
    let a = object(json!({"b": typed("integer"), "c": typed("integer"),
        "d": {"type": "integer", "nullable": true}}));
    let a1 = object(json!({"b1": object(json!({"c1": typed("integer")})),
        "d2": object(json!({"e2": typed("integer")}))}));
    let group = || {
        (
            object(json!({"a": a, "a1": a1})),
            json!({"a": {"b": 1, "d": null}, "a1": {"b1": {"c1": 4}}}),
        )
    };
    holds(
        group(),
        &[
            "has(self.a.b) && !has(self.a.c) && !has(self.a.d)",
            "has(self.a1.b1.c1) && !has(self.a1.d2)",
            "!(has(self.a1.d2) && has(self.a1.d2.e2))",
        ],
    );
    fails(
        group(),
        &[
            ("has(self.a.z)", "undefined field 'z'"),
            ("self.a['b'] == 1", "no matching overload for '_[_]'"),
            ("has(self.a1.d2.e2)", "no such key: d2"),
            ("self.a == {'b': 1}", "no matching overload for '_==_'"),
        ],
    );
}

#[test]
fn embedded_resources_show_their_metadata() {
    let schema = json!({"type": "object", "properties": {"e": {"type": "object",
        "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object",
        "properties": {"f": typed("string")}}}}}});
    let value = json!({"e": {"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "foo", "namespace": "xyz"}, "spec": {"f": "a"}}});
    holds(
        (schema.clone(), value.clone()),
        &[
            "self.e.kind == 'Pod' && self.e.apiVersion == 'v1' && self.e.metadata.name == 'foo'",
            "self.e.spec.f == 'a' && !has(self.e.metadata.generateName)",
        ],
    );
    fails((schema, value), &[("has(self.e.metadata.namespace)", "undefined field 'namespace'")]);
}
