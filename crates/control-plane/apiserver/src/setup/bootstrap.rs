//! The initial objects of an API server: namespaces, roles, the `kubernetes` service. Written
//! through the ordinary verbs, so that they are checked and tracked like everything else, and
//! again at each start, so that they stay correct.

use std::sync::Arc;
use std::time::Duration;

use auth::User;
use auth::rbac::reconcile::{self, Reconciled};
use base::{Backoff, Chain};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::identity::Transport;
use crate::api::Api;

/// Why the server could not be brought into its first state.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("cannot {method} {path}: {code} {message}")]
    Refused { method: Method, path: String, code: StatusCode, message: String },
}

impl BootstrapError {
    /// Whether the same write may succeed later: the store is slow or away, or another server wrote
    /// the object at the same time.
    fn is_transient(&self) -> bool {
        let Self::Refused { code, .. } = self;
        matches!(
            *code,
            StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::CONFLICT
        )
    }
}

/// How long a write is tried again. etcd on a busy disk may take many seconds for the first ones.
const RETRY_LIMIT: Duration = Duration::from_secs(60);

/// How many objects are written at a time, of each sort.
const AT_ONCE: usize = 24;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

pub(crate) async fn run(api: &Api) -> Result<(), BootstrapError> {
    let namespaces = NAMESPACES
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    all(api, namespaces.to_vec()).await?;
    let mut objects = crate::setup::bootstrap_objects::fixed(&api.settings);
    objects.extend(crate::fairness::first_objects());
    if api.settings.owns_endpoints {
        objects.extend(crate::setup::bootstrap_objects::own_endpoints(api.settings.advertise));
    }
    let made = |make: Option<fn() -> Vec<Value>>| make.map(|make| make()).unwrap_or_default();
    // Objects that need nothing but namespaces are written concurrently: on etcd, every round
    // takes its time.
    let definitions = all(api, made(api.extensions.definitions));
    // Objects of extensions may be in namespaces of extensions: those are written first.
    let (namespaces, rest): (Vec<Value>, Vec<Value>) =
        made(api.extensions.objects).into_iter().partition(|object| object["kind"] == "Namespace");
    tokio::try_join!(roles(api), all(api, objects), definitions, all(api, namespaces))?;
    all(api, rest).await
}

async fn all(api: &Api, objects: Vec<Value>) -> Result<(), BootstrapError> {
    each(api, objects, |api, object| async move { ensure(&api, &object).await }).await
}

/// Writes many at once: one sync covers them, and all cores judge them. Each is freed when
/// it is written, since memory that the start takes is hardly ever given back.
async fn each<W>(
    api: &Api,
    objects: Vec<Value>,
    write: fn(Api, Arc<Value>) -> W,
) -> Result<(), BootstrapError>
where
    W: Future<Output = Result<(), BootstrapError>> + Send + 'static,
{
    let written = objects.into_iter().map(async |object| {
        let object = Arc::new(object);
        persist(async || {
            let task = tokio::spawn(write(api.clone(), Arc::clone(&object)));
            task.await.unwrap_or_else(|gone| std::panic::resume_unwind(gone.into_panic()))
        })
        .await
    });
    stream::iter(written).buffer_unordered(AT_ONCE).try_collect().await
}

/// Repeats a write that fails for now.
async fn persist(
    write: impl AsyncFn() -> Result<(), BootstrapError>,
) -> Result<(), BootstrapError> {
    let began = Instant::now();
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match write().await {
            Err(failure) if failure.is_transient() && began.elapsed() < RETRY_LIMIT => {
                tokio::time::sleep(backoff.delay()).await;
            }
            outcome => return outcome,
        }
    }
}

/// Creates an object unless it exists; some are kept equal to what we say, and roles get the rights
/// that a later version adds.
async fn ensure(api: &Api, object: &Value) -> Result<(), BootstrapError> {
    if is_role_or_binding(object) {
        return role(api, object).await;
    }
    let collection = collection(api, object);
    let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap_or(""));
    let (code, live) = call(api, Method::GET, &path, None).await;
    if code == StatusCode::OK {
        if !is_ours(object) || contains(&live, object) {
            return Ok(());
        }
        let mut wanted = live;
        overlay(&mut wanted, object);
        return expect(Method::PUT, &path, call(api, Method::PUT, &path, Some(&wanted)).await);
    }
    match call(api, Method::POST, &collection, Some(object)).await {
        (StatusCode::CONFLICT, _) => Ok(()),
        outcome => expect(Method::POST, &collection, outcome),
    }
}

/// Objects that describe this server and its kinds, and must follow it when it changes.
fn is_ours(object: &Value) -> bool {
    let kind = object["kind"].as_str();
    matches!(kind, Some("Endpoints" | "EndpointSlice" | "CustomResourceDefinition"))
        || object["metadata"]["name"] == "extension-apiserver-authentication"
}

fn is_role_or_binding(object: &Value) -> bool {
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    group.is_some_and(|(group, _)| group == auth::rbac::GROUP)
}

