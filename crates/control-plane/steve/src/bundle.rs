//! Support bundles: the objects of a cluster without their secrets, as a ZIP archive that is made
//! while it is sent.
//!
//! Everything is read in the caller's name: a bundle has what its reader may read. Its tree is that of
//! Harvester's bundles, with placeholders where a cluster of Sheaf has nothing.

mod placeholder;
mod redact;
#[cfg(test)]
mod tests;
mod txz;
mod zip;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Caller, CatalogKind};
use futures_util::future::BoxFuture;
use futures_util::stream;
use hci::cluster_setting::effective;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::caller::Session;
use crate::envelope;
use crate::error::SteveError;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;
use crate::{Steve, schemas};
use zip::ZipWriter;

const BUNDLES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/supportbundles";
const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";
/// The namespaces that every bundle has.
pub(crate) const NAMESPACES: [&str; 11] = [
    "cattle-dashboards",
    "cattle-fleet-clusters-system",
    "cattle-fleet-local-system",
    "cattle-fleet-system",
    "cattle-logging-system",
    "cattle-monitoring-system",
    "cattle-provisioning-capi-system",
    "fleet-local",
    "harvester-system",
    "local",
    "longhorn-system",
];

/// Reports of nodes beside their objects.
pub trait NodeReports: Send + Sync {
    /// Of all nodes, if they can be listed. A node whose part takes longer than `limit` is cut off,
    /// and its report says so in the file [`NODE_ERROR`].
    fn collect(
        &self,
        limit: Option<Duration>,
    ) -> BoxFuture<'_, Result<Vec<NodeReport>, client::Fault>>;
}

/// The file of a node with the last lines of its log.
pub const NODE_LOG: &str = "sheaf.log";

/// The file of a node with a list of its hardware.
pub const NODE_HARDWARE: &str = "hardware.txt";

/// The file of a node whose part is missing: why.
pub const NODE_ERROR: &str = "error.txt";

/// Files about one node.
#[derive(Debug, Clone)]
pub struct NodeReport {
    pub node: String,
    /// Name and content.
    pub files: Vec<(String, Vec<u8>)>,
}

/// `GET supportbundles/NAME/download`.
pub(crate) async fn download(
    steve: &Steve,
    session: &Session<'_>,
    asked: &RequestHead,
    name: &str,
) -> SteveResult {
    if asked.parts.method != Method::GET {
        return Err(SteveError::method_not_allowed(&asked.parts.method));
    }
    let path = format!("{BUNDLES}/{name}");
    let bundle = session.get(&path).await?;
    if bundle["status"]["state"] != "ready" {
        let message = format!("support bundle {name} is not ready yet");
        return Err(SteveError::new(StatusCode::CONFLICT, "InvalidState", message));
    }
    let file = bundle["status"]["filename"].as_str().unwrap_or("supportbundle.zip").to_owned();
    let root = file.trim_end_matches(".zip").to_owned();
    let setting = steve.setting(&format!("{SETTINGS}/support-bundle-namespaces")).await?;
    let version = steve.setting(&format!("{SETTINGS}/server-version")).await?;
    let limits = BundleLimits::read(steve, &bundle).await?;
    let catalog = steve.kinds.get(&steve.client).await?;
    let (path_of_rights, body) = crate::rights::question("");
    let rights = crate::rights::Rights::read(&session.post(path_of_rights, &body).await?);
    let kinds = schemas::visible(&catalog, &rights).cloned().collect();
    let archive = Archive {
        steve: steve.clone(),
        caller: session.caller.clone(),
        zip: ZipWriter::default(),
        namespaces: namespaces(&bundle, &setting),
        // Logs name objects of all namespaces.
        may_read_nodes: rights.may("get", "", "nodes/proxy", ""),
        steps: steps(kinds, metadata(&bundle, &version)),
        deadline: limits.all.and_then(|limit| Instant::now().checked_add(limit)),
        node_limit: limits.node,
        problems: Vec::new(),
        root,
        path,
    };
    let chunks = stream::unfold(Some(archive), |archive| async move {
        let mut archive = archive?;
        let step = archive.steps.pop_front();
        let is_last = step.is_none();
        let chunk = archive.next(step).await;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(chunk))), (!is_last).then_some(archive)))
    });
    let mut reply = reply::empty(StatusCode::OK);
    *reply.body_mut() = StreamBody::new(chunks).boxed_unsync();
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename={file}")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    Ok(reply)
}

/// The time that collecting may take; without a limit if it is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BundleLimits {
    all: Option<Duration>,
    node: Option<Duration>,
}

