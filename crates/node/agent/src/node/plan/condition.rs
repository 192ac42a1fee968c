//! The conditions of a Node that this agent owns, from what was found on the host. Pure.

use base::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::config::NodeRole;
use crate::host::{GuestIsolation, Virtualization};
use crate::network::NetworkShortcoming;
use crate::node::facts::HostFacts;

/// Below this, new guests would push the host into swapping or worse.
const LEAST_MEMORY: u64 = 100 << 20;

/// The content of one condition.
struct NodeFinding {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Ours with what is found now, in the usual order, after those of others.
pub(super) fn all_conditions(
    role: NodeRole,
    facts: &HostFacts,
    have: &[Value],
    now: Timestamp,
) -> Vec<Value> {
    let findings = findings(role, facts);
    let is_ours =
        |condition: &&Value| findings.iter().any(|finding| condition["type"] == finding.kind);
    let mut all: Vec<Value> = have.iter().filter(|each| !is_ours(each)).cloned().collect();
    for finding in &findings {
        let before = have.iter().find(|condition| condition["type"] == finding.kind);
        all.push(condition(finding, before, now));
    }
    all
}

fn condition(finding: &NodeFinding, before: Option<&Value>, now: Timestamp) -> Value {
    let same = |field: &str, value: &str| before.is_some_and(|before| before[field] == value);
    let unchanged = same("status", finding.status)
        && same("reason", finding.reason)
        && same("message", &finding.message);
    if unchanged && let Some(before) = before {
        return before.clone();
    }
    let now = Value::from(rfc3339(now));
    let since = before
        .filter(|_| same("status", finding.status))
        .map(|before| before["lastTransitionTime"].clone());
    json!({
        "type": finding.kind,
        "status": finding.status,
        "reason": finding.reason,
        "message": finding.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since.unwrap_or(now),
    })
}

fn findings(role: NodeRole, facts: &HostFacts) -> Vec<NodeFinding> {
    let pressure = |kind, is: bool, bad: (&'static str, &str), good: (&'static str, &str)| {
        let (reason, message) = if is { bad } else { good };
        let status = if is { "True" } else { "False" };
        NodeFinding { kind, status, reason, message: message.into() }
    };
    let (status, reason, message) = match &facts.findings.virtualization {
        _ if role == NodeRole::Witness => {
            ("False", "Witness", "a witness runs no machines".to_owned())
        }
        Virtualization::Kvm { qemu } => {
            ("True", "Kvm", format!("guests run under KVM, QEMU {qemu}"))
        }
        Virtualization::Emulated { qemu, why } => {
            ("True", "Emulated", format!("guests are emulated by QEMU {qemu}: {why}"))
        }
        Virtualization::Missing { what } => ("False", "QemuMissing", what.clone()),
        Virtualization::Unknown => ("Unknown", "NotTried", "not tried yet".into()),
    };
    vec![
        pressure(
            "MemoryPressure",
            facts.memory.available < LEAST_MEMORY,
            ("KubeletHasInsufficientMemory", "less than 100Mi of memory are available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        pressure(
            "DiskPressure",
            facts.disk.free < facts.disk.total / 20,
            ("KubeletHasDiskPressure", "less than 5% of the data directory's disk are free"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        pressure(
            "PIDPressure",
            false,
            ("KubeletHasInsufficientPID", ""),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
        NodeFinding { kind: "Virtualization", status, reason, message },
        network(role, facts.findings.network.as_ref()),
        isolation(role, facts.findings.isolation.as_ref()),
        NodeFinding {
            kind: "Ready",
            status: "True",
            reason: "KubeletReady",
            message: "the agent is running".into(),
        },
    ]
}

fn isolation(role: NodeRole, found: Option<&GuestIsolation>) -> NodeFinding {
    let (status, reason, message) = match found {
        _ if role == NodeRole::Witness => {
            ("False", "Witness", "a witness runs no machines".to_owned())
        }
        None => ("Unknown", "NotTried", "not tried yet".into()),
        Some(GuestIsolation::Namespaces) => {
            ("True", "Namespaces", "each guest's QEMU has namespaces of its own".into())
        }
        Some(GuestIsolation::Unprivileged) => (
            "False",
            "Unprivileged",
            "guests run as the user of the agent, which is not root".into(),
        ),
        Some(GuestIsolation::Refused { why }) => {
            ("False", "Refused", format!("guests' QEMU has no namespaces of its own: {why}"))
        }
    };
    NodeFinding { kind: "GuestIsolation", status, reason, message }
}

fn network(role: NodeRole, shortcoming: Option<&NetworkShortcoming>) -> NodeFinding {
    let (status, reason, message) = match shortcoming {
        _ if role == NodeRole::Witness => {
            ("False", "Witness", "a witness has no guest network".to_owned())
        }
        None => ("True", "Bridged", "guests have addresses on a network of this node".into()),
        Some(NetworkShortcoming::UserMode) => {
            ("False", "UserMode", "guests have user-mode networks, as asked".into())
        }
        Some(NetworkShortcoming::Unavailable(why)) => {
            ("False", "Unavailable", format!("machines on the guest network do not start: {why}"))
        }
    };
    NodeFinding { kind: "GuestNetwork", status, reason, message }
}
