//! Which nodes may open a replica over the network: the nodes of its volume's engines, and the
//! oldest generation that is still served. Pure.
//!
//! A certificate proves the name of a node; the supervisor of the storage process knows which
//! nodes may use a replica. A replica refuses every other node, an engine of an older generation,
//! and, while grants are checked, every node as long as it has no grant. Processes of the same
//! machine are not checked: they reach a replica by a socket that the file system guards.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, ReplicaId};
use crate::repl::control::NodeName;

/// The nodes and engines that may use one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaGrant {
    /// The node of the volume's engine, and during a migration the one that it moves to.
    pub nodes: BTreeSet<NodeName>,
    /// Engines of older generations were superseded by one that was served.
    #[serde(default)]
    pub generation: Generation,
}

/// The grants of all replicas of a storage process.
///
/// Nothing while its supervisor knows no grants: a program from before there were any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaGrants(Option<BTreeMap<ReplicaId, ReplicaGrant>>);

/// The process at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, over a unix socket or the loopback.
    Local,
    /// A node that has proven its name by its certificate.
    Node(NodeName),
    /// A client on the network that has proven nothing.
    Unknown,
}

/// Why a replica does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantDenial {
    #[error("the connection has no certificate of a node")]
    NoCertificate,
    #[error("replica {replica} has no grant yet, for node {node:?} or any other")]
    NoGrant { replica: ReplicaId, node: NodeName },
    #[error("replica {replica} is granted to nodes {granted:?}, not to node {node:?}")]
    OtherNode { replica: ReplicaId, node: NodeName, granted: BTreeSet<NodeName> },
    #[error(
        "replica {replica} is granted to generations from {} on; node {node:?} opens it with {}",
        oldest.0, generation.0
    )]
    StaleGeneration {
        replica: ReplicaId,
        node: NodeName,
        generation: Generation,
        oldest: Generation,
    },
}

impl GrantDenial {
    /// Whether another grant may arrive that allows it.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NoGrant { .. } | Self::OtherNode { .. })
    }
}

impl ReplicaGrants {
    /// Whether nodes are compared with grants at all.
    pub fn is_checked(&self) -> bool {
        self.0.is_some()
    }

    /// From now on only granted nodes are let in.
    pub fn check(&mut self) {
        self.0.get_or_insert_default();
    }

    /// The supervisor knows no grants: each node of the cluster is let in.
    pub fn uncheck(&mut self) {
        self.0 = None;
    }

    pub fn get(&self, replica: ReplicaId) -> Option<&ReplicaGrant> {
        self.0.as_ref()?.get(&replica)
    }

    pub fn set(&mut self, replica: ReplicaId, grant: ReplicaGrant) {
        self.0.get_or_insert_default().insert(replica, grant);
    }

    pub fn remove(&mut self, replica: ReplicaId) {
        if let Some(grants) = &mut self.0 {
            grants.remove(&replica);
        }
    }