impl BundleLimits {
    /// The limits in the bundle, or else those of the settings.
    async fn read(steve: &Steve, bundle: &Value) -> Result<Self, SteveError> {
        let spec = &bundle["spec"];
        let node = "support-bundle-node-collection-timeout";
        Ok(Self {
            all: limit(steve, &spec["timeout"], "support-bundle-timeout").await?,
            node: limit(steve, &spec["nodeTimeout"], node).await?,
        })
    }
}

async fn limit(steve: &Steve, own: &Value, name: &str) -> Result<Option<Duration>, SteveError> {
    let setting = steve.setting(&format!("{SETTINGS}/{name}")).await?;
    Ok(minutes(own, &effective(name, Some(&setting))))
}

/// Zero minutes are no limit.
fn minutes(own: &Value, setting: &str) -> Option<Duration> {
    let minutes = own.as_u64().or_else(|| setting.parse().ok()).unwrap_or(0);
    (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
}

/// One part of the archive that is still to be made.
enum BundleStep {
    Metadata(String),
    Objects(Arc<CatalogKind>),
    Placeholders,
    Nodes,
    Problems,
}

fn steps(kinds: Vec<Arc<CatalogKind>>, metadata: String) -> VecDeque<BundleStep> {
    let mut steps = VecDeque::from([BundleStep::Metadata(metadata)]);
    steps.extend(kinds.into_iter().map(BundleStep::Objects));
    steps.extend([BundleStep::Placeholders, BundleStep::Nodes, BundleStep::Problems]);
    steps
}

/// The description of the bundle.
fn metadata(bundle: &Value, version: &Value) -> String {
    let about = json!({
        "projectName": "Harvester", "projectVersion": version["value"],
        "bundleName": bundle["metadata"]["name"], "issueURL": bundle["spec"]["issueURL"],
        "issueDescription": bundle["spec"]["description"],
        "bundleCreatedAt": bundle["metadata"]["creationTimestamp"],
        "program": env!("CARGO_PKG_VERSION"),
    });
    serde_saphyr::to_string(&about).unwrap_or_default()
}

/// The namespaces whose objects are collected.
fn namespaces(bundle: &Value, setting: &Value) -> Vec<String> {
    let mut all: Vec<String> = NAMESPACES.iter().map(|&name| name.to_owned()).collect();
    let chosen = setting["value"].as_str().unwrap_or_default().split(',').map(str::trim);
    all.extend(chosen.filter(|name| !name.is_empty()).map(str::to_owned));
    let extra = bundle["spec"]["extraCollectionNamespaces"].as_array();
    all.extend(extra.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
    all
}

struct Archive {
    steve: Steve,
    caller: Caller,
    zip: ZipWriter,
    namespaces: Vec<String>,
    steps: VecDeque<BundleStep>,
    /// Whether the caller may read the logs of nodes.
    may_read_nodes: bool,
    /// The end of the time for collecting; the archive is finished in any case.
    deadline: Option<Instant>,
    /// For the part of each node.
    node_limit: Option<Duration>,
    /// Errors of parts that could not be collected.
    problems: Vec<String>,
    root: String,
    /// Of the SupportBundle, which goes once it was sent.
    path: String,
}

impl Archive {
    /// The bytes of a step; without one, those that end the archive.
    async fn next(&mut self, step: Option<BundleStep>) -> Vec<u8> {
        match step {
            Some(BundleStep::Metadata(text)) => self.file("metadata.yaml", text.as_bytes()),
            Some(BundleStep::Objects(kind)) => {
                let outcome = within(self.deadline, self.list(&kind)).await;
                let list = self.noted(&kind.path(""), outcome);
                list.map(|list| self.objects(&kind, list)).unwrap_or_default()
            }
            Some(BundleStep::Placeholders) => placeholder::logs()
                .flat_map(|(path, text)| self.file(&path, text.as_bytes()))
                .collect(),
            Some(BundleStep::Nodes) => self.nodes().await,
            Some(BundleStep::Problems) => {
                let text = std::mem::take(&mut self.problems).join("\n");
                self.file("bundleGenerationError.log", text.as_bytes())
            }
            None => {
                let session = Session { client: &self.steve.client, caller: &self.caller };
                let kind = "application/json";
                // A bundle that stays is removed when it expires.
                let _ = session.send(Method::DELETE, &self.path, kind, &[], kind).await;
                std::mem::take(&mut self.zip).finish()
            }
        }
    }

    async fn nodes(&mut self) -> Vec<u8> {
        let Some(reports) = self.steve.reports.clone() else { return Vec::new() };
        if !self.may_read_nodes {
            self.problems.push(format!("nodes: user {} cannot get nodes/proxy", self.caller.name));
            return Vec::new();
        }
        let collected = async {
            reports.collect(self.node_limit).await.map_err(|error| SteveError::unavailable(&error))
        };
        let outcome = within(self.deadline, collected).await;
        let reports = self.noted("nodes", outcome).unwrap_or_default();
        let mut bytes = Vec::new();
        for report in &reports {
            if let Some((_, error)) = report.files.iter().find(|(name, _)| name == NODE_ERROR) {
                let error = String::from_utf8_lossy(error).into_owned();
                self.problems.push(format!("nodes/{}: {error}", report.node));
            }
            bytes.extend(self.node(report));
            bytes.extend(self.log(report));
        }
        bytes
    }

    /// The collected part; notes why there is none.
    fn noted<T>(&mut self, what: &str, outcome: Result<T, CollectError>) -> Option<T> {
        outcome.map_err(|error| self.problems.push(format!("{what}: {error}"))).ok()
    }

    /// The log of a node, where Harvester has that of its API server.
    fn log(&mut self, report: &NodeReport) -> Vec<u8> {
        let Some((_, log)) = report.files.iter().find(|(name, _)| name == NODE_LOG) else {
            return Vec::new();
        };
        let folder = format!("logs/kube-system/kube-apiserver-{}", report.node);
        self.file(&format!("{folder}/kube-apiserver.log"), log)
    }

    /// The files of a node are an archive of their own.
    fn node(&mut self, report: &NodeReport) -> Vec<u8> {
        let mut zip = ZipWriter::default();
        let mut archive = Vec::new();
        let reports = report.files.iter().filter(|(name, _)| name == NODE_HARDWARE);
        let reports = reports.map(|(_, content)| support_config(&report.node, content));
        for (name, content) in report.files.iter().cloned().chain(reports) {
            match zip.file(&format!("{}/{name}", report.node), &content) {
                Ok(bytes) => archive.extend(bytes),
                Err(error) => self.problems.push(format!("{}/{name}: {error}", report.node)),
            }
        }
        archive.extend(zip.finish());
        self.file(&format!("nodes/{}.zip", report.node), &archive)
    }

    fn file(&mut self, path: &str, content: &[u8]) -> Vec<u8> {
        match self.zip.file(&format!("{}/{path}", self.root), content) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.problems.push(format!("{path}: {error}"));
                Vec::new()
            }
        }
    }

    async fn list(&self, kind: &CatalogKind) -> Result<Value, SteveError> {
        let session = Session { client: &self.steve.client, caller: &self.caller };
        session.get(&kind.path("")).await
    }

    /// The objects of a kind, a file for each namespace.
    fn objects(&mut self, kind: &CatalogKind, list: Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (path, items) in files(kind, list, &self.namespaces) {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            match serde_saphyr::to_string(&list) {
                Ok(text) => bytes.extend(self.file(&path, text.as_bytes())),
                Err(error) => self.problems.push(format!("{path}: {error}")),
            }
        }
        bytes
    }
}

