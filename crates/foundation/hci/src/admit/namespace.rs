//! Namespaces: quotas that are not below what is used, and labels of pod security that the setting
//! `cluster-pod-security-standard` decides. Errors that upstream answers with 500 are 422 here, so
//! that clients do not repeat a request that cannot succeed.

use serde_json::Value;
use types::Quantity;

use super::{AdmissionResult, HARVESTER, Refusal, Write, machine_quota as quotas, project, text};
use crate::cluster_setting::effective;
use crate::machine_quota;
use crate::project::QUOTA;

const SETTING: &str = "cluster-pod-security-standard";
const LABELS: [&str; 7] = [
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/enforce-version",
    "pod-security.kubernetes.io/audit",
    "pod-security.kubernetes.io/audit-version",
    "pod-security.kubernetes.io/warn",
    "pod-security.kubernetes.io/warn-version",
    "pss.harvesterhci.io/managed",
];
/// Namespaces of the platform, which no standard restricts.
const PLATFORM: [&str; 44] = [
    "calico-apiserver",
    "calico-system",
    "cattle-alerting",
    "cattle-csp-adapter-system",
    "cattle-elemental-system",
    "cattle-epinio-system",
    "cattle-externalip-system",
    "cattle-fleet-local-system",
    "cattle-fleet-system",
    "cattle-gatekeeper-system",
    "cattle-global-data",
    "cattle-global-nt",
    "cattle-impersonation-system",
    "cattle-istio",
    "cattle-istio-system",
    "cattle-logging",
    "cattle-logging-system",
    "cattle-monitoring-system",
    "cattle-neuvector-system",
    "cattle-prometheus",
    "cattle-provisioning-capi-system",
    "cattle-resources-system",
    "cattle-sriov-system",
    "cattle-system",
    "cattle-ui-plugin-system",
    "cattle-windows-gmsa-system",
    "cert-manager",
    "cis-operator-system",
    "fleet-default",
    "ingress-nginx",
    "istio-system",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    "longhorn-system",
    "rancher-alerting-drivers",
    "security-scan",
    "tigera-operator",
    "harvester-system",
    "rancher-vcluster",
    "cattle-dashboards",
    "fleet-local",
    "local",
    "forklift",
];

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    project::validate_namespace(write)?;
    let Some(new) = write.object else { return Ok(()) };
    if let Some(old) = write.old {
        validate_quota(write, new, old)?;
    }
    validate_labels(write, new)
}

/// The limits do not change while machines move, and stay above what is used.
fn validate_quota(write: &Write<'_>, new: &Value, old: &Value) -> AdmissionResult {
    let of = |object: &Value| {
        object["metadata"]["annotations"][QUOTA].as_str().unwrap_or_default().to_owned()
    };
    let wanted = of(new);
    if wanted.is_empty() || wanted == of(old) {
        return Ok(());
    }
    let refuse = |message: String| Err(Refusal::invalid("metadata.annotations", message));
    // The quota is in the namespace.
    let all = quotas::quotas(&Write { namespace: write.name, ..*write });
    let Some(quota) = all.first() else { return Ok(()) };
    let name = write.name;
    if machine_quota::has_migrations(quota) {
        return refuse(format!("namespace {name} has migrating VMs, can't change resource quotas"));
    }
    let wanted: Value = serde_json::from_str(&wanted).unwrap_or_default();
    for (field, resource, what) in
        [("limitsCpu", "limits.cpu", "CPU"), ("limitsMemory", "limits.memory", "Memory")]
    {
        let amount = |value: &Value| Quantity::from_json(value).ok();
        let used = amount(&quota["status"]["used"][resource]);
        let limit = amount(&wanted["limit"][field]);
        if let (Some(used), Some(limit)) = (used, limit)
            && used > limit
        {
            return refuse(format!(
                "can't update the resource quota of namespace {name}, error: new {what} limit {limit} is lower than the current used {what} limit {used}"
            ));
        }
    }
    Ok(())
}

