//! Whether a node is still seen after a change of its network. Pure.
//!
//! A check that failed before the change proves nothing when it fails afterwards, so that only those
//! that passed are required: the gateway, and more than half of the other nodes. The API server must
//! answer in any case. Nodes on a new path could not answer before: one of them must on each interface
//! that is new or has another address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::name::LinkName;

/// An address that is pinged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PingTarget {
    pub address: IpAddr,
    /// The interface that the ping leaves through; the routes decide without one.
    pub link: Option<LinkName>,
}

/// Everything that is pinged in a round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingTargets {
    pub gateways: Vec<PingTarget>,
    pub peers: Vec<PingTarget>,
    /// Addresses of other nodes in the VLAN that the change concerns.
    pub new_path: Vec<PingTarget>,
}

/// The outcome of a round of checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthRound {
    /// Why the API server did not answer.
    pub api: Option<String>,
    /// Targets that answered.
    pub answered: Vec<PingTarget>,
}

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthFailure {
    #[error("the API server does not answer: {reason}")]
    Api { reason: String },
    #[error("the gateway {address} does not answer any more")]
    Gateway { address: IpAddr },
    #[error("{answered} of {expected} other nodes answer, and {needed} are needed")]
    Peers { answered: usize, expected: usize, needed: usize },
    #[error("none of the other nodes answers on {link}, of {}", list(.addresses))]
    NewPath { link: String, addresses: Vec<IpAddr> },
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl PingTargets {
    pub fn all(&self) -> impl Iterator<Item = &PingTarget> {
        self.gateways.iter().chain(&self.peers).chain(&self.new_path)
    }
}

impl HealthRound {
    fn has(&self, target: &PingTarget) -> bool {
        self.answered.contains(target)
    }

    /// Compares with the round before the change.
    pub fn judge(&self, before: &Self, targets: &PingTargets) -> Result<(), HealthFailure> {
        if let Some(reason) = &self.api {
            return Err(HealthFailure::Api { reason: reason.clone() });
        }
        let lost = |target: &&PingTarget| before.has(target) && !self.has(target);
        if let Some(gateway) = targets.gateways.iter().find(lost) {
            return Err(HealthFailure::Gateway { address: gateway.address });
        }
        let expected: Vec<_> = targets.peers.iter().filter(|peer| before.has(peer)).collect();
        let answered = expected.iter().filter(|peer| self.has(peer)).count();
        let needed = expected.len() / 2 + usize::from(!expected.is_empty());
        if answered < needed {
            let expected = expected.len();
            return Err(HealthFailure::Peers { answered, expected, needed });
        }
        let mut paths: BTreeMap<Option<&LinkName>, Vec<&PingTarget>> = BTreeMap::new();
        for target in &targets.new_path {
            paths.entry(target.link.as_ref()).or_default().push(target);
        }
        let silent = paths.iter().find(|(_, others)| !others.iter().any(|other| self.has(other)));
        match silent {
            None => Ok(()),
            Some((link, others)) => {
                let addresses = others.iter().map(|other| other.address).collect();
                let link = link.map(ToString::to_string).unwrap_or_default();
                Err(HealthFailure::NewPath { link, addresses })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(last: u8) -> PingTarget {
        PingTarget { address: [192, 0, 2, last].into(), link: None }
    }

    fn round(answered: &[u8]) -> HealthRound {
        HealthRound { api: None, answered: answered.iter().copied().map(target).collect() }
    }

    #[test]
    fn only_what_answered_before_is_required() {
        let targets = PingTargets {
            gateways: vec![target(1)],
            peers: [11, 12, 13].map(target).into(),
            new_path: vec![],
        };
        for (before, now, failure) in [
            (&[1, 11, 12, 13][..], &[1, 11, 12, 13][..], ""),
            (&[1, 11, 12, 13], &[1, 11, 12], ""),
            (&[1, 11, 12, 13], &[1, 11], "1 of 3 other nodes answer, and 2 are needed"),
            (&[1, 11, 12, 13], &[11, 12, 13], "the gateway 192.0.2.1 does not answer any more"),
            (&[11], &[11], ""),
            (&[11], &[12, 13], "0 of 1 other nodes answer, and 1 are needed"),
            (&[], &[], ""),
        ] {
            let judged = round(now).judge(&round(before), &targets);
            let text = judged.map_or_else(|failure| failure.to_string(), |()| String::new());
            assert_eq!(text, failure, "{before:?} {now:?}");
        }
    }

    #[test]
    fn the_api_server_and_one_node_on_the_new_path_must_answer() {
        let targets = PingTargets { new_path: [21, 22].map(target).into(), ..Default::default() };
        assert_eq!(round(&[22]).judge(&round(&[]), &targets), Ok(()));
        let failure = round(&[]).judge(&round(&[]), &targets).unwrap_err();
        assert!(failure.to_string().ends_with("of 192.0.2.21, 192.0.2.22"), "{failure}");
        // An answer on one interface proves nothing about another.
        let other = PingTarget { link: Some("lan-br.20".parse().unwrap()), ..target(23) };
        let mut both = targets.clone();
        both.new_path.push(other);
        let failure = round(&[21]).judge(&round(&[]), &both).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "none of the other nodes answers on lan-br.20, of 192.0.2.23"
        );
        let silent = HealthRound { api: Some("timed out".into()), ..round(&[21]) };
        let failure = silent.judge(&round(&[]), &targets).unwrap_err();
        assert_eq!(failure.to_string(), "the API server does not answer: timed out");
    }
}
