//! Actions on machines, volumes and nodes, kubeconfigs and settings.

use std::process::Command;

use serde_json::{Value, json};

use super::{PASSWORD, client_of, refused, server};
use crate::harness::{Http, Node, Sheaf, assert_has, eventually, poll};

const MACHINES: &str = "/v1/harvester/kubevirt.io.virtualmachines/default";

fn machine(http: &Http, name: &str) -> Value {
    let machine = json!({
        "type": "kubevirt.io.virtualmachine",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {"spec": {
                "hostname": name, "evictionStrategy": "LiveMigrateIfPossible",
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "cloudinit", "cloudInitNoCloud": {"userData": "#cloud-config"}}],
                "domain": {
                    "machine": {"type": ""}, "cpu": {"cores": 1, "sockets": 1, "thread": 1},
                    "resources": {"limits": {"cpu": 1, "memory": "128Mi"}},
                    "devices": {
                        "disks": [{"name": "cloudinit", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                    },
                },
            }},
        },
    });
    let reply = http.post(MACHINES, &machine);
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()
}

#[test]
fn machines_are_stopped_started_cloned_and_made_templates_of() {
    let sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    assert_eq!(machine(&http, "web")["type"], "kubevirt.io.virtualmachine");
    let act =
        |action: &str, body: &Value| http.post(&format!("{MACHINES}/web?action={action}"), body);
    let strategy = || http.get(&format!("{MACHINES}/web")).ok()["spec"]["runStrategy"].clone();
    assert_eq!(act("stop", &json!({})).status, 204);
    assert_eq!(strategy(), "Halted");
    assert_eq!(act("start", &json!({})).status, 204);
    assert_eq!(strategy(), "RerunOnFailure");
    assert_eq!(act("clone", &json!({"targetVm": "copy", "runStrategy": "Halted"})).status, 204);
    assert_eq!(http.get(&format!("{MACHINES}/copy")).ok()["spec"]["runStrategy"], "Halted");
    let template = json!({"name": "base", "description": "d", "withData": false});
    assert_eq!(act("createTemplate", &template).status, 204);
    let templates = "/v1/harvester/harvesterhci.io.virtualmachinetemplates/default/base";
    assert_eq!(http.get(templates).ok()["spec"]["description"], "d");

    let keygen = json!({"name": "pair", "namespace": "default"});
    let pem = http.post("/v1/harvester/harvesterhci.io.keypairs?action=keygen", &keygen);
    assert_has(pem.text(), "BEGIN PRIVATE KEY");
    assert_has(pem.header("content-disposition"), "pair.pem");
    let pair = http.get("/v1/harvester/harvesterhci.io.keypairs/default/pair").ok();
    assert_has(pair["spec"]["publicKey"].as_str().unwrap(), "ssh-rsa ");
    refused(&http.get("/v1/harvester/backuptarget/healthz"), 422, "InvalidState");

    // Failures are plain text.
    let reply = act("addVolume", &json!({}));
    assert_eq!((reply.status, reply.header("content-type")), (422, "text/plain; charset=utf-8"));
    assert_has(reply.text(), "Parameter `diskName` and `volumeName` are required");
    assert_eq!(act("backup", &json!({"name": "b"})).text(), "backup target is invalid");
    assert_has(act("removeVolume", &json!({"diskName": "x"})).text(), "disk `x` not found");
    assert_has(act("pause", &json!({})).text(), "default/web failed");
    let request = http::Request::post(format!("{MACHINES}/web?action=migrate"));
    let empty = http.send(request, "");
    assert_eq!(empty.status, 422, "{}", empty.text());
    assert_has(empty.text(), "Failed to decode request body");
    let stopped = http.post(&format!("{MACHINES}/copy?action=findMigratableNodes"), &json!({}));
    assert_eq!(stopped.status, 404, "{}", stopped.text());
    assert_has(stopped.text(), "virtualmachineinstances.kubevirt.io \"copy\" not found");
    refused(&act("fly", &json!({})), 422, "InvalidAction");
    let missing = http.post(&format!("{MACHINES}/none?action=start"), &json!({}));
    assert_eq!(missing.status, 404, "{}", missing.text());

    let deleted =
        http.delete(&format!("{MACHINES}/web?removedDisks=disk-0&propagationPolicy=Foreground"));
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(deleted.json()["type"], "kubevirt.io.virtualmachine");
}

