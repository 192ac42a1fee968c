//! Which versions of a machine's specification are kept, and with what: pure.

use serde_json::{Value, json};

use crate::object::{self, controlled_by, generation, int, list, namespace, text, uid};

/// How many versions of a machine are kept.
const KEPT: usize = 10;
/// On a version: the UID of its machine.
pub(super) const HISTORY_LABEL: &str = "sheaf.io/history-of";
/// On a version: the field manager that wrote it, and when.
const CHANGED_BY: &str = "sheaf.io/changed-by";
const CHANGED_AT: &str = "sheaf.io/changed-at";

#[derive(Debug)]
pub(super) struct HistoryPlan<'a> {
    pub(super) create: Option<Value>,
    pub(super) delete: Vec<&'a Value>,
}

/// The name of the version that a machine has now. A later machine of the same name has others.
pub(super) fn version_name(vm: &Value) -> String {
    format!("revision-spec-vm-{}-{}", uid(vm), generation(vm))
}

/// The version to add for the machine as it is now, and those of the known ones that go.
pub(super) fn plan<'a>(vm: &Value, known: &'a [Value]) -> HistoryPlan<'a> {
    let number = |version: &Value| int(version, "/revision").unwrap_or_default();
    let mut delete: Vec<&Value> = known.iter().collect();
    delete.sort_by_key(|version| number(version));
    let is_known = delete
        .last()
        .is_some_and(|last| number(last) >= generation(vm) || last["data"]["spec"] == vm["spec"]);
    let create = (!is_known).then(|| version(vm));
    let excess = (delete.len() + usize::from(create.is_some())).saturating_sub(KEPT);
    delete.truncate(excess);
    HistoryPlan { create, delete }
}

fn version(vm: &Value) -> Value {
    let mut annotations = json!({});
    if let Some(entry) = last_writer(vm) {
        annotations[CHANGED_BY] = text(entry, "/manager").into();
        annotations[CHANGED_AT] = text(entry, "/time").into();
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": version_name(vm),
            "namespace": namespace(vm),
            "labels": {HISTORY_LABEL: uid(vm)},
            "annotations": annotations,
            "ownerReferences": [controlled_by(vm, "kubevirt.io/v1", "VirtualMachine")],
        },
        "data": {"spec": vm["spec"]},
        "revision": generation(vm),
    })
}

/// The entry of the managed fields whose manager wrote to the specification last.
fn last_writer(vm: &Value) -> Option<&Value> {
    let wrote = |entry: &&Value| {
        entry["fieldsV1"].get("f:spec").is_some() && object::text(entry, "/subresource").is_empty()
    };
    let entries = list(vm, "/metadata/managedFields").iter().filter(wrote);
    entries.max_by_key(|&entry| text(entry, "/time"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::name;

    fn vm(generation: i64, size: i64) -> Value {
        let entry = |manager: &str, time: &str, field: &str| json!({"manager": manager, "time": time, "fieldsV1": {field: {}}});
        let mut by_status = entry("status", "2026-01-04T00:00:00Z", "f:spec");
        by_status["subresource"] = "status".into();
        json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u", "generation": generation,
                "managedFields": [
                    entry("kubectl-edit", "2026-01-02T00:00:00Z", "f:spec"),
                    entry("sheaf-ui", "2026-01-01T00:00:00Z", "f:spec"),
                    entry("labels", "2026-01-03T00:00:00Z", "f:metadata"),
                    by_status,
                ]},
            "spec": {"size": size},
        })
    }

    #[test]
    fn a_version_says_who_wrote_it_and_belongs_to_its_machine() {
        let made = plan(&vm(3, 1), &[]).create.unwrap();
        assert_eq!(name(&made), "revision-spec-vm-u-3");
        assert_eq!(made["data"], json!({"spec": {"size": 1}}));
        assert_eq!(made["revision"], 3);
        assert_eq!(made["metadata"]["labels"], json!({"sheaf.io/history-of": "u"}));
        assert_eq!(
            made["metadata"]["annotations"],
            json!({"sheaf.io/changed-by": "kubectl-edit",
                "sheaf.io/changed-at": "2026-01-02T00:00:00Z"})
        );
        let owner = &made["metadata"]["ownerReferences"][0];
        assert_eq!((text(owner, "/kind"), text(owner, "/uid")), ("VirtualMachine", "u"));
        let mut bare = vm(1, 1);
        bare["metadata"]["managedFields"] = Value::Null;
        let made = plan(&bare, &[]).create.unwrap();
        assert_eq!(made["metadata"]["annotations"], json!({}));
    }

    #[test]
    fn each_generation_is_kept_once_and_the_oldest_go() {
        let versions = |numbers: &[i64]| -> Vec<Value> {
            numbers.iter().map(|number| version(&vm(*number, *number))).collect()
        };
        // Known versions, the machine's generation and size, whether it is kept, what goes.
        type Case<'a> = (&'a [i64], i64, i64, bool, &'a [i64]);
        let all: Vec<i64> = (1..=10).collect();
        let cases: [Case<'_>; 8] = [
            (&[], 1, 1, true, &[]),
            (&[1], 1, 1, false, &[]),
            (&[1], 2, 2, true, &[]),
            (&[1], 2, 1, false, &[]),
            (&[1, 2], 3, 1, true, &[]),
            (&[4, 2], 3, 3, false, &[]),
            (&all, 11, 11, true, &[1]),
            (&[7, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12], 13, 13, true, &[1, 2, 3]),
        ];
        for (known, generation, size, kept, gone) in cases {
            let known = versions(known);
            let planned = plan(&vm(generation, size), &known);
            assert_eq!(planned.create.is_some(), kept, "{generation} {size}");
            let deleted: Vec<i64> =
                planned.delete.iter().filter_map(|old| int(old, "/revision")).collect();
            assert_eq!(deleted, gone, "{generation} {size}");
        }
    }
}
