//! Ten thousand invalid requests, against a small fake of the Kubernetes API: each is answered in
//! the form of Steve, and never with a status code that clients retry for minutes.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use client::Caller;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::{Value, json};

use crate::type_name::tests::discovery;
use crate::{RequestHead, Steve, SteveRequest};

const WORDS: &[&str] = &[
    "",
    "harvester",
    "nodes",
    "node",
    "pods",
    "kubevirt.io.virtualmachines",
    "default",
    "web",
    "..",
    "%2e%2e",
    "%00",
    "%ff",
    "a/b",
    "schemas",
    "counts",
    "subscribe",
    "kubeconfig",
    "supportbundles",
    "download",
    "local",
    "management.cattle.io.clusters",
    "persistentvolumeclaims",
    "secrets",
    "x y",
    "backuptarget",
    "healthz",
    "cluster",
    "namespaces",
    "ü",
    "a?b",
    "view",
];
const QUERIES: &[&str] = &[
    "",
    "action=start",
    "action=",
    "action=clone",
    "action=addVolume",
    "action=createTemplate",
    "action=restore",
    "action=backup",
    "action=generateKubeconfig",
    "action=cpuAndMemoryHotplug",
    "action=export",
    "action=snapshot",
    "action=updateResourceQuota",
    "action=insertCdRomVolume",
    "filter=metadata.name=",
    "filter=%ff",
    "filter=[",
    "sort=-",
    "page=0&pagesize=-1",
    "pagesize=9e9",
    "limit=x",
    "continue=%%",
    "link=view",
    "link=machineTypes",
    "exclude=metadata",
    "labelSelector=((",
    "removedDisks=,,",
    "&&=&",
];
const BODIES: &[&str] = &[
    "",
    "{",
    "[]",
    "null",
    "7",
    "\"text\"",
    "{}",
    "{\"metadata\":7}",
    "{\"metadata\":{\"name\":7}}",
    "{\"type\":{}}",
    "{\"id\":[],\"links\":1}",
    "a: b: c",
    "{\"name\":null}",
    "{\"name\":\"a/b\"}",
    "{\"targetVm\":\"\"}",
    "{\"spec\":[]}",
    "{\"sockets\":-1,\"memory\":\"x\"}",
    "\u{0}",
    "{\"status\":{\"conditions\":7}}",
    "{\"namespace\":\"n\",\"serviceAccountName\":\"../x\"}",
    "{\"diskName\":\"d\",\"volumeSourceName\":\"../../x\"}",
    "{\"imageName\":\"a\"}",
];

fn missing() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "reason": "NotFound", "message": "not found",
    })
}

/// Answers discovery and reviews, has one object of any name, and refuses everything else.
fn cluster() -> kube::Client {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let path = request.uri().path().to_owned();
        let accepts = request.headers().get("accept").map(|value| value.as_bytes().to_vec());
        let wants_discovery =
            accepts.is_some_and(|value| value.windows(9).any(|at| at == b"discovery"));
        let (code, body) = match (request.method(), &*path) {
            (_, "/api" | "/apis") if wants_discovery => (200, discovery(&path)),
            (&Method::POST, path) if path.ends_with("selfsubjectrulesreviews") => (
                201,
                json!({
                    "status": {"resourceRules": [
                        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]},
                }),
            ),
            (&Method::GET, path) if path.contains("/users/") => (404, missing()),
            (&Method::GET, path) if path.ends_with("web") => (
                200,
                json!({
                    "kind": "Thing", "metadata": {"name": "web"}, "spec": {}, "status": {},
                }),
            ),
            (&Method::GET, _) => (200, json!({"kind": "ThingList", "metadata": {}, "items": []})),
            _ => (404, missing()),
        };
        let mut reply = Response::new(Full::new(Bytes::from(body.to_string())));
        *reply.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
        Ok::<_, Infallible>(reply)
    });
    client::in_process(service, |_| {})
}

/// Pseudo-random numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.get(self.below(of.len())).copied().unwrap_or_default()
    }
}

fn request(numbers: &mut Numbers) -> Option<Request<Full<Bytes>>> {
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let words: Vec<&str> = (0..numbers.below(6)).map(|_| numbers.one(WORDS)).collect();
    let path = format!("/v1/{}?{}", words.join("/"), numbers.one(QUERIES));
    let mut body = numbers.one(BODIES).as_bytes().to_vec();
    for _ in 0..numbers.below(3) {
        let at = numbers.below(body.len() + 1);
        body.insert(at, u8::try_from(numbers.below(256)).unwrap_or(0));
    }
    let kinds = ["application/json", "application/yaml", "text/plain", "multipart/form-data"];
    Request::builder()
        .method(methods.get(numbers.below(methods.len()))?.clone())
        .uri(path)
        .header("content-type", numbers.one(&kinds))
        .body(Full::new(Bytes::from(body)))
        .ok()
}

/// Changes one byte, cuts, or doubles a part.
fn changed(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len() + 1);
        match numbers.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, b"{}[]:,\"?&%/=.7n"[numbers.below(15)]),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.extend_from_within(..at.min(64)),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(numbers.below(256)).unwrap_or(0);
                }
            }
        }
        bytes.truncate(4096);
    }
    bytes
}

#[test]
fn changed_documents_are_read_or_refused() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/fuzz/rest");
    let files = std::fs::read_dir(corpus).unwrap();
    let mut documents: Vec<Vec<u8>> =
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    documents.sort();
    assert!(documents.len() >= 3, "the corpus is gone");
    let mut numbers = Numbers(3);
    for (_, target) in super::TARGETS {
        for document in &documents {
            target(document);
            (0..1500).for_each(|_| target(&changed(document, &mut numbers)));
        }
    }
}

#[tokio::test]
async fn ten_thousand_broken_requests_are_answered_in_shape() {
    let steve = Steve::new(cluster(), "CA");
    let mut numbers = Numbers(7);
    let mut refused = 0;
    for _ in 0..10_000 {
        let Some(request) = request(&mut numbers) else { continue };
        let (parts, body) = request.into_parts();
        let about = format!("{} {}", parts.method, parts.uri);
        let is_action = parts.method == Method::POST && about.contains("action=");
        let groups = vec!["system:authenticated".to_owned()];
        let caller = Caller { name: "jane".into(), groups, ..Caller::default() };
        let head = RequestHead { caller: Some(caller), source: None, parts, upgrade: None };
        let body = body.map_err(|never: Infallible| -> io::Error { match never {} }).boxed_unsync();
        let reply = steve.answer(SteveRequest { head, body }).await;
        let status = reply.status();
        // Harvester's actions answer 500 if they are not possible now; clients do not retry them.
        assert!(status.as_u16() < 500 || is_action && status == 500, "{status} {about}");
        let is_text = reply
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
        if status.is_client_error() && !is_text {
            refused += 1;
            let bytes = reply.into_body().collect().await.unwrap().to_bytes();
            let error: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            assert_eq!(error["type"], "error", "{about}: {error}");
            assert_eq!(error["status"], status.as_u16(), "{about}");
            assert!(error["code"].is_string() && error["message"].is_string(), "{about}: {error}");
        }
    }
    assert!(refused > 1000, "only {refused} were refused: the requests are too good");
}
