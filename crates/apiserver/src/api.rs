//! The server's state: everything a request needs, shared by all of them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use base::Tasks;
use parking_lot::Mutex;
use store::{Entry, Event, Store, WriteError, Written};

use crate::catalog::Catalog;
use crate::identity::Authenticator;
use crate::item::{Item, ObjectShape};
use crate::openapi::Documents;
use crate::rights::Rights;
use crate::status::{ApiError, Subject};

pub(crate) type ObjectStore = Store<ObjectShape>;
pub(crate) type ObjectEntry = Arc<Entry<Item>>;
pub(crate) type ObjectEvent = Event<ObjectShape>;
pub(crate) type ObjectWritten = Written<ObjectShape>;

/// One API server; cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<State>);

pub struct State {
    pub(crate) store: ObjectStore,
    pub(crate) catalog: ArcSwap<Catalog>,
    /// Rings when the catalog was replaced.
    pub(crate) catalog_changed: Arc<tokio::sync::Notify>,
    /// Held while the catalog is replaced, so that replacements do not cross.
    pub(crate) catalog_update: Mutex<()>,
    pub(crate) rights: Rights,
    pub(crate) authenticator: Authenticator,
    pub(crate) documents: Documents,
    pub(crate) settings: Settings,
    pub(crate) extensions: crate::extension::Extensions,
    pub(crate) tasks: Tasks,
    pub(crate) ready: std::sync::atomic::AtomicBool,
    pub(crate) traffic: crate::traffic::Traffic,
}

/// What the server is told at start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where clients reach us; published as the endpoint of the `kubernetes` service.
    pub advertise: std::net::SocketAddr,
    /// Service addresses are taken from this range, `a.b.c.d/len`.
    pub service_range: crate::service_ip::Cidr,
    /// The CA that clients verify us by, PEM.
    pub ca_pem: String,
    /// The CA for front proxies, PEM.
    pub front_proxy_ca_pem: String,
    /// How long events are kept.
    pub event_ttl: std::time::Duration,
    pub version: crate::version::Version,
}

impl std::ops::Deref for Api {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Api").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("State").finish_non_exhaustive()
    }
}

impl Api {
    pub(crate) fn from_state(state: State) -> Self {
        Self(Arc::new(state))
    }
}

/// What a failed write means to the client.
pub(crate) fn write_failure(error: &WriteError, subject: Subject<'_>) -> ApiError {
    match error {
        WriteError::Conflict { .. } => ApiError::modified(subject),
        WriteError::TooLarge { size, limit } => ApiError::too_large(format!(
            "etcdserver: request is too large: the object has {size} bytes, the limit is {limit}"
        )),
        WriteError::Key(_) => ApiError::bad_request(base::Chain(error).to_string()),
        WriteError::NoSpace => ApiError::insufficient_storage(
            "the data directory's disk is full: nothing was changed; free some space, writes resume by themselves",
        ),
        WriteError::Unavailable { .. } => ApiError::unavailable(format!(
            "the store cannot be reached, nothing was changed: {}",
            base::Chain(error)
        )),
        WriteError::Unknown { .. } => ApiError::timeout(format!(
            "the store did not confirm the write in time, it may or may not have happened: {}",
            base::Chain(error)
        )),
        WriteError::Closed => ApiError::unavailable("the server is shutting down"),
    }
}
