//! Groups that another server answers for: APIServices that name a service.
//!
//! ```text
//!   request ─► who, may they ─► proxy ─► an endpoint of the service, as front proxy
//!   every half minute ─► availability: condition, discovery and documents of each
//! ```
//!
//! A server that is down takes its own groups along and nothing else: discovery shows them
//! as stale, documents go on without them, requests to them are answered with 503.

mod availability;
mod merged;
mod proxy;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use base64::Engine as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use crate::api::Api;
use crate::outbound::{self, ClientIdentity, ResolveError, Route, Trust};
use crate::schemas::refresh;
use crate::verbs::object;

pub(crate) use availability::start;
pub(crate) use merged::{aggregated, documents_v2, groups, versions_of, with_v3};
pub(crate) use proxy::pass;

pub(crate) const TABLE: &str = "apiregistration.k8s.io/apiservices";

/// Everything about other servers.
#[derive(Debug)]
pub(crate) struct Aggregation {
    remotes: ArcSwap<Vec<Arc<RemoteGroup>>>,
    /// Counts changes of APIServices.
    changes: AtomicU64,
    /// The count that `remotes` was read at; moves only after they are in place.
    read: AtomicU64,
    reading: Mutex<()>,
    /// The last discovery answer of each server, by the name of its APIService.
    found: Mutex<BTreeMap<String, Arc<RemoteDiscovery>>>,
    /// Rings when the APIServices have changed.
    changed: Notify,
    /// The client certificate that this server presents to them.
    identity: ArcSwapOption<ClientIdentity>,
}

impl Default for Aggregation {
    fn default() -> Self {
        Self {
            remotes: ArcSwap::default(),
            changes: AtomicU64::new(1),
            read: AtomicU64::new(0),
            reading: Mutex::default(),
            found: Mutex::default(),
            changed: Notify::new(),
            identity: ArcSwapOption::empty(),
        }
    }
}

/// One group and version that is served elsewhere.
#[derive(Debug)]
pub(crate) struct RemoteGroup {
    /// Of its APIService.
    name: String,
    group: String,
    version: String,
    namespace: String,
    service: String,
    port: i64,
    trust: Trust,
    priority: (i64, i64),
    /// The last answer to whether it answers was no.
    is_down: bool,
}

/// The discovery documents of a server.
#[derive(Debug, Default)]
struct RemoteDiscovery {
    /// `APIResourceList`
    resources: Value,
    /// Where its documents are, by path: `apis/G/V`.
    v3: BTreeMap<String, String>,
    /// Its whole document in the older form.
    v2: Option<Value>,
}

impl RemoteGroup {
    fn of(service: &Value, is_down: bool) -> Option<Self> {
        let spec = &service["spec"];
        let reference = spec["service"].as_object()?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
        let bundle = spec["caBundle"].as_str().filter(|text| !text.is_empty());
        let bundle =
            bundle.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
        let trust = match bundle {
            _ if spec["insecureSkipTLSVerify"] == true => Trust::Anything,
            Some(pem) => Trust::Bundle(pem.into()),
            None => Trust::System,
        };
        Some(Self {
            name: object::name(service).to_owned(),
            group: text(spec.get("group")),
            version: text(spec.get("version")),
            namespace: text(reference.get("namespace")),
            service: text(reference.get("name")),
            port: reference.get("port").and_then(Value::as_i64).unwrap_or(443),
            trust,
            priority: (
                spec["groupPriorityMinimum"].as_i64().unwrap_or(0),
                spec["versionPriority"].as_i64().unwrap_or(0),
            ),
            is_down,
        })
    }

    /// `/apis/G/V`
    fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    /// Where a request to it goes, and the address that it has in the URL.
    fn route(&self, api: &Api) -> Result<(Route, String), ResolveError> {
        let dial = outbound::resolve(api, &self.namespace, &self.service, self.port)?;
        let server_name = format!("{}.{}.svc", self.service, self.namespace);
        let authority = format!("{server_name}:{}", self.port);
        let identity = api.aggregation.identity.load_full();
        Ok((Route { dial, server_name, trust: self.trust.clone(), identity }, authority))
    }
}

impl Api {
    /// Sets the client certificate of this server for requests to extension servers, as PEM.
    pub fn identify(&self, certificate: &str, key: &str) {
        self.aggregation.identity.store(Some(Arc::new(ClientIdentity {
            certificate: certificate.as_bytes().to_vec(),
            key: key.as_bytes().to_vec(),
        })));
    }
}

/// Called when an APIService may have changed.
pub(crate) fn changed(api: &Api) {
    api.aggregation.changes.fetch_add(1, Ordering::AcqRel);
    api.aggregation.changed.notify_one();
}

/// All that are served elsewhere, the most important group first.
fn remotes(api: &Api) -> Arc<Vec<Arc<RemoteGroup>>> {
    let state = &api.aggregation;
    let wanted = state.changes.load(Ordering::Acquire);
    if state.read.load(Ordering::Acquire) < wanted {
        let _one_at_a_time = state.reading.lock();
        if state.read.load(Ordering::Acquire) < wanted {
            let now = state.changes.load(Ordering::Acquire);
            let mut all: Vec<Arc<RemoteGroup>> = refresh::entries(api, TABLE)
                .iter()
                // Our own say so in a label, and are most of them.
                .filter(|entry| entry.item.label(crate::setup::api_services::MANAGED).is_none())
                .filter_map(|entry| {
                    let service = entry.item.to_value();
                    let is_down = availability::condition(&service)["status"] == "False";
                    RemoteGroup::of(&service, is_down)
                })
                .map(Arc::new)
                .collect();
            all.sort_by(|one, other| {
                other.priority.cmp(&one.priority).then_with(|| one.name.cmp(&other.name))
            });
            state.remotes.store(Arc::new(all));
            state.read.store(now, Ordering::Release);
        }
    }
    state.remotes.load_full()
}

/// The server of a group and version, if another server serves it.
pub(crate) fn find(api: &Api, group: &str, version: &str) -> Option<Arc<RemoteGroup>> {
    let remotes = remotes(api);
    remotes.iter().find(|remote| remote.group == group && remote.version == version).cloned()
}

fn found(api: &Api, remote: &RemoteGroup) -> Option<Arc<RemoteDiscovery>> {
    api.aggregation.found.lock().get(&remote.name).cloned()
}
