//! The address of a load balancer is announced by one node, and by another when that one dies.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Switch, token};
use crate::harness::{Http, eventually, poll};

const GROUP: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1";
const SERVICE: &str = "/api/v1/namespaces/default/services/web";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/harvester-system/leases/announce-10.199.147.200";
/// The only address of the pool; its subnet is on the workers and at the client.
const ADDRESS: &str = "10.199.147.200";
const PAGE: &str = "behind the balancer";
/// Ports of the switch.
const MANAGEMENT: u8 = 1;
const WORKERS: [(u8, &str); 2] = [(2, "two"), (3, "three")];
const CLIENT: u8 = 4;

/// A web server in the namespace of a port, which ends with its owner.
struct WebServer(Child);

impl WebServer {
    fn start(switch: &Switch, port: u8, folder: &std::path::Path) -> Self {
        std::fs::write(folder.join("index.html"), PAGE).unwrap();
        let space = switch.space(port);
        let program = ["netns", "exec", &space, "busybox", "httpd", "-f", "-p", "8080", "-h"];
        let child = Command::new("ip").args(program).arg(folder).stdout(Stdio::null()).spawn();
        Self(child.unwrap())
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The workers that have the address on an interface.
fn owners(switch: &Switch) -> Vec<&'static str> {
    let has = |port: u8| {
        let shown = Command::new("ip").args(["-n", &switch.space(port), "address"]).output();
        String::from_utf8_lossy(&shown.unwrap().stdout).contains(&format!("{ADDRESS}/32"))
    };
    WORKERS.iter().filter(|(port, _)| has(*port)).map(|(_, name)| *name).collect()
}

/// The worker that has the address, once it is one that is wanted. There are never two.
#[track_caller]
fn sole_owner(switch: &Switch, http: &Http, is_wanted: impl Fn(&str) -> bool) -> &'static str {
    poll("a worker announces the address", || match owners(switch)[..] {
        [owner] if is_wanted(owner) => Ok(owner),
        [] | [_] => Err(http.get(LEASE).text()),
        ref owners => panic!("two owners: {owners:?}"),
    })
}

/// The client's response from the address.
fn answer(switch: &Switch) -> String {
    let ask =
        format!("exec 3<>/dev/tcp/{ADDRESS}/80; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3");
    let space = switch.space(CLIENT);
    let program = ["3", "ip", "netns", "exec", &space, "bash", "-c", &ask];
    let output = Command::new("timeout").args(program).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A pool, a load balancer without machines, and a server for it.
fn create(http: &Http, switch: &Switch) {
    let kind = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": kind,
            "metadata": {"name": name}, "spec": spec})
    };
    let pool = kind(
        "IPPool",
        "web",
        json!({
            "ranges": [{"subnet": "10.199.147.0/24", "rangeStart": ADDRESS, "rangeEnd": ADDRESS}],
            "selector": {"scope": [{"namespace": "default"}]},
        }),
    );
    http.post(&format!("{GROUP}/ippools"), &pool).ok();
    let balancer = kind(
        "LoadBalancer",
        "web",
        json!({
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
            "backendServerSelector": {"app": ["none"]},
        }),
    );
    http.post(&format!("{GROUP}/namespaces/default/loadbalancers"), &balancer).ok();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "server", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [switch.address(MANAGEMENT)]}],
    });
    http.post(SLICES, &slice).ok();
}

#[test]
fn an_address_moves_to_another_node_when_its_node_dies() {
    let switch = Switch::new("shflb", "10.199.47", 4);
    for port in [2, 3, CLIENT] {
        switch.add_address(port, &format!("10.199.147.{port}/24"));
    }
    let mut one = switch.networked_management(MANAGEMENT, "one");
    one.sheaf.provokes("node does not renew");
    one.sheaf.provokes("declared lost");
    one.sheaf.begin();
    let mut workers = WORKERS.map(|(port, name)| {
        let (url, text) = token(&one.sheaf.run("token create"));
        let mut worker = switch.networked_outsider(port, &url, &text, name);
        // One of them is killed.
        worker.sheaf.provokes("");
        worker.sheaf.begin();
        worker
    });
    for (_, name) in WORKERS {
        until_ready(&one, name);
    }
    let folder = one.sheaf.scratch("web");
    std::fs::create_dir_all(&folder).unwrap();
    let _server = WebServer::start(&switch, MANAGEMENT, &folder);
    let http = one.sheaf.http();
    create(&http, &switch);

    let path = format!("{GROUP}/namespaces/default/loadbalancers/web");
    let announced = |http: &Http| {
        let service = http.get(SERVICE).json();
        let shown = service["status"]["loadBalancer"]["ingress"][0]["ip"] == ADDRESS;
        if shown { Ok(service) } else { Err(format!("{service}\n{}", http.get(LEASE).text())) }
    };
    poll("the service shows the address", || announced(&http));
    eventually("the load balancer shows it", || {
        http.get(&path).json()["status"]["address"] == ADDRESS
    });
    // Before the nodes have reported their subnets, routers are thought to lead to it.
    let first = poll("a node has the address", || match owners(&switch) {
        owners if owners.len() == 1 => Ok(owners),
        owners => Err(format!("{owners:?}: {}", http.get(LEASE).text())),
    });
    assert_eq!(http.get(LEASE).ok()["spec"]["holderIdentity"], first[0]);
    eventually("the client reaches the server", || answer(&switch).ends_with(PAGE));

    // Only the process dies: the kernel of the node has to end the announcement.
    let index = WORKERS.iter().position(|(_, name)| *name == first[0]).unwrap();
    let other = WORKERS[1 - index].1;
    workers[index].sheaf.kill();
    sole_owner(&switch, &http, |now| now == other);
    eventually("the client reaches the server again", || answer(&switch).ends_with(PAGE));

    // The first comes back, and the address stays. A node that was paused for seconds, as on a busy
    // machine, hands it over all the same.
    workers[index].sheaf.begin();
    until_ready(&one, first[0]);
    let holder = sole_owner(&switch, &http, |_| true);
    if http.get(LEASE).ok()["spec"]["leaseTransitions"] == 1 {
        assert_eq!(holder, other);
    }

    // A cordoned node hands it over; so does a load balancer that goes.
    one.kubectl().run(&format!("cordon {holder}"));
    sole_owner(&switch, &http, |now| now != holder);
    eventually("the client follows", || answer(&switch).ends_with(PAGE));
    http.delete(&path).ok();
    eventually("no node announces", || owners(&switch).is_empty());
    eventually("the lease is gone", || http.get(LEASE).status == 404);
}
