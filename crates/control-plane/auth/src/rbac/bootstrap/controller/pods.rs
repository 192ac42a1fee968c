//! Roles for the controllers of pods. None of them is ours; upstream's run against us as these.

use super::super::{
    APPS, AUTOSCALING, BATCH, CORE, EXTENSIONS, POLICY, READ, RESOURCE, STORAGE, events, on,
    on_groups,
};
use crate::rbac::rule::PolicyRule;

pub(super) fn controllers() -> Vec<(&'static str, Vec<PolicyRule>)> {
    [workloads(), jobs(), care()].concat()
}

/// Controllers that make pods.
#[expect(clippy::too_many_lines, reason = "a table: the rules of each role")]
fn workloads() -> Vec<(&'static str, Vec<PolicyRule>)> {
    vec![
        (
            "deployment-controller",
            vec![
                on_groups(
                    &["get", "list", "watch", "update"],
                    &[APPS, EXTENSIONS],
                    &["deployments"],
                ),
                on_groups(&["update"], &[APPS, EXTENSIONS], &["deployments/status"]),
                on_groups(&["update"], &[APPS, EXTENSIONS], &["deployments/finalizers"]),
                on_groups(
                    &["get", "list", "watch", "create", "update", "patch", "delete"],
                    &[APPS, EXTENSIONS],
                    &["replicasets"],
                ),
                on(&["get", "list", "watch", "update"], CORE, &["pods"]),
                events(),
            ],
        ),
        (
            "replicaset-controller",
            vec![
                on_groups(
                    &["get", "list", "watch", "update"],
                    &[APPS, EXTENSIONS],
                    &["replicasets"],
                ),
                on_groups(&["update"], &[APPS, EXTENSIONS], &["replicasets/status"]),
                on_groups(&["update"], &[APPS, EXTENSIONS], &["replicasets/finalizers"]),
                on(&["list", "watch", "create", "patch", "delete"], CORE, &["pods"]),
                events(),
            ],
        ),
        (
            "replication-controller",
            vec![
                on(&["get", "list", "watch", "update"], CORE, &["replicationcontrollers"]),
                on(&["update"], CORE, &["replicationcontrollers/status"]),
                on(&["update"], CORE, &["replicationcontrollers/finalizers"]),
                on(&["list", "watch", "create", "patch", "delete"], CORE, &["pods"]),
                events(),
            ],
        ),
        (
            "statefulset-controller",
            vec![
                on(&["list", "watch"], CORE, &["pods"]),
                on(READ, APPS, &["statefulsets"]),
                on(&["update"], APPS, &["statefulsets/status"]),
                on(&["update"], APPS, &["statefulsets/finalizers"]),
                on(&["get", "create", "update", "patch", "delete"], CORE, &["pods"]),
                on(
                    &["get", "list", "watch", "create", "update", "patch", "delete"],
                    APPS,
                    &["controllerrevisions"],
                ),
                on(&["get", "list", "watch", "create"], CORE, &["persistentvolumeclaims"]),
                on(&["update", "delete"], CORE, &["persistentvolumeclaims"]),
                on(&["update"], CORE, &["pods/finalizers"]),
                events(),
            ],
        ),
        (
            "daemon-set-controller",
            vec![
                on_groups(READ, &[APPS, EXTENSIONS], &["daemonsets"]),
                on_groups(&["update"], &[APPS, EXTENSIONS], &["daemonsets/status"]),
                on_groups(&["update"], &[APPS, EXTENSIONS], &["daemonsets/finalizers"]),
                on(&["list", "watch"], CORE, &["nodes"]),
                on(&["list", "watch", "create", "patch", "delete"], CORE, &["pods"]),
                on(&["create"], CORE, &["pods/binding"]),
                on(
                    &["get", "list", "watch", "create", "update", "patch", "delete"],
                    APPS,
                    &["controllerrevisions"],
                ),
                events(),
            ],
        ),
    ]
}