#[test]
fn a_tenant_who_may_not_read_settings_backs_a_machine_up() {
    let sheaf = server();
    let admin = sheaf.http();
    machine(&client_of(&sheaf, "admin", PASSWORD), "web");
    assert_has(sheaf.run(&format!("user create jane --password {PASSWORD}")), "created");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    admin.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).ok();
    let jane = client_of(&sheaf, "jane", PASSWORD);
    let setting = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
    assert_eq!(jane.get(setting).status, 403);
    let act = |body: &Value| jane.post(&format!("{MACHINES}/web?action=backup"), body);
    let none = act(&json!({"name": "b"}));
    assert_eq!((none.status, &*none.text()), (500, "backup target is invalid"));
    let target = json!({"value": r#"{"type":"nfs","endpoint":"nfs://192.0.2.1:/backups"}"#});
    admin.merge(setting, &target).ok();
    let negative = act(&json!({"name": "b", "fsFreezeDeadline": "-1s"}));
    assert_eq!(negative.status, 422, "{}", negative.text());
    let made = act(&json!({"name": "b", "fsFreezeDeadline": "10s"}));
    assert_eq!(made.status, 204, "{}", made.text());
    let path = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups/b";
    assert_eq!(jane.get(path).ok()["spec"]["fsFreezeDeadline"], "10s");
}

#[test]
fn a_kubeconfig_of_a_local_user_works() {
    let sheaf: Sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    let path = "/v1/management.cattle.io.clusters/local?action=generateKubeconfig";
    let config = http.post(path, &json!({})).ok();
    let file = sheaf.scratch("generated.kubeconfig");
    std::fs::write(&file, config["config"].as_str().unwrap()).unwrap();
    let generated = Http::from_kubeconfig(&file);
    assert!(generated.get("/api/v1/namespaces").ok()["items"].is_array());
    // The certificate of the administrator belongs to no local user.
    refused(&sheaf.http().post(path, &json!({})), 422, "InvalidState");
}

#[test]
fn the_cpu_manager_of_a_node_is_switched() {
    let node = Node::start();
    let http = node.sheaf.http();
    let own = "/api/v1/nodes/one";
    let labelled = |value: &str| {
        eventually(&format!("label cpumanager is {value}"), || {
            http.get(own).json()["metadata"]["labels"]["cpumanager"] == value
        });
    };
    let act =
        |action: &str| http.post(&format!("/v1/harvester/nodes/one?action={action}"), &json!({}));
    labelled("true");
    let reply = act("enableCPUManager");
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert_has(reply.text(), "already the same as requested value: static");
    assert_eq!(act("disableCPUManager").status, 204);
    labelled("false");
    assert_eq!(act("enableCPUManager").status, 204);
    labelled("true");
}

#[test]
fn the_protocols_of_the_server_are_those_of_the_setting() {
    let sheaf = server();
    let http = sheaf.http();
    let url = format!("https://{}/livez", sheaf.address());
    let connects = |options: &[&str]| {
        let quiet = ["--silent", "--insecure", "--output", "/dev/null", "--max-time", "300"];
        let run = Command::new("curl").args(quiet).args(options).arg(&url).status();
        run.unwrap().success()
    };
    let setting = "/apis/harvesterhci.io/v1beta1/settings/ssl-parameters";
    assert!(connects(&["--tlsv1.3"]) && connects(&["--tls-max", "1.2"]));
    let older = json!({"value": r#"{"protocols":"TLSv1.2"}"#});
    poll("the setting can be changed", || match http.merge(setting, &older) {
        reply if reply.status < 300 => Ok(()),
        reply => Err(reply.text()),
    });
    eventually("only TLS 1.2 is served", || !connects(&["--tlsv1.3"]));
    assert!(connects(&["--tls-max", "1.2"]));
    http.merge(setting, &json!({"value": ""})).ok();
    eventually("TLS 1.3 is served again", || connects(&["--tlsv1.3"]));
}

#[test]
fn settings_have_defaults_and_refuse_what_they_do_not_understand() {
    let sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    let path = |name: &str| format!("/apis/harvesterhci.io/v1beta1/settings/{name}");
    let version = http.get(&path("server-version")).ok();
    assert_eq!(version["value"], "v1.8.1");
    let setting = http.get(&path("overcommit-config")).ok();
    assert_eq!(setting.get("value"), None);
    // A controller may write the setting between the reading and the writing, which is a conflict.
    let put = |value: Value| {
        poll("no controller writes the setting", || {
            let mut setting = http.get(&path("overcommit-config")).ok();
            setting["value"] = value.clone();
            let reply = http.put(&path("overcommit-config"), &setting);
            if reply.status == 409 { Err(reply.text()) } else { Ok(reply) }
        })
    };
    let reply = put(r#"{"cpu":99}"#.into());
    assert_eq!(reply.status, 422, "{}", reply.text());
    assert_has(
        reply.text(),
        "Cannot undercommit. Should be greater than or equal to 100 but got 99",
    );
    put(r#"{"cpu":200,"memory":150,"storage":100}"#.into()).ok();
    assert_eq!(put(Value::Null).ok().get("value"), None);
    assert_eq!(http.delete(&path("storage-network")).status, 405);
}

#[test]
fn paths_of_rancher_and_harvester_beside_the_resources_are_answered() {
    let sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    let info = http.get("/v1/harvester/ui-info").ok();
    assert_eq!(
        (&info["ui-source"], &info["ui-plugin-bundled-version"]),
        (&json!("bundled"), &json!(""))
    );
    // Read as the server, whose role has to allow it.
    http.get("/v1/harvester/cluster/local/deviceCapacity").ok();
    let ready = http.get("/v1/harvester/readyz").ok();
    assert!(ready["ready"].is_boolean() && ready["timestamp"].is_string(), "{ready}");
    assert_eq!(http.get("/v1/userpreferences").ok()["data"][0]["id"], "admin");
    assert_eq!(http.put("/v1/userpreferences/admin", &json!({"data": {}})).status, 405);

    assert_eq!(http.get("/v3/settings/first-login").ok()["type"], "setting");
    let unset = http.get("/v3/settings/server-url").ok();
    assert_eq!(unset["customized"], false, "{unset}");
    let set = http.put("/v3/settings/server-url", &json!({"value": "https://h"})).ok();
    assert_eq!((&set["value"], &set["customized"]), (&json!("https://h"), &json!(true)));
    assert_eq!(http.get("/v3/settings/server-url").ok()["value"], "https://h");
    assert_eq!(http.get("/v3/settings/none").status, 404);

    let login = json!({"type": "localProvider", "username": "admin", "password": PASSWORD});
    let token = sheaf.anonymous().post("/v1-public/login", &login);
    assert_eq!(token.status, 201, "{}", token.text());
    let foreign = json!({"type": "githubProvider", "username": "admin", "password": PASSWORD});
    assert_eq!(sheaf.anonymous().post("/v1-public/login", &foreign).status, 422);

    let templates = "/v1/harvester/harvesterhci.io.virtualmachinetemplates/harvester-public";
    let versions = || http.get(&format!("{templates}/iso-image-base-template/versions")).ok();
    eventually("the template lists its versions", || versions()["count"] == 1);
    let version = &versions()["data"][0];
    assert_eq!(version["type"], "harvesterhci.io.virtualmachinetemplateversion", "{version}");
}
