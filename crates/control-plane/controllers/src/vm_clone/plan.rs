//! The snapshot and the restore of a clone, and its status: pure.

use base::clock;
use jiff::Timestamp;
use regex::Regex;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::object::{controlled_by, entries, list, name, namespace, read, strings, text, uid};

const API: &str = "clone.kubevirt.io/v1beta1";
const KIND: &str = "VirtualMachineClone";
/// Which restore made a machine what it is stays with it.
const KEPT: &str = "restore.kubevirt.io/lastRestoreUID";

pub(super) fn is_over(clone: &Value) -> bool {
    matches!(text(clone, "/status/phase"), "Succeeded" | "Failed")
}

pub(super) fn is_of_machine(clone: &Value) -> bool {
    text(clone, "/spec/source/kind") == "VirtualMachine"
}

/// The snapshot that is cloned: one of its own, or the one that is its source.
pub(super) fn snapshot_name(clone: &Value) -> String {
    if is_of_machine(clone) {
        format!("tmp-snapshot-{}", uid(clone))
    } else {
        text(clone, "/spec/source/name").to_owned()
    }
}

pub(super) fn restore_name(clone: &Value) -> String {
    format!("tmp-restore-{}", uid(clone))
}

pub(super) fn target_name(clone: &Value, source: &str) -> String {
    match (text(clone, "/status/targetName"), text(clone, "/spec/target/name")) {
        ("", "") => format!("{source}-clone-{}", uid(clone).get(..5).unwrap_or("copy")),
        ("", wanted) => wanted.to_owned(),
        (known, _) => known.to_owned(),
    }
}

pub(super) fn snapshot(clone: &Value) -> Value {
    json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
        "metadata": {
            "name": snapshot_name(clone), "namespace": namespace(clone),
            "ownerReferences": [controlled_by(clone, API, KIND)],
        },
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine",
            "name": text(clone, "/spec/source/name")}},
    })
}

/// The restore of a captured machine under another name and identity.
pub(super) fn restore(clone: &Value, captured: &Value, target: &str) -> Value {
    let mut spec = json!({
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target},
        "virtualMachineSnapshotName": snapshot_name(clone),
        "patches": patches(clone, captured),
    });
    let policy = text(clone, "/spec/volumeNamePolicy");
    if !policy.is_empty() {
        spec["volumeRestorePolicy"] = json!(policy);
    }
    json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore",
        "metadata": {
            "name": restore_name(clone), "namespace": namespace(clone),
            "ownerReferences": [controlled_by(clone, API, KIND)],
        },
        "spec": spec,
    })
}

/// The patches that make the clone another machine. The user's own are last and so override the
/// others.
pub(super) fn patches(clone: &Value, captured: &Value) -> Vec<String> {
    let mut patches = Vec::new();
    let interfaces = list(captured, "/spec/template/spec/domain/devices/interfaces");
    for (index, own) in interfaces.iter().enumerate() {
        let path = format!("/spec/template/spec/domain/devices/interfaces/{index}/macAddress");
        match clone["spec"]["newMacAddresses"].get(text(own, "/name")).filter(|mac| **mac != "") {
            Some(mac) => patches.push(json!({"op": "add", "path": path, "value": mac})),
            None => patches.push(json!({"op": "remove", "path": path})),
        }
    }
    let firmware = "/spec/template/spec/domain/firmware";
    let serial = text(clone, "/spec/newSMBiosSerial");
    let is_there = captured["spec"]["template"]["spec"]["domain"]["firmware"].is_object();
    match (serial, is_there) {
        ("", true) => patches.push(json!({"op": "remove", "path": format!("{firmware}/serial")})),
        ("", false) => {}
        (serial, true) => {
            let path = format!("{firmware}/serial");
            patches.push(json!({"op": "add", "path": path, "value": serial}));
        }
        (serial, false) => {
            let value = json!({"serial": serial});
            patches.push(json!({"op": "add", "path": firmware, "value": value}));
        }
    }
    patches.push(json!({"op": "remove", "path": format!("{firmware}/uuid")}));
    let (spec, template) = (&clone["spec"], &clone["spec"]["template"]);
    for (place, filters) in [
        ("/metadata/labels", &spec["labelFilters"]),
        ("/metadata/annotations", &spec["annotationFilters"]),
        ("/spec/template/metadata/labels", &template["labelFilters"]),
        ("/spec/template/metadata/annotations", &template["annotationFilters"]),
    ] {
        // An empty list lets nothing pass; no list lets everything pass.
        let Some(filters) = read::<Option<Vec<&str>>>(filters) else { continue };
        for (key, _) in entries(captured, place) {
            if key != KEPT && !passes(&filters, key) {
                let key = key.replace('~', "~0").replace('/', "~1");
                patches.push(json!({"op": "remove", "path": format!("{place}/{key}")}));
            }
        }
    }
    let own = strings(clone, "/spec/patches").map(str::to_owned);
    patches.iter().map(Value::to_string).chain(own).collect()
}

