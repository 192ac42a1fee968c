//! The server's state: everything a request needs, shared by all of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base::Tasks;
use parking_lot::Mutex;
use store::{Event, Store, StoredVersion, WriteError, Written};

use crate::access::identity::Authenticator;
use crate::access::rights::Rights;
use crate::admission::hooks::Hooks;
use crate::aggregation::Aggregation;
use crate::endpoints::openapi::Documents;
use crate::outbound::Outbound;
use crate::schemas::catalog::Catalog;
use crate::status::{ApiError, StatusSubject};
use crate::verbs::item::{Item, ObjectShape};

pub(crate) type ObjectStore = Store<ObjectShape>;
pub(crate) type ObjectEntry = Arc<StoredVersion<Item>>;
pub(crate) type ObjectEvent = Event<ObjectShape>;
pub(crate) type ObjectWritten = Written<ObjectShape>;

/// One API server; cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<ApiState>);

pub struct ApiState {
    pub(crate) store: ObjectStore,
    pub(crate) catalog: ArcSwap<Catalog>,
    /// Rings when the catalog was replaced.
    pub(crate) catalog_changed: Arc<tokio::sync::Notify>,
    /// Held while the catalog is replaced, so that replacements do not cross.
    pub(crate) catalog_update: Mutex<()>,
    pub(crate) rights: Rights,
    pub(crate) hooks: Hooks,
    pub(crate) outbound: Outbound,
    pub(crate) aggregation: Aggregation,
    pub(crate) authenticator: Authenticator,
    pub(crate) documents: Documents,
    pub(crate) settings: Settings,
    pub(crate) extensions: crate::extension::Extensions,
    pub(crate) tasks: Tasks,
    pub(crate) ready: std::sync::atomic::AtomicBool,
    pub(crate) traffic: crate::endpoints::traffic::Traffic,
    pub(crate) audit: Option<crate::audit::Audit>,
    pub(crate) fairness: crate::fairness::Fairness,
    pub(crate) oidc: Option<Arc<crate::access::oidc::Oidc>>,
    pub(crate) connections: Arc<crate::http::connections::ConnectionTable>,
    pub(crate) watch_limit: crate::verbs::watch::WatchLimit,
}

/// Settings of the server, read at start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where clients reach us; published as the endpoint of the `kubernetes` service.
    pub advertise: std::net::SocketAddr,
    /// Service addresses are taken from this range, `a.b.c.d/len`.
    pub service_range: crate::setup::service_ip::Cidr,
    /// The CA that clients verify us by, PEM.
    pub ca_pem: String,
    /// The CA for front proxies, PEM.
    pub front_proxy_ca_pem: String,
    /// How long events are kept.
    pub event_ttl: std::time::Duration,
    pub version: crate::endpoints::version::BuildVersion,
    /// The authorizers, in order; the first that allows a request decides.
    pub authorization: Vec<Authorization>,
    /// Whether requests without credentials are served, as `system:anonymous`.
    pub anonymous: bool,
    /// Checks that are left out, by the names of upstream's plugins.
    pub disabled_admission: BTreeSet<String>,
    /// Checks that are made only if asked for, likewise.
    pub enabled_admission: BTreeSet<String>,
    /// Whether another component may run pods: then no client is warned that nothing will.
    pub runs_pods: bool,
    /// How front proxies name the users they speak for.
    pub front_proxy: FrontProxy,
    /// The audit log; none by default.
    pub audit: Option<crate::audit::AuditConfig>,
    /// How many requests are served at once, at most.
    pub in_flight: crate::fairness::InFlight,
    /// An external issuer whose tokens are accepted.
    pub oidc: Option<crate::access::oidc::OidcLogin>,
    /// The longest life of a service-account token; a request for a longer one is shortened.
    pub longest_token: Option<Duration>,
    /// Whether machines may join with tokens from secrets.
    pub bootstrap_tokens: bool,
    pub connections: crate::http::connections::ConnectionLimits,
    /// Whether the address of this server is the only endpoint of the `kubernetes` service. With
    /// several servers a controller writes all of them.
    pub owns_endpoints: bool,
}

impl Settings {
    /// The usual ones for a server at `advertise`.
    pub fn new(
        advertise: std::net::SocketAddr,
        service_range: crate::setup::service_ip::Cidr,
        version: crate::endpoints::version::BuildVersion,
    ) -> Self {
        Self {
            advertise,
            service_range,
            ca_pem: String::new(),
            front_proxy_ca_pem: String::new(),
            event_ttl: std::time::Duration::from_secs(3600),
            version,
            authorization: vec![Authorization::Rbac],
            anonymous: true,
            disabled_admission: BTreeSet::new(),
            enabled_admission: BTreeSet::new(),
            runs_pods: false,
            front_proxy: FrontProxy::default(),
            audit: None,
            in_flight: crate::fairness::InFlight::default(),
            oidc: None,
            longest_token: None,
            bootstrap_tokens: false,
            connections: crate::http::connections::ConnectionLimits::default(),
            owns_endpoints: true,
        }
    }

    /// Whether the check that upstream calls `plugin` is made.
    pub(crate) fn admits(&self, plugin: &str) -> bool {
        self.disabled_admission.is_empty() || !self.disabled_admission.contains(plugin)
    }

    /// Whether the check that upstream calls `plugin`, and leaves out by itself, is made.
    pub(crate) fn admits_also(&self, plugin: &str) -> bool {
        self.enabled_admission.contains(plugin)
    }
}

/// One that decides what users may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    /// All users may do everything.
    AlwaysAllow,
    /// No user may, except members of `system:masters`.
    AlwaysDeny,
    /// By roles and bindings.
    Rbac,
    /// Nodes, by what runs on them.
    Node,
}

/// The headers by which a front proxy names a user.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    /// The common names of certificates that may; empty means all of their authority.
    pub allowed_names: Vec<String>,
    pub username: Vec<String>,
    pub uid: Vec<String>,
    pub group: Vec<String>,
    pub extra_prefix: Vec<String>,
}

impl Default for FrontProxy {
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            allowed_names: Vec::new(),
            username: one("X-Remote-User"),
            uid: one("X-Remote-Uid"),
            group: one("X-Remote-Group"),
            extra_prefix: one("X-Remote-Extra-"),
        }
    }
}

impl std::ops::Deref for Api {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.0
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Api").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ApiState {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("State").finish_non_exhaustive()
    }
}

impl Api {
    pub(crate) fn from_state(state: ApiState) -> Self {
        Self(Arc::new(state))
    }
}

/// The API error for a failed write.
pub(crate) fn write_failure(error: &WriteError, subject: StatusSubject<'_>) -> ApiError {
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
