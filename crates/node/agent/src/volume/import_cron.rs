//! Polls the sources of DataImportCrons at the times of their schedules: which digest a tag has
//! now, or which content an address has. The digest is written onto the cron, and the controllers
//! import it.
//!
//! One node does this for the cluster: the first by name of the management nodes that are ready.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Chain, Stop, clock};
use client::Fault;
use futures_util::StreamExt as _;
use hci::cluster::CONTROL_PLANE;
use hci::import_cron::{LAST_CRON_TIME, SOURCE_DIGEST};
use hci::schedule::Schedule;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tracing::debug;
use virt::api::cdi::{DataImportCron, DataVolumeSource};

use super::fetch::{Download, FetchError};
use super::lookup::{self, LookupError};
use super::registry::{Image, PullError};
use super::source::RemoteSource;
use crate::api::merge;
use crate::egress::Egress;
use crate::event::{EventNote, Reporter};
use crate::object_cache::{ObjectCache, steady};

/// After a poll that failed.
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// A poll that takes longer has failed.
const POLL_TIMEOUT: Duration = Duration::from_secs(120);
/// When nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// Why a source was not polled.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error("the source can only be a registry or http")]
    Unsupported,
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Registry(#[from] PullError),
    #[error(transparent)]
    Http(#[from] FetchError),
    #[error("the server sends neither ETag nor Last-Modified; changes cannot be detected")]
    Unmarked,
    #[error("the source does not answer within {} s", POLL_TIMEOUT.as_secs())]
    Slow,
    #[error("cannot write to the import cron")]
    Write(#[source] Fault),
}

/// A cron, as far as its times and its source go.
#[derive(Debug, Clone, PartialEq)]
struct Cron {
    namespace: String,
    name: String,
    uid: String,
    schedule: String,
    /// When its source was last polled.
    polled: Option<Timestamp>,
    source: Option<DataVolumeSource>,
}

/// When a source is to be polled; at once for one that never was.
fn due(cron: &Cron) -> Option<Timestamp> {
    let Some(polled) = cron.polled else { return Some(Timestamp::UNIX_EPOCH) };
    // One without a schedule is polled once.
    Schedule::parse(&cron.schedule).ok()?.next_after(polled)
}

fn read(object: &DynamicObject) -> Option<(String, Option<Cron>)> {
    let meta = &object.metadata;
    let (namespace, name) = (meta.namespace.clone()?, meta.name.clone()?);
    let key = format!("{namespace}/{name}");
    let value = serde_json::to_value(object).ok()?;
    let Ok(cron) = serde_json::from_value::<DataImportCron>(value) else {
        return Some((key, None));
    };
    let polled = cron.metadata.annotations.get(LAST_CRON_TIME).and_then(|time| time.parse().ok());
    let source = cron.spec.template.spec.source;
    let (uid, schedule) = (meta.uid.clone().unwrap_or_default(), cron.spec.schedule);
    let wanted = meta.deletion_timestamp.is_none();
    let cron = Cron { namespace, name, uid, schedule, polled, source };
    Some((key, wanted.then_some(cron)))
}

/// The task that polls.
pub(super) struct SourcePoller {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) reporter: Reporter,
    pub(super) egress: Egress,
}

impl SourcePoller {
    pub(super) async fn run(self, mut stop: Stop) {
        let watched = watcher::watcher(self.crons(None), watcher::Config::default());
        let mut watched = std::pin::pin!(steady(watched, "import crons"));
        let mut crons = ObjectCache::<Cron>::default();
        let mut paused = BTreeMap::<String, Instant>::new();
        loop {
            let now = Instant::now();
            paused.retain(|_, until| *until > now);
            let next = crons.iter().filter(|(key, _)| !paused.contains_key(*key));
            let next = next.filter_map(|(key, cron)| Some((due(cron)?, key.clone()))).min();
            let wait = next.as_ref().map_or(IDLE, |(due, _)| {
                Duration::try_from(due.duration_since(clock::now())).unwrap_or_default().min(IDLE)
            });
            let until = paused.values().min().copied().unwrap_or(now + IDLE).min(now + wait);
            tokio::select! {
                Some(event) = watched.next() => {
                    crons.apply(event, read);
                    continue;
                }
                () = tokio::time::sleep_until(until) => {}
                () = stop.requested() => return,
            }
            let due_now = next.filter(|(due, _)| *due <= clock::now());
            let Some((key, cron)) =
                due_now.and_then(|(_, key)| crons.get(&key).cloned().map(|cron| (key, cron)))
            else {
                continue;
            };
            let polled = tokio::select! {
                polled = self.poll_source(&cron) => polled,
                () = stop.requested() => return,
            };
            // The watch will deliver the written object; until then it is left alone.
            paused.insert(key, Instant::now() + RETRY_DELAY);
            if let Err(failure) = polled {
                self.complain(&cron, &failure).await;
            }
        }
    }

    fn crons(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "DataImportCron");
        let kind = ApiResource::from_gvk_with_plural(&gvk, "dataimportcrons");
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        }
    }

    async fn poll_source(&self, cron: &Cron) -> Result<(), PollError> {
        if !self.is_first().await {
            return Ok(());
        }
        let began = clock::now();
        let digest = tokio::time::timeout(POLL_TIMEOUT, self.digest(cron)).await;
        let digest = digest.map_err(|_| PollError::Slow)??;
        debug!(cron = cron.name, namespace = cron.namespace, digest, "source polled");
        let annotations = json!({SOURCE_DIGEST: digest, LAST_CRON_TIME: clock::rfc3339(began)});
        let patch = json!({"metadata": {"uid": cron.uid, "annotations": annotations}});
        let crons = self.crons(Some(&cron.namespace));
        let written = merge(&crons, &cron.name, &patch).await;
        written.map(drop).map_err(|failure| PollError::Write(Fault(failure)))
    }

    /// Whether this node is the first management node of those that are ready: others may not
    /// write what they find.
    async fn is_first(&self) -> bool {
        let nodes = Api::<Node>::all(self.client.clone());
        let Ok(nodes) = nodes.list(&ListParams::default()).await else { return false };
        let manages = |node: &Node| {
            node.metadata.labels.as_ref().is_some_and(|all| all.contains_key(CONTROL_PLANE))
        };
        let ready = nodes.items.into_iter().filter(manages).filter(|node| {
            let status = node.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|own| own.type_ == "Ready" && own.status == "True")
        });
        ready.filter_map(|node| node.metadata.name).min().as_ref() == Some(&self.node)
    }

    async fn digest(&self, cron: &Cron) -> Result<String, PollError> {
        let source = cron.source.clone().unwrap_or_default();
        if let Some(registry) = source.registry {
            let remote = RemoteSource {
                url: registry.url.unwrap_or_default(),
                secret: registry.secret_ref.unwrap_or_default(),
                certificates: registry.cert_config_map.unwrap_or_default(),
                ..RemoteSource::default()
            };
            let access =
                lookup::access(&self.client, &self.egress, &cron.namespace, &remote).await?;
            return Ok(Image::new(&remote.url, &access)?.manifest().await?.digest);
        }
        let http = source.http.ok_or(PollError::Unsupported)?;
        let remote = RemoteSource {
            url: http.url,
            secret: http.secret_ref.unwrap_or_default(),
            certificates: http.cert_config_map.unwrap_or_default(),
            headers: http.extra_headers,
            secret_headers: http.secret_extra_headers,
            ..RemoteSource::default()
        };
        let access = lookup::access(&self.client, &self.egress, &cron.namespace, &remote).await?;
        let mut download = Download::new(&remote.url, access, None)?;
        download.prepare().await?;
        let mark =
            download.mark().filter(|mark| !mark.validator.is_empty()).ok_or(PollError::Unmarked)?;
        let seen = format!("{} {} {:?}", remote.url, mark.validator, mark.length);
        let hash = Sha256::digest(seen);
        Ok(format!("sha256:{}", super::hex(&hash)))
    }

    async fn complain(&self, cron: &Cron, failure: &PollError) {
        let about = ObjectReference {
            api_version: Some("cdi.kubevirt.io/v1beta1".into()),
            kind: Some("DataImportCron".into()),
            namespace: Some(cron.namespace.clone()),
            name: Some(cron.name.clone()),
            uid: Some(cron.uid.clone()),
            ..ObjectReference::default()
        };
        let note = EventNote::warning("ErrSourcePoll", Chain(failure).to_string());
        self.reporter.report(&about, note).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_polled_once_at_first_and_then_by_schedule() {
        let object = |annotations: serde_json::Value, schedule: &str| {
            let spec = json!({"schedule": schedule, "managedDataSource": "d",
                "template": {"spec": {"source": {"registry": {"url": "docker://h/d"}}}}});
            let meta = json!({"name": "c", "namespace": "n", "annotations": annotations});
            let object = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
                "metadata": meta, "spec": spec});
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            read(&object).unwrap().1.unwrap()
        };
        let fresh = object(json!({}), "0 * * * *");
        assert_eq!(due(&fresh), Some(Timestamp::UNIX_EPOCH));
        assert!(fresh.source.as_ref().is_some_and(|source| source.registry.is_some()));
        let polled = json!({LAST_CRON_TIME: "2026-11-16T08:10:00Z"});
        let later = object(polled.clone(), "0 * * * *");
        assert_eq!(due(&later), Some("2026-11-16T09:00:00Z".parse().unwrap()));
        assert_eq!(due(&object(polled, "")), None);
    }
}