/// A key is taken that a filter names and none refuses. Filters are expressions that may match
/// anywhere, as upstream's are.
fn passes(filters: &[&str], key: &str) -> bool {
    let matches = |filter: &str| Regex::new(filter).is_ok_and(|own| own.is_match(key));
    let wanted = filters.iter().filter(|own| !own.starts_with('!'));
    let refused = filters.iter().filter_map(|own| own.strip_prefix('!'));
    wanted.into_iter().any(|own| *own == "*" || matches(own)) && !refused.into_iter().any(matches)
}

type CloneReport<'a> = (&'static str, &'static str, &'a str);

fn conditions(clone: &Value, reports: [CloneReport<'_>; 2], now: Timestamp) -> Vec<Value> {
    let mut conditions = condition::of(clone);
    for (kind, status, why) in reports {
        let wanted = Condition::new(kind, status).because(why, "");
        condition::set(&mut conditions, &wanted, now);
    }
    conditions
}

/// Waits for something that others must bring.
pub(super) fn pending(clone: &Value, why: &str, now: Timestamp) -> Value {
    let reports = [("Progressing", "False", "Pending"), ("Ready", "False", why)];
    json!({"status": {"conditions": conditions(clone, reports, now)}})
}

pub(super) fn in_phase(clone: &Value, phase: &str, now: Timestamp) -> Value {
    let reports =
        [("Progressing", "True", "Still processing"), ("Ready", "False", "Still processing")];
    let mut status = json!({"phase": phase, "conditions": conditions(clone, reports, now)});
    if is_of_machine(clone) {
        status["snapshotName"] = json!(snapshot_name(clone));
    }
    if phase != "SnapshotInProgress" {
        status["restoreName"] = json!(restore_name(clone));
    }
    json!({"status": status})
}

pub(super) fn failed(clone: &Value, why: &str, now: Timestamp) -> Value {
    let reports = [("Progressing", "False", "Failed"), ("Ready", "False", why)];
    json!({"status": {"phase": "Failed", "conditions": conditions(clone, reports, now)}})
}

pub(super) fn succeeded(clone: &Value, target: &str, now: Timestamp) -> Value {
    let reports = [("Progressing", "False", "Ready"), ("Ready", "True", "Ready")];
    json!({"status": {
        "phase": "Succeeded", "targetName": target, "creationTime": clock::rfc3339(now),
        "snapshotName": null, "restoreName": null,
        "conditions": conditions(clone, reports, now),
    }})
}

/// The volumes that a snapshot leaves out, which a clone would lack.
pub(super) fn left_out(snapshot: &Value) -> Option<String> {
    let volume = strings(snapshot, "/status/snapshotVolumes/excludedVolumes").next()?;
    Some(format!("volume {volume} is not backed up in snapshot {}", name(snapshot)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clone(spec: Value) -> Value {
        let mut own = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "12345-6"},
            "spec": {"source": {"kind": "VirtualMachine", "name": "m"}},
        });
        for (key, value) in spec.as_object().unwrap() {
            own["spec"][key] = value.clone();
        }
        own
    }

    #[test]
    fn a_clone_is_another_machine() {
        let captured = json!({
            "metadata": {"labels": {"app": "a", "team/x": "b"}, "annotations": {"k": "v"}},
            "spec": {"template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"domain": {"firmware": {"uuid": "u", "serial": "s"},
                    "devices": {"interfaces": [
                        {"name": "one", "macAddress": "02:00:00:00:00:01"}, {"name": "two"}]}}},
            }},
        });
        let own = clone(json!({
            "newMacAddresses": {"two": "02:00:00:00:00:09"}, "newSMBiosSerial": "new",
            "labelFilters": ["*", "!team/*"], "annotationFilters": [],
            "patches": [r#"{"op":"add","path":"/metadata/labels/mine","value":"yes"}"#],
        }));
        let texts = patches(&own, &captured);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut made = captured.clone();
        crate::json_patch::apply(&mut made, &texts).unwrap();
        assert_eq!(
            made,
            json!({
                "metadata": {"labels": {"app": "a", "mine": "yes"}, "annotations": {}},
                "spec": {"template": {
                    "metadata": {"labels": {"app": "a"}},
                    "spec": {"domain": {"firmware": {"serial": "new"}, "devices": {"interfaces": [
                        {"name": "one"}, {"name": "two", "macAddress": "02:00:00:00:00:09"}]}}},
                }},
            })
        );
    }

    #[test]
    fn filters_take_and_refuse() {
        for (filters, key, expected) in [
            (&["*"][..], "a", true),
            (&[], "a", false),
            (&["*", "!some/key*"], "some/key-a", false),
            (&["some/*"], "some/a", true),
            (&["!a"], "b", false),
            (&["["], "[", false),
        ] {
            assert_eq!(passes(filters, key), expected, "{filters:?} of {key}");
        }
    }

    #[test]
    fn names_are_the_users_or_follow_from_the_source() {
        assert_eq!(target_name(&clone(json!({})), "m"), "m-clone-12345");
        assert_eq!(target_name(&clone(json!({"target": {"name": "t"}})), "m"), "t");
        assert_eq!(snapshot_name(&clone(json!({}))), "tmp-snapshot-12345-6");
        let of = json!({"source": {"kind": "VirtualMachineSnapshot", "name": "s"}});
        assert_eq!(snapshot_name(&clone(of)), "s");
    }
}
