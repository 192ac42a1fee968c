//! Names and values by which the control plane and the agents agree about a node that falls
//! silent: its observers, their results, and the declaration that it is lost. Pure.
//!
//! ```text
//!  suspect's Node   sheaf.io/suspect: {"token":"…","observers":["n1","n3"]}      written by the controller
//!  observers' Nodes sheaf.io/sightings: {"n2":{"token":"…","agent":"refused",…}} written by their agents
//!  lost Node        sheaf.io/lost: TOKEN, and the taint of the same name         written by the controller
//!                   sheaf.io/rejoined: TOKEN                                     written by its own agent
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Taint of a node that was declared lost, and annotation with the token of that declaration.
pub const LOST: &str = "sheaf.io/lost";
/// Annotation of a node that does not renew its lease: a [`Suspicion`].
pub const SUSPECT: &str = "sheaf.io/suspect";
/// Annotation of a node: its observations of others, as [`Sightings`].
pub const SIGHTINGS: &str = "sheaf.io/sightings";
/// Annotation of a lost node that is back: the token of the declaration, once no guest runs there
/// whose instance is over.
pub const REJOINED: &str = "sheaf.io/rejoined";
/// Annotation of a node: the port where its storage process serves replicas.
pub const STORAGE_PORT: &str = "node.sheaf.io/storage-port";
/// Annotation of a machine or of its template: `false` keeps it from being started elsewhere when
/// its node is lost.
pub const RESTART_ELSEWHERE: &str = "sheaf.io/restart-elsewhere";
/// Taint by which a person vouches that a node is off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A node that other nodes are asked to probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// Names this question.
    pub token: String,
    pub observers: Vec<String>,
}

impl Suspicion {
    /// Reads the annotation [`SUSPECT`]; nothing if it cannot be understood.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How a port answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PortState {
    /// A connection was made.
    Open,
    /// The host refused the connection.
    Refused,
    /// No answer in time, or no route.
    Silent,
}

/// A node's observation of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The token of the question.
    pub token: String,
    pub agent: PortState,
    pub storage: PortState,
    /// For how many seconds, at least, the observer has reached neither port. Agents of earlier
    /// versions do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached: Option<u64>,
}

/// A node's observations of others, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sightings(pub BTreeMap<String, Sighting>);

impl Sightings {
    /// Reads the annotation [`SIGHTINGS`]; nothing was seen if it cannot be understood.
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Harvester's setting `vm-force-reset-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ForceResetPolicy {
    #[serde(default)]
    pub enable: bool,
    /// Seconds that a node has to be silent.
    #[serde(default)]
    pub period: u64,
}

impl ForceResetPolicy {
    /// Reads the value of the setting; one that cannot be understood switches nothing on.
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or(Self { enable: false, period: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_sightings_are_read_as_they_are_written() {
        let asked = Suspicion { token: "t".into(), observers: vec!["n1".into()] };
        assert_eq!(Suspicion::parse(&asked.encode()), Some(asked));
        assert_eq!(Suspicion::parse("{"), None);
        let seen = Sighting {
            token: "t".into(),
            agent: PortState::Refused,
            storage: PortState::Silent,
            unreached: None,
        };
        let all = Sightings(BTreeMap::from([("n2".to_owned(), seen)]));
        assert_eq!(all.encode(), r#"{"n2":{"token":"t","agent":"refused","storage":"silent"}}"#);
        assert_eq!(Sightings::parse(&all.encode()), all);
        assert_eq!(Sightings::parse("[]"), Sightings::default());
    }

    #[test]
    fn a_policy_that_cannot_be_read_restarts_nothing() {
        let default = r#"{"enable":true,"period":15,"vmMigrationTimeout":180}"#;
        for (text, enable, period) in [
            (default, true, 15),
            (r#"{"enable":false}"#, false, 0),
            ("", false, 0),
            ("x", false, 0),
        ] {
            assert_eq!(
                ForceResetPolicy::parse(text),
                ForceResetPolicy { enable, period },
                "{text}"
            );
        }
    }
}
