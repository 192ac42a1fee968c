//! `managers.txt`: series of writes by several managers.

use std::collections::BTreeMap;
use std::sync::Arc;

use merge::{
    ApplyError, MergeRequest, Set, apply, extract_items, merge as merge_values, track_update,
};
use schema::{Schema, SchemaNode};
use serde_json::{Map, Value, json};

use super::form::schema;
use super::json as parse;

/// The object under test, as it is stored.
struct State {
    schema: Schema,
    live: Option<Value>,
    ignored: Set,
}

/// The type of the table with what every object has.
fn with_metadata(form: &Schema) -> Schema {
    let mut node = SchemaNode::clone(form);
    if node.properties.is_empty() && node.preserve_unknown {
        return Arc::new(node);
    }
    let text = schema(&json!({"type": "string"}));
    let metadata = schema(&json!({"type": "object", "properties": {"name": {"type": "string"}}}));
    let mut properties = node.properties.to_vec();
    properties.push(("apiVersion".into(), Arc::clone(&text)));
    properties.push(("kind".into(), text));
    properties.push(("metadata".into(), metadata));
    properties.sort_by(|left, right| left.0.cmp(&right.0));
    node.properties = properties.into();
    Arc::new(node)
}

fn whole(content: &Value, version: &str) -> Value {
    let mut object = content.as_object().cloned().unwrap_or_default();
    object.insert("apiVersion".to_owned(), version.into());
    object.insert("kind".to_owned(), "Thing".into());
    object.insert("metadata".to_owned(), json!({"name": "one"}));
    Value::Object(object)
}

fn content(object: Option<&Value>) -> Value {
    let mut fields: Map<String, Value> =
        object.and_then(Value::as_object).cloned().unwrap_or_default();
    for name in ["apiVersion", "kind", "metadata"] {
        fields.remove(name);
    }
    Value::Object(fields)
}

impl State {
    fn request<'a>(&'a self, manager: &'a str, version: &'a str) -> MergeRequest<'a> {
        MergeRequest {
            manager,
            subresource: "",
            api_version: version,
            kind: "Thing",
            now: "2026-01-02T03:04:05Z",
            schema: &self.schema,
            reset: &self.ignored,
            versions: &[],
            blank: None,
        }
    }

    fn update(&mut self, manager: &str, version: &str, object: &Value) {
        let mut new = whole(object, version);
        track_update(self.live.as_ref(), &mut new, &self.request(manager, version));
        self.live = Some(new);
    }

    fn apply(
        &mut self,
        manager: &str,
        version: &str,
        object: &Value,
        force: bool,
    ) -> Result<(), ApplyError> {
        let config = whole(object, version);
        // The stored object is read in the version of the request.
        if let Some(live) = &mut self.live {
            live["apiVersion"] = version.into();
        }
        let request = self.request(manager, version);
        if let Some(object) = apply(self.live.as_ref(), &config, &request, force)? {
            self.live = Some(object);
        }
        Ok(())
    }

    /// Reads back what a manager owns, lays the object over it and applies both.
    fn extract(&mut self, manager: &str, version: &str, object: &Value) -> Result<(), ApplyError> {
        let Some(live) = &self.live else { return self.apply(manager, version, object, true) };
        let owned = self.owned().remove(manager).map(|(_, set)| set.leaves()).unwrap_or_default();
        let read = extract_items(&content(Some(live)), &owned, &self.schema);
        let config = merge_values(&read, object, &self.schema).unwrap().unwrap();
        self.apply(manager, version, &config, true)
    }

    fn owned(&self) -> BTreeMap<String, (String, Set)> {
        let entries = self.live.as_ref().map(|live| live["metadata"]["managedFields"].clone());
        let entries = entries.unwrap_or_default();
        entries.as_array().into_iter().flatten().map(owner).collect()
    }
}

fn owner(entry: &Value) -> (String, (String, Set)) {
    let text = |name: &str| entry[name].as_str().unwrap().to_owned();
    let set = Set::from_fields_v1(&entry["fieldsV1"]).unwrap();
    (text("manager"), (text("apiVersion"), set))
}

