//! A small Kubernetes API server for tests: a map, a log for watches, and the rules of
//! deletion. It knows only what the controllers ask for.

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

use crate::reconcile::{ObjectChange, ObjectState as Seen};

const FOREVER: &str = "2026-01-01T00:00:00Z";

type FakeReply = Response<UnsyncBoxBody<Bytes, Infallible>>;
/// Group/plural, namespace and name.
type FakeKey = (String, String, String);

struct FakeState {
    /// Group, version, plural, kind, namespaced.
    kinds: Vec<(&'static str, &'static str, &'static str, &'static str, bool)>,
    objects: BTreeMap<FakeKey, Value>,
    version: u64,
    log: Vec<(u64, FakeKey, &'static str, Value)>,
    /// Kinds whose writes are refused, and with which code.
    refused: BTreeMap<String, u16>,
    /// How often each object was written, refusals included.
    writes: BTreeMap<(String, FakeKey), usize>,
}

#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<FakeState>>,
    changed: watch::Sender<u64>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let rbac = "rbac.authorization.k8s.io";
        let kinds = vec![
            ("", "v1", "namespaces", "Namespace", false),
            ("", "v1", "configmaps", "ConfigMap", true),
            ("", "v1", "secrets", "Secret", true),
            ("", "v1", "serviceaccounts", "ServiceAccount", true),
            ("", "v1", "pods", "Pod", true),
            ("", "v1", "events", "Event", true),
            ("", "v1", "resourcequotas", "ResourceQuota", true),
            ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true),
            ("", "v1", "persistentvolumes", "PersistentVolume", false),
            ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "X", false),
            ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true),
            ("coordination.k8s.io", "v1", "leases", "Lease", true),
            (rbac, "v1", "clusterroles", "ClusterRole", false),
            ("", "v1", "nodes", "Node", false),
            ("", "v1", "services", "Service", true),
            ("", "v1", "endpoints", "Endpoints", true),
            ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
            ("networking.k8s.io", "v1", "ipaddresses", "IPAddress", false),
            ("storage.k8s.io", "v1", "storageclasses", "StorageClass", false),
            ("apps", "v1", "controllerrevisions", "ControllerRevision", true),
            ("kubevirt.io", "v1", "virtualmachines", "VirtualMachine", true),
            ("network.harvesterhci.io", "v1alpha1", "ippools", "IPPool", true),
            ("network.harvesterhci.io", "v1alpha1", "virtualmachinenetworkconfigs", "Config", true),
            ("k8s.cni.cncf.io", "v1", "network-attachment-definitions", "Network", true),
            ("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance", true),
            ("kubevirt.io", "v1", "virtualmachineinstancereplicasets", "Set", true),
            ("pool.kubevirt.io", "v1beta1", "virtualmachinepools", "VirtualMachinePool", true),
            ("kubevirt.io", "v1", "kubevirts", "KubeVirt", true),
            (
                "instancetype.kubevirt.io",
                "v1beta1",
                "virtualmachineclusterinstancetypes",
                "I",
                false,
            ),
            ("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume", true),
            ("longhorn.io", "v1beta2", "volumes", "Volume", true),
            ("longhorn.io", "v1beta2", "engines", "Engine", true),
            ("longhorn.io", "v1beta2", "replicas", "Replica", true),
            ("longhorn.io", "v1beta2", "snapshots", "Snapshot", true),
            ("longhorn.io", "v1beta2", "volumeattachments", "VolumeAttachment", true),
            ("longhorn.io", "v1beta2", "nodes", "Node", true),
            ("longhorn.io", "v1beta2", "backingimages", "BackingImage", true),
            ("longhorn.io", "v1beta2", "backups", "Backup", true),
            ("longhorn.io", "v1beta2", "backuptargets", "BackupTarget", true),
            ("harvesterhci.io", "v1beta1", "virtualmachineimages", "VirtualMachineImage", true),
            ("longhorn.io", "v1beta2", "settings", "Setting", true),
            ("longhorn.io", "v1beta2", "recurringjobs", "RecurringJob", true),
            ("cdi.kubevirt.io", "v1beta1", "datasources", "DataSource", true),
            ("cdi.kubevirt.io", "v1beta1", "volumeimportsources", "VolumeImportSource", true),
            ("cdi.kubevirt.io", "v1beta1", "volumeclonesources", "VolumeCloneSource", true),
            ("cdi.kubevirt.io", "v1beta1", "volumeuploadsources", "VolumeUploadSource", true),
            ("cdi.kubevirt.io", "v1beta1", "dataimportcrons", "DataImportCron", true),
            ("export.kubevirt.io", "v1", "virtualmachineexports", "VirtualMachineExport", true),
            ("template.kubevirt.io", "v1beta1", "virtualmachinetemplates", "T", true),
            ("template.kubevirt.io", "v1beta1", "virtualmachinetemplaterequests", "TR", true),
            ("cdi.kubevirt.io", "v1beta1", "storageprofiles", "StorageProfile", false),
            (hci::snapshot::GROUP, "v1", "volumesnapshots", "VolumeSnapshot", true),
            ("harvesterhci.io", "v1beta1", "virtualmachinebackups", "B", true),
            ("harvesterhci.io", "v1beta1", "schedulevmbackups", "ScheduleVMBackup", true),
            ("snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshots", "S", true),
            ("snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshotcontents", "C", true),
            ("snapshot.kubevirt.io", "v1beta1", "virtualmachinerestores", "R", true),
            ("certificates.k8s.io", "v1", "certificatesigningrequests", "CSR", false),
            ("clone.kubevirt.io", "v1beta1", "virtualmachineclones", "VirtualMachineClone", true),
            ("harvesterhci.io", "v1beta1", "addons", "Addon", true),
            ("harvesterhci.io", "v1beta1", "keypairs", "KeyPair", true),
            ("harvesterhci.io", "v1beta1", "resourcequotas", "ResourceQuota", true),
            ("harvesterhci.io", "v1beta1", "settings", "Setting", false),
            ("harvesterhci.io", "v1beta1", "supportbundles", "SupportBundle", true),
            ("harvesterhci.io", "v1beta1", "upgrades", "Upgrade", true),
            ("harvesterhci.io", "v1beta1", "versions", "Version", true),
            ("harvesterhci.io", "v1beta1", "virtualmachinetemplates", "VMT", true),
            ("harvesterhci.io", "v1beta1", "virtualmachinetemplateversions", "VMTV", true),
            ("kubevirt.io", "v1", "virtualmachineinstancemigrations", "VMIM", true),
            (hci::address_pool::GROUP, "v1beta1", "loadbalancers", "LoadBalancer", true),
            (hci::address_pool::GROUP, "v1beta1", "ippools", "IPPool", false),
            ("management.cattle.io", "v3", "projects", "Project", true),
            (hci::snapshot::GROUP, "v1", "volumesnapshotcontents", "Content", false),
            (hci::snapshot::GROUP, "v1", "volumesnapshotclasses", "Class", false),
        ];
        let state = FakeState {
            kinds,
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
        self.state.lock().unwrap().refused.insert(resource.to_owned(), code);
    }

    pub(crate) fn accept(&self, resource: &str) {
        self.state.lock().unwrap().refused.remove(resource);
    }

    /// How often clients wrote each object, refused writes included: method, group/plural and
    /// name. An event goes by the object that it is about and its reason.
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

    /// Waits until `condition` holds; looks after each change.
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