fn validate_labels(write: &Write<'_>, new: &Value) -> AdmissionResult {
    if write.trusted || PLATFORM.contains(&write.name) {
        return Ok(());
    }
    let setting = write.objects.get(HARVESTER, "settings", "", SETTING);
    let setting: Value =
        serde_json::from_str(&effective(SETTING, setting.as_ref())).unwrap_or_default();
    let excepted = text(&setting, "/whitelistedNamespacesList");
    if setting["enabled"] != true || excepted.split(',').any(|own| own.trim() == write.name) {
        return Ok(());
    }
    let labels = |object: &Value| object["metadata"]["labels"].clone();
    let (new, old) = (labels(new), write.old.map(labels));
    let message = match old {
        Some(old) if LABELS.iter().any(|key| new[*key] != old[*key]) => {
            format!(
                "{SETTING} is enabled, PSS level can only be changed by cluster admin via the setting"
            )
        }
        None if LABELS.iter().any(|key| new.get(*key).is_some()) => format!(
            "{SETTING} is enabled, PSS level cannot be set during namespace creation, please remove PSS related labels from the namespace manifest and try again"
        ),
        _ => return Ok(()),
    };
    Err(Refusal::invalid("metadata.labels", message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admit::tests::{Cluster, judged, refused};

    const KIND: (&str, &str) = ("", "namespaces");

    fn namespace(name: &str, labels: Value, cpu: &str) -> Value {
        let quota = json!({"limit": {"limitsCpu": cpu, "limitsMemory": "4Gi"}}).to_string();
        json!({"metadata": {"name": name, "labels": labels, "annotations": {QUOTA: quota}}})
    }

    fn quota(annotations: Value, used: Value) -> Cluster {
        let labels = json!({"management.cattle.io/project": "p"});
        let quota = json!({"metadata": {"namespace": "shop", "name": "q", "labels": labels,
            "annotations": annotations}, "status": {"used": used}});
        Cluster(vec![("", "resourcequotas", quota)])
    }

    #[test]
    fn limits_stay_above_what_is_used_and_while_machines_move() {
        let (old, new) = (namespace("shop", json!({}), "4"), namespace("shop", json!({}), "2"));
        let moves = json!({format!("{}1", machine_quota::MIGRATING): "{}"});
        let error = "can't update the resource quota of namespace shop, error:";
        for (cluster, text) in [
            (quota(json!({}), json!({"limits.cpu": "2", "limits.memory": "4Gi"})), String::new()),
            (Cluster(vec![]), String::new()),
            (
                quota(moves, json!({})),
                "namespace shop has migrating VMs, can't change resource quotas".to_owned(),
            ),
            (
                quota(json!({}), json!({"limits.cpu": "3"})),
                format!("{error} new CPU limit 2 is lower than the current used CPU limit 3"),
            ),
            (
                quota(json!({}), json!({"limits.memory": "5Gi"})),
                format!(
                    "{error} new Memory limit 4Gi is lower than the current used Memory limit 5Gi"
                ),
            ),
        ] {
            let expected = if text.is_empty() { Ok(()) } else { refused(422, &text) };
            assert_eq!(judged(KIND, Some(&new), Some(&old), &cluster), expected);
        }
    }

    #[test]
    fn levels_of_pod_security_are_the_settings() {
        let setting = |enabled: bool| {
            let value = json!({"enabled": enabled, "whitelistedNamespacesList": "free, lab"});
            let setting = json!({"metadata": {"name": SETTING}, "value": value.to_string()});
            Cluster(vec![(HARVESTER, "settings", setting)])
        };
        let labelled =
            |name: &str| namespace(name, json!({"pod-security.kubernetes.io/warn": "x"}), "1");
        let plain = |name: &str| namespace(name, json!({"own": "x"}), "1");
        let (on, off) = (setting(true), setting(false));
        let create = "cluster-pod-security-standard is enabled, PSS level cannot be set during namespace creation, please remove PSS related labels from the namespace manifest and try again";
        let update = "cluster-pod-security-standard is enabled, PSS level can only be changed by cluster admin via the setting";
        for (new, old, cluster, expected) in [
            (labelled("a"), None, &on, refused(422, create)),
            (labelled("a"), Some(plain("a")), &on, refused(422, update)),
            (plain("a"), Some(labelled("a")), &on, refused(422, update)),
            (labelled("a"), Some(labelled("a")), &on, Ok(())),
            (plain("a"), None, &on, Ok(())),
            (labelled("lab"), None, &on, Ok(())),
            (labelled("kube-system"), None, &on, Ok(())),
            (labelled("a"), None, &off, Ok(())),
        ] {
            assert_eq!(judged(KIND, Some(&new), old.as_ref(), cluster), expected, "{new}");
        }
    }
}
