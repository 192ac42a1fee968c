//! Additions to the API server: KubeVirt's kinds, and the paths it serves besides them.
//!
//! Only adapters; `virt` and `gateway` decide the meaning of a request.

mod management;
mod node;
mod pages;
mod programs;
mod rest;
mod revocations;
mod root_ca;
mod rules;
mod what_if;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use apiserver::extension::{
    AuthorizedRequest, Denial, EvictionMode, EvictionReview, ExtensionResource, Extensions, Group,
    PathAccess, Paths, RequiredAccess,
};
use apiserver::{HttpReply, Upgrade};
use auth::User;
use bytes::Bytes;
use client::Caller;
use futures_util::future::BoxFuture;
use gateway::Gateway;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

pub(super) use management::{ManagementFacts, ManagementHandle, StoreKindInUse};
pub(super) use programs::ProgramsHandle;
pub(in crate::command) use programs::{PROGRAMS_PATH, UPLOADS_PATH};
pub(super) use rest::RestHandle;
pub(super) use root_ca::RootCa;
pub(super) use what_if::WhatIfHandle;

const UPLOADS: &[gateway::Row] =
    &[gateway::Row { name: "uploadtokenrequests", namespaced: true, verbs: &["create"] }];

/// The additions, and the places where their clients are put once there is a server to be a
/// client of. `ui_dir` has the dashboard's pages if they are not the built-in ones.
pub(super) fn new(ui_dir: Option<PathBuf>) -> (Extensions, ExtensionHandles) {
    let handles = ExtensionHandles::default();
    let ExtensionHandles { gateway, rest, root_ca, management, what_if, programs } =
        handles.clone();
    let group = |name, versions, rows_of| -> Arc<dyn Group> {
        let gateway = gateway.clone();
        Arc::new(ExtensionHandler { gateway, name, versions, resources: rows(rows_of) })
    };
    let groups = vec![
        group(gateway::GROUP, gateway::VERSIONS, gateway::RESOURCES),
        group(gateway::UPLOAD_GROUP, &["v1beta1"], UPLOADS),
        group(gateway::METRICS_GROUP, &["v1beta1"], gateway::METRICS_RESOURCES),
        group(gateway::SERIES_GROUP, &["v1"], gateway::SERIES_RESOURCES),
        group(gateway::TEMPLATE_GROUP, gateway::TEMPLATE_VERSIONS, gateway::TEMPLATE_RESOURCES),
    ];
    let extensions = Extensions {
        definitions: Some(|| virt::definitions().chain(hci::definitions()).collect()),
        objects: Some(|| {
            let mut objects = virt::first_objects(virt::ARCHITECTURE, &base::clock::now_rfc3339());
            objects.extend(virt::shipped_objects());
            objects.extend(hci::first_objects());
            objects.extend(hci::driver_objects());
            objects
        }),
        rules: vec![
            Arc::new(rules::MachineRules),
            Arc::new(rules::Appliance),
            Arc::new(rules::Inactive),
            Arc::new(node::NodeRestriction),
            Arc::new(revocations::RevocationRules),
        ],
        groups,
        paths: vec![
            Arc::new(Proxy { gateway: gateway.clone() }),
            Arc::new(ImageData { gateway: gateway.clone() }),
            Arc::new(Exports { gateway: gateway.clone() }),
            Arc::new(LauncherLogs { gateway: gateway.clone() }),
            Arc::new(rest),
            Arc::new(root_ca),
            Arc::new(management),
            Arc::new(what_if),
            Arc::new(programs),
            Arc::new(pages::DashboardPages(ui::Dashboard::new(ui_dir))),
        ],
        credentials: vec![Arc::new(rest::LocalUsers)],
        nodes: Some(Arc::new(node::PlatformNodes)),
        evictions: vec![Arc::new(LauncherEvictions { gateway: gateway.clone() })],
        loads: base::Workloads::default(),
    };
    (extensions, handles)
}

/// Where the additions get what exists only when the server does.
#[derive(Clone, Default)]
pub(super) struct ExtensionHandles {
    pub(super) gateway: GatewayHandle,
    pub(super) rest: RestHandle,
    pub(super) root_ca: RootCa,
    pub(super) management: ManagementHandle,
    pub(super) what_if: WhatIfHandle,
    pub(super) programs: ProgramsHandle,
}

/// The gateway, as soon as it can be reached.
#[derive(Clone, Default)]
pub(super) struct GatewayHandle(Arc<OnceLock<Gateway>>);

impl GatewayHandle {
    /// From here on requests are answered.
    pub(super) fn open(&self, gateway: Gateway) {
        // Opened twice would be a mistake of ours, and the first remains good.
        let _ = self.0.set(gateway);
    }

    fn pass(&self, asked: AuthorizedRequest, to: GatewayPart) -> BoxFuture<'_, HttpReply> {
        let upgrade = asked.parts.extensions.get::<Upgrade>().and_then(Upgrade::take);
        let body = asked.body.map_err(io::Error::other).boxed_unsync();
        let caller = asked.user.map(caller_of);
        let asked = gateway::GatewayRequest { caller, parts: asked.parts, body, upgrade };
        Box::pin(async move {
            // Requests before the server is up come only from itself, and not here.
            let Some(gateway) = self.0.get() else {
                let mut reply = HttpReply::default();
                *reply.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                return reply;
            };
            match to {
                GatewayPart::Api => gateway.answer(asked).await,
                GatewayPart::Upload => gateway.upload(asked).await,
                GatewayPart::Image => gateway.image(asked).await,
                GatewayPart::Export => gateway.export(asked).await,
                GatewayPart::LauncherLog => gateway.launcher_log(asked).await,
            }
        })
    }
}

