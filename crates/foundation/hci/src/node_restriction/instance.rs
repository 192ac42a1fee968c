//! The instances that a node may write: those that it runs.

use serde_json::Value;

use super::{NodeDenial, NodeWrite, changed_keys, text};

/// Labels that say where an instance is; all others are its owner's, and select it for services and
/// network policies.
const PLACEMENT_LABELS: [&str; 2] = ["kubevirt.io/nodeName", "kubevirt.io/migrationTargetNodeName"];

/// Whether the node gives the instance to the node that it was to migrate to: when all has arrived
/// there, or, in post-copy, before.
fn is_handed_over(object: &Value, old: &Value) -> bool {
    let (now, asked) = (&object["status"]["migrationState"], &old["status"]["migrationState"]);
    let target = text(asked, "targetNode");
    !target.is_empty()
        && text(&object["status"], "nodeName") == target
        && now["migrationUid"] == asked["migrationUid"]
        && now["targetNode"] == asked["targetNode"]
        && (now["completed"] == true || now["mode"] == "PostCopy")
        && asked["completed"] != true
        && asked["failed"] != true
}

pub(super) fn check(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    if text(&old["status"], "nodeName") != write.node {
        return Err(write.not_placed());
    }
    if text(&object["status"], "nodeName") != write.node && !is_handed_over(object, old) {
        return Err(write.field(format!("the placement of {} {:?}", write.resource, write.name)));
    }
    keeps_labels(write, object, old)?;
    write.keeps_spec(object, old)
}

fn keeps_labels(write: &NodeWrite<'_>, object: &Value, old: &Value) -> Result<(), NodeDenial> {
    let changed = changed_keys(&object["metadata"]["labels"], &old["metadata"]["labels"]);
    match changed.into_iter().find(|key| !PLACEMENT_LABELS.contains(key)) {
        None => Ok(()),
        Some(label) => {
            let what = format!("the label {label} of {} {:?}", write.resource, write.name);
            Err(write.field(what))
        }
    }
}