impl FakeState {
    /// Counts a write, and says with which code it is refused.
    fn note(&mut self, method: &str, key: &FakeKey, body: &Value) -> Option<u16> {
        let mut key = key.clone();
        if key.0 == "/events" {
            let part = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or("");
            key.2 = format!("{}: {}", part("/involvedObject/name"), part("/reason"));
        } else if key.2.is_empty() {
            let name = &body["metadata"]["name"];
            let name = if name.is_null() { &body["metadata"]["generateName"] } else { name };
            key.2 = name.as_str().unwrap_or_default().to_owned();
        }
        let refused = self.refused.get(&key.0).copied();
        *self.writes.entry((method.to_owned(), key)).or_default() += 1;
        refused
    }

    fn discovery(&self, path: &str) -> Value {
        let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        let mut versions: BTreeMap<&str, &str> = BTreeMap::new();
        for (group, version, plural, kind, namespaced) in &self.kinds {
            let scope = if *namespaced { "Namespaced" } else { "Cluster" };
            let verbs = ["delete", "deletecollection", "list", "watch"];
            versions.insert(group, version);
            groups.entry(group).or_default().push(json!({"resource": plural, "scope": scope,
                "responseKind": {"kind": kind}, "verbs": verbs}));
        }
        let wanted = groups.into_iter().filter(|(group, _)| group.is_empty() == (path == "api"));
        let items: Vec<Value> = wanted
            .map(|(group, resources)| {
                json!({"metadata": {"name": group},
                    "versions": [{"version": versions[group], "resources": resources}]})
            })
            .collect();
        json!({"items": items})
    }

