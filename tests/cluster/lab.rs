//! Two machines on a wire: this one and a network namespace.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use auth::token::join::JoinToken;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::harness::{Http, Node, ended, poll};

/// The wire, and the namespace at its other end.
pub(crate) struct Wire {
    namespace: String,
    link: String,
    prefix: String,
}

/// Fails if networks of two names have the same addresses: tests run at the same time.
fn claim_prefix(name: &str, prefix: &str) {
    static OWNERS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut owners = OWNERS.lock().unwrap_or_else(PoisonError::into_inner);
    let owner = owners.entry(prefix.to_owned()).or_insert_with(|| name.to_owned());
    assert_eq!(owner, name, "{prefix} belongs to the network of another test");
}

impl Wire {
    /// `name` has at most ten letters, and no other test may use it.
    pub(crate) fn new(name: &str, prefix: &str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test makes networks: run it as root");
        claim_prefix(name, prefix);
        let wire = Self {
            namespace: name.to_owned(),
            link: format!("{name}0"),
            prefix: prefix.to_owned(),
        };
        wire.remove();
        let (link, space) = (&wire.link, &wire.namespace);
        for line in [
            format!("netns add {space}"),
            format!("link add {link} type veth peer name eth0 netns {space}"),
            format!("addr add {prefix}.1/24 dev {link}"),
            format!("link set {link} up"),
            format!("-n {space} addr add {prefix}.2/24 dev eth0"),
            format!("-n {space} link set eth0 up"),
            format!("-n {space} link set lo up"),
        ] {
            let output = ip(&line);
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "ip {line}: {complaint}");
        }
        wire
    }

    /// Gives both machines another address: those of `10.0.0` are 10.0.0.1 and 10.0.0.2, on a
    /// network of so many bits, after adding `offset`.
    pub(super) fn add_addresses(&self, prefix: &str, length: u8, offset: u8) {
        let (here, there) = (offset + 1, offset + 2);
        run(&format!("addr add {prefix}.{here}/{length} dev {}", self.link));
        run(&format!("-n {} addr add {prefix}.{there}/{length} dev eth0", self.namespace));
    }

    fn remove(&self) {
        ip(&format!("link del {}", self.link));
        ip(&format!("netns del {}", self.namespace));
    }

    pub(crate) fn here(&self) -> String {
        format!("{}.1", self.prefix)
    }

    pub(super) fn there(&self) -> String {
        format!("{}.2", self.prefix)
    }

    pub(super) fn namespace(&self) -> String {
        self.namespace.clone()
    }

    /// A machine at the other end.
    pub(super) fn outsider(&self, url: &str, token: &str, name: &str) -> Node {
        let arguments = ["--join", url, "--token", token, "--node-name", name];
        Node::outsider(&self.namespace, &arguments)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Several machines on a switch: this one and network namespaces.
pub(super) struct Switch {
    name: String,
    prefix: String,
    ports: u8,
}

impl Switch {
    /// `name` has at most eight letters, and no other test may use it.
    pub(super) fn new(name: &str, prefix: &str, ports: u8) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test makes networks: run it as root");
        claim_prefix(name, prefix);
        let switch = Self { name: name.to_owned(), prefix: prefix.to_owned(), ports };
        switch.remove();
        run(&format!("link add {name} type bridge"));
        run(&format!("addr add {prefix}.1/24 dev {name}"));
        run(&format!("link set {name} up"));
        for port in 1..=ports {
            let (space, link) = (switch.space(port), switch.link(port));
            run(&format!("netns add {space}"));
            run(&format!("link add {link} type veth peer name eth0 netns {space}"));
            run(&format!("link set {link} master {name} up"));
            run(&format!("-n {space} addr add {prefix}.{}/24 dev eth0", port + 1));
            run(&format!("-n {space} link set eth0 up"));
            run(&format!("-n {space} link set lo up"));
        }
        switch
    }

    /// The network namespace at a port.
    pub(super) fn space(&self, port: u8) -> String {
        format!("{}{port}", self.name)
    }

    /// Gives the machine at a port another address: `10.0.0.1/24`.
    pub(super) fn add_address(&self, port: u8, address: &str) {
        run(&format!("-n {} addr add {address} dev eth0", self.space(port)));
    }

    fn link(&self, port: u8) -> String {
        format!("{}p{port}", self.name)
    }

    /// Connects another card of the machine at a port to a second switch, which carries all VLANs.
    pub(super) fn add_trunk(&self, port: u8, card: &str) {
        let (trunk, space) = (self.trunk(), self.space(port));
        ip(&format!("link add {trunk} type bridge"));
        run(&format!("link set {trunk} up"));
        let link = format!("{trunk}{port}");
        run(&format!("link add {link} type veth peer name {card} netns {space}"));
        run(&format!("link set {link} master {trunk} up"));
    }

    /// Gives the machine at a port a card whose cable leads nowhere.
    pub(super) fn add_loose_cable(&self, port: u8, card: &str) {
        let (space, end) = (self.space(port), format!("{card}end"));
        run(&format!("-n {space} link add {card} type veth peer name {end}"));
        run(&format!("-n {space} link set {end} up"));
    }

    fn trunk(&self) -> String {
        format!("{}x", self.name)
    }

    fn remove(&self) {
        for port in 1..=self.ports {
            ip(&format!("link del {}", self.link(port)));
            ip(&format!("link del {}{port}", self.trunk()));
            ip(&format!("netns del {}", self.space(port)));
        }
        ip(&format!("link del {}", self.name));
        ip(&format!("link del {}", self.trunk()));
    }

    pub(super) fn here(&self) -> String {
        format!("{}.1", self.prefix)
    }

    /// A machine at a port.
    pub(super) fn outsider(&self, port: u8, url: &str, token: &str, name: &str) -> Node {
        let arguments = ["--join", url, "--token", token, "--node-name", name];
        Node::outsider(&self.space(port), &arguments)
    }

    /// A witness at a port; it does not run yet.
    pub(super) fn witness(&self, port: u8, url: &str, token: &str, name: &str) -> Node {
        let arguments = ["witness", "--join", url, "--token", token, "--node-name", name];
        Node::witness(&self.space(port), &arguments)
    }

    /// The address of a port.
    pub(super) fn address(&self, port: u8) -> String {
        format!("{}.{}", self.prefix, port + 1)
    }

    /// The first management node, at a port; it does not run yet.
    pub(super) fn management(&self, port: u8, name: &str) -> Node {
        let listen = format!("{}:6443", self.address(port));
        Node::outsider(&self.space(port), &["--listen", &listen, "--node-name", name])
    }

    /// The same two with a guest network instead of user-mode networks.
    pub(super) fn networked_management(&self, port: u8, name: &str) -> Node {
        let listen = format!("{}:6443", self.address(port));
        Node::networked_outsider(&self.space(port), &["--listen", &listen, "--node-name", name])
    }

    /// The same with the first objects of a cluster: it serves soon, also on an emulated machine.
    pub(super) fn used_management(&self, port: u8, name: &str) -> Node {
        let listen = format!("{}:6443", self.address(port));
        Node::networked_used(&self.space(port), &["--listen", &listen, "--node-name", name])
    }

    pub(super) fn networked_outsider(&self, port: u8, url: &str, token: &str, name: &str) -> Node {
        let arguments = ["--join", url, "--token", token, "--node-name", name];
        Node::networked_outsider(&self.space(port), &arguments)
    }

    /// Pulls the cable of a port, or plugs it in again.
    pub(super) fn set_cable(&self, port: u8, is_in: bool) {
        let state = if is_in { "up" } else { "down" };
        run(&format!("-n {} link set eth0 {state}", self.space(port)));
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.remove();
    }
}

