//! Upgrade of the program on all nodes: the request of the control plane to a node, the report of
//! a node, and the checks before it begins. Pure.
//!
//! Both sides talk by annotations of the Node, as in maintenance. A program is named by the SHA-512
//! sum of its file, so that a node never runs anything but what was asked for.

mod checks;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use checks::{CheckedObjects, Finding, check, check_version, lacks_copies};

/// Annotation of a Node: the program that the control plane requests, as JSON.
pub const REQUEST: &str = "sheaf.io/program-request";
/// Annotation of a Node: the programs that it has and runs, as JSON.
pub const REPORT: &str = "sheaf.io/program-report";
/// Annotation of an Upgrade: `pause`, `abort` or `finalize`.
pub const INTENT: &str = "sheaf.io/upgrade-intent";
/// Annotation of an Upgrade: names of nodes that are left out, separated by commas.
pub const SKIPPED_NODES: &str = "sheaf.io/upgrade-skip-nodes";
/// Annotation of an Upgrade that counts attempts: a node that failed tries again with the next.
pub const ATTEMPT: &str = "sheaf.io/upgrade-attempt";
/// Annotation of a finished Upgrade that cannot be undone any more.
pub const FINALIZED: &str = "sheaf.io/upgrade-finalized";
/// Annotation of an Upgrade that leaves the checks out, as upstream's.
pub const SKIP_CHECKS: &str = "harvesterhci.io/skipWebhook";
/// Annotation of an Upgrade with the nodes that wait for an administrator: `{"node": "pause"}`.
pub const PAUSE_MAP: &str = "harvesterhci.io/node-upgrade-pause-map";
/// Labels of an Upgrade, as upstream's clients read them.
pub const STATE_LABEL: &str = "harvesterhci.io/upgradeState";
pub const LATEST_LABEL: &str = "harvesterhci.io/latestUpgrade";
/// URL of a Version whose program was uploaded to the API.
pub const UPLOADED: &str = "sheaf://programs";

/// The newest layout of stored data that this program writes once an upgrade is finalized, and the
/// oldest that it reads. A cluster never goes beyond the least of its nodes.
pub const LEVEL: u32 = 1;
pub const OLDEST_LEVEL: u32 = 1;

/// Whether an upgrade has succeeded or failed.
pub fn has_ended(upgrade: &Value) -> bool {
    let mut conditions = upgrade["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|own| own["type"] == "Completed" && own["status"] != "Unknown")
}

/// SHA-512 sum of the file of a program, in lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProgramDigest(String);

/// A digest has 128 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a SHA-512 sum: 128 lower-case hexadecimal digits are needed")]
pub struct BadDigest(pub String);

impl ProgramDigest {
    pub fn parse(text: &str) -> Result<Self, BadDigest> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text.len() == 128 && text.bytes().all(is_digit) {
            true => Ok(Self(text.to_owned())),
            false => Err(BadDigest(text.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Enough to distinguish programs in a message.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Display for ProgramDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for ProgramDigest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        Self::parse(&text)
    }
}

impl From<ProgramDigest> for String {
    fn from(digest: ProgramDigest) -> Self {
        digest.0
    }
}

/// How far a node is to go with a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramStep {
    /// Download it, verify its checksum and run its preflight checks.
    Prepare,
    /// Run the server from it.
    Run,
    /// Run the storage process from it, too.
    Storage,
}

/// The request of the control plane to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramRequest {
    /// A node that failed tries again when this changes.
    pub id: String,
    pub digest: ProgramDigest,
    pub step: ProgramStep,
    /// Place to fetch it from if no API server has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The layout of stored data that the cluster has been raised to.
    pub cluster_level: u32,
}

/// Programs of a node, as it reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProgramReport {
    /// The program of the server. Nothing until it was needed: summing up a file takes a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<ProgramDigest>,
    /// Whether it must still prove itself: it is replaced by the one before if it does not.
    pub is_trial: bool,
    /// Whether the storage process runs another program than the server.
    pub is_storage_outdated: bool,
    pub version: String,
    pub level: u32,
    /// A program that is ready to be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared: Option<ProgramDigest>,
    /// The program that ran before, to which the node can go back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<ProgramDigest>,
    /// The request that could not be carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<ProgramFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFailure {
    /// Of the request.
    pub id: String,
    pub message: String,
}