    fn list(&self, wanted: &FakeKey, selected: bool) -> Value {
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(key, object)| matches(key, wanted) && (!selected || is_token(object)))
            .map(|(_, object)| object)
            .collect();
        json!({"kind": "List", "metadata": {"resourceVersion": self.version.to_string()},
            "items": items})
    }

    fn next_event(&self, wanted: &FakeKey, from: u64, selected: bool) -> Option<(u64, String)> {
        let (version, _, kind, object) = self.log.iter().find(|(version, key, _, object)| {
            *version > from && matches(key, wanted) && (!selected || is_token(object))
        })?;
        Some((*version, format!("{}\n", json!({"type": kind, "object": object}))))
    }

    fn create(&mut self, resource: &str, namespace: &str, mut body: Value) -> Result<Value, Value> {
        if let Some(base) = body["metadata"]["generateName"].as_str() {
            body["metadata"]["name"] = json!(format!("{base}{:05}", self.version));
        }
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (resource.to_owned(), namespace.to_owned(), name);
        if self.objects.contains_key(&key) {
            return Err(failure(409, ""));
        }
        if !namespace.is_empty() {
            let home = ("/namespaces".to_owned(), String::new(), namespace.to_owned());
            match self.objects.get(&home) {
                None => return Err(failure(404, "")),
                Some(home) if is_deleting(home) => {
                    return Err(failure(403, "NamespaceTerminating"));
                }
                Some(_) => body["metadata"]["namespace"] = json!(namespace),
            }
        }
        if resource == "/namespaces" {
            body["spec"] = json!({"finalizers": ["kubernetes"]});
        }
        body["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        Ok(self.store(&key, body, "ADDED"))
    }

    fn put(&mut self, key: &FakeKey, subresource: &str, body: Value) -> Result<Value, Value> {
        let Some(old) = self.objects.get(key).cloned() else { return Err(failure(404, "")) };
        if old["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
            return Err(failure(409, ""));
        }
        let new = match subresource {
            "status" => with(old, "status", body["status"].clone()),
            "finalize" => with(old, "spec", body["spec"].clone()),
            "scale" => {
                let mut spec = old["spec"].clone();
                spec["replicas"] = body["spec"]["replicas"].clone();
                with(old, "spec", spec)
            }
            _ => body,
        };
        Ok(self.store(key, new, "MODIFIED"))
    }

    fn merge(&mut self, key: &FakeKey, patch: &Value) -> Result<Value, Value> {
        let Some(mut object) = self.objects.get(key).cloned() else {
            return Err(failure(404, ""));
        };
        for field in ["uid", "resourceVersion"] {
            let (own, wanted) = (&object["metadata"][field], &patch["metadata"][field]);
            if !wanted.is_null() && own != wanted {
                return Err(failure(409, ""));
            }
        }
        merge_value(&mut object, patch);
        Ok(self.store(key, object, "MODIFIED"))
    }

    fn delete(&mut self, key: &FakeKey, options: &Value) -> Result<Value, Value> {
        let Some(mut object) = self.objects.get(key).cloned() else {
            return Err(failure(404, ""));
        };
        for field in ["uid", "resourceVersion"] {
            let (own, wanted) = (&object["metadata"][field], &options["preconditions"][field]);
            if !wanted.is_null() && own != wanted {
                return Err(failure(409, ""));
            }
        }
        let own = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let mut finalizers: Vec<Value> =
            own.into_iter().filter(|own| own != "orphan" && own != "foregroundDeletion").collect();
        match options["propagationPolicy"].as_str() {
            Some("Foreground") => finalizers.push(json!("foregroundDeletion")),
            Some("Orphan") => finalizers.push(json!("orphan")),
            _ => {}
        }
        object["metadata"]["finalizers"] = json!(finalizers);
        object["metadata"]["deletionTimestamp"] = json!(FOREVER);
        Ok(self.store(key, object, "MODIFIED"))
    }

    fn delete_all(&mut self, wanted: &FakeKey) -> Value {
        let keys: Vec<FakeKey> =
            self.objects.keys().filter(|key| matches(key, wanted)).cloned().collect();
        for key in keys {
            let _ = self.delete(&key, &Value::Null);
        }
        json!({})
    }

    /// Writes the object, or removes it if nothing holds a deleted one any more.
    fn store(&mut self, key: &FakeKey, mut object: Value, event: &'static str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let held = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        let spec = &object["spec"]["finalizers"];
        let held = held(&object["metadata"]["finalizers"]) || held(spec);
        let gone = is_deleting(&object) && !held;
        if gone {
            self.objects.remove(key);
        } else {
            self.objects.insert(key.clone(), object.clone());
        }
        let event = if gone { "DELETED" } else { event };
        self.log.push((self.version, key.clone(), event, object.clone()));
        object
    }
}