#[track_caller]
fn run(line: &str) {
    let output = ip(line);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {line}: {complaint}");
}

fn ip(line: &str) -> Output {
    Command::new("ip").args(line.split(' ')).output().unwrap()
}

/// The token in what `sheaf token create` prints, and the URL to join at.
pub(super) fn token(printed: &str) -> (String, String) {
    let words: Vec<&str> = printed.split_whitespace().collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| *word == flag).unwrap();
        words[at + 1].to_owned()
    };
    (after("--join"), after("--token"))
}

/// The same token for another cluster.
pub(super) fn with_other_pin(token: &str) -> String {
    let token = JoinToken::parse(token).unwrap();
    JoinToken { ca: "ab".repeat(32), ..token }.encode()
}

/// The log of a start that must fail.
pub(super) fn refusal(outsider: &Node) -> String {
    let status = ended(&mut outsider.sheaf.spawn(), || outsider.sheaf.log());
    assert!(!status.success(), "it joined: {}", outsider.sheaf.log());
    outsider.sheaf.log()
}

/// Requests with the certificate of a node that has joined.
pub(super) fn as_node(management: &Node, worker: &Node) -> Http {
    let mut config: Value =
        serde_json::to_value(Kubeconfig::read_from(management.sheaf.kubeconfig()).unwrap())
            .unwrap();
    let pki = worker.sheaf.data().join("pki");
    config["users"][0]["user"] = json!({
        "client-certificate": pki.join("node.crt"), "client-key": pki.join("node.key"),
    });
    let path = worker.sheaf.scratch("node.kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    Http::from_kubeconfig(&path)
}

/// The output of a command, also while the server restarts.
pub(super) fn said(node: &Node, line: &str) -> String {
    let output = node.sheaf.command(line);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Waits until the status of the cluster has a text. A member that takes its time to answer is shown
/// as one that does not.
#[track_caller]
pub(super) fn until_status(node: &Node, part: &str) {
    poll(&format!("the status of the cluster has {part:?}"), || {
        let status = said(node, "cluster status");
        if status.contains(part) { Ok(()) } else { Err(status) }
    });
}