/// A JSON body of one of the server's own paths.
fn json_reply(code: StatusCode, body: &Value) -> HttpReply {
    let mut reply = HttpReply::default();
    *reply.status_mut() = code;
    *reply.body_mut() = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// A Status of Kubernetes for a request that is refused.
fn failure(code: StatusCode, message: &str) -> HttpReply {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "code": code.as_u16(),
    });
    json_reply(code, &body)
}

fn caller_of(user: User) -> Caller {
    let User { name, uid, groups, extra } = user;
    Caller { name, uid, groups, extra }
}

/// Which part of the gateway a request is for.
#[derive(Debug, Clone, Copy)]
enum GatewayPart {
    Api,
    Upload,
    Image,
    Export,
    LauncherLog,
}

struct ExtensionHandler {
    gateway: GatewayHandle,
    name: &'static str,
    versions: &'static [&'static str],
    resources: Vec<ExtensionResource>,
}

impl Group for ExtensionHandler {
    fn name(&self) -> &'static str {
        self.name
    }

    fn versions(&self) -> &'static [&'static str] {
        self.versions
    }

    fn resources(&self) -> &[ExtensionResource] {
        &self.resources
    }

    fn subresource<'a>(&self, rest: &'a str) -> &'a str {
        gateway::subresource(rest)
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        self.gateway.pass(asked, GatewayPart::Api)
    }
}

struct Proxy {
    gateway: GatewayHandle,
}

impl Paths for Proxy {
    fn own(&self, path: &str, _query: &str) -> bool {
        gateway::owns_path(path)
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        self.gateway.pass(asked, GatewayPart::Upload)
    }
}

/// Downloads of exported disks, for those who have the token of the export.
struct Exports {
    gateway: GatewayHandle,
}

impl Paths for Exports {
    fn own(&self, path: &str, _query: &str) -> bool {
        gateway::owns_export(path)
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        self.gateway.pass(asked, GatewayPart::Export)
    }
}

/// The data of Harvester's images, for those who may change them.
struct ImageData {
    gateway: GatewayHandle,
}

impl Paths for ImageData {
    fn own(&self, path: &str, query: &str) -> bool {
        gateway::image_of(path).is_some()
            && (gateway::is_download(path) || query.split('&').any(|pair| pair == "action=upload"))
    }

    fn access<'a>(&self, path: &'a str) -> PathAccess<'a> {
        let (namespace, name) = gateway::image_of(path).unwrap_or_default();
        PathAccess::Resource(RequiredAccess {
            verb: if gateway::is_download(path) { "get" } else { "update" },
            group: "harvesterhci.io",
            version: "v1beta1",
            resource: "virtualmachineimages",
            subresource: "",
            namespace,
            name,
        })
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        self.gateway.pass(asked, GatewayPart::Image)
    }
}

/// Logs of launcher pods, for those who may read logs of pods.
struct LauncherLogs {
    gateway: GatewayHandle,
}

impl Paths for LauncherLogs {
    fn own(&self, path: &str, _query: &str) -> bool {
        gateway::log_of(path).is_some()
    }

    fn access<'a>(&self, path: &'a str) -> PathAccess<'a> {
        let (namespace, name) = gateway::log_of(path).unwrap_or_default();
        PathAccess::Resource(RequiredAccess {
            verb: "get",
            group: "",
            version: "v1",
            resource: "pods",
            subresource: "log",
            namespace,
            name,
        })
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        self.gateway.pass(asked, GatewayPart::LauncherLog)
    }
}

/// Evictions of launcher pods, which KubeVirt answers with a webhook.
struct LauncherEvictions {
    gateway: GatewayHandle,
}

impl EvictionReview for LauncherEvictions {
    fn review<'a>(
        &'a self,
        pod: &'a Value,
        eviction: &'a Value,
        mode: EvictionMode,
    ) -> BoxFuture<'a, Result<(), Denial>> {
        Box::pin(async move {
            let Some(gateway) = self.gateway.0.get() else { return Ok(()) };
            let mode = match mode {
                EvictionMode::Real => gateway::EvictionMode::Real,
                EvictionMode::DryRun => gateway::EvictionMode::DryRun,
            };
            gateway.review_eviction(pod, eviction, mode).await.map_err(|error| Denial {
                code: 429,
                reason: "TooManyRequests",
                message: error.to_string(),
                causes: Vec::new(),
            })
        })
    }
}

fn rows(rows: &[gateway::Row]) -> Vec<ExtensionResource> {
    let row = |row: &gateway::Row| ExtensionResource {
        name: row.name,
        kind: if row.name.starts_with("virtualmachineinstances") {
            "VirtualMachineInstance"
        } else if row.name.starts_with("uploadtokenrequests") {
            "UploadTokenRequest"
        } else if row.name == "nodes/series" {
            "Node"
        } else if row.name == "nodes" {
            "NodeMetrics"
        } else if row.name == "pods" {
            "PodMetrics"
        } else {
            "VirtualMachine"
        },
        namespaced: row.namespaced,
        verbs: row.verbs,
    };
    rows.iter().map(row).collect()
}