/// Why a part of a bundle is missing.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error(transparent)]
    Refused(#[from] SteveError),
    #[error("not collected: the time for the bundle is over (setting support-bundle-timeout)")]
    TooLate,
}

/// The outcome of `work`, which is cut off at the deadline.
async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, SteveError>>,
) -> Result<T, CollectError> {
    match deadline {
        None => Ok(work.await?),
        Some(deadline) => match tokio::time::timeout_at(deadline, work).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(CollectError::TooLate),
        },
    }
}

/// The list of a node's hardware where Harvester has the archive of `supportconfig`.
fn support_config(node: &str, hardware: &[u8]) -> (String, Vec<u8>) {
    let name = format!("scc_supportconfig_{node}");
    let archive = txz::archive(&format!("{name}/{NODE_HARDWARE}"), hardware);
    (format!("{name}.txz"), archive)
}

/// The objects of a list by the file that they belong in, without secrets.
fn files(kind: &CatalogKind, list: Value, namespaces: &[String]) -> BTreeMap<String, Vec<Value>> {
    let mut files: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in envelope::rows(list) {
        let mut object = row.object;
        redact::redact(&mut object);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let folder = match namespace {
            "" => "cluster".to_owned(),
            name if namespaces.iter().any(|own| own == name) => format!("namespaced/{name}"),
            _ => continue,
        };
        let path = format!("yamls/{folder}/{}/{}.yaml", kind.api_version(), kind.plural);
        files.entry(path).or_default().push(object);
    }
    if kind.is("", "secrets") {
        let plans = placeholder::MACHINE_PLANS.to_owned();
        files.entry(plans).or_insert_with(|| vec![placeholder::machine_plan()]);
    }
    files
}