impl ProgramReport {
    pub fn of(node: &Value) -> Option<Self> {
        parsed(node, REPORT)
    }

    /// Whether all of the node runs the program, for good.
    pub fn has_settled_on(&self, digest: &ProgramDigest) -> bool {
        self.running.as_ref() == Some(digest) && !self.is_trial && !self.is_storage_outdated
    }

    /// The failure of this request.
    pub fn failure_of(&self, request: &ProgramRequest) -> Option<&str> {
        let failure = self.failure.as_ref().filter(|failure| failure.id == request.id)?;
        Some(&failure.message)
    }
}

impl ProgramRequest {
    pub fn of(node: &Value) -> Option<Self> {
        parsed(node, REQUEST)
    }
}

/// An annotation that cannot be read counts as absent: it is written anew.
fn parsed<T: for<'a> Deserialize<'a>>(node: &Value, key: &str) -> Option<T> {
    serde_json::from_str(node["metadata"]["annotations"][key].as_str()?).ok()
}

/// The administrator's instruction for an upgrade that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeIntent {
    Proceed,
    /// No further node is begun.
    Pause,
    /// Nodes that were upgraded go back.
    Abort,
    /// No way back from now on.
    Finalize,
}

impl UpgradeIntent {
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("") => Some(Self::Proceed),
            Some("pause") => Some(Self::Pause),
            Some("abort") => Some(Self::Abort),
            Some("finalize") => Some(Self::Finalize),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_digest_has_128_digits() {
        let good = "0a".repeat(64);
        assert_eq!(ProgramDigest::parse(&good).unwrap().short(), "0a0a0a0a0a0a");
        for bad in ["", "0a", &"0A".repeat(64), &"0g".repeat(64), "../../etc/passwd"] {
            assert_eq!(ProgramDigest::parse(bad), Err(BadDigest(bad.to_owned())));
        }
        let text = json!({"id": "1", "digest": "x", "step": "run", "clusterLevel": 1}).to_string();
        assert!(serde_json::from_str::<ProgramRequest>(&text).is_err());
    }

    #[test]
    fn requests_and_reports_are_read_back() {
        let digest = ProgramDigest::parse(&"ab".repeat(64)).unwrap();
        let request = ProgramRequest {
            id: "u/1".into(),
            digest: digest.clone(),
            step: ProgramStep::Prepare,
            url: None,
            cluster_level: 1,
        };
        let report = ProgramReport {
            running: Some(digest.clone()),
            failure: Some(ProgramFailure { id: "u/1".into(), message: "disk is full".into() }),
            ..Default::default()
        };
        let node = json!({"metadata": {"annotations": {
            REQUEST: serde_json::to_string(&request).unwrap(),
            REPORT: serde_json::to_string(&report).unwrap(),
        }}});
        assert_eq!(ProgramRequest::of(&node), Some(request.clone()));
        assert_eq!(ProgramReport::of(&node), Some(report.clone()));
        assert_eq!(report.failure_of(&request), Some("disk is full"));
        assert_eq!(report.failure_of(&ProgramRequest { id: "u/2".into(), ..request }), None);
        assert!(report.has_settled_on(&digest));
        assert!(!ProgramReport { is_storage_outdated: true, ..report }.has_settled_on(&digest));
    }

    #[test]
    fn an_unknown_intent_is_none() {
        assert_eq!(UpgradeIntent::parse(None), Some(UpgradeIntent::Proceed));
        assert_eq!(UpgradeIntent::parse(Some("abort")), Some(UpgradeIntent::Abort));
        assert_eq!(UpgradeIntent::parse(Some("stop")), None);
    }
}
