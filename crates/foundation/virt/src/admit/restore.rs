//! Restores of machines: one at a time for each, and patches that reach nothing else.

use serde_json::Value;

use super::{Causes, Denial, Write, patch};
use crate::condition;
use crate::state::text;

pub(super) fn validate(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let mut causes = Causes::default();
    patch::validate(write, &mut causes);
    if write.old.is_none() && !write.trusted {
        check_alone(write, &mut causes);
    }
    causes.finish()?;
    Ok(Vec::new())
}

/// Two restores would exchange the disks of one machine under each other.
fn check_alone(write: &Write<'_>, causes: &mut Causes) {
    let group = "snapshot.kubevirt.io";
    let all = write.objects.list(group, "virtualmachinerestores", write.namespace);
    let target = |restore: &Value| {
        let target = &restore["spec"]["target"];
        (text(target, "/kind").to_owned(), text(target, "/name").to_owned())
    };
    let same = |restore: &&Value| target(restore) == target(write.object) && is_under_way(restore);
    if let Some(other) = all.iter().find(same) {
        let name = text(other, "/metadata/name");
        causes.invalid("spec.target", format!("VirtualMachineRestore {name:?} in progress"));
    }
}

/// One that failed is not tried again.
fn is_under_way(restore: &Value) -> bool {
    let failed = condition::find(restore, "Failure").is_some_and(|own| own["status"] == "True");
    restore["status"]["complete"] != true && !failed
}
