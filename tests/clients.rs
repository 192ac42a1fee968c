//! Other clients than kubectl: kube-rs and Python.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;

use crate::harness::{Sheaf, assert_has, block_on};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}})).unwrap()
}

#[test]
fn kube_rs_reads_and_writes() {
    let sheaf = Sheaf::start();
    let client = sheaf.http().kube();
    block_on(async {
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let created = maps.create(&PostParams::default(), &map("one")).await.unwrap();
        let mut changed = created.clone();
        changed.data.as_mut().unwrap().insert("c".to_owned(), "d".to_owned());
        maps.replace("one", &PostParams::default(), &changed).await.unwrap();
        let conflict = maps.replace("one", &PostParams::default(), &changed).await.unwrap_err();
        assert!(matches!(conflict, kube::Error::Api(status) if status.code == 409));
        let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"e": "f"}});
        let applied =
            maps.patch("one", &PatchParams::apply("test"), &Patch::Apply(apply)).await.unwrap();
        let data: BTreeMap<_, _> = applied.data.unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), ["a", "c", "e"]);
        let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
        assert_eq!(page.items.len(), 1);
        assert!(maps.get_metadata("one").await.unwrap().metadata.uid.is_some());
        assert!(maps.get_opt("none").await.unwrap().is_none());
        maps.delete("one", &DeleteParams::default()).await.unwrap();
        let discovery = kube::Discovery::new(client.clone()).run().await.unwrap();
        assert!(discovery.has_group("apps"));
        assert!(discovery.has_group("rbac.authorization.k8s.io"));
    });
}

#[test]
fn watchers_of_kube_rs_follow_lists_and_streams() {
    let sheaf = Sheaf::start();
    let client = sheaf.http().kube();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        block_on(async {
            let secrets: Api<Secret> = Api::default_namespaced(client.clone());
            let secret = |name: &str| -> Secret {
                serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
            };
            secrets.create(&PostParams::default(), &secret("before")).await.unwrap();
            let mut changes = watcher(secrets.clone(), config).applied_objects().boxed();
            let mut next = async || {
                let next = tokio::time::timeout(Duration::from_secs(300), changes.next()).await;
                next.unwrap().unwrap().unwrap().metadata.name.unwrap()
            };
            assert_eq!(next().await, "before");
            secrets.create(&PostParams::default(), &secret("after")).await.unwrap();
            assert_eq!(next().await, "after");
            for name in ["before", "after"] {
                secrets.delete(name, &DeleteParams::default()).await.unwrap();
            }
        });
    }
}

/// The environment that `scripts/setup test` makes.
fn python() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = || variable("HOME").expect("there is a home").join(".cache");
    let python = variable("XDG_CACHE_HOME").unwrap_or_else(home).join("sheaf/python/bin/python");
    assert!(python.exists(), "{} is missing; `scripts/setup test` makes it", python.display());
    python
}

#[test]
fn the_python_client_works() {
    let sheaf = Sheaf::start();
    let script = r#"
import sys
from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
core.create_namespace({"metadata": {"name": "python"}})
made = core.create_namespaced_config_map("python", client.V1ConfigMap(
    metadata=client.V1ObjectMeta(name="one", labels={"a": "b"}), data={"x": "y"}))
assert made.metadata.uid
core.patch_namespaced_config_map("one", "python", {"data": {"z": "w"}})
assert core.read_namespaced_config_map("one", "python").data == {"x": "y", "z": "w"}
assert [m.metadata.name for m in core.list_namespaced_config_map("python", label_selector="a=b").items] == ["one"]
try:
    core.create_namespaced_config_map("python", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="one")))
    raise SystemExit("a second one was created")
except ApiException as error:
    assert error.status == 409 and error.reason == "Conflict", error
seen = []
for event in watch.Watch().stream(core.list_namespaced_config_map, "python", label_selector="a=b", timeout_seconds=30):
    seen.append((event["type"], event["object"].metadata.name))
    if event["type"] == "ADDED":
        core.delete_namespaced_config_map("one", "python")
    else:
        break
assert seen == [("ADDED", "one"), ("MODIFIED", "one")] or seen == [("ADDED", "one"), ("DELETED", "one")], seen
batch = client.BatchV1Api().list_job_for_all_namespaces()
assert batch.items == []
rules = client.AuthorizationV1Api().create_self_subject_access_review(client.V1SelfSubjectAccessReview(
    spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=client.V1ResourceAttributes(verb="get", resource="pods"))))
assert rules.status.allowed
anything = dynamic.DynamicClient(client.ApiClient())
leases = anything.resources.get(api_version="coordination.k8s.io/v1", kind="Lease")
lease = leases.create(namespace="python", body={"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
    "metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})
assert lease.spec.holderIdentity == "me"
leases.server_side_apply(namespace="python", name="l", field_manager="py", force_conflicts=True, body={
    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "you"}})
assert leases.get(namespace="python", name="l").spec.holderIdentity == "you"
print("done", client.VersionApi().get_code().git_version)
"#;
    let output =
        Command::new(python()).arg("-c").arg(script).arg(sheaf.kubeconfig()).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert_has(String::from_utf8_lossy(&output.stdout), "done v1.");
}

#[test]
fn the_binary_explains_itself() {
    let sheaf = Sheaf::start();
    assert_has(sheaf.kubectl().run("version -o json"), "serverVersion");
    let run = |line: &str| {
        let words = line.split_whitespace();
        let output = Command::new(env!("CARGO_BIN_EXE_sheaf")).args(words).output().unwrap();
        assert!(output.status.success(), "sheaf {line}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_has(run("version"), "Kubernetes");
    assert!(serde_json::from_str::<serde_json::Value>(&run("version -o json")).is_ok());
    assert_has(run("--help"), "sheaf server");
    assert_has(run("server --help"), "--etcd-endpoints");
    for shell in ["bash", "zsh", "fish"] {
        assert_has(run(&format!("completion {shell}")), "kubeconfig");
    }
    let wrong =
        Command::new(env!("CARGO_BIN_EXE_sheaf")).args(["server", "--listen", "x"]).output();
    assert_has(String::from_utf8_lossy(&wrong.unwrap().stderr), "--listen");
}
