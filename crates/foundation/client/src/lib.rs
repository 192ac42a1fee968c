//! How the rest of Sheaf speaks to a Kubernetes API: a [`kube::Client`] over a socket
//! or over the server's own handler, leader election, and one light stream of what
//! exists in the whole cluster.
//!
//! It knows neither the API server nor the store: everything here works against any
//! Kubernetes.

mod caller;
mod catalog;
mod connect;
mod election;
pub mod events;
mod fault;
mod feed;
mod meta;
pub mod objects;
mod pool;
mod watch;

pub use caller::{Caller, CallerError};
pub use catalog::{Catalog, CatalogKind, DiscoverError, Verb, discover};
pub use connect::{ConnectError, from_kubeconfig, in_process, read_kubeconfig};
pub use election::{Election, Term, Timing, campaign};
pub use fault::Fault;
pub use feed::{FeedChange, Update, feed, is_followed};
pub use meta::{Meta, Owner};
pub use pool::{PoolServer, ServerPool};
pub use watch::{WatchError, follow};
