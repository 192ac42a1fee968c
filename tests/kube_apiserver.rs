//! Standing in for kube-apiserver, and our controllers as guests of a cluster that they know
//! by its kubeconfig only.

use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::harness::{Etcd, Foreign, Http, assert_has, binary, eventually};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

#[test]
fn a_suite_starts_us_as_it_starts_kube_apiserver() {
    let etcd = Etcd::start();
    let mut server = Foreign::start(&etcd, &["--some-new-flag=1", "--feature-gates=A=true"]);
    let http = server.http();
    assert_eq!(http.get("/readyz").text(), "ok");
    assert_has(server.log(), "some-new-flag");
    assert!(!server.log().contains("feature-gates"), "it is known and harmless");

    // Only the server: no controller fills namespaces, and machines are not known.
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).ok();
    assert_eq!(http.get("/apis/kubevirt.io").status, 404);
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    http.post("/api/v1/namespaces/team/pods", &pod).ok();
    assert_eq!(http.get("/api/v1/namespaces/team/serviceaccounts").ok()["items"], json!([]));
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let service = http.post("/api/v1/namespaces/team/services", &service).ok();
    assert_has(service["spec"]["clusterIP"].as_str().unwrap(), "10.0.0.");

    // RBAC is on, and anonymous users see health only.
    let anonymous = server.anonymous();
    assert_has(
        anonymous.get("/api/v1/namespaces").refused(403),
        "User \"system:anonymous\" cannot list",
    );
    server.kubectl().run("get namespaces team");
    server.terminate();
}

#[test]
fn tokens_are_signed_with_the_key_that_was_given() {
    let etcd = Etcd::start();
    let server = Foreign::start(&etcd, &[]);
    let http = server.http();
    http.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).ok();
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = http.post(&format!("{ACCOUNTS}/robot/token"), &request).ok();
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let robot = Http::bearer(&server.kubeconfig(), &token);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let review = robot.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).ok();
    assert_eq!(review["status"]["userInfo"]["username"], "system:serviceaccount:default:robot");
    let keys = http.get("/openid/v1/jwks").ok();
    assert_eq!(keys["keys"][0]["kty"], "RSA");
    let discovery = http.get("/.well-known/openid-configuration").ok();
    assert_eq!(discovery["issuer"], format!("https://127.0.0.1:{}/", server.port()));
    assert_eq!(discovery["id_token_signing_alg_values_supported"], json!(["RS256"]));
}

#[test]
fn a_command_line_that_cannot_be_meant_is_refused() {
    let output =
        Command::new(binary()).args(["kube-apiserver", "--secure-port=1"]).output().unwrap();
    assert!(!output.status.success());
    assert_has(String::from_utf8_lossy(&output.stderr), "--etcd-servers must be specified");
    let help = Command::new(binary()).args(["kube-apiserver", "--help"]).output().unwrap();
    assert_has(String::from_utf8_lossy(&help.stdout), "--service-account-signing-key-file");
}

/// `sheaf controllers`, until it is dropped.
struct Guest(Child);

impl Guest {
    fn of(server: &Foreign) -> Self {
        let child = Command::new(binary())
            .args(["controllers", "--identity", "guest", "--kubeconfig"])
            .arg(server.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(server.path("guest.log")).unwrap())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn manifests(part: &str) -> String {
    let output = Command::new(binary()).args(["manifests", "--only", part]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn machines_live_in_a_cluster_that_is_not_ours() {
    let etcd = Etcd::start();
    let server = Foreign::start(&etcd, &[]);
    let (http, kubectl) = (server.http(), server.kubectl());

    let early = Command::new(binary())
        .args(["controllers", "--kubeconfig"])
        .arg(server.kubeconfig())
        .output()
        .unwrap();
    assert!(!early.status.success());
    assert_has(String::from_utf8_lossy(&early.stderr), "install their definitions first");

    kubectl.feed("apply -f -", &manifests("definitions"));
    kubectl.run("wait --for=condition=Established crd virtualmachines.kubevirt.io");
    kubectl.feed("apply -f -", &manifests("objects"));
    // A second time changes nothing: Git may apply them as often as it likes.
    let again = kubectl.feed("apply -f -", &manifests("definitions"));
    assert!(!again.contains("configured"), "{again}");

    let guest = Guest::of(&server);
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "web"},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "domain": {"memory": {"guest": "128Mi"}, "devices": {}},
        }}},
    });
    let machines = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
    let instances = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
    http.post(machines, &machine).ok();
    eventually("the machine has an instance", || {
        http.get(&format!("{instances}/web")).status == 200
    });
    let instance = http.get(&format!("{instances}/web")).ok();
    assert_eq!(instance["metadata"]["ownerReferences"][0]["name"], "web");
    eventually("the machine says how it is", || {
        let machine = http.get(&format!("{machines}/web")).ok();
        machine["status"]["created"] == true
    });
    eventually("the guest leads by a lease", || {
        let lease = http
            .get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/sheaf-controllers");
        lease.status == 200 && lease.json()["spec"]["holderIdentity"] == "guest"
    });
    // Objects of the cluster are left to the cluster.
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).ok();
    http.merge(&format!("{machines}/web"), &json!({"spec": {"runStrategy": "Halted"}})).ok();
    eventually("the instance is being deleted", || {
        let instance = http.get(&format!("{instances}/web"));
        instance.status == 404 || instance.json()["metadata"]["deletionTimestamp"].is_string()
    });
    assert_eq!(http.get("/api/v1/namespaces/team/serviceaccounts").ok()["items"], json!([]));
    drop(guest);
}
