//! A small Kubernetes API server for tests: requests over a map of objects (`state`). It knows
//! only what the controllers ask for.

mod kinds;
mod state;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use client::{Catalog, CatalogKind, Meta};
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::kinds::KINDS;
use self::state::{FakeKey, FakeState, failure};
use crate::reconcile::{ObjectChange, ObjectState as Seen};

type FakeReply = Response<UnsyncBoxBody<Bytes, Infallible>>;
#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<FakeState>>,
    changed: watch::Sender<u64>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let state = FakeState {
            kinds: KINDS.to_vec(),
            objects: BTreeMap::new(),
            version: 1,
            log: Vec::new(),
            refused: BTreeMap::new(),
            writes: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), changed: watch::channel(1).0 }
    }

    pub(crate) fn client(&self) -> kube::Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move { Ok::<_, Infallible>(fake.answer(request).await) }
        });
        client::in_process(service, |_| {})
    }

    pub(crate) fn add_kind(&self, group: &'static str, plural: &'static str, kind: &'static str) {
        self.state.lock().unwrap().kinds.push((group, "v1", plural, kind, true));
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.state.lock().unwrap().objects.get(&key).cloned()
    }

    /// Answers every write of a kind with this code from now on.
    pub(crate) fn refuse(&self, resource: &str, code: u16) {
        self.state.lock().unwrap().refused.insert((resource.to_owned(), None), code);
    }

    /// Answers every write of a kind in one namespace with this code from now on.
    pub(crate) fn refuse_in(&self, resource: &str, namespace: &str, code: u16) {
        let key = (resource.to_owned(), Some(namespace.to_owned()));
        self.state.lock().unwrap().refused.insert(key, code);
    }

    pub(crate) fn accept(&self, resource: &str) {
        self.state.lock().unwrap().refused.remove(&(resource.to_owned(), None));
    }

    /// How often clients wrote each object, refused writes included: method, group/plural and
    /// name. An event goes by the object that it regards and its reason.
    pub(crate) fn writes(&self) -> Vec<(String, String, String, usize)> {
        let state = self.state.lock().unwrap();
        let all = state.writes.iter();
        all.map(|((method, key), count)| (method.clone(), key.0.clone(), key.2.clone(), *count))
            .collect()
    }

    /// The names of all objects of a kind, in order.
    pub(crate) fn names(&self, resource: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let own = state.objects.keys().filter(|(own, ..)| own == resource);
        own.map(|(_, _, name)| name.clone()).collect()
    }

    pub(crate) fn any(&self, resource: &str, wanted: impl Fn(&Value) -> bool) -> bool {
        let state = self.state.lock().unwrap();
        state.objects.iter().any(|((own, ..), object)| own == resource && wanted(object))
    }

    /// Creates an object and returns its uid.
    pub(crate) fn create(&self, resource: &str, namespace: &str, body: Value) -> String {
        let created = self.with(|state| state.create(resource, namespace, body));
        created.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Binds a persistent volume to a claim.
    pub(crate) fn bind(&self, namespace: &str, claim: &str, volume: &str) {
        let claim = self.get("/persistentvolumeclaims", namespace, claim).unwrap();
        let reference = json!({"uid": claim["metadata"]["uid"]});
        self.merge("/persistentvolumes", "", volume, &json!({"spec": {"claimRef": reference}}));
    }

    pub(crate) fn delete(&self, resource: &str, namespace: &str, name: &str, policy: &str) {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.with(|state| state.delete(&key, &json!({"propagationPolicy": policy}))).unwrap();
    }

    pub(crate) fn merge(&self, resource: &str, namespace: &str, name: &str, patch: &Value) {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.with(|state| state.merge(&key, patch)).unwrap();
    }

    /// Waits until `condition` holds; checks it after each change.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !condition(self) {
                let _ = changed.changed().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), wait).await.is_err() {
            let state = self.state.lock().unwrap();
            let names: Vec<&FakeKey> = state.objects.keys().collect();
            panic!("never came true: {what}; there are {names:?}");
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut FakeState) -> T) -> T {
        let (result, version) = {
            let mut state = self.state.lock().unwrap();
            (change(&mut state), state.version)
        };
        self.changed.send_replace(version);
        result
    }

    async fn answer(&self, request: Request<Body>) -> FakeReply {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let path = parts.uri.path().trim_matches('/').to_owned();
        let query: BTreeMap<&str, &str> = parts
            .uri
            .query()
            .unwrap_or("")
            .split('&')
            .filter_map(|own| own.split_once('='))
            .collect();
        if path == "api" || path == "apis" {
            return reply(Ok(self.state.lock().unwrap().discovery(&path)));
        }
        let Some((key, subresource)) = parse(&path) else { return reply(Err(failure(404, ""))) };
        let selected = query.contains_key("fieldSelector");
        if parts.method != Method::GET
            && let Some(code) = self.state.lock().unwrap().note(parts.method.as_str(), &key, &body)
        {
            return reply(Err(failure(code, "")));
        }
        match (parts.method, key.2.is_empty()) {
            (Method::GET, true) if query.contains_key("watch") => {
                let from = query["resourceVersion"].parse().unwrap();
                self.watch(key, from, selected)
            }
            (Method::GET, true) => {
                let mut found = self.state.lock().unwrap().list(&key, selected);
                let labels = query.get("labelSelector").copied().unwrap_or_default();
                found["items"].as_array_mut().unwrap().retain(|own| has_labels(own, labels));
                reply(Ok(found))
            }
            (Method::GET, false) => {
                let state = self.state.lock().unwrap();
                reply(state.objects.get(&key).cloned().ok_or_else(|| failure(404, "")))
            }
            (Method::POST, _) => reply(self.with(|state| state.create(&key.0, &key.1, body))),
            (Method::PUT, _) => reply(self.with(|state| state.put(&key, &subresource, body))),
            (Method::PATCH, _) => reply(self.with(|state| state.merge(&key, &body))),
            (Method::DELETE, true) => reply(self.with(|state| Ok(state.delete_all(&key)))),
            (Method::DELETE, false) => reply(self.with(|state| state.delete(&key, &body))),
            _ => reply(Err(failure(405, ""))),
        }
    }

    fn watch(&self, key: FakeKey, from: u64, selected: bool) -> FakeReply {
        let start = (self.clone(), self.changed.subscribe(), from);
        let lines = stream::unfold(start, move |(fake, mut changed, mut from)| {
            let key = key.clone();
            async move {
                loop {
                    let next = fake.state.lock().unwrap().next_event(&key, from, selected);
                    if let Some((version, line)) = next {
                        from = version;
                        let frame = http_body::Frame::data(Bytes::from(line));
                        return Some((Ok::<_, Infallible>(frame), (fake, changed, from)));
                    }
                    if changed.changed().await.is_err() {
                        return None;
                    }
                }
            }
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

/// A kind of the core group that the server knows.
pub(crate) fn core_kind(plural: &str) -> Arc<CatalogKind> {
    kind_in("", plural)
}

/// A kind that the server knows.
pub(crate) fn kind_in(group: &str, plural: &str) -> Arc<CatalogKind> {
    let fake = Fake::new();
    let root = if group.is_empty() { "api" } else { "apis" };
    let discovered = fake.state.lock().unwrap().discovery(root);
    let catalog = Catalog::read(&[serde_json::from_value(discovered).unwrap()]);
    Arc::clone(catalog.resource(group, plural).unwrap())
}

pub(crate) fn touch(plural: &str, namespace: &str, name: &str, state: Seen) -> ObjectChange {
    let meta = Meta { name: name.into(), namespace: namespace.into(), ..Meta::default() };
    ObjectChange::object(&core_kind(plural), &meta, state)
}

/// Whether an object has all of `key=value`, as they are in a query.
fn has_labels(object: &Value, labels: &str) -> bool {
    let labels = labels.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
    labels
        .split(',')
        .filter_map(|own| own.split_once('='))
        .all(|(key, value)| object["metadata"]["labels"][key] == value)
}

/// `api/v1/…` or `apis/group/v1/…`, with or without a namespace.
fn parse(path: &str) -> Option<(FakeKey, String)> {
    let mut parts = path.split('/');
    let group = if parts.next()? == "api" { "" } else { parts.next()? };
    parts.next()?;
    let rest: Vec<&str> = parts.collect();
    let (namespace, rest) = match rest.as_slice() {
        ["namespaces", namespace, plural, rest @ ..]
            if !matches!(*plural, "status" | "finalize") =>
        {
            (*namespace, [&[*plural], rest].concat())
        }
        _ => ("", rest),
    };
    let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    Some(((format!("{group}/{}", part(0)), namespace.to_owned(), part(1)), part(2)))
}

fn reply(result: Result<Value, Value>) -> FakeReply {
    let (code, body) = match result {
        Ok(body) => (200, body),
        Err(body) => {
            (body["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap(), body)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
