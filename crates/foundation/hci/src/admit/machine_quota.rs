//! Quotas of namespaces that leave no room for a machine or its claims.
//!
//! Upstream answers 500; here it is 422, so that clients do not repeat a request that cannot
//! succeed.

use serde_json::Value;

use super::{AdmissionResult, HARVESTER, Refusal, Write, text};
use crate::claim_template::{claim_templates, requested};
use crate::cluster_setting::effective;
use crate::machine_quota::{self, MachineLimits, QuotaShortage};

const RATIO: &str = "additional-guest-memory-overhead-ratio";
/// Label of the launcher pod of a machine.
const MACHINE: &str = "vm.kubevirt.io/name";

/// A machine that is started, or gets more claims.
pub(super) fn validate(write: &Write<'_>, machine: &Value) -> AdmissionResult {
    let starts = write.old.is_some_and(|old| is_halted(old) && !is_halted(machine));
    if starts {
        check_start(write, machine)
            .map_err(|own| Refusal::invalid("spec.runStrategy", own.to_string()))?;
    }
    check_claims(write, machine)
        .map_err(|own| Refusal::invalid("metadata.annotations", own.to_string()))
}

fn is_halted(machine: &Value) -> bool {
    match text(machine, "/spec/runStrategy") {
        "" => machine["spec"]["running"] != true,
        strategy => strategy == "Halted",
    }
}

/// Whether a machine that is not halted fits; one that has its pod does.
pub(super) fn check_start(write: &Write<'_>, machine: &Value) -> Result<(), QuotaShortage> {
    if is_halted(machine) {
        return Ok(());
    }
    let name = text(machine, "/metadata/name");
    let pods = write.objects.list("", "pods", write.namespace);
    let has_ended = |pod: &Value| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    let mut own = pods.iter().filter(|pod| pod["metadata"]["labels"][MACHINE] == name);
    if own.any(|pod| !has_ended(pod)) {
        return Ok(());
    }
    check_new(write, &machine["spec"])
}

/// Whether a further machine with this specification fits.
pub(super) fn check_new(write: &Write<'_>, spec: &Value) -> Result<(), QuotaShortage> {
    let quotas = quotas(write);
    if quotas.is_empty() {
        return Ok(());
    }
    let setting = write.objects.get(HARVESTER, "settings", "", RATIO);
    let ratio: f64 = effective(RATIO, setting.as_ref()).parse().unwrap_or(1.0);
    let scale = |bytes: i64| if ratio >= 1.0 { (bytes as f64 * ratio) as i64 } else { bytes };
    let limits = MachineLimits::of(&spec["template"]["spec"], scale);
    quotas.iter().try_for_each(|quota| machine_quota::check_start(quota, &limits))
}

/// Claims that a machine brings along, as far as they are more than before.
fn check_claims(write: &Write<'_>, machine: &Value) -> Result<(), QuotaShortage> {
    let sum = |machine: &Value| -> i64 {
        let templates = claim_templates(&machine["metadata"]).unwrap_or_default();
        let sizes = templates.iter().filter_map(|own| requested(&own.claim));
        sizes.fold(0, i64::saturating_add)
    };
    let added = sum(machine).saturating_sub(write.old.map_or(0, sum));
    if added <= 0 {
        return Ok(());
    }
    quotas(write).iter().try_for_each(|quota| machine_quota::check_storage(quota, added))
}

/// The quotas of the namespace that its project decides.
pub(super) fn quotas(write: &Write<'_>) -> Vec<Value> {
    let mut all = write.objects.list("", "resourcequotas", write.namespace);
    all.retain(machine_quota::is_of_project);
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::admit::tests::{Cluster, judged, named, refused};
    use serde_json::Value;

    const KIND: (&str, &str) = ("kubevirt.io", "virtualmachines");

    /// A machine with limits and a claim of its own.
    fn machine(strategy: &str, cpu: &str, memory: &str, storage: &str) -> Value {
        let claim = json!({"metadata": {"name": "root"},
            "spec": {"resources": {"requests": {"storage": storage}}}});
        let limits = json!({"cpu": cpu, "memory": memory});
        let domain = json!({"memory": {"guest": "1Gi"}, "resources": {"limits": limits}});
        let template = json!({"spec": {"domain": domain}});
        let mut machine =
            named("web", &json!({"spec": {"runStrategy": strategy, "template": template}}));
        let claims = json!([claim]).to_string();
        machine["metadata"]["annotations"] =
            json!({"harvesterhci.io/volumeClaimTemplates": claims});
        machine
    }

    /// A namespace with room for 2 CPUs, 4Gi of memory and 10Gi of storage.
    fn cluster() -> Cluster {
        let mut quota = named(
            "q",
            &json!({"spec": {"hard": {"limits.cpu": "4",
            "limits.memory": "6Gi", "requests.storage": "30Gi"}},
            "status": {"used": {"limits.cpu": "2", "limits.memory": "2Gi",
            "requests.storage": "20Gi"}}}),
        );
        quota["metadata"]["labels"] = json!({"management.cattle.io/project": "p"});
        Cluster(vec![("", "resourcequotas", quota)])
    }

    #[test]
    fn a_machine_that_exceeds_the_quota_is_not_started() {
        let mut started = cluster();
        let mut pod = named("launcher", &json!({"status": {"phase": "Running"}}));
        pod["metadata"]["labels"] = json!({"vm.kubevirt.io/name": "web"});
        started.0.push(("", "pods", pod));
        let (cpu, memory, storage) = (
            "cpu insufficient resources due to resource quota",
            "memory insufficient resources due to resource quota",
            "storage insufficient resources due to resource quota",
        );
        let cluster = cluster();
        for (new, cluster, text) in [
            (machine("Always", "2", "3Gi", "1Gi"), &cluster, ""),
            (machine("Always", "3", "1Gi", "1Gi"), &cluster, cpu),
            (machine("Always", "2", "4Gi", "1Gi"), &cluster, memory),
            (machine("Halted", "3", "4Gi", "1Gi"), &cluster, ""),
            (machine("Always", "3", "4Gi", "1Gi"), &started, ""),
            (machine("Halted", "1", "1Gi", "11Gi"), &cluster, ""),
            (machine("Halted", "1", "1Gi", "12Gi"), &cluster, storage),
        ] {
            let mut old = machine("Halted", "1", "1Gi", "1Gi");
            old["metadata"]["annotations"]["other"] = "x".into();
            let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
            assert_eq!(judged(KIND, Some(&new), Some(&old), cluster), expected, "{new}");
        }
        let large = machine("Halted", "1", "1Gi", "11Gi");
        assert_eq!(judged(KIND, Some(&large), None, &cluster), refused(422, storage));
    }
}