/// Runs one case; returns the difference from its expected result as an error.
fn run(schemas: &BTreeMap<&str, Schema>, lines: &[&str]) -> Result<(), String> {
    let named = |name: &str| with_metadata(&schemas[name]);
    let first: Vec<&str> = lines[0].splitn(3, ' ').collect();
    let mut state = State { schema: named(first[1]), live: None, ignored: Set::new() };
    let mut failed: Option<ApplyError> = None;
    let mut lines = lines[1..].iter().map(|line| line.trim()).peekable();
    while let Some(line) = lines.next() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let columns: Vec<&str> = rest.splitn(3, ' ').collect();
        match word {
            "schema" => state.schema = named(rest),
            "ignored" => state.ignored = Set::from_json(rest).unwrap(),
            "update" => state.update(columns[0], columns[1], &parse(columns[2])),
            "apply" | "force" | "extract" => {
                let (manager, version, object) = (columns[0], columns[1], parse(columns[2]));
                let outcome = match word {
                    "extract" => state.extract(manager, version, &object),
                    _ => state.apply(manager, version, &object, word == "force"),
                };
                let mut expected = Vec::new();
                while let Some(line) = lines.next_if(|line| line.starts_with("conflict ")) {
                    expected.push(line["conflict ".len()..].to_owned());
                }
                failed = check_outcome(outcome, expected)?;
            }
            "object" => {
                let found = content(state.live.as_ref());
                // Below the metadata, nothing at all is an empty object.
                let expected = if rest == "null" { json!({}) } else { parse(rest) };
                if found != expected {
                    return Err(format!("object\n  {found}\nnot\n  {expected}"));
                }
            }
            "managers" => {
                let count = state.owned().len();
                if count.to_string() != rest {
                    return Err(format!("{count} managers, not {rest}: {:?}", state.owned()));
                }
            }
            "owns" => check_owner(&state, &columns)?,
            "fails" => return if failed.is_some() { Ok(()) } else { Err("succeeded".to_owned()) },
            other => panic!("unknown line {other}"),
        }
        if let (Some(error), false) = (&failed, lines.peek() == Some(&"fails")) {
            return Err(format!("failed: {error}"));
        }
    }
    Ok(())
}

/// Compares the conflicts of an apply; any other failure is handed on.
fn check_outcome(
    outcome: Result<(), ApplyError>,
    mut expected: Vec<String>,
) -> Result<Option<ApplyError>, String> {
    match outcome {
        Err(ApplyError::Conflict(conflicts)) if !expected.is_empty() => {
            expected.sort();
            let mut found: Vec<String> = conflicts.0.iter().map(conflict).collect();
            found.sort();
            if found == expected {
                return Ok(None);
            }
            Err(format!("conflicts {found:?}, not {expected:?}"))
        }
        Err(error) => Ok(Some(error)),
        Ok(()) if expected.is_empty() => Ok(None),
        Ok(()) => Err(format!("no conflicts, but {expected:?} expected")),
    }
}

/// Compares what one manager owns; the columns are `MANAGER VERSION SET`.
fn check_owner(state: &State, columns: &[&str]) -> Result<(), String> {
    let owned = state.owned();
    let Some((version, set)) = owned.get(columns[0]) else {
        return Err(format!("{} owns nothing", columns[0]));
    };
    let expected = Set::from_json(columns[2]).unwrap();
    if version == columns[1] && *set == expected {
        return Ok(());
    }
    Err(format!("{columns:?}, not {version} {}", set.to_json()))
}

/// `MANAGER PATH`
fn conflict(conflict: &merge::Conflict) -> String {
    let manager = conflict.manager.split('"').nth(1).unwrap();
    format!("{manager} {}", conflict.field())
}

#[test]
fn managers_own_and_lose_fields_as_upstream_says() {
    let text = include_str!("managers.txt");
    let mut schemas: BTreeMap<&str, Schema> = BTreeMap::new();
    let (mut checked, mut wrong) = (0, Vec::new());
    for block in text.split("\n\n") {
        let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with('#')).collect();
        match lines.first() {
            Some(first) if first.starts_with("schema ") => {
                for line in &lines {
                    let words: Vec<&str> = line.splitn(3, ' ').collect();
                    schemas.insert(words[1], schema(&parse(words[2])));
                }
            }
            Some(first) => {
                checked += 1;
                if let Err(why) = run(&schemas, &lines) {
                    wrong.push(format!("{first}: {why}"));
                }
            }
            None => {}
        }
    }
    assert!(checked > 100, "only {checked} cases");
    assert!(wrong.is_empty(), "{} of {checked} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
