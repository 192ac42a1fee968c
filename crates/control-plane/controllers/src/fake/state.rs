//! The objects of the fake server, the log that watches read, and the rules of deletion.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kinds::FakeKind;
use crate::object::text;

const FOREVER: &str = "2026-01-01T00:00:00Z";

/// Group/plural, namespace and name.
pub(super) type FakeKey = (String, String, String);

/// All that the server knows.
pub(super) struct FakeState {
    pub(super) kinds: Vec<FakeKind>,
    pub(super) objects: BTreeMap<FakeKey, Value>,
    pub(super) version: u64,
    pub(super) log: Vec<(u64, FakeKey, &'static str, Value)>,
    /// Kinds whose writes are refused, in one namespace or in all, and with which code.
    pub(super) refused: BTreeMap<(String, Option<String>), u16>,
    /// How often each object was written, refusals included.
    pub(super) writes: BTreeMap<(String, FakeKey), usize>,
}

impl FakeState {
    /// Counts a write, and says with which code it is refused.
    pub(super) fn note(&mut self, method: &str, key: &FakeKey, body: &Value) -> Option<u16> {
        let mut key = key.clone();
        if key.0 == "/events" {
            let about = text(body, "/involvedObject/name");
            key.2 = format!("{about}: {}", text(body, "/reason"));
        } else if key.2.is_empty() {
            let name = &body["metadata"]["name"];
            let name = if name.is_null() { &body["metadata"]["generateName"] } else { name };
            key.2 = name.as_str().unwrap_or_default().to_owned();
        }
        let everywhere = self.refused.get(&(key.0.clone(), None));
        let here = self.refused.get(&(key.0.clone(), Some(key.1.clone())));
        let refused = everywhere.or(here).copied();
        *self.writes.entry((method.to_owned(), key)).or_default() += 1;
        refused
    }

    pub(super) fn discovery(&self, path: &str) -> Value {
        let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        let mut versions: BTreeMap<&str, &str> = BTreeMap::new();
        for (group, version, plural, kind, namespaced) in &self.kinds {
            let scope = if *namespaced { "Namespaced" } else { "Cluster" };
            let verbs = ["delete", "deletecollection", "list", "watch"];
            versions.insert(group, version);
            groups.entry(group).or_default().push(json!({"resource": plural, "scope": scope,
                "responseKind": {"kind": kind}, "verbs": verbs}));
        }
        let wanted = groups.into_iter().filter(|(group, _)| group.is_empty() == (path == "api"));
        let items: Vec<Value> = wanted
            .map(|(group, resources)| {
                json!({"metadata": {"name": group},
                    "versions": [{"version": versions[group], "resources": resources}]})
            })
            .collect();
        json!({"items": items})
    }

    pub(super) fn list(&self, wanted: &FakeKey, selected: bool) -> Value {
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(key, object)| matches(key, wanted) && (!selected || is_token(object)))
            .map(|(_, object)| object)
            .collect();
        json!({"kind": "List", "metadata": {"resourceVersion": self.version.to_string()},
            "items": items})
    }

    pub(super) fn next_event(
        &self,
        wanted: &FakeKey,
        from: u64,
        selected: bool,
    ) -> Option<(u64, String)> {
        let (version, _, kind, object) = self.log.iter().find(|(version, key, _, object)| {
            *version > from && matches(key, wanted) && (!selected || is_token(object))
        })?;
        Some((*version, format!("{}\n", json!({"type": kind, "object": object}))))
    }

