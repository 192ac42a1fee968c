//! The web dashboard: its pages in real Chromium, and what protects them.

mod chromium;

use serde_json::json;

use crate::harness::{Reply, Sheaf, assert_has};
use chromium::Chromium;

const PASSWORD: &str = "password1234";
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

fn server() -> Sheaf {
    Sheaf::with(&["--admin-password", PASSWORD])
}

/// Where the server says that its dashboard is.
fn address(sheaf: &Sheaf) -> String {
    let text = std::fs::read_to_string(sheaf.data().with_file_name("stdout")).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("dashboard"));
    line.expect("the server announces its dashboard").trim().to_owned()
}

fn get(sheaf: &Sheaf, path: &str) -> Reply {
    sheaf.anonymous().get(path)
}

/// A machine that does not start: its disk is missing.
fn machine(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {
                "disks": [{"name": "disk", "disk": {"bus": "virtio"}}],
            }},
            "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "none"}}],
        }}},
    })
}

#[test]
fn pages_are_protected_and_files_are_kept() {
    let sheaf = server();
    let page = get(&sheaf, "/dashboard/machines/default/web");
    assert_eq!(page.status, 200);
    for (name, part) in [
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-",
        ),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_has(page.header(name), part);
    }
    let text = page.text();
    let script = text.split('"').find(|part| part.starts_with("/dashboard/a/main-")).unwrap();
    let file = get(&sheaf, script);
    assert_eq!(file.status, 200);
    assert_has(file.header("cache-control"), "immutable");
    assert_eq!(get(&sheaf, "/dashboard/a/other.js").status, 404);
    assert_eq!(get(&sheaf, "/dashboard").header("location"), "/dashboard/");
    // Programs find the API at the root, as ever; browsers have a port of their own.
    assert!(get(&sheaf, "/").header("location").is_empty());
}

#[test]
fn a_machine_is_found_explained_and_deleted_in_a_browser() {
    let sheaf = server();
    sheaf.http().post(MACHINES, &machine("web")).ok();
    let page = Chromium::open(&address(&sheaf));
    page.fill("input[name=username]", "admin");
    page.fill("input[name=password]", PASSWORD);
    page.click("//button[normalize-space()='Log in']");
    page.sees("//h1[normalize-space()='Overview']");
    page.click("//nav//a[contains(., 'Machines')]");
    page.sees("//div[@role='row']//a[normalize-space()='web']");
    // Changes of another client appear by themselves.
    sheaf.http().post(MACHINES, &machine("db")).ok();
    page.click("//div[@role='row']//a[normalize-space()='db']");
    page.sees("//h1[normalize-space()='db']");
    page.click("//button[normalize-space()='Start']");
    page.sees("//section[@aria-label='Findings']//b[contains(., 'none')]");
    page.click("//button[@title='Actions of db']");
    page.click("//button[@role='menuitem'][normalize-space()='Delete']");
    page.click("//dialog//button[normalize-space()='Delete']");
    page.sees("//h2[starts-with(normalize-space(), 'There is no machine db')]");
    assert_eq!(sheaf.http().get(&format!("{MACHINES}/db")).status, 404);
    // A project gets a limit, which counts the machine that is left.
    page.click("//nav//a[contains(., 'Projects')]");
    page.click("//div[@role='row']//a[normalize-space()='default']");
    page.click("//button[normalize-space()='Set limits']");
    page.fill("//dialog//label[normalize-space()='Machines']/following-sibling::input", "3");
    page.click("//dialog//button[normalize-space()='Save']");
    page.sees("//section[@aria-label='Quota']//span[normalize-space()='1 / 3']");
    let shown = page.script("return performance.getEntriesByType('resource').map(one => one.name)");
    let own = address(&sheaf);
    for name in shown.as_array().unwrap() {
        assert!(name.as_str().unwrap().starts_with(&own), "{name} is loaded from elsewhere");
    }
    assert_eq!(page.problems(), Vec::<String>::new());
}

#[test]
fn a_colleague_finds_the_one_project_that_is_theirs() {
    let sheaf = server();
    sheaf.run(&format!("user create joe --password {PASSWORD} --role read-only"));
    let kubectl = sheaf.kubectl();
    kubectl.run("create namespace lab");
    kubectl.run("create rolebinding joe --clusterrole=admin --user=joe -n lab");
    let login = json!({"username": "joe", "password": PASSWORD});
    let login = sheaf.anonymous().post("/v3-public/localProviders/local?action=login", &login);
    let joe = sheaf.bearer(login.ok()["token"].as_str().unwrap());
    let path = "/v1/namespaces?link=accessible";
    assert!(joe.get(path).ok()["data"].as_array().unwrap().len() > 1, "view is everywhere");
    let bindings = sheaf.http().get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings").ok();
    let of_joe = |one: &&serde_json::Value| one["subjects"][0]["name"] == "joe";
    let binding = bindings["items"].as_array().unwrap().iter().find(of_joe).unwrap();
    kubectl.run(&format!(
        "delete clusterrolebinding {}",
        binding["metadata"]["name"].as_str().unwrap()
    ));
    assert_eq!(joe.get(path).ok()["data"], json!(["lab"]));
    assert_eq!(sheaf.anonymous().get(path).status, 401);
}
