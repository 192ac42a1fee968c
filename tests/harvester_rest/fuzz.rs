//! Requests that make no sense, against a whole server: each is refused in Steve's shape, never with
//! a code that clients repeat for minutes, and nothing panics.
//!
//! `SHEAF_FUZZ_REQUESTS=20000` makes it a long run, `SHEAF_FUZZ_SEED` another one.

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

use super::{PASSWORD, client_of, server};
use crate::harness::{Http, Reply};

/// Numbers that follow from the seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound.max(1)
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

const TYPES: &[&str] = &[
    "nodes",
    "namespaces",
    "secrets",
    "pods",
    "events",
    "services",
    "schemas",
    "counts",
    "subscribe",
    "kubeconfig",
    "cluster",
    "x",
    "%00",
    "%ff",
    "..",
    "%2e%2e",
    "a.b.c",
    "harvester",
    "management.cattle.io.clusters",
    "management.cattle.io.users",
    "harvesterhci.io.addons",
    "storage.k8s.io.storageclasses",
    "longhorn.io.volumes",
    "kubevirt.io.virtualmachineinstances",
];
const SEGMENTS: &[&str] =
    &["", "default", "x", "..", "%2f", "%00", "local", "x%20y", "download", "why", "maintenance"];
const QUERIES: &[&str] = &[
    "",
    "",
    "",
    "filter=%ff",
    "filter=[",
    "sort=metadata.fields[99999999999999999999]",
    "page=0&pagesize=-1",
    "page=18446744073709551615&pagesize=18446744073709551615",
    "limit=-1",
    "continue=AAAA",
    "link=x",
    "exclude=metadata",
    "labelSelector=((",
    "fieldSelector=a",
    "removedDisks=,,",
    "revision=x",
    "&&=&",
    "propagationPolicy=x",
    "gracePeriodSeconds=-9",
    "dryRun=x",
    "as=admin",
    "timeout=1ns",
];
const ACTIONS: &[&str] = &[
    "start",
    "stop",
    "restart",
    "pause",
    "clone",
    "backup",
    "snapshot",
    "restore",
    "createTemplate",
    "addVolume",
    "removeVolume",
    "insertCdRomVolume",
    "ejectCdRomVolume",
    "addNic",
    "removeNic",
    "cpuAndMemoryHotplug",
    "updateResourceQuota",
    "migrate",
    "abortMigration",
    "storageMigration",
    "findMigratableNodes",
    "export",
    "cancelExpand",
    "dataMigration",
    "keygen",
    "uncordon",
    "maintenancePossible",
    "powerAction",
    "upload",
    "generateKubeconfig",
    "",
    "x",
    "%00",
];
const LOGIN_PATHS: &[&str] = &[
    "/v3/users",
    "/v3/tokens",
    "/v3/users?action=changepassword",
    "/v3/users/x",
    "/v3/tokens/x",
    "/v3-public/localProviders/local?action=login",
    "/v3-public/x",
    "/v3/settings",
    "/v3/x/y/z",
    "/v3",
    "/v3/%00",
];
const CONTENT_TYPES: &[&str] = &[
    "application/json",
    "application/json",
    "application/json",
    "application/yaml",
    "text/plain",
    "multipart/form-data",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "x",
];

