//! Further addresses at which engines of other nodes reach the replicas, as the supervisor says.
//!
//! They are not in the state: the supervisor that starts the process gives them again, when it
//! knows that the node still has them.

use std::net::SocketAddr;

use super::Shared;
use super::serve::Refused;
use crate::run::{Address, ListenFault};

/// Why an address is not listened on.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddressError {
    #[error("the process does not listen for other nodes: it was started without an address")]
    Alone,
    #[error("the process is stopping")]
    Stopping,
    #[error(transparent)]
    Listen(#[from] ListenFault),
}

impl Shared {
    /// Listens on `wanted` besides the address that the process was started with.
    pub(super) fn listen_also(&self, wanted: Vec<SocketAddr>) -> Result<(), Refused> {
        let first = self.listen.clone().ok_or(AddressError::Alone)?;
        let mut all = vec![first];
        all.extend(wanted.into_iter().map(Address::Tcp));
        let set = self.handle.with(move |shard| shard.set_engine_addresses(&all));
        Ok(set.ok_or(AddressError::Stopping)?.map_err(AddressError::from)?)
    }

    /// The addresses besides the first one.
    pub(super) fn further_addresses(&self) -> Vec<SocketAddr> {
        let all = self.handle.with(|shard| shard.engine_addresses()).unwrap_or_default();
        let further = all.into_iter().filter(|address| Some(address) != self.listen.as_ref());
        let tcp = |address| match address {
            Address::Tcp(address) => Some(address),
            Address::Unix(_) => None,
        };
        further.filter_map(tcp).collect()
    }
}