/// Whether everything in `part` is also in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|known| contains(known, value))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len()
                && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        _ => whole == part,
    }
}

/// Makes everything in `part` true of `whole`; lists are taken as a whole.
fn overlay(whole: &mut Value, part: &Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, value) in part {
                overlay(whole.entry(key).or_insert(Value::Null), value);
            }
        }
        (whole, part) => *whole = part.clone(),
    }
}

async fn roles(api: &Api) -> Result<(), BootstrapError> {
    let objects = auth::rbac::bootstrap::objects();
    each(api, objects, |api, wanted| async move { role(&api, &wanted).await }).await
}

async fn role(api: &Api, wanted: &Value) -> Result<(), BootstrapError> {
    let collection = collection(api, wanted);
    let path = format!("{collection}/{}", wanted["metadata"]["name"].as_str().unwrap_or(""));
    let (code, live) = call(api, Method::GET, &path, None).await;
    if code != StatusCode::OK {
        return match call(api, Method::POST, &collection, Some(wanted)).await {
            (StatusCode::CONFLICT, _) => Ok(()),
            outcome => expect(Method::POST, &collection, outcome),
        };
    }
    match reconcile::reconcile(&live, wanted) {
        None => Ok(()),
        Some(Reconciled::Update(updated)) => {
            expect(Method::PUT, &path, call(api, Method::PUT, &path, Some(&updated)).await)
        }
        Some(Reconciled::Recreate(fresh)) => {
            expect(Method::DELETE, &path, call(api, Method::DELETE, &path, None).await)?;
            expect(
                Method::POST,
                &collection,
                call(api, Method::POST, &collection, Some(&fresh)).await,
            )
        }
    }
}

fn collection(api: &Api, object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let catalog = api.catalog.load();
    let served = catalog.find_kind(group, version, text("kind"));
    let plural = served.map_or("", |served| &*served.plural);
    let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{version}/{plural}"),
    }
}

fn expect(
    method: Method,
    path: &str,
    (code, body): (StatusCode, Value),
) -> Result<(), BootstrapError> {
    if code.is_success() {
        return Ok(());
    }
    let message = body["message"].as_str().unwrap_or("").to_owned();
    Err(BootstrapError::Refused { method, path: path.to_owned(), code, message })
}

/// One request to ourselves, as the server's own user.
pub(crate) async fn call(
    api: &Api,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (StatusCode, Value) {
    let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::USER_AGENT, "sheaf-apiserver")
        .body(body);
    let request = match request {
        Ok(request) => request,
        Err(error) => {
            return (StatusCode::BAD_REQUEST, json!({"message": Chain(&error).to_string()}));
        }
    };
    send(api, request).await
}

async fn send(api: &Api, request: Request<crate::http::body::RequestBody>) -> (StatusCode, Value) {
    let reply = api.handle(request, &Transport::InProcess(User::api_server())).await;
    let code = reply.status();
    let body = reply.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// A JSON patch to ourselves.
pub(crate) async fn json_patch(api: &Api, path: &str, patch: &Value) -> (StatusCode, Value) {
    let body = Full::new(Bytes::from(patch.to_string()));
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(path)
        .header(http::header::USER_AGENT, "sheaf-apiserver")
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(body.map_err(|never| match never {}).boxed_unsync());
    let Ok(request) = request else { return (StatusCode::BAD_REQUEST, Value::Null) };
    send(api, request).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_is_repeated_while_the_store_is_slow() {
        let run = async |codes: &[u16]| {
            let tries = AtomicUsize::new(0);
            let outcome = persist(async || {
                let index = tries.fetch_add(1, Ordering::Relaxed);
                let code = codes[index.min(codes.len() - 1)];
                let code = StatusCode::from_u16(code).unwrap();
                expect(Method::POST, "/api/v1/namespaces", (code, Value::Null))
            })
            .await;
            (outcome.is_ok(), tries.into_inner())
        };
        assert_eq!(run(&[201]).await, (true, 1));
        assert_eq!(run(&[504, 503, 409, 201]).await, (true, 4));
        assert_eq!(run(&[422]).await, (false, 1), "it would fail again");
        let (is_ok, tries) = run(&[504]).await;
        assert!(!is_ok && tries > 10, "{tries}");
    }

    #[test]
    fn own_fields_override_fields_that_others_added() {
        let mut live = json!({"metadata": {"name": "a", "finalizers": ["f"]},
            "spec": {"names": {"plural": "as", "listKind": "AList"}, "versions": [{"name": "v1"}]}});
        let wanted = json!({"metadata": {"name": "a"},
            "spec": {"names": {"plural": "as"}, "versions": [{"name": "v1"}, {"name": "v2"}]}});
        assert!(!contains(&live, &wanted));
        overlay(&mut live, &wanted);
        assert!(contains(&live, &wanted));
        assert_eq!(live["metadata"]["finalizers"], json!(["f"]));
        assert_eq!(live["spec"]["names"]["listKind"], "AList");
    }
}