/// Controllers that make pods which end.
fn jobs() -> Vec<(&'static str, Vec<PolicyRule>)> {
    vec![
        (
            "job-controller",
            vec![
                on(&["get", "list", "watch", "update", "patch"], BATCH, &["jobs"]),
                on(&["update"], BATCH, &["jobs/status"]),
                on(&["update"], BATCH, &["jobs/finalizers"]),
                on(&["list", "watch", "create", "patch", "delete"], CORE, &["pods"]),
                events(),
            ],
        ),
        (
            "cronjob-controller",
            vec![
                on(&["get", "list", "watch", "update"], BATCH, &["cronjobs"]),
                on(
                    &["get", "list", "watch", "create", "update", "patch", "delete"],
                    BATCH,
                    &["jobs"],
                ),
                on(&["update"], BATCH, &["cronjobs/status"]),
                on(&["update"], BATCH, &["cronjobs/finalizers"]),
                on(&["list", "watch", "delete"], CORE, &["pods"]),
                events(),
            ],
        ),
        (
            "ttl-after-finished-controller",
            vec![on(&["get", "list", "watch", "delete"], BATCH, &["jobs"]), events()],
        ),
    ]
}

/// Controllers that manage pods which others have made.
#[expect(clippy::too_many_lines, reason = "a table: the rules of each role")]
fn care() -> Vec<(&'static str, Vec<PolicyRule>)> {
    vec![
        (
            "disruption-controller",
            vec![
                on_groups(READ, &[APPS, EXTENSIONS], &["deployments"]),
                on_groups(READ, &[APPS, EXTENSIONS], &["replicasets"]),
                on(READ, CORE, &["replicationcontrollers"]),
                on(READ, POLICY, &["poddisruptionbudgets"]),
                on(READ, APPS, &["statefulsets"]),
                on(&["update"], POLICY, &["poddisruptionbudgets/status"]),
                on(&["update", "patch"], CORE, &["pods/status"]),
                on(&["get"], "*", &["*/scale"]),
                events(),
            ],
        ),
        (
            "horizontal-pod-autoscaler",
            vec![
                on(READ, AUTOSCALING, &["horizontalpodautoscalers"]),
                on(&["update"], AUTOSCALING, &["horizontalpodautoscalers/status"]),
                on(&["get", "update"], "*", &["*/scale"]),
                on(&["list", "watch"], CORE, &["pods"]),
                on(&["list", "watch"], "metrics.k8s.io", &["pods"]),
                on(READ, "custom.metrics.k8s.io", &["*"]),
                on(READ, "external.metrics.k8s.io", &["*"]),
                events(),
            ],
        ),
        (
            "pod-garbage-collector",
            vec![
                on(&["list", "watch", "delete"], CORE, &["pods"]),
                on(READ, CORE, &["nodes"]),
                on(&["patch"], CORE, &["pods/status"]),
            ],
        ),
        (
            "ephemeral-volume-controller",
            vec![
                on(READ, CORE, &["pods"]),
                on(&["update"], CORE, &["pods/finalizers"]),
                on(&["get", "list", "watch", "create"], CORE, &["persistentvolumeclaims"]),
                events(),
            ],
        ),
        (
            "resource-claim-controller",
            vec![
                on(READ, CORE, &["pods"]),
                on(&["update"], CORE, &["pods/finalizers"]),
                on(&["get", "list", "watch", "create", "delete"], RESOURCE, &["resourceclaims"]),
                on(&["update", "patch"], RESOURCE, &["resourceclaims", "resourceclaims/status"]),
                on(&["update", "patch"], CORE, &["pods/status"]),
                events(),
            ],
        ),
        (
            "route-controller",
            vec![
                on(&["list", "watch"], CORE, &["nodes"]),
                on(&["patch"], CORE, &["nodes/status"]),
                events(),
            ],
        ),
        (
            "selinux-warning-controller",
            vec![
                on(READ, CORE, &["persistentvolumes"]),
                on(READ, CORE, &["persistentvolumeclaims"]),
                on(READ, CORE, &["pods"]),
                on(READ, STORAGE, &["csidrivers"]),
                events(),
            ],
        ),
    ]
}
