//! The CPU manager of a node: whether machines get processors of their own there. Pure.
//!
//! An administrator asks for a policy by an annotation of the node, as Harvester's action does; the
//! agent of the node sets the label, which placement follows, and completes the annotation.

use serde_json::{Value, json};

/// The label of a node; machines with dedicated processors are placed where it is `true`.
pub const LABEL: &str = "cpumanager";
/// The annotation that asks for a policy and says how far it has come.
pub const STATUS: &str = "harvesterhci.io/cpu-manager-update-status";

const REQUESTED: &str = "requested";
const SUCCESS: &str = "success";

/// The treatment of machines that ask for dedicated processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuPolicy {
    /// They get processors that no other machine uses.
    Static,
    /// They are not placed on the node.
    None,
}

impl CpuPolicy {
    /// As Kubernetes calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::None => "none",
        }
    }

    /// The policy that a node was asked for; static unless it was asked for none.
    pub fn of(node: &Value) -> Self {
        match request_of(node)["policy"].as_str() {
            Some("none") => Self::None,
            _ => Self::Static,
        }
    }

    /// The value of the label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Static => "true",
            Self::None => "false",
        }
    }

    /// The patch that asks a node for the policy.
    pub fn request(self) -> Value {
        json!({"metadata": {"annotations": {STATUS: self.annotation(REQUESTED)}}})
    }

    fn annotation(self, status: &str) -> String {
        json!({"policy": self.as_str(), "status": status}).to_string()
    }
}

/// Whether a policy was asked for that is not in effect yet.
pub fn is_requested(node: &Value) -> bool {
    request_of(node)["status"] == REQUESTED
}

/// The name of the Job that shows the change to a policy.
pub fn job_name(node: &str, policy: CpuPolicy) -> String {
    format!("update-cpu-manager-{node}-{}", policy.as_str())
}

fn request_of(node: &Value) -> Value {
    let text = node["metadata"]["annotations"][STATUS].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// The annotation once its policy is in effect; nothing for a node that was asked for none.
pub fn completed(node: &Value) -> Option<String> {
    node["metadata"]["annotations"].get(STATUS)?;
    let policy = CpuPolicy::of(node);
    let job = job_name(node["metadata"]["name"].as_str().unwrap_or_default(), policy);
    let (policy, status) = (policy.as_str(), SUCCESS);
    Some(json!({"policy": policy, "status": status, "jobName": job}).to_string())
}

/// The reasons to refuse a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuPolicyError {
    #[error("label {LABEL} not found")]
    NoLabel,
    #[error("there is other job {job} updating the cpu manager policy for this node {node}")]
    UnderWay { node: String, job: String },
    #[error("current cpu manager policy is already the same as requested value: {}", policy.as_str())]
    Same { policy: CpuPolicy },
    #[error("there should not be any running VMs with CPU pinning when disabling the CPU manager")]
    Pinned,
}

/// Whether a node can be given the policy; `instances` are those of the cluster.
pub fn check(node: &Value, policy: CpuPolicy, instances: &[Value]) -> Result<(), CpuPolicyError> {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let label = node["metadata"]["labels"][LABEL].as_str().ok_or(CpuPolicyError::NoLabel)?;
    if is_requested(node) {
        let job = job_name(name, CpuPolicy::of(node));
        return Err(CpuPolicyError::UnderWay { node: name.to_owned(), job });
    }
    if label == policy.label() {
        return Err(CpuPolicyError::Same { policy });
    }
    let is_pinned = |instance: &Value| {
        instance["status"]["nodeName"] == name
            && instance["spec"]["domain"]["cpu"]["dedicatedCpuPlacement"] == true
            && !matches!(instance["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    };
    if policy == CpuPolicy::None && instances.iter().any(is_pinned) {
        return Err(CpuPolicyError::Pinned);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(label: &str, request: Option<&str>) -> Value {
        json!({"metadata": {"name": "n1", "labels": {LABEL: label}, "annotations": {STATUS: request}}})
    }

    #[test]
    fn a_policy_is_changed_once_and_not_under_pinned_machines() {
        let pinned = |node: &str, phase: &str| {
            json!({"spec": {"domain": {"cpu": {"dedicatedCpuPlacement": true}}},
                "status": {"nodeName": node, "phase": phase}})
        };
        let under_way = CpuPolicy::None.annotation(REQUESTED);
        let same = |policy| Err(CpuPolicyError::Same { policy });
        let rows = [
            (node("true", None), CpuPolicy::None, vec![], Ok(())),
            (node("true", None), CpuPolicy::Static, vec![], same(CpuPolicy::Static)),
            (node("false", None), CpuPolicy::None, vec![], same(CpuPolicy::None)),
            (node("false", None), CpuPolicy::Static, vec![], Ok(())),
            (
                node("true", Some(&under_way)),
                CpuPolicy::Static,
                vec![],
                Err(CpuPolicyError::UnderWay {
                    node: "n1".into(),
                    job: "update-cpu-manager-n1-none".into(),
                }),
            ),
            (
                json!({"metadata": {"name": "n1"}}),
                CpuPolicy::None,
                vec![],
                Err(CpuPolicyError::NoLabel),
            ),
            (
                node("true", None),
                CpuPolicy::None,
                vec![pinned("n1", "Running")],
                Err(CpuPolicyError::Pinned),
            ),
            (
                node("true", None),
                CpuPolicy::None,
                vec![pinned("n2", "Running"), pinned("n1", "Succeeded")],
                Ok(()),
            ),
        ];
        for (node, policy, instances, expected) in rows {
            assert_eq!(check(&node, policy, &instances), expected, "{node} {policy:?}");
        }
    }

    #[test]
    fn a_request_is_followed_and_completed() {
        let mut node = node("true", None);
        node["metadata"]["annotations"] = json!({});
        assert_eq!((CpuPolicy::of(&node), completed(&node)), (CpuPolicy::Static, None));
        node["metadata"]["annotations"] =
            CpuPolicy::None.request()["metadata"]["annotations"].clone();
        assert_eq!(CpuPolicy::of(&node), CpuPolicy::None);
        let done = completed(&node).unwrap();
        let expected = json!({"policy": "none", "status": "success",
            "jobName": "update-cpu-manager-n1-none"});
        assert_eq!(serde_json::from_str::<Value>(&done).unwrap(), expected);
        assert!(is_requested(&node));
        node["metadata"]["annotations"][STATUS] = done.into();
        assert!(!is_requested(&node));
        node["metadata"]["annotations"][STATUS] = "not JSON".into();
        assert_eq!(CpuPolicy::of(&node), CpuPolicy::Static);
    }
}
