//! Reading JSON and YAML bodies without losing what strict validation needs to know.
//!
//! `serde_json::Value` keeps the last of two equal keys and forgets that there
//! were two; clients that ask for strict validation expect a report, so the tree
//! is built by a visitor of our own that remembers their paths.

use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A parsed body and what strict validation says about keys that appeared twice.
#[derive(Debug, PartialEq)]
pub(crate) struct Parsed {
    pub value: Value,
    pub duplicates: Vec<String>,
    /// The text it was read from, where its order is known.
    pub source: Bytes,
}

impl Parsed {
    fn new(value: Value, duplicates: Vec<String>) -> Self {
        Self { value, duplicates, source: Bytes::new() }
    }
}

/// Sorts complaints that end in a quoted path by its place in the text, as upstream
/// finds them; a key that appears twice is noticed the second time.
pub(crate) fn in_order(source: &[u8], problems: &mut [String]) {
    let notes = RefCell::new(DecodeNotes { all: Some(Vec::new()), ..DecodeNotes::default() });
    let mut reader = serde_json::Deserializer::from_slice(source);
    if problems.len() < 2 || Tree(&notes).deserialize(&mut reader).is_err() {
        return;
    }
    let all = notes.into_inner().all.unwrap_or_default();
    problems.sort_by_cached_key(|problem| {
        let (word, rest) = problem.split_once(" field \"").unwrap_or(("", ""));
        let path = rest.trim_end_matches('"');
        let mut found = all.iter().enumerate().filter(|(_, known)| *known == path);
        let at = if word == "duplicate" { found.next_back() } else { found.next() };
        at.map_or(usize::MAX, |(index, _)| index)
    });
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("invalid JSON: {text}")]
    Json { text: String },
    #[error("invalid YAML: {text}")]
    Yaml { text: String },
}

pub(crate) fn json(bytes: &[u8]) -> Result<Parsed, ParseError> {
    let notes = RefCell::new(DecodeNotes::default());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Tree(&notes)
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| ParseError::Json { text: error.to_string() })?;
    let twice = notes.into_inner().duplicates;
    let duplicates = twice.into_iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    Ok(Parsed::new(value, duplicates))
}

/// YAML, of which JSON is a subset; kubectl sends JSON under a YAML media type.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Parsed, ParseError> {
    if bytes.trim_ascii_start().first() == Some(&b'{')
        && let Ok(parsed) = json(bytes)
    {
        return Ok(parsed);
    }
    let text =
        std::str::from_utf8(bytes).map_err(|error| ParseError::Yaml { text: error.to_string() })?;
    match serde_saphyr::from_str::<Value>(text) {
        Ok(value) => Ok(Parsed::new(value, Vec::new())),
        Err(error) => yaml_with_duplicates(text, &error),
    }
}

/// Reads again, the last of two equal keys winning, if they are all that is wrong. Only
/// the first of them is reported; its place is a line, as upstream gives it.
fn yaml_with_duplicates(text: &str, error: &serde_saphyr::Error) -> Result<Parsed, ParseError> {
    use serde_saphyr::{DuplicateKeyPolicy, Error};
    let Error::DuplicateMappingKey { key, location } = error.without_snippet() else {
        return Err(ParseError::Yaml { text: error.to_string() });
    };
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ParseError::Yaml { text: error.to_string() })?;
    let key = key.as_deref().unwrap_or_default();
    let line = location.line();
    let duplicate =
        format!("yaml: unmarshal errors:\n  line {line}: key {key:?} already set in map");
    Ok(Parsed::new(value, vec![duplicate]))
}

#[derive(Default)]
struct DecodeNotes {
    path: String,
    duplicates: Vec<String>,
    /// Every path in its order, if the caller needs them.
    all: Option<Vec<String>>,
}

struct Tree<'a>(&'a RefCell<DecodeNotes>);

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let before = self.0.borrow().path.len();
        let mut list = Vec::new();
        loop {
            {
                use fmt::Write as _;
                let mut notes = self.0.borrow_mut();
                notes.path.truncate(before);
                let _ = write!(notes.path, "[{}]", list.len());
            }
            match items.next_element_seed(Tree(self.0))? {
                Some(item) => list.push(item),
                None => break,
            }
        }
        self.0.borrow_mut().path.truncate(before);
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let before = self.0.borrow().path.len();
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            {
                let mut notes = self.0.borrow_mut();
                notes.path.truncate(before);
                if before > 0 {
                    notes.path.push('.');
                }
                notes.path.push_str(&key);
                let DecodeNotes { path, duplicates, all } = &mut *notes;
                if let Some(all) = all {
                    all.push(path.clone());
                }
                if map.contains_key(&key) {
                    duplicates.push(path.clone());
                }
            }
            if map.len() > MOST_KEYS {
                return Err(A::Error::custom("object has too many fields"));
            }
            let value = entries.next_value_seed(Tree(self.0))?;
            map.insert(key, value);
        }
        self.0.borrow_mut().path.truncate(before);
        Ok(Value::Object(map))
    }
}

/// Far beyond any real object; bounds what a hostile body of 3 MiB can make us build.
const MOST_KEYS: usize = 100_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicates_are_found_at_any_depth_and_the_last_wins() {
        let parsed = json(br#"{"a":1,"spec":{"l":[{"x":1,"x":2}],"y":1,"y":3},"a":4}"#).unwrap();
        let paths = ["spec.l[0].x", "spec.y", "a"];
        assert_eq!(parsed.duplicates, paths.map(|path| format!("duplicate field \"{path}\"")));
        assert_eq!(parsed.value, json!({"a":4,"spec":{"l":[{"x":2}],"y":3}}));
    }

    #[test]
    fn integers_and_floats_stay_apart() {
        let parsed = json(br#"{"i":9007199254740993,"f":1.0}"#).unwrap();
        assert_eq!(parsed.value.to_string(), r#"{"f":1.0,"i":9007199254740993}"#);
    }

    #[test]
    fn garbage_and_deep_nesting_are_errors() {
        assert!(json(b"{").is_err());
        assert!(json(b"{} x").is_err());
        assert!(json("[".repeat(100_000).as_bytes()).is_err());
        assert!(yaml(b"a: [").is_err());
    }

    #[test]
    fn yaml_and_json_both_pass_as_yaml() {
        assert_eq!(yaml(b"a: 1\nb: [x]").unwrap().value, json!({"a":1,"b":["x"]}));
        assert_eq!(yaml(br#" {"a":1}"#).unwrap().value, json!({"a":1}));
        // YAML allows a trailing comma, JSON does not.
        assert_eq!(yaml(br#"{"a":{"b":1,},}"#).unwrap().value, json!({"a":{"b":1}}));
    }

    #[test]
    fn yaml_reports_the_line_of_a_duplicate() {
        let parsed = yaml(b"\na: 1\nspec:\n  foo: 1\n  foo: 2\n").unwrap();
        assert_eq!(parsed.value, json!({"a":1,"spec":{"foo":2}}));
        let line = "yaml: unmarshal errors:\n  line 5: key \"foo\" already set in map";
        assert_eq!(parsed.duplicates, [line]);
    }
}
