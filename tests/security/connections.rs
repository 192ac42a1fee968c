//! Clients that open connections, streams and watches until no other client gets any.

use http::Request;
use tokio::io::AsyncReadExt as _;

use super::host_disks::{VMIS, VMS, machine};
use super::tenant;
use crate::harness::{Http, Node, Sheaf, Socket, assert_has, block_on, eventually, tls};

/// The value of a metric without labels.
fn metric(sheaf: &Sheaf, name: &str) -> u64 {
    let page = sheaf.http().get("/metrics").text();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}:\n{page}")).parse().unwrap()
}

#[test]
fn a_source_does_not_take_all_connections() {
    let mut sheaf = Sheaf::prepared(&["--max-connections-per-source", "3"]);
    sheaf.provokes("connection refused");
    sheaf.begin();
    let anonymous = || Http::anonymous(&sheaf.kubeconfig());
    let ask = |http: &Http| http.try_send(Request::get("/version"), "").map(|reply| reply.status);
    let held: Vec<Http> = (0..3).map(|_| anonymous()).collect();
    for http in &held {
        assert_eq!(ask(http), Ok(200));
    }
    assert!(ask(&anonymous()).is_err(), "the source has three connections already");
    // The administrator comes from the same address, with a certificate.
    assert_eq!(ask(&sheaf.http()), Ok(200));
    assert!(metric(&sheaf, "sheaf_connections_refused_total") > 0);
    for http in &held {
        assert_eq!(ask(http), Ok(200), "connections that are open stay open");
    }
    drop(held);
    eventually("there is room again", || ask(&anonymous()) == Ok(200));
}

#[test]
fn connections_without_credentials_are_limited() {
    let mut sheaf = Sheaf::prepared(&["--max-anonymous-connections", "2"]);
    sheaf.provokes("connection refused");
    sheaf.begin();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    eventually("there is an account", || {
        sheaf.http().get(&format!("{accounts}/default")).status == 200
    });
    let wanted = serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = sheaf.http().post(&format!("{accounts}/default/token"), &wanted).ok();
    let token = issued["status"]["token"].as_str().unwrap();
    let ask = |http: &Http| http.try_send(Request::get("/version"), "").map(|reply| reply.status);
    let anonymous = || Http::anonymous(&sheaf.kubeconfig());
    let known: Vec<Http> = (0..3).map(|_| Http::bearer(&sheaf.kubeconfig(), token)).collect();
    for http in &known {
        assert_eq!(ask(http), Ok(200), "whoever brings a token is not anonymous");
    }
    let held = [anonymous(), anonymous()];
    for http in &held {
        assert_eq!(ask(http), Ok(200));
    }
    assert!(ask(&anonymous()).is_err());
    assert_eq!(ask(&sheaf.http()), Ok(200));
}

#[test]
fn idle_connections_are_closed_and_watches_are_not_idle() {
    let sheaf = Sheaf::with(&["--connection-idle-timeout", "1s"]);
    let mut watch = sheaf.http().watch("/api/v1/namespaces/default/secrets");
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let connector = tls(&sheaf, &[protocol]);
        let address = sheaf.address();
        let closed = block_on(async {
            let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
            let name = "127.0.0.1".try_into().unwrap();
            let mut stream = connector.connect(name, stream).await.unwrap();
            let mut left = Vec::new();
            let bound = std::time::Duration::from_secs(30);
            tokio::time::timeout(bound, stream.read_to_end(&mut left)).await.is_ok()
        });
        assert!(closed, "the server closes a connection that is not used");
    }
    // Longer than the idle timeout has passed.
    let secret = serde_json::json!(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seen"}}
    );
    sheaf.http().post("/api/v1/namespaces/default/secrets", &secret).ok();
    assert_eq!(watch.change()["object"]["metadata"]["name"], "seen");
}

#[test]
fn upgraded_streams_are_counted() {
    let sheaf = Sheaf::start();
    let before = metric(&sheaf, "sheaf_connections");
    let path = "/api/v1/namespaces/default/secrets?watch=true";
    let sockets: Vec<Socket> = (0..3).map(|_| Socket::open(&sheaf, path).unwrap()).collect();
    eventually("the streams are counted", || metric(&sheaf, "sheaf_connections") >= before + 3);
    drop(sockets);
    let secret = |name: &str| serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let mut number = 0;
    eventually("streams that ended are not counted", || {
        // An event makes the server notice that the client is gone.
        number += 1;
        sheaf
            .http()
            .post("/api/v1/namespaces/default/secrets", &secret(&format!("s{number}")))
            .ok();
        metric(&sheaf, "sheaf_connections") < before + 3
    });
}

#[test]
fn a_user_does_not_open_watches_without_end() {
    let sheaf = Sheaf::with(&["--max-watches-per-user", "2"]);
    let mallory = tenant(&sheaf);
    let path = "/api/v1/namespaces/team/configmaps";
    let mut held = vec![mallory.watch(path), mallory.watch(path)];
    let refused = mallory.try_watch(path).err().expect("two watches are open");
    assert_has(refused, "has 2 watches open");
    let reply = mallory.get(&format!("{path}?watch=true"));
    assert_eq!((reply.status, reply.header("retry-after")), (429, "1"));
    let _administrator = [(); 5].map(|()| sheaf.http().watch(path));
    held.pop();
    eventually("there is room again", || mallory.try_watch(path).is_ok());
}

#[test]
fn a_user_does_not_open_streams_without_end() {
    let mut node = Node::start();
    node.sheaf.kill();
    let arguments =
        ["--node-name", "one", "--guest-network", "user", "--max-streams-per-user", "2"];
    node.sheaf.set_arguments(arguments.map(str::to_owned).to_vec());
    node.sheaf.begin();
    let kubectl = node.kubectl();
    kubectl.run("create rolebinding streams --clusterrole=edit --user=mallory --user=jane");
    node.sheaf.http().post(VMS, &machine("a", &node.disk("a.img"))).ok();
    node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a/vnc";
    let open = |user: &str| Socket::open_as(&node.sheaf, path, user);
    let mut held = Vec::new();
    eventually("the role is complete", || {
        open("mallory").is_ok_and(|one| {
            held.push(one);
            true
        })
    });
    held.push(open("mallory").unwrap());
    let refused = open("mallory").err().expect("two streams are open");
    assert_has(&refused, "429");
    assert_has(&refused, "has 2 consoles, screens and port forwards open");
    open("jane").unwrap();
    let _administrator = [(); 3].map(|()| Socket::open(&node.sheaf, path).unwrap());
    held.pop();
    eventually("there is room again", || open("mallory").is_ok());
}
