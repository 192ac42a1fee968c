//! The effect of an eviction of a launcher pod on its instance, as KubeVirt's eviction webhook
//! decides it. Pure.

use serde_json::Value;

use crate::condition;
use crate::config::ClusterConfig;
use crate::state::text;

/// On an instance whose launcher pod was deleted or evicted: when its guest has to be down.
pub const SHUT_DOWN_BY: &str = "sheaf.io/shut-down-by";
/// On an instance that was migrated: the uid of the last migration. Its launcher pod is named by it.
pub const LAUNCHER: &str = "sheaf.io/launcher";
/// The webhook that answers evictions upstream, which clients see in the message.
pub const WEBHOOK: &str = "virt-launcher-eviction-interceptor.kubevirt.io";
/// On an instance: the requester of its evacuation.
pub const SOURCE_ANNOTATION: &str = "kubevirt.io/eviction-source";

/// The answer to an eviction request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The pod may be deleted, which shuts the guest down.
    Allow,
    /// The pod stays.
    Deny(String),
    /// The pod stays, and the instance is marked as one that has to leave its node.
    Evacuate(String),
}

/// Whether a pod is the launcher pod of an instance that may still run.
pub fn is_active_launcher(pod: &Value) -> bool {
    let finished = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    pod["metadata"]["labels"]["kubevirt.io"] == "virt-launcher" && !finished
}

/// The name of the instance that a launcher pod belongs to.
pub fn instance_of(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"]["kubevirt.io/domain"].as_str()
}

/// Decides about the eviction of `pod`, the launcher pod of `vmi`.
pub fn decide(vmi: &Value, pod: &Value, config: &ClusterConfig) -> Decision {
    let strategy = match text(vmi, "/spec/evictionStrategy") {
        "" => config.eviction_strategy().unwrap_or_default(),
        own => own,
    };
    let (namespace, name) = (text(vmi, "/metadata/namespace"), text(vmi, "/metadata/name"));
    let migratable = condition::is_true(vmi, "LiveMigratable");
    match strategy {
        "LiveMigrate" if !migratable => {
            return Decision::Deny(format!(
                "VMI {name} is configured with an eviction strategy but is not live-migratable"
            ));
        }
        "LiveMigrate" | "External" => {}
        "LiveMigrateIfPossible" if migratable => {}
        _ => return Decision::Allow,
    }
    let message = format!("Eviction triggered evacuation of VMI \"{namespace}/{name}\"");
    if !text(vmi, "/status/evacuationNodeName").is_empty() {
        return Decision::Deny(format!("Evacuation in progress: {message}"));
    }
    if text(vmi, "/status/nodeName") != text(pod, "/spec/nodeName") {
        return Decision::Deny("Eviction request for target Pod".into());
    }
    Decision::Evacuate(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(strategy: Value, migratable: &str, evacuating: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": "v"}, "spec": {"evictionStrategy": strategy},
            "status": {"nodeName": "one", "evacuationNodeName": evacuating,
                "conditions": [{"type": "LiveMigratable", "status": migratable}]}})
    }

    #[test]
    fn the_strategy_decides_about_an_eviction() {
        let triggered = "Eviction triggered evacuation of VMI \"n/v\"";
        let evacuate = || Decision::Evacuate(triggered.into());
        let deny = |why: &str| Decision::Deny(why.into());
        let running = format!("Evacuation in progress: {triggered}");
        let stuck = "VMI v is configured with an eviction strategy but is not live-migratable";
        let table = [
            (json!(null), "True", "", Decision::Allow),
            (json!("None"), "True", "", Decision::Allow),
            (json!("LiveMigrate"), "True", "", evacuate()),
            (json!("LiveMigrate"), "True", "one", deny(&running)),
            (json!("LiveMigrate"), "False", "", deny(stuck)),
            (json!("LiveMigrateIfPossible"), "True", "", evacuate()),
            (json!("LiveMigrateIfPossible"), "False", "", Decision::Allow),
            (json!("External"), "False", "", evacuate()),
            (json!("External"), "True", "one", deny(&running)),
        ];
        let pod = json!({"spec": {"nodeName": "one"}});
        let config = ClusterConfig::default();
        for (strategy, migratable, evacuating, expected) in table {
            let found = decide(&vmi(strategy.clone(), migratable, evacuating), &pod, &config);
            assert_eq!(found, expected, "{strategy} {migratable} {evacuating}");
        }
    }

    #[test]
    fn the_cluster_sets_the_strategy_of_instances_without_one() {
        let kubevirt = json!({"spec": {"configuration": {"evictionStrategy": "External"}}});
        let config = ClusterConfig::new(&kubevirt, "amd64");
        let pod = json!({"spec": {"nodeName": "one"}});
        let found = decide(&vmi(json!(null), "False", ""), &pod, &config);
        assert!(matches!(found, Decision::Evacuate(_)));
        let found = decide(&vmi(json!("None"), "False", ""), &pod, &config);
        assert_eq!(found, Decision::Allow);
        let target = json!({"spec": {"nodeName": "two"}});
        let found = decide(&vmi(json!("External"), "False", ""), &target, &config);
        assert_eq!(found, Decision::Deny("Eviction request for target Pod".into()));
    }

    #[test]
    fn only_launcher_pods_that_are_not_finished_count() {
        let pod = |label: &str, phase: &str| {
            json!({"metadata": {"labels": {"kubevirt.io": label},
                "annotations": {"kubevirt.io/domain": "v"}}, "status": {"phase": phase}})
        };
        assert!(is_active_launcher(&pod("virt-launcher", "Running")));
        assert!(!is_active_launcher(&pod("virt-launcher", "Failed")));
        assert!(!is_active_launcher(&pod("other", "Running")));
        assert_eq!(instance_of(&pod("virt-launcher", "Running")), Some("v"));
    }
}
