//! MigrationPolicy: which policy is for an instance, and the configuration that results. Pure.

use serde_json::Value;
use virt::api::migrations::MigrationPolicy;
use virt::v1::MigrationConfiguration;

use crate::object;

/// A configuration, and the policy that it was taken from.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct EffectiveConfiguration {
    pub(super) values: MigrationConfiguration,
    pub(super) policy: Option<String>,
}

/// How many labels a policy asks for, all of which are there; nothing if one is missing.
fn matching_labels(policy: &MigrationPolicy, namespace: &Value, vmi: &Value) -> Option<usize> {
    let selectors = &policy.spec.selectors;
    let pairs = [
        (&selectors.namespace_selector, namespace),
        (&selectors.virtual_machine_instance_selector, vmi),
    ];
    let mut count = 0;
    for (wanted, object) in pairs {
        let labels = &object["metadata"]["labels"];
        if !wanted.iter().all(|(key, value)| labels[key.as_str()] == value.as_str()) {
            return None;
        }
        count += wanted.len();
    }
    // A policy without selectors selects no machine, as in KubeVirt.
    (count > 0).then_some(count)
}

/// The policy with the most labels that are there; of several, the first by name.
fn choose<'a>(
    policies: &'a [Value],
    namespace: &Value,
    vmi: &Value,
) -> Option<(&'a str, MigrationPolicy)> {
    let found = policies.iter().filter_map(|object| {
        let policy: MigrationPolicy = serde_json::from_value(object.clone()).ok()?;
        let count = matching_labels(&policy, namespace, vmi)?;
        Some((count, object::name(object), policy))
    });
    let best = found.min_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)))?;
    Some((best.1, best.2))
}

/// The configuration of the cluster with the values that the policy of an instance sets.
pub(super) fn effective(
    cluster: MigrationConfiguration,
    policies: &[Value],
    namespace: &Value,
    vmi: &Value,
) -> EffectiveConfiguration {
    let Some((name, policy)) = choose(policies, namespace, vmi) else {
        return EffectiveConfiguration { values: cluster, policy: None };
    };
    let spec = policy.spec;
    let values = MigrationConfiguration {
        allow_auto_converge: spec.allow_auto_converge.or(cluster.allow_auto_converge),
        bandwidth_per_migration: spec.bandwidth_per_migration.or(cluster.bandwidth_per_migration),
        completion_timeout_per_gi_b: spec
            .completion_timeout_per_gi_b
            .or(cluster.completion_timeout_per_gi_b),
        max_downtime_ms: spec.max_downtime_ms.or(cluster.max_downtime_ms),
        allow_post_copy: spec.allow_post_copy.or(cluster.allow_post_copy),
        allow_workload_disruption: spec
            .allow_workload_disruption
            .or(cluster.allow_workload_disruption),
        ..cluster
    };
    EffectiveConfiguration { values, policy: Some(name.to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(name: &str, namespace: &Value, vmi: &Value, spec: &Value) -> Value {
        let mut policy = json!({"metadata": {"name": name}, "spec": spec});
        policy["spec"]["selectors"] = json!({"namespaceSelector": namespace,
            "virtualMachineInstanceSelector": vmi});
        policy
    }

    #[test]
    fn the_most_exact_policy_counts_and_then_the_first_name() {
        let namespace = json!({"metadata": {"labels": {"team": "a"}}});
        let vmi = json!({"metadata": {"labels": {"app": "db", "tier": "1"}}});
        let (none, app, both, team) = (
            json!({}),
            json!({"app": "db"}),
            json!({"app": "db", "tier": "1"}),
            json!({"team": "a"}),
        );
        let other = json!({"app": "web"});
        for (name, policies, expected) in [
            ("none", vec![], None),
            ("no selector", vec![("p", &none, &none)], None),
            ("another app", vec![("p", &none, &other)], None),
            ("a namespace", vec![("p", &team, &none)], Some("p")),
            ("half of it", vec![("p", &team, &other)], None),
            ("more labels", vec![("a", &none, &app), ("b", &none, &both)], Some("b")),
            ("labels add up", vec![("a", &none, &app), ("b", &team, &app)], Some("b")),
            ("a tie", vec![("b", &none, &app), ("a", &team, &none)], Some("a")),
        ] {
            let policies: Vec<Value> =
                policies.iter().map(|(name, ns, vmi)| policy(name, ns, vmi, &json!({}))).collect();
            let found = effective(MigrationConfiguration::default(), &policies, &namespace, &vmi);
            assert_eq!(found.policy.as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_policy_overrides_what_it_sets_and_nothing_else() {
        let cluster: MigrationConfiguration = serde_json::from_value(json!({
            "bandwidthPerMigration": "64Mi", "allowAutoConverge": true, "progressTimeout": 7,
            "parallelMigrationsPerCluster": 3}))
        .unwrap();
        let spec = json!({"bandwidthPerMigration": "1Mi", "completionTimeoutPerGiB": 9,
            "allowAutoConverge": false, "allowWorkloadDisruption": true, "maxDowntimeMs": 50});
        let label = json!({"a": "b"});
        let vmi = json!({"metadata": {"labels": label}});
        let policies = [policy("p", &json!({}), &label, &spec)];
        let found = effective(cluster, &policies, &Value::Null, &vmi).values;
        let found = serde_json::to_value(found).unwrap();
        for (field, expected) in [
            ("bandwidthPerMigration", json!("1Mi")),
            ("completionTimeoutPerGiB", json!(9)),
            ("allowAutoConverge", json!(false)),
            ("allowWorkloadDisruption", json!(true)),
            ("maxDowntimeMs", json!(50)),
            ("progressTimeout", json!(7)),
            ("parallelMigrationsPerCluster", json!(3)),
        ] {
            assert_eq!(found[field], expected, "{field}");
        }
    }
}
