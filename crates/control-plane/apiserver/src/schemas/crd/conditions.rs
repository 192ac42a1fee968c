//! Whether a definition's names are free, and the conditions that say so. Pure.

use serde_json::{Value, json};

use super::document::{CrdNames, Document};
use crate::api::ObjectEntry;
use crate::verbs::object;

/// The names of other definitions in the same group that were accepted before.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    resources: Vec<String>,
    kinds: Vec<String>,
}

impl Accepted {
    /// The names taken by all definitions except `definition`. Only those of its group matter, and
    /// names end with the group: the others are not parsed.
    pub(crate) fn by_others(definition: &Value, all: &[ObjectEntry]) -> Self {
        let (own, group) = (object::name(definition), definition["spec"]["group"].as_str());
        let is_peer =
            |name: &str| name != own && name.split_once('.').map(|(_, other)| other) == group;
        let peers = all.iter().filter(|entry| is_peer(&entry.name));
        let peers: Vec<Document> = peers.filter_map(|peer| Document::read(&peer.item)).collect();
        Self::collect(&peers)
    }

    fn collect(others: &[Document]) -> Self {
        let mut taken = Self::default();
        for other in others {
            let names = &other.status.accepted_names;
            taken.resources.extend([names.plural.clone(), names.singular.clone()]);
            taken.resources.extend(names.short_names.iter().cloned());
            taken.kinds.extend([names.kind.clone(), names.list_kind.clone()]);
        }
        taken
    }
}

/// The status that the definition should have: accepted names, conditions, stored versions.
pub(crate) fn conditions(definition: &Value, taken: &Accepted, now: &str) -> Value {
    let wanted: CrdNames =
        serde_json::from_value(definition["spec"]["names"].clone()).unwrap_or_default();
    let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    let held: CrdNames =
        serde_json::from_value(status["acceptedNames"].clone()).unwrap_or_default();
    let (names, conflict) = accept(&wanted, &held, taken);
    status["acceptedNames"] = names;
    let accepted = match &conflict {
        None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => condition("NamesAccepted", "False", reason, message),
    };
    let was_established = holds(&status, "Established");
    set(&mut status, accepted, now);
    // Once established, always established: clients hold on to what they have seen.
    let established = if was_established || conflict.is_none() {
        condition(
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        )
    } else {
        condition("Established", "False", "NotAccepted", "not all names are accepted")
    };
    set(&mut status, established, now);
    if definition["metadata"]["deletionTimestamp"].is_string() && !holds(&status, "Terminating") {
        let terminating = condition(
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
        set(&mut status, terminating, now);
    }
    status["storedVersions"] = stored_versions(definition);
    status
}

/// Every version that was ever the storage version and was not pruned by an administrator.
fn stored_versions(definition: &Value) -> Value {
    let mut stored: Vec<Value> =
        definition["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    let storage = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .map(|version| version["name"].clone());
    if let Some(storage) = storage
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    stored.into()
}

type Conflict = Option<(&'static str, String)>;

fn accept(wanted: &CrdNames, held: &CrdNames, taken: &Accepted) -> (Value, Conflict) {
    let mut conflict: Conflict = None;
    let mut judge = |reason, wanted: &str, held: &str, used: &[String]| {
        if wanted == held || !used.iter().any(|name| name == wanted) {
            return wanted.to_owned();
        }
        conflict = Some((reason, format!("{wanted:?} is already in use")));
        held.to_owned()
    };
    let plural = judge("PluralConflict", &wanted.plural, &held.plural, &taken.resources);
    let singular = judge("SingularConflict", &wanted.singular, &held.singular, &taken.resources);
    let kind = judge("KindConflict", &wanted.kind, &held.kind, &taken.kinds);
    let list_kind = judge("ListKindConflict", &wanted.list_kind, &held.list_kind, &taken.kinds);
    let clashing = wanted
        .short_names
        .iter()
        .find(|name| !held.short_names.contains(name) && taken.resources.contains(name));
    let short_names = match clashing {
        None => &wanted.short_names,
        Some(name) => {
            conflict = Some(("ShortNamesConflict", format!("{name:?} is already in use")));
            &held.short_names
        }
    };
    let mut names = json!({
        "plural": plural, "singular": singular, "kind": kind, "listKind": list_kind,
    });
    if !short_names.is_empty() {
        names["shortNames"] = short_names.clone().into();
    }
    if !wanted.categories.is_empty() {
        names["categories"] = wanted.categories.clone().into();
    }
    (names, conflict)
}

fn condition(ty: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": ty, "status": status, "reason": reason, "message": message})
}

fn holds(status: &Value, ty: &str) -> bool {
    status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|known| known["type"] == ty && known["status"] == "True")
}

/// Puts a condition in its place; the transition time moves only when its status does.
fn set(status: &mut Value, mut condition: Value, now: &str) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let list = status["conditions"].as_array_mut().expect("it was just made a list");
    let known = list.iter_mut().find(|known| known["type"] == condition["type"]);
    match known {
        Some(known) => {
            let moved = known["status"] != condition["status"];
            condition["lastTransitionTime"] =
                if moved { now.into() } else { known["lastTransitionTime"].clone() };
            *known = condition;
        }
        None => {
            condition["lastTransitionTime"] = now.into();
            list.push(condition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": plural, "singular": plural.trim_end_matches('s'),
                          "kind": kind, "listKind": format!("{kind}List"), "shortNames": ["w"]},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        })
    }

    #[test]
    fn fresh_names_are_accepted_and_established() {
        let status = conditions(&definition("widgets", "Widget"), &Accepted::default(), "T");
        assert_eq!(status["acceptedNames"]["plural"], "widgets");
        assert_eq!(status["storedVersions"], json!(["v1"]));
        let states: Vec<_> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
            .collect();
        assert_eq!(states, [("NamesAccepted", "True"), ("Established", "True")]);
    }

    #[test]
    fn a_taken_short_name_is_a_conflict() {
        let mut first = definition("widgets", "Widget");
        first["status"] = conditions(&first, &Accepted::default(), "T");
        let first: Document = serde_json::from_value(first).unwrap();
        let taken = Accepted::collect(&[first]);
        let status = conditions(&definition("wheels", "Wheel"), &taken, "T");
        assert_eq!(status["conditions"][0]["reason"], "ShortNamesConflict");
        assert_eq!(status["conditions"][0]["message"], r#""w" is already in use"#);
        assert_eq!(status["conditions"][1]["status"], "False");
        assert_eq!(status["acceptedNames"].get("shortNames"), None);
    }

    #[test]
    fn judging_twice_changes_nothing() {
        let mut widget = definition("widgets", "Widget");
        widget["status"] = conditions(&widget, &Accepted::default(), "T");
        assert_eq!(conditions(&widget, &Accepted::default(), "later"), widget["status"]);
    }
}
