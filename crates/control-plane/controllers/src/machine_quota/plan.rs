//! Whether a machine is halted for its quota, and when the annotation is removed. Pure.

use hci::machine_quota::{MachineLimits, QuotaShortage, SHORTAGE, check_start, is_of_project};
use serde_json::{Value, json};
use virt::OverheadRatio;

use crate::condition;
use crate::object::{self, annotation, flag, list, text};

/// How the API server begins the refusal of a pod.
const EXCEEDED: &str = "exceeded quota";

/// A machine that is to be halted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Halt {
    pub(super) patch: Value,
    pub(super) shortage: QuotaShortage,
}

/// Whether the launcher pod of an instance was refused because of a quota.
pub(super) fn exceeds_quota(vmi: &Value) -> bool {
    let refused = condition::find(list(vmi, "/status/conditions"), "Synchronized");
    refused.is_some_and(|own| {
        text(own, "/status") == "False" && text(own, "/message").contains(EXCEEDED)
    })
}

/// The patch that halts a machine, if a quota of its project is the reason.
pub(super) fn halted(vm: &Value, quotas: &[Value], ratio: OverheadRatio) -> Option<Halt> {
    if is_halted(vm) {
        return None;
    }
    let scale = |bytes: i64| {
        let bytes = ratio.times(u64::try_from(bytes).unwrap_or_default());
        i64::try_from(bytes).unwrap_or(i64::MAX)
    };
    let limits = MachineLimits::of(&vm["spec"]["template"]["spec"], scale);
    let mut quotas = quotas.iter().filter(|quota| is_of_project(quota));
    let shortage = quotas.find_map(|quota| check_start(quota, &limits).err())?;
    let mut meta = object::version(vm);
    meta.insert("annotations".into(), json!({SHORTAGE: shortage.to_string()}));
    let spec = match flag(vm, "/spec/running") {
        Some(_) => json!({"running": false}),
        None => json!({"runStrategy": "Halted"}),
    };
    Some(Halt { patch: json!({"metadata": meta, "spec": spec}), shortage })
}

fn is_halted(vm: &Value) -> bool {
    match flag(vm, "/spec/running") {
        Some(running) => !running,
        None => text(vm, "/spec/runStrategy") == "Halted",
    }
}

/// The patch of a machine that was halted and runs.
pub(super) fn recovered(vm: &Value) -> Option<Value> {
    let runs = !is_halted(vm) && text(vm, "/status/printableStatus") == "Running";
    if !runs || annotation(vm, SHORTAGE).is_none() {
        return None;
    }
    Some(json!({"metadata": {"annotations": {SHORTAGE: null}}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(spec: Value) -> Value {
        let mut spec = spec;
        let limits = json!({"cpu": "2", "memory": "1Gi"});
        spec["template"] = json!({"spec": {"domain": {"memory": {"guest": "1Gi"},
            "resources": {"limits": limits}}}});
        json!({"metadata": {"name": "web"}, "spec": spec})
    }

    fn quota(label: &str, hard: Value) -> Value {
        json!({"metadata": {"labels": {label: "true"}}, "spec": {"hard": hard}})
    }

    #[test]
    fn only_quotas_of_the_project_halt_a_machine() {
        let own = hci::machine_quota::PROJECT_QUOTA;
        let always = || machine(json!({"runStrategy": "Always"}));
        let memory = "memory insufficient resources due to resource quota";
        let cpu = "cpu insufficient resources due to resource quota";
        for (vm, quota, expected) in [
            (always(), quota(own, json!({"limits.cpu": "1"})), cpu),
            (always(), quota(own, json!({"limits.memory": "1Gi"})), memory),
            (always(), quota(own, json!({"limits.memory": "2Gi"})), ""),
            (always(), quota("other", json!({"limits.cpu": "1"})), ""),
            (machine(json!({"runStrategy": "Halted"})), quota(own, json!({"limits.cpu": "1"})), ""),
            (machine(json!({"running": false})), quota(own, json!({"limits.cpu": "1"})), ""),
        ] {
            let found = halted(&vm, std::slice::from_ref(&quota), OverheadRatio::default());
            let text = found.map(|own| own.shortage.to_string()).unwrap_or_default();
            assert_eq!(text, expected, "{vm} {quota}");
        }
        let old = machine(json!({"running": true}));
        let quota = quota(own, json!({"limits.cpu": "1"}));
        let found = halted(&old, &[quota], OverheadRatio::default()).unwrap();
        assert_eq!(found.patch["spec"], json!({"running": false}));
    }

    #[test]
    fn only_a_quota_counts_as_a_refusal() {
        let vmi = |status: &str, message: &str| {
            json!({"status": {"conditions":
                [{"type": "Synchronized", "status": status, "message": message}]}})
        };
        assert!(exceeds_quota(&vmi("False", "failed: pods \"a\" is forbidden: exceeded quota: q")));
        assert!(!exceeds_quota(&vmi("False", "failed: admission webhook denied")));
        assert!(!exceeds_quota(&vmi("True", "exceeded quota")));
        assert!(!exceeds_quota(&json!({})));
    }
}