/// Types with an object that is good.
fn templates() -> Vec<(&'static str, Value)> {
    let meta =
        |name: &str| json!({"namespace": "default", "name": name, "annotations": {"a": "b"}});
    vec![
        (
            "kubevirt.io.virtualmachines",
            json!({"metadata": {"namespace": "default", "name": "m",
            "annotations": {"harvesterhci.io/volumeClaimTemplates": "[]"},
            "labels": {"harvesterhci.io/creator": "harvester"}},
            "spec": {"runStrategy": "Halted", "template": {"metadata": {"annotations": {
                "harvesterhci.io/sshNames": "[]"}}, "spec": {
                "domain": {"cpu": {"cores": 1}, "resources": {"limits": {"memory": "1Gi", "cpu": "1"}},
                    "devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}, "bootOrder": 1}],
                        "interfaces": [{"name": "n", "bridge": {}}]}},
                "networks": [{"name": "n", "multus": {"networkName": "default/x"}}],
                "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}}}}),
        ),
        (
            "persistentvolumeclaims",
            json!({"metadata": meta("c"), "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            "harvesterhci.io.virtualmachineimages",
            json!({"metadata": meta("i"), "spec": {
            "displayName": "x", "sourceType": "download", "url": "http://127.0.0.1:9/x"}}),
        ),
        (
            "harvesterhci.io.keypairs",
            json!({"metadata": meta("k"), "spec": {"publicKey": "ssh-rsa A"}}),
        ),
        (
            "harvesterhci.io.virtualmachinetemplateversions",
            json!({"metadata": meta("v"), "spec": {
            "templateId": "default/t", "keyPairIds": ["default/k"], "vm": {"spec": {"template":
                {"spec": {"domain": {}}}}}}}),
        ),
        (
            "harvesterhci.io.virtualmachinebackups",
            json!({"metadata": meta("b"), "spec": {
            "type": "backup", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine",
                "name": "m"}}}),
        ),
        (
            "harvesterhci.io.virtualmachinerestores",
            json!({"metadata": meta("r"), "spec": {
            "newVM": true, "target": {"kind": "VirtualMachine", "name": "m2"},
            "virtualMachineBackupName": "b", "virtualMachineBackupNamespace": "default"}}),
        ),
        (
            "k8s.cni.cncf.io.network-attachment-definitions",
            json!({"metadata": meta("n"),
            "spec": {"config": "{\"type\":\"bridge\",\"bridge\":\"mgmt-br\",\"vlan\":100}"}}),
        ),
        (
            "network.harvesterhci.io.vlanconfigs",
            json!({"metadata": {"name": "v"}, "spec": {
            "clusterNetwork": "none", "uplink": {"nics": ["eth9"], "bondOptions": {"mode": "x"}}}}),
        ),
        (
            "loadbalancer.harvesterhci.io.loadbalancers",
            json!({"metadata": meta("l"), "spec": {
            "listeners": [{"name": "a", "port": 80, "protocol": "TCP", "backendPort": 80}],
            "healthCheck": {"port": 80}}}),
        ),
        (
            "loadbalancer.harvesterhci.io.ippools",
            json!({"metadata": {"name": "p"}, "spec": {
            "ranges": [{"subnet": "192.168.7.0/24", "gateway": "192.168.7.1"}]}}),
        ),
        (
            "storage.k8s.io.storageclasses",
            json!({"metadata": {"name": "s"},
            "provisioner": "driver.longhorn.io", "parameters": {"numberOfReplicas": "1"}}),
        ),
        (
            "namespaces",
            json!({"metadata": {"name": "ns", "annotations": {
            "field.cattle.io/resourceQuota": "{\"limit\":{\"limitsCpu\":\"1\"}}",
            "field.cattle.io/projectId": "local:p"}}}),
        ),
        (
            "management.cattle.io.projects",
            json!({"metadata": {"namespace": "local", "name": "p"},
            "spec": {"resourceQuota": {"limit": {"limitsCpu": "1"}},
                "namespaceDefaultResourceQuota": {"limit": {"limitsCpu": "1"}}}}),
        ),
        (
            "harvesterhci.io.settings",
            json!({"metadata": {"name": "overcommit-config"},
            "value": "{\"cpu\":200}"}),
        ),
        (
            "snapshot.storage.k8s.io.volumesnapshots",
            json!({"metadata": meta("vs"), "spec": {
            "source": {"persistentVolumeClaimName": "c"}}}),
        ),
    ]
}

fn odd_values() -> Vec<Value> {
    let texts = [
        "",
        "x",
        "a/b",
        "../..",
        "\0",
        "{",
        "{}",
        "[]",
        "null",
        "[{}]",
        "9999999999999999Gi",
        "-1Gi",
        "NaN",
        "default/",
        "/",
        "http://[",
        "2006-13-45T00:00:00Z",
        "1.2.3.4/99",
        "::/0",
    ];
    let mut values: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
    values.extend([
        Value::Null,
        json!(true),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!([]),
        json!({}),
        json!([null]),
        json!([[]]),
        json!({"": ""}),
        json!("x".repeat(300)),
    ]);
    values
}

/// Changes one value somewhere in a document.
fn change(value: &mut Value, odd: &[Value], numbers: &mut Numbers) {
    let is_here = numbers.below(6) == 0;
    match value {
        Value::Object(fields) if !is_here && !fields.is_empty() => {
            let key = fields.keys().nth(numbers.below(fields.len())).cloned().unwrap_or_default();
            match numbers.below(12) {
                0 => drop(fields.remove(&key)),
                _ => change(fields.get_mut(&key).unwrap(), odd, numbers),
            }
        }
        Value::Array(items) if !is_here && !items.is_empty() => {
            let index = numbers.below(items.len());
            change(&mut items[index], odd, numbers);
        }
        _ => *value = numbers.one(odd).clone(),
    }
}

/// A request: method, path and query, body.
struct Broken {
    method: Method,
    path: String,
    body: Vec<u8>,
}

struct Requests {
    numbers: Numbers,
    templates: Vec<(&'static str, Value)>,
    odd: Vec<Value>,
}

impl Requests {
    fn document(&mut self, good: &Value) -> Value {
        let mut document = good.clone();
        for _ in 0..=self.numbers.below(3) {
            change(&mut document, &self.odd, &mut self.numbers);
        }
        document
    }

    fn next(&mut self, index: usize) -> Broken {
        let prefix = *self.numbers.one(&["/v1/", "/v1/harvester/"]);
        let (kind, good) = self.numbers.one(&self.templates).clone();
        let id = match good["metadata"]["namespace"].as_str() {
            Some(namespace) => {
                format!("{namespace}/{}", good["metadata"]["name"].as_str().unwrap())
            }
            None => good["metadata"]["name"].as_str().unwrap().to_owned(),
        };
        let (method, path, document) = match self.numbers.below(8) {
            0 => {
                let path = (*self.numbers.one(LOGIN_PATHS)).to_owned();
                // Wrong passwords of one user would make the test wait.
                let user = format!("absent{index}");
                let good = json!({"username": user, "password": "x", "newPassword": "y", "ttl": 1});
                (Method::POST, path, self.document(&good))
            }
            1 | 2 => {
                let mut object = self.document(&good);
                if object["metadata"]["name"].is_string() {
                    object["metadata"]["name"] = format!("f{}", self.numbers.below(40)).into();
                }
                (Method::POST, format!("{prefix}{kind}"), object)
            }
            3 => {
                let method = self.numbers.one(&[Method::PUT, Method::PATCH]).clone();
                (method, format!("{prefix}{kind}/{id}"), self.document(&good))
            }
            4 | 5 => {
                let action = self.numbers.one(ACTIONS);
                let good = json!({"name": "x", "targetVm": "v2", "diskName": "d", "namespace": "default",
                    "volumeSourceName": "c", "totalSnapshotSizeQuota": "1Gi", "sockets": 2,
                    "memory": "2Gi", "withData": true, "networkName": "default/n", "force": "true"});
                (Method::POST, format!("{prefix}{kind}/{id}?action={action}"), self.document(&good))
            }
            _ => {
                let methods = [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS];
                let method = self.numbers.one(&methods).clone();
                let mut path = format!("{prefix}{}", self.numbers.one(TYPES));
                for _ in 0..self.numbers.below(5) {
                    path = format!("{path}/{}", self.numbers.one(SEGMENTS));
                }
                (method, path, self.numbers.one(&self.odd).clone())
            }
        };
        let query = *self.numbers.one(QUERIES);
        let joint = if path.contains('?') { "&" } else { "?" };
        let mut body = document.to_string().into_bytes();
        if self.numbers.below(10) == 0 {
            let at = self.numbers.below(body.len());
            body[at] = u8::try_from(self.numbers.below(256)).unwrap();
        }
        Broken { method, path: format!("{path}{joint}{query}"), body }
    }
}

#[track_caller]
fn check(asked: &Broken, reply: &Reply) {
    let about = || {
        let body = String::from_utf8_lossy(&asked.body).into_owned();
        format!("{} {} {body}: {} {}", asked.method, asked.path, reply.status, reply.text())
    };
    let is_text = reply
        .headers
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    // Harvester's actions say in text and with 500 that they are impossible now.
    let is_action = asked.method == Method::POST && asked.path.contains("action=") && is_text;
    assert!(reply.status < 500 || is_action && reply.status == 500, "{}", about());
    if reply.status >= 400 && !is_text {
        let error: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        assert_eq!(
            (&error["type"], &error["status"]),
            (&json!("error"), &json!(reply.status)),
            "{}",
            about()
        );
        assert!(error["code"].is_string() && error["message"].is_string(), "{}", about());
    }
}

fn send(http: &Http, asked: &Broken, content_type: &str) -> Option<Reply> {
    let request = Request::builder()
        .method(asked.method.clone())
        .uri(&asked.path)
        .header("content-type", content_type);
    // A text that is no URI cannot be sent.
    request.uri_ref()?;
    Some(http.try_send(request, Bytes::from(asked.body.clone())).unwrap_or_else(|error| {
        panic!("{} {} {}: {error}", asked.method, asked.path, String::from_utf8_lossy(&asked.body))
    }))
}

#[test]
fn broken_requests_are_refused_in_shape() {
    let mut sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    let number = |name: &str, default: usize| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let seed = u64::try_from(number("SHEAF_FUZZ_SEED", 7)).unwrap();
    let (templates, odd) = (templates(), odd_values());
    let mut requests = Requests { numbers: Numbers(seed), templates, odd };
    let mut refused = 0;
    for index in 0..number("SHEAF_FUZZ_REQUESTS", 1500) {
        let asked = requests.next(index);
        let content_type = *requests.numbers.one(CONTENT_TYPES);
        let Some(reply) = send(&http, &asked, content_type) else { continue };
        check(&asked, &reply);
        refused += usize::from(reply.status >= 400);
    }
    assert!(refused > 500, "only {refused} were refused: the requests are too good");
    assert!(sheaf.is_running() && !sheaf.log().contains("panicked"), "{}", sheaf.log());
    http.get("/v1/harvester/nodes").ok();
}
