//! The addresses at which engines of other nodes reach the replicas here, and those of replicas
//! elsewhere. They change while volumes are served, when a node gets or loses its address on a
//! network of its own for storage.

use std::io;

use super::sources::Source;
use super::{Place, Shard};
use crate::ids::ReplicaId;
use crate::run::listen::Listener;
use crate::run::poll::Token;
use crate::run::stream::Address;

/// An address at which engines could not be given a way to the replicas.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ListenFault {
    pub address: Address,
    pub source: io::Error,
}

impl Shard {
    /// The addresses that are listened on.
    pub fn engine_addresses(&self) -> Vec<Address> {
        self.engine_listeners().map(|(_, address)| address).collect()
    }

    /// Listens on these addresses and no others. Connections that exist are kept, and so is every
    /// address when one of the new ones cannot be had.
    pub fn set_engine_addresses(&mut self, wanted: &[Address]) -> Result<(), ListenFault> {
        let known: Vec<(Token, Address)> = self.engine_listeners().collect();
        let missing = wanted.iter().filter(|it| known.iter().all(|(_, own)| own != *it));
        let fail = |address: &Address| {
            let address = address.clone();
            move |source| ListenFault { address, source }
        };
        let bound: Result<Vec<_>, ListenFault> = missing
            .map(|address| Ok((Listener::bind(address).map_err(fail(address))?, address)))
            .collect();
        for (listener, address) in bound? {
            self.listen_for_engines(listener).map_err(fail(address))?;
        }
        for (token, _) in known.iter().filter(|(_, own)| !wanted.contains(own)) {
            // A closed socket leaves the poll by itself.
            self.sources.remove(*token);
        }
        Ok(())
    }

    /// Where a replica of another node is connected.
    pub(super) fn connected_address(&self, at: usize, replica: ReplicaId) -> Option<&Address> {
        let (_, token) = self.volumes[at].links.get(&replica)?;
        match self.sources.get(*token)? {
            Source::Replica(outbound) => Some(&outbound.address),
            _ => None,
        }
    }

    /// Ends the connection to a replica that is at another place by now: the engine connects again.
    pub(super) fn reconnect(&mut self, at: usize, replica: ReplicaId) {
        let Some(has) = self.connected_address(at, replica) else { return };
        let place = self.volumes[at].replicas.iter().find(|(known, _)| *known == replica);
        let is_there = match place.map(|(_, place)| place) {
            Some(Place::At(address) | Place::OfNode(address, _)) => address == has,
            Some(Place::Here) | None => false,
        };
        let link = self.volumes[at].links.get(&replica).map(|(_, token)| *token);
        if let Some(token) = link.filter(|_| !is_there) {
            self.lose(token);
        }
    }

    fn engine_listeners(&self) -> impl Iterator<Item = (Token, Address)> + '_ {
        self.sources.tokens().filter_map(|(token, source)| match source {
            Source::EngineListener(listener) => Some((token, listener.address().ok()?)),
            _ => None,
        })
    }
}
