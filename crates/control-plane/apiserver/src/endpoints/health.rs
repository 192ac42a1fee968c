//! Everything outside of `/api` and `/apis`: health, version, documents, metrics.

use http::{Method, StatusCode, request};
use serde_json::json;
use std::sync::atomic::Ordering;

use crate::api::Api;
use crate::endpoints::openapi;
use crate::http::options::Query;
use crate::http::pretty;
use crate::http::respond::{self, HttpReply};
use crate::status::{ApiError, ApiResult};

pub(crate) async fn answer(
    api: &Api,
    path: &str,
    parts: &request::Parts,
    query: &Query,
) -> ApiResult<HttpReply> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let trimmed = path.trim_end_matches('/');
    for probe in ["healthz", "livez", "readyz"] {
        if let Some(check) = trimmed.strip_prefix('/').and_then(|path| path.strip_prefix(probe)) {
            match check.strip_prefix('/') {
                Some(check) => return Ok(one(api, probe, check)),
                None if check.is_empty() => return Ok(all(api, probe, query)),
                None => {}
            }
        }
    }
    match trimmed {
        "" => Ok(pretty::json(&index(api))),
        "/version" => Ok(pretty::json(&api.settings.version.to_value())),
        "/metrics" => Ok(respond::reply(
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            respond::full(api.traffic.render(api)),
        )),
        "/openid/v1/jwks" => {
            let tokens = api.authenticator.tokens.load();
            let bytes = tokens.jwks().to_string();
            Ok(respond::reply(StatusCode::OK, "application/jwk-set+json", respond::full(bytes)))
        }
        "/.well-known/openid-configuration" => {
            let tokens = api.authenticator.tokens.load();
            let uri = format!("https://{}/openid/v1/jwks", api.settings.advertise);
            Ok(respond::json(StatusCode::OK, &tokens.discovery(&uri)))
        }
        "/openapi/v2" => openapi::v2(api, &parts.headers).await,
        "/openapi/v3" => openapi::v3_index(api).await,
        _ => match trimmed.strip_prefix("/openapi/v3/") {
            Some(group_version) => openapi::v3(api, group_version, &parts.headers, query).await,
            None => Ok(respond::text(StatusCode::NOT_FOUND, "404 page not found\n")),
        },
    }
}

/// Why a check fails.
#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error(transparent)]
    Store(#[from] store::Unhealthy),
    #[error("the catalog is not complete yet")]
    Catalog,
    #[error("not finished")]
    Start,
    #[error("process is shutting down")]
    Stopping,
}

/// A named check and what is wrong, if anything.
type Check = (&'static str, Result<(), HealthError>);

/// The steps of a start under the names by which upstream reports them, in its order. Here they are one
/// sequence, which is complete when the server is ready.
const START_STEPS: [&str; 25] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

fn checks(api: &Api, probe: &str) -> Vec<Check> {
    let store = || api.store.health().map_err(HealthError::from);
    let when = |holds: bool, error: HealthError| if holds { Ok(()) } else { Err(error) };
    let started = api.ready.load(Ordering::Acquire);
    let stopping = api.tasks.stop_signal().is_requested();
    // livez decides whether a supervisor restarts the process. An unreachable store is no reason for that:
    // the connection is restored without it. healthz and readyz report the outage.
    let etcd = if probe == "livez" { Ok(()) } else { store() };
    let mut checks: Vec<Check> = vec![("ping", Ok(())), ("log", Ok(())), ("etcd", etcd)];
    if probe == "readyz" {
        checks.push(("etcd-readiness", store()));
        checks.push(("informer-sync", when(started, HealthError::Catalog)));
    }
    // A slow start is no reason to restart either.
    let step = |name| (name, when(started || probe == "livez", HealthError::Start));
    checks.extend(START_STEPS.map(step));
    if probe == "readyz" {
        checks.push(("shutdown", when(!stopping, HealthError::Stopping)));
    }
    checks
}

/// Whether the server can take requests; polled by the binary at start.
pub(crate) fn is_ready(api: &Api) -> bool {
    checks(api, "readyz").iter().all(|(_, result)| result.is_ok())
}

fn one(api: &Api, probe: &str, name: &str) -> HttpReply {
    match checks(api, probe).into_iter().find(|(known, _)| *known == name) {
        None => respond::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        Some((_, Ok(()))) => respond::text(StatusCode::OK, "ok"),
        Some((_, Err(error))) => respond::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {}\n", base::Chain(&error)),
        ),
    }
}

fn all(api: &Api, probe: &str, query: &Query) -> HttpReply {
    let excluded = query.all("exclude");
    let mut lines = String::new();
    let mut failed = false;
    for (name, result) in checks(api, probe) {
        if excluded.iter().any(|excluded| excluded == name) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match result {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(error) => {
                failed = true;
                lines.push_str(&format!("[-]{name} failed: {}\n", base::Chain(&error)));
            }
        }
    }
    if failed {
        lines.push_str(&format!("{probe} check failed\n"));
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, lines);
    }
    if query.has("verbose") {
        lines.push_str(&format!("{probe} check passed\n"));
        return respond::text(StatusCode::OK, lines);
    }
    respond::text(StatusCode::OK, "ok")
}

/// The list of paths at `/`.
fn index(api: &Api) -> serde_json::Value {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for group in api.catalog.load().groups().iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        for version in &group.versions {
            paths.push(format!("/apis/{}/{version}", group.name));
        }
    }
    paths.sort();
    json!({"paths": paths})
}
