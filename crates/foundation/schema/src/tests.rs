//! Properties of the whole crate: nothing panics on anything, and what is cheap to say
//! about all results holds for all of them.

use serde_json::{Map, Value, json};

use super::*;

/// A small generator, so that a failing case is named by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        // SplitMix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % below
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.next(from.len() as u64) as usize]
    }

    fn scalar(&mut self) -> Value {
        match self.next(9) {
            0 => Value::Null,
            1 => json!(self.next(2) == 0),
            2 => json!(self.next(10) as i64 - 5),
            3 => json!(self.next(100) as f64 / 8.0),
            4 => json!(u64::MAX),
            5 => json!(1e300),
            6 => json!(self.pick(&["", "a", "é", "2024-01-01T00:00:00Z", "1h", "YQ==", "+"])),
            7 => json!(i64::MIN),
            _ => json!(self.pick(NAMES)),
        }
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.next(if depth == 0 { 1 } else { 4 }) {
            0 | 1 => self.scalar(),
            2 => (0..self.next(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let entry =
                    |random: &mut Self| (random.pick(NAMES).to_owned(), random.value(depth - 1));
                Value::Object((0..self.next(4)).map(|_| entry(self)).collect())
            }
        }
    }

    /// A schema, mostly sensible, with some nonsense strewn in.
    fn schema(&mut self, depth: u64) -> Value {
        let mut schema = Map::new();
        for _ in 0..self.next(5) {
            let keyword = self.pick(KEYWORDS);
            let value = match keyword {
                _ if self.next(20) == 0 => self.value(2),
                "type" => {
                    json!(self.pick(&["object", "array", "string", "integer", "number", "boolean"]))
                }
                "format" => json!(self.pick(&["int32", "date", "date-time", "duration", "byte"])),
                "pattern" => json!(self.pick(&["^a", "+", "[", "\\d", "a{2}", "{"])),
                "properties" if depth > 0 => {
                    let entry = |random: &mut Self| {
                        (random.pick(NAMES).to_owned(), random.schema(depth - 1))
                    };
                    Value::Object((0..self.next(4)).map(|_| entry(self)).collect())
                }
                "items" | "additionalProperties" | "not" if depth > 0 => self.schema(depth - 1),
                "allOf" | "anyOf" | "oneOf" if depth > 0 => {
                    (0..1 + self.next(2)).map(|_| self.schema(depth - 1)).collect()
                }
                "required" | "x-kubernetes-list-map-keys" => json!([self.pick(NAMES)]),
                "enum" => json!([self.scalar(), self.scalar()]),
                "default" => self.value(2),
                "x-kubernetes-list-type" => json!(self.pick(&["set", "map", "atomic"])),
                "x-kubernetes-map-type" => json!(self.pick(&["granular", "atomic"])),
                "x-kubernetes-validations" => json!([{
                    "rule": self.pick(RULES), "messageExpression": self.pick(RULES),
                    "fieldPath": self.pick(&[".a", "", "['b']", "x"]),
                }]),
                "minimum" | "maximum" | "multipleOf" => {
                    json!(self.next(10) as f64 / 2.0 - 1.0)
                }
                keyword if keyword.starts_with("m") => json!(self.next(3)),
                _ => json!(true),
            };
            schema.insert(keyword.to_owned(), value);
        }
        Value::Object(schema)
    }
}

const NAMES: &[&str] =
    &["a", "b", "metadata", "kind", "apiVersion", "name", "labels", "spec", "__a", "a-b"];
const KEYWORDS: &[&str] = &[
    "type",
    "type",
    "type",
    "properties",
    "properties",
    "items",
    "additionalProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "required",
    "enum",
    "default",
    "nullable",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "exclusiveMinimum",
    "uniqueItems",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];
const RULES: &[&str] = &[
    "self == oldSelf",
    "self.a > 1",
    "self.all(x, x == self)",
    "self.b.map(x, x.a)[0] == 'a'",
    "self + self == self",
    "self.size() > 0 && self.matches('a')",
    "has(self.a.b)",
    "self.",
    "self[0] in self[1]",
    "cel.bind(x, self, x < x)",
    "self.?a.orValue(self) == self",
    "self.split('').sum() == 1",
    "'%s'.format([self])",
    "type(self) == string",
    "duration(self) > self",
    "-self % 0 == 1",
    "self.sortBy(x, x) != []",
];

fn exercise(seed: u64) {
    let mut random = Random(seed);
    let raw = random.schema(3);
    let _ = (unknown_fields(&raw), to_openapi_v2(&raw), to_openapi_v3(&raw));
    let _ = (check_structural(&raw, &Path::Root), check_status_root(&raw, &Path::Root));
    let Ok(schema) = parse(&raw) else { return };
    let compiled = Compiled::new(schema.clone());
    let old = random.value(4);
    for level in [ObjectLevel::Root, ObjectLevel::Field] {
        let mut value = random.value(4);
        let _ = coerce_metadata(&mut value, &schema, level, Malformed::Drop);
        prune(&mut value, &schema, level);
        let again = prune(&mut value, &schema, level);
        assert_eq!(again, [""; 0], "seed {seed}: pruning twice is pruning once");
        default(&mut value, &schema);
        let filled = value.clone();
        default(&mut value, &schema);
        assert_eq!(value, filled, "seed {seed}: defaulting twice is defaulting once");
        let _ = compiled.validate(&value, None);
        let _ = compiled.validate(&value, Some(&old));
        let _ = validate(&value, Some(&value), &schema);
    }
}

#[test]
fn nothing_panics_on_anything() {
    for seed in 0..4000 {
        exercise(seed);
    }
}

#[test]
fn the_deepest_schemas_and_values_fit_on_the_stack() {
    let rule = json!([{"rule": "self == oldSelf || true"}]);
    let mut raw = json!({"type": "integer", "x-kubernetes-validations": rule, "default": 1});
    let mut value = json!(1);
    for level in 1..MAX_DEPTH {
        if level % 2 == 0 {
            raw = json!({"type": "object", "properties": {"a": raw}, "x-kubernetes-validations": rule});
            value = json!({"a": value});
        } else {
            raw = json!({"type": "array", "items": raw});
            value = json!([value]);
        }
    }
    let _ = check_structural(&raw, &Path::Root);
    let compiled = Compiled::new(parse(&raw).unwrap());
    assert_eq!(compiled.validate(&value, Some(&value)), []);
    let mut copy = value.clone();
    default(&mut copy, compiled.schema());
    assert_eq!(prune(&mut copy, compiled.schema(), ObjectLevel::Field), [""; 0]);
    assert_eq!(copy, value);
    let _ = to_openapi_v2(&raw);
}

#[test]
fn nodes_stay_small() {
    assert!(size_of::<SchemaNode>() <= 112, "{}", size_of::<SchemaNode>());
}
