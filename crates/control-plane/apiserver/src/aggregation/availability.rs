//! Availability of aggregated API servers: checked at intervals, and written into the condition
//! `Available`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Tasks, clock};
use bytes::Bytes;
use http::Request;
use http::header::ACCEPT;
use serde_json::{Value, json};
use store::{Expect, Write, WriteChange};
use tracing::warn;

use super::{RemoteDiscovery, RemoteGroup, TABLE, remotes};
use crate::api::Api;
use crate::outbound::{self, ResolveError, SendError};
use crate::verbs::item;
use crate::verbs::object;

const EVERY: Duration = Duration::from_secs(30);
/// While one is down it is asked more often.
const HURRY: Duration = Duration::from_secs(2);
const TIME: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;
/// The user that sends these checks.
const USER: &str = "system:kube-aggregator";

/// The result of one check.
struct Availability {
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Asks all, for as long as the server runs.
pub(crate) fn start(api: &Api, tasks: &Tasks) {
    let (api, mut stop) = (api.clone(), tasks.stop_signal());
    tasks.spawn("aggregation", async move {
        loop {
            let all = remotes(&api);
            let checks = all.iter().map(|remote| check(&api, Arc::clone(remote)));
            let up = futures_util::future::join_all(checks).await;
            forget(&api, &all);
            let wait = match (all.is_empty(), up.iter().all(|up| *up)) {
                (false, false) => HURRY,
                _ => EVERY,
            };
            tokio::select! {
                () = stop.requested() => return,
                () = api.aggregation.changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    });
}

fn forget(api: &Api, all: &[Arc<RemoteGroup>]) {
    let known = |name: &String| all.iter().any(|remote| remote.name == *name);
    api.aggregation.found.lock().retain(|name, _| known(name));
}

/// Asks one; whether it answers.
async fn check(api: &Api, remote: Arc<RemoteGroup>) -> bool {
    let verdict = match probe(api, &remote).await {
        Ok(found) => {
            api.aggregation.found.lock().insert(remote.name.clone(), Arc::new(found));
            let message = "all checks passed".to_owned();
            Availability { status: "True", reason: "Passed", message }
        }
        Err(verdict) => verdict,
    };
    let up = verdict.status == "True";
    write_condition(api, &remote, &verdict).await;
    up
}

async fn probe(api: &Api, remote: &RemoteGroup) -> Result<RemoteDiscovery, Availability> {
    let failed = |reason, message| Availability { status: "False", reason, message };
    let place = format!("service/{} in {:?}", remote.service, remote.namespace);
    remote.route(api).map_err(|error| match error {
        ResolveError::NoService(_) => failed("ServiceNotFound", format!("{place} is not present")),
        ResolveError::NoPort { port, .. } => {
            failed("ServicePortError", format!("{place} is not listening on port {port}"))
        }
        ResolveError::NoEndpoints(_) => failed(
            "MissingEndpoints",
            format!("endpointslices for {place} have no addresses with port {}", remote.port),
        ),
        other => {
            failed("ServiceAccessError", format!("{place} cannot be accessed due to: {other}"))
        }
    })?;
    let path = remote.path();
    let resources = get(api, remote, &path).await.map_err(|why| {
        let url =
            format!("https://{}.{}.svc:{}{path}", remote.service, remote.namespace, remote.port);
        failed("FailedDiscoveryCheck", format!("failing or missing response from {url}: {why}"))
    })?;
    // Documents are not a condition of being available.
    let index = get(api, remote, "/openapi/v3").await.unwrap_or_default();
    let paths = index["paths"].as_object().into_iter().flatten();
    let own = path.trim_start_matches('/');
    let v3: BTreeMap<String, String> = paths
        .filter(|(path, _)| *path == own)
        .filter_map(|(path, at)| Some((path.clone(), at["serverRelativeURL"].as_str()?.to_owned())))
        .collect();
    let before = super::found(api, remote);
    let v2 = match before.as_ref().filter(|before| before.resources == resources) {
        Some(before) if before.v2.is_some() => before.v2.clone(),
        _ => get(api, remote, "/openapi/v2").await.ok().filter(|v2| v2["paths"].is_object()),
    };
    Ok(RemoteDiscovery { resources, v3, v2 })
}

/// Why a document of the other server cannot be had. The texts are whole: they are a part of the
/// condition's message.
#[derive(Debug, thiserror::Error)]
enum DocumentError {
    #[error(transparent)]
    Route(#[from] ResolveError),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("Get {url:?}: {error}")]
    Send { url: String, error: SendError },
    #[error("bad status from {url}: {code}")]
    Status { url: String, code: u16 },
    #[error("no JSON: {0}")]
    NoJson(serde_json::Error),
}

/// A document of the other server, asked for as ourselves.
async fn get(api: &Api, remote: &RemoteGroup, path: &str) -> Result<Value, DocumentError> {
    let (route, authority) = remote.route(api)?;
    let url = format!("https://{authority}{path}");
    let request = Request::get(&url)
        .header(ACCEPT, "application/json")
        .header("x-remote-user", USER)
        .header("x-remote-group", auth::user::MASTERS)
        .body(outbound::whole(""))?;
    let answer = match api.outbound.exchange(&route, request, TIME, ANSWER_LIMIT).await {
        Ok(answer) => answer,
        Err(error) => return Err(DocumentError::Send { url, error }),
    };
    if !answer.status().is_success() {
        return Err(DocumentError::Status { url, code: answer.status().as_u16() });
    }
    serde_json::from_slice(answer.body()).map_err(DocumentError::NoJson)
}

/// The condition `Available` of an APIService.
pub(super) fn condition(service: &Value) -> &Value {
    let conditions = service["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|known| known["type"] == "Available");
    found.unwrap_or(&Value::Null)
}

/// Writes the condition if it says something new.
async fn write_condition(api: &Api, remote: &RemoteGroup, verdict: &Availability) {
    let Some(entry) = api.store.get(TABLE, &remote.name) else { return };
    let mut service = entry.item.to_value();
    let known = condition(&service);
    let same = |field: &str, text: &str| known[field] == text;
    let same_status = same("status", verdict.status);
    if same_status && same("reason", verdict.reason) && same("message", &verdict.message) {
        return;
    }
    let since =
        if same_status { known["lastTransitionTime"].clone() } else { clock::now_rfc3339().into() };
    service["status"]["conditions"] = json!([{
        "type": "Available", "status": verdict.status, "reason": verdict.reason,
        "message": verdict.message, "lastTransitionTime": since,
    }]);
    object::set_meta(&mut service, "resourceVersion", None);
    let write = Write {
        table: TABLE.into(),
        name: entry.name.clone(),
        expect: Expect::At(entry.revision),
        change: WriteChange::Put(Bytes::from(item::encode(&service))),
    };
    match api.store.write(write).await {
        Ok(_) => {
            api.aggregation.changes.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        }
        // Another client changed it meanwhile, which triggers a new check.
        Err(store::WriteError::Conflict { .. } | store::WriteError::Closed) => {}
        Err(error) => warn!(error = %base::Chain(&error), "cannot write an API service"),
    }
}