    /// Whether a peer may speak to a replica.
    pub fn check_peer(&self, peer: &Peer, replica: ReplicaId) -> Result<(), GrantDenial> {
        let node = match peer {
            Peer::Local => return Ok(()),
            Peer::Unknown => return Err(GrantDenial::NoCertificate),
            Peer::Node(node) => node.clone(),
        };
        match (&self.0, self.get(replica)) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(GrantDenial::NoGrant { replica, node }),
            (Some(_), Some(grant)) if grant.nodes.contains(&node) => Ok(()),
            (Some(_), Some(grant)) => {
                let granted = grant.nodes.clone();
                Err(GrantDenial::OtherNode { replica, node, granted })
            }
        }
    }

    /// Whether a peer that was let in may open the replica with a generation.
    pub fn check_generation(
        &self,
        peer: &Peer,
        replica: ReplicaId,
        generation: Generation,
    ) -> Result<(), GrantDenial> {
        let oldest = self.get(replica).map_or(Generation(0), |grant| grant.generation);
        match peer {
            Peer::Node(node) if generation < oldest => Err(GrantDenial::StaleGeneration {
                replica,
                node: node.clone(),
                generation,
                oldest,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICA: ReplicaId = ReplicaId::from_u128(1);
    const OTHER: ReplicaId = ReplicaId::from_u128(2);

    fn node(name: &str) -> Peer {
        Peer::Node(name.into())
    }

    fn grants(nodes: &[&str], generation: u64) -> ReplicaGrants {
        let nodes = nodes.iter().map(|it| (*it).to_owned()).collect();
        let mut grants = ReplicaGrants::default();
        grants.set(REPLICA, ReplicaGrant { nodes, generation: Generation(generation) });
        grants
    }

    #[test]
    fn a_replica_is_open_to_the_nodes_that_its_grant_names() {
        let mut none = ReplicaGrants::default();
        none.check();
        let (moving, none_at_all) = (grants(&["a", "b"], 0), grants(&[], 0));
        for (what, grants, peer, replica, expected) in [
            ("the engine's node", grants(&["a"], 0), node("a"), REPLICA, "ok"),
            ("another node", grants(&["a"], 0), node("b"), REPLICA, "OtherNode"),
            ("a name that begins alike", grants(&["a"], 0), node("ab"), REPLICA, "OtherNode"),
            ("the source of a migration", moving.clone(), node("a"), REPLICA, "ok"),
            ("its target", moving.clone(), node("b"), REPLICA, "ok"),
            ("a third node", moving, node("c"), REPLICA, "OtherNode"),
            ("a volume at rest", none_at_all, node("a"), REPLICA, "OtherNode"),
            ("a replica without a grant", grants(&["a"], 0), node("a"), OTHER, "NoGrant"),
            ("none given yet", none.clone(), node("a"), REPLICA, "NoGrant"),
            ("an older supervisor", ReplicaGrants::default(), node("z"), REPLICA, "ok"),
            ("this machine", none.clone(), Peer::Local, REPLICA, "ok"),
            ("no certificate", none, Peer::Unknown, REPLICA, "NoCertificate"),
            ("nor then", ReplicaGrants::default(), Peer::Unknown, REPLICA, "NoCertificate"),
        ] {
            let said = match grants.check_peer(&peer, replica) {
                Ok(()) => "ok".to_owned(),
                Err(denial) => format!("{denial:?}").split(' ').next().unwrap().to_owned(),
            };
            assert_eq!(said, expected, "{what}");
        }
    }

    #[test]
    fn an_engine_that_was_superseded_is_refused() {
        let grants = grants(&["a"], 7);
        for (peer, generation, is_allowed) in [
            (node("a"), 7, true),
            (node("a"), 8, true),
            (node("a"), 6, false),
            (Peer::Local, 6, true),
        ] {
            let checked = grants.check_generation(&peer, REPLICA, Generation(generation));
            assert_eq!(checked.is_ok(), is_allowed, "{peer:?} {generation}: {checked:?}");
        }
        let denial = grants.check_generation(&node("a"), REPLICA, Generation(6)).unwrap_err();
        assert!(!denial.may_pass() && denial.to_string().contains("from 7 on"), "{denial}");
    }

    #[test]
    fn another_grant_may_come_but_no_certificate() {
        let peer = |peer| grants(&["a"], 0).check_peer(&peer, REPLICA).unwrap_err().may_pass();
        assert!(peer(node("b")));
        assert!(!peer(Peer::Unknown));
    }

    #[test]
    fn grants_outlive_the_process_and_their_absence_too() {
        for grants in [ReplicaGrants::default(), grants(&["a", "b"], 3)] {
            let text = serde_json::to_string(&grants).unwrap();
            assert_eq!(serde_json::from_str::<ReplicaGrants>(&text).unwrap(), grants, "{text}");
        }
        let mut removed = grants(&["a"], 1);
        removed.remove(REPLICA);
        assert!(removed.is_checked() && removed.get(REPLICA).is_none());
        removed.uncheck();
        assert!(!removed.is_checked());
    }
}