    pub(super) fn create(
        &mut self,
        resource: &str,
        namespace: &str,
        mut body: Value,
    ) -> Result<Value, Value> {
        if let Some(base) = body["metadata"]["generateName"].as_str() {
            body["metadata"]["name"] = json!(format!("{base}{:05}", self.version));
        }
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (resource.to_owned(), namespace.to_owned(), name);
        if self.objects.contains_key(&key) {
            return Err(failure(409, ""));
        }
        if !namespace.is_empty() {
            let home = ("/namespaces".to_owned(), String::new(), namespace.to_owned());
            match self.objects.get(&home) {
                None => return Err(failure(404, "")),
                Some(home) if is_deleting(home) => {
                    return Err(failure(403, "NamespaceTerminating"));
                }
                Some(_) => body["metadata"]["namespace"] = json!(namespace),
            }
        }
        if resource == "/namespaces" {
            body["spec"] = json!({"finalizers": ["kubernetes"]});
        }
        body["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        Ok(self.store(&key, body, "ADDED"))
    }

    pub(super) fn put(
        &mut self,
        key: &FakeKey,
        subresource: &str,
        body: Value,
    ) -> Result<Value, Value> {
        let Some(old) = self.objects.get(key).cloned() else { return Err(failure(404, "")) };
        if old["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
            return Err(failure(409, ""));
        }
        let new = match subresource {
            "status" => with(old, "status", body["status"].clone()),
            "finalize" => with(old, "spec", body["spec"].clone()),
            "scale" => {
                let mut spec = old["spec"].clone();
                spec["replicas"] = body["spec"]["replicas"].clone();
                with(old, "spec", spec)
            }
            _ => body,
        };
        Ok(self.store(key, new, "MODIFIED"))
    }

    pub(super) fn merge(&mut self, key: &FakeKey, patch: &Value) -> Result<Value, Value> {
        let Some(mut object) = self.objects.get(key).cloned() else {
            return Err(failure(404, ""));
        };
        for field in ["uid", "resourceVersion"] {
            let (own, wanted) = (&object["metadata"][field], &patch["metadata"][field]);
            if !wanted.is_null() && own != wanted {
                return Err(failure(409, ""));
            }
        }
        merge_value(&mut object, patch);
        Ok(self.store(key, object, "MODIFIED"))
    }

    pub(super) fn delete(&mut self, key: &FakeKey, options: &Value) -> Result<Value, Value> {
        let Some(mut object) = self.objects.get(key).cloned() else {
            return Err(failure(404, ""));
        };
        for field in ["uid", "resourceVersion"] {
            let (own, wanted) = (&object["metadata"][field], &options["preconditions"][field]);
            if !wanted.is_null() && own != wanted {
                return Err(failure(409, ""));
            }
        }
        let own = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let mut finalizers: Vec<Value> =
            own.into_iter().filter(|own| own != "orphan" && own != "foregroundDeletion").collect();
        match options["propagationPolicy"].as_str() {
            Some("Foreground") => finalizers.push(json!("foregroundDeletion")),
            Some("Orphan") => finalizers.push(json!("orphan")),
            _ => {}
        }
        object["metadata"]["finalizers"] = json!(finalizers);
        object["metadata"]["deletionTimestamp"] = json!(FOREVER);
        Ok(self.store(key, object, "MODIFIED"))
    }

    pub(super) fn delete_all(&mut self, wanted: &FakeKey) -> Value {
        let keys: Vec<FakeKey> =
            self.objects.keys().filter(|key| matches(key, wanted)).cloned().collect();
        for key in keys {
            let _ = self.delete(&key, &Value::Null);
        }
        json!({})
    }

    /// Writes the object, or removes it if nothing holds a deleted one any more.
    fn store(&mut self, key: &FakeKey, mut object: Value, event: &'static str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let held = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        let spec = &object["spec"]["finalizers"];
        let held = held(&object["metadata"]["finalizers"]) || held(spec);
        let gone = is_deleting(&object) && !held;
        if gone {
            self.objects.remove(key);
        } else {
            self.objects.insert(key.clone(), object.clone());
        }
        let event = if gone { "DELETED" } else { event };
        self.log.push((self.version, key.clone(), event, object.clone()));
        object
    }
}

fn matches(key: &FakeKey, wanted: &FakeKey) -> bool {
    key.0 == wanted.0 && (wanted.1.is_empty() || key.1 == wanted.1)
}

fn is_token(object: &Value) -> bool {
    object["type"] == "kubernetes.io/service-account-token"
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

fn merge_value(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *object = patch.clone() };
    for (key, value) in patch {
        if value.is_object() {
            if !object[key].is_object() {
                object[key] = json!({});
            }
            merge_value(&mut object[key], value);
        } else if value.is_null() {
            if let Some(object) = object.as_object_mut() {
                object.remove(key);
            }
        } else {
            object[key] = value.clone();
        }
    }
}

pub(super) fn failure(code: u16, cause: &str) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "Forbidden",
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused", "reason": reason, "code": code,
        "details": {"causes": [{"reason": cause, "message": "", "field": ""}]}})
}
