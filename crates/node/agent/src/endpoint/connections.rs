//! How many connections the endpoint has on the network: in TLS handshakes, by source address, and
//! of peers that have proven who they are. Strangers take nothing from known peers, and no peer takes
//! everything from the others.
//!
//! [`ConnectionCounts`] decides and is pure. A [`ConnectionSlot`] counts until it is dropped.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;

use crate::config::EndpointPeer;

/// Connections in handshakes at a time, and those of one source among them.
const HANDSHAKES: u32 = 512;
const HANDSHAKES_PER_SOURCE: u32 = 64;
/// Open connections of all peers: consoles and uploads count as long as they last.
const CONNECTIONS: u32 = 1024;
/// The part of them that all servers have together, and the part of each node that brings machines.
const GATEWAY_CONNECTIONS: u32 = 896;
const NODE_CONNECTIONS: u32 = 64;

/// A connection of the gateway without a request for this long is closed: it makes one for each.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConnectionRefused {
    #[error("{limit} connections are in TLS handshakes")]
    Handshakes { limit: u32 },
    #[error("the source has {limit} connections in TLS handshakes")]
    Source { limit: u32 },
    #[error("the peer has {limit} connections open")]
    Peer { limit: u32 },
    #[error("{limit} connections are open")]
    Total { limit: u32 },
}

/// The subject that a connection counts for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// Its user is unknown.
    Handshake(IpAddr),
    Peer(EndpointPeer),
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    handshakes: u32,
    sources: HashMap<IpAddr, u32>,
    connections: u32,
    gateway: u32,
    nodes: HashMap<String, u32>,
}

impl ConnectionCounts {
    fn open(&mut self, source: IpAddr) -> Result<Stage, ConnectionRefused> {
        if self.sources.get(&source).is_some_and(|own| *own >= HANDSHAKES_PER_SOURCE) {
            return Err(ConnectionRefused::Source { limit: HANDSHAKES_PER_SOURCE });
        }
        if self.handshakes >= HANDSHAKES {
            return Err(ConnectionRefused::Handshakes { limit: HANDSHAKES });
        }
        self.handshakes += 1;
        *self.sources.entry(source).or_default() += 1;
        Ok(Stage::Handshake(source))
    }

    /// Counts a connection for its peer from now on; on refusal it stays where it is.
    fn identify(&mut self, stage: &Stage, peer: &EndpointPeer) -> Result<Stage, ConnectionRefused> {
        let (own, limit) = match peer {
            EndpointPeer::Gateway => (self.gateway, GATEWAY_CONNECTIONS),
            EndpointPeer::Node(node) => {
                (self.nodes.get(node).copied().unwrap_or_default(), NODE_CONNECTIONS)
            }
        };
        if own >= limit {
            return Err(ConnectionRefused::Peer { limit });
        }
        if self.connections >= CONNECTIONS {
            return Err(ConnectionRefused::Total { limit: CONNECTIONS });
        }
        self.close(stage);
        self.connections += 1;
        match peer {
            EndpointPeer::Gateway => self.gateway += 1,
            EndpointPeer::Node(node) => *self.nodes.entry(node.clone()).or_default() += 1,
        }
        Ok(Stage::Peer(peer.clone()))
    }

    fn close(&mut self, stage: &Stage) {
        match stage {
            Stage::Handshake(source) => {
                self.handshakes -= 1;
                decrease(&mut self.sources, source);
            }
            Stage::Peer(peer) => {
                self.connections -= 1;
                match peer {
                    EndpointPeer::Gateway => self.gateway -= 1,
                    EndpointPeer::Node(node) => decrease(&mut self.nodes, node),
                }
            }
        }
    }
}

fn decrease<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// All connections of an endpoint; clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionTable(Arc<Mutex<ConnectionCounts>>);

/// A connection that counts.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    table: ConnectionTable,
    stage: Stage,
}