/// A kind of the core group that the server knows.
pub(crate) fn core_kind(plural: &str) -> Arc<CatalogKind> {
    let fake = Fake::new();
    let discovered = fake.state.lock().unwrap().discovery("api");
    let catalog = Catalog::read(&[serde_json::from_value(discovered).unwrap()]);
    Arc::clone(catalog.resource("", plural).unwrap())
}

pub(crate) fn touch(plural: &str, namespace: &str, name: &str, state: Seen) -> ObjectChange {
    let meta = Meta { name: name.into(), namespace: namespace.into(), ..Meta::default() };
    ObjectChange::object(&core_kind(plural), &meta, state)
}

fn matches(key: &FakeKey, wanted: &FakeKey) -> bool {
    key.0 == wanted.0 && (wanted.1.is_empty() || key.1 == wanted.1)
}

/// Whether an object has all of `key=value`, as they are in a query.
fn has_labels(object: &Value, labels: &str) -> bool {
    let labels = labels.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
    labels
        .split(',')
        .filter_map(|own| own.split_once('='))
        .all(|(key, value)| object["metadata"]["labels"][key] == value)
}

fn is_token(object: &Value) -> bool {
    object["type"] == "kubernetes.io/service-account-token"
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

fn merge_value(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *object = patch.clone() };
    for (key, value) in patch {
        if value.is_object() {
            if !object[key].is_object() {
                object[key] = json!({});
            }
            merge_value(&mut object[key], value);
        } else if value.is_null() {
            if let Some(object) = object.as_object_mut() {
                object.remove(key);
            }
        } else {
            object[key] = value.clone();
        }
    }
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

fn failure(code: u16, cause: &str) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "Forbidden",
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused", "reason": reason, "code": code,
        "details": {"causes": [{"reason": cause, "message": "", "field": ""}]}})
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