impl ConnectionTable {
    /// Counts a connection that was accepted.
    pub(super) fn open(&self, source: IpAddr) -> Result<ConnectionSlot, ConnectionRefused> {
        let stage = self.0.lock().open(subnet(source))?;
        Ok(ConnectionSlot { table: self.clone(), stage })
    }
}

impl ConnectionSlot {
    /// Counts the connection for the peer that its certificate names.
    pub(super) fn identify(&mut self, peer: &EndpointPeer) -> Result<(), ConnectionRefused> {
        self.stage = self.table.0.lock().identify(&self.stage, peer)?;
        Ok(())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.table.0.lock().close(&self.stage);
    }
}

/// An IPv4 address, or the /64 of an IPv6 address, whose addresses one host can have all.
fn subnet(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

/// The protocol with a peer. A node keeps its connection as long as its machine moves; the number of
/// its connections is limited instead.
pub(super) fn http(peer: &EndpointPeer) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(match peer {
        EndpointPeer::Gateway => Some(HEADER_TIMEOUT),
        EndpointPeer::Node(_) => None,
    });
    http
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// As many connections as there is room for, and why the next one was refused.
    fn fill<T>(
        mut next: impl FnMut() -> Result<T, ConnectionRefused>,
    ) -> (Vec<T>, ConnectionRefused) {
        let mut held = Vec::new();
        loop {
            match next() {
                Ok(slot) => held.push(slot),
                Err(refused) => return (held, refused),
            }
            assert!(held.len() < 10_000, "there is no limit");
        }
    }

    #[test]
    fn strangers_of_one_source_do_not_keep_others_out() {
        let table = ConnectionTable::default();
        let (held, refused) = fill(|| table.open(address("2001:db8::7")));
        assert_eq!(refused, ConnectionRefused::Source { limit: HANDSHAKES_PER_SOURCE });
        assert!(table.open(address("2001:db8::ffff:8")).is_err(), "the same subnet");
        let mut peer = table.open(address("192.0.2.1")).unwrap();
        peer.identify(&EndpointPeer::Gateway).unwrap();
        drop(held);
        table.open(address("2001:db8::8")).unwrap();
        assert_eq!(table.0.lock().sources.len(), 0, "nothing is kept of those that went");
    }

    #[test]
    fn handshakes_take_no_room_of_connections() {
        let table = ConnectionTable::default();
        let mut open = table.open(address("192.0.2.1")).unwrap();
        let mut source = 0_u32;
        let (_held, refused) = fill(|| {
            source += 1;
            table.open(IpAddr::from(std::net::Ipv4Addr::from(source)))
        });
        assert_eq!(refused, ConnectionRefused::Handshakes { limit: HANDSHAKES });
        open.identify(&EndpointPeer::Gateway).unwrap();
        let counts = table.0.lock();
        assert_eq!((counts.handshakes, counts.connections), (HANDSHAKES - 1, 1));
    }

    #[test]
    fn no_peer_takes_the_connections_of_others() {
        let table = ConnectionTable::default();
        let known = |peer: EndpointPeer| {
            let mut slot = table.open(address("192.0.2.1"))?;
            slot.identify(&peer).map(|()| slot)
        };
        let node = |name: &str| EndpointPeer::Node(name.to_owned());
        let (_gateway, refused) = fill(|| known(EndpointPeer::Gateway));
        assert_eq!(refused, ConnectionRefused::Peer { limit: GATEWAY_CONNECTIONS });
        let (one, refused) = fill(|| known(node("one")));
        assert_eq!(refused, ConnectionRefused::Peer { limit: NODE_CONNECTIONS });
        let (_two, _) = fill(|| known(node("two")));
        let refused = known(node("three")).unwrap_err();
        assert_eq!(refused, ConnectionRefused::Total { limit: CONNECTIONS });
        drop(one);
        known(node("three")).unwrap();
        assert_eq!(table.0.lock().handshakes, 0, "a refused one counts no longer");
    }
}
