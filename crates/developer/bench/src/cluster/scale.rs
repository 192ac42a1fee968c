//! Many nodes whose agents are simulated: their Nodes are copies of a real one, they renew their
//! leases every second as agents do, and answer each machine that is placed on them with `Running`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base::clock;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::figures::{Figures, Limit};
use crate::process::Server;
use crate::session::{Session, is_ready};
use crate::watch::Watch;

const NODES: usize = 200;
const MACHINES: usize = 25 * NODES;
/// Machines that are created at once on top.
const BURST: usize = 1_000;
const CLIENTS: usize = 16;
/// Connections on which agents renew their leases.
const RENEWERS: usize = 20;
const REST: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(900);
const NODE_PATH: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

/// How many machines were placed, and how many run.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    placed: usize,
    running: usize,
}

pub(super) async fn run(sheaf: &Path, figures: &mut Figures) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let flags = ["--node-name", "real", "--guest-network", "user"].map(str::to_owned);
    let server = Server::node(sheaf, dir.path(), &flags).await?;
    let mut session = Session::open(&server.client).await?;
    let real = session.until(&format!("{NODE_PATH}/real"), is_ready).await?;
    session.patch(&format!("{NODE_PATH}/real"), &json!({"spec": {"unschedulable": true}})).await?;
    let mut agents = JoinSet::new();
    for own in 0..RENEWERS {
        let numbers: Vec<usize> = (own..NODES).step_by(RENEWERS).collect();
        for number in &numbers {
            make_node(&mut session, &real, &node_name(*number)).await?;
        }
        agents.spawn(renew(server.client.clone(), numbers));
    }
    let (notify, mut seen) = watch::channel(Seen::default());
    agents.spawn(answer(server.client.clone(), notify));

    let begun = Instant::now();
    create(&server.client, 0..MACHINES).await?;
    until(&mut seen, &mut agents, |seen| seen.running >= MACHINES).await?;
    let title = format!("{MACHINES} machines on {NODES} simulated nodes: all run after");
    figures.add(title, begun.elapsed().as_secs_f64(), "s");

    tokio::time::sleep(REST).await;
    let before = server.cpu();
    tokio::time::sleep(REST).await;
    let used = server.cpu().saturating_sub(before).as_secs_f64() / REST.as_secs_f64();
    let name = format!("{NODES} nodes, {MACHINES} machines");
    figures.held(format!("{name}: CPU of the control plane"), used, "cores", Limit::Most(1.0));
    let memory = server.memory();
    figures.held(format!("{name}: memory"), memory, "MB", Limit::Most(500.0));

    let begun = Instant::now();
    create(&server.client, MACHINES..MACHINES + BURST).await?;
    until(&mut seen, &mut agents, |seen| seen.placed >= MACHINES + BURST).await?;
    let took = begun.elapsed().as_secs_f64();
    figures.held(format!("{BURST} machines at once: all placed"), took, "s", Limit::Most(20.0));
    agents.shutdown().await;
    server.stop().await.map(drop)
}

fn node_name(number: usize) -> String {
    format!("sim-{number:03}")
}

/// A copy of a real node, with room for its machines.
async fn make_node(session: &mut Session, real: &Value, name: &str) -> Result<()> {
    let mut labels = real["metadata"]["labels"].clone();
    labels["kubernetes.io/hostname"] = json!(name);
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|label, _| !label.starts_with("node-role.kubernetes.io/"));
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
    });
    session.post(NODE_PATH, &node).await?;
    let mut status = real["status"].clone();
    for amounts in ["capacity", "allocatable"] {
        status[amounts]["cpu"] = json!("32");
        status[amounts]["memory"] = json!("128Gi");
        status[amounts]["pods"] = json!("110");
    }
    status["addresses"] = json!([{"type": "Hostname", "address": name}]);
    session.patch(&format!("{NODE_PATH}/{name}/status"), &json!({"status": status})).await?;
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 6,
        "renewTime": clock::rfc3339_micro(clock::now())});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name}, "spec": spec,
    });
    session.post(LEASES, &lease).await
}

/// The leases of some nodes, once a second.
async fn renew(client: Client, numbers: Vec<usize>) -> Result<()> {
    let mut connection = client.connect().await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        for number in &numbers {
            connection.act_as_node(&node_name(*number));
            let path = format!("{LEASES}/{}", node_name(*number));
            let patch = json!({"spec": {"renewTime": clock::rfc3339_micro(clock::now())}});
            connection.expect(Method::PATCH, &path, Bytes::from(patch.to_string())).await?;
        }
    }
}

/// Answers machines that are placed, as agents do when QEMU runs.
async fn answer(client: Client, notify: watch::Sender<Seen>) -> Result<()> {
    let mut events = Watch::open(&client, VMIS).await?;
    let mut connection = client.connect().await?;
    let (mut placed, mut running) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let event = events.next().await?;
        let status = &event["object"]["status"];
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        let is_placed = status["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        if is_placed && placed.insert(name.to_owned()) {
            notify.send_modify(|seen| seen.placed += 1);
        }
        match status["phase"].as_str() {
            Some("Scheduled") => {
                let ready = json!({"type": "Ready", "status": "True"});
                let patch = json!({"status": {"phase": "Running", "conditions": [ready]}});
                let path = format!("{VMIS}/{name}");
                connection.act_as_node(status["nodeName"].as_str().unwrap_or_default());
                connection.expect(Method::PATCH, &path, Bytes::from(patch.to_string())).await?;
            }
            Some("Running") if running.insert(name.to_owned()) => {
                notify.send_modify(|seen| seen.running += 1);
            }
            _ => {}
        }
    }
}

fn machine(number: usize) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": format!("bench-{number:05}")},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "devices": {"disks": [{"name": "seed", "disk": {"bus": "virtio"}}]},
                "memory": {"guest": "512Mi"},
            },
            "volumes": [{
                "name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"},
            }],
        },
    })
}

/// From several clients at once.
async fn create(client: &Client, numbers: Range<usize>) -> Result<()> {
    let mut clients = JoinSet::new();
    for own in 0..CLIENTS {
        let (mut connection, numbers) = (client.connect().await?, numbers.clone());
        clients.spawn(async move {
            for number in numbers.skip(own).step_by(CLIENTS) {
                let body = Bytes::from(machine(number).to_string());
                connection.expect(Method::POST, VMIS, body).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}

/// Waits for the machines; the end of an agent ends the measurement.
async fn until(
    seen: &mut watch::Receiver<Seen>,
    agents: &mut JoinSet<Result<()>>,
    is_it: impl Fn(&Seen) -> bool,
) -> Result<()> {
    let limit = tokio::time::sleep(TIMEOUT);
    tokio::select! {
        biased;
        ended = agents.join_next() => ended.context("there are no agents")???,
        known = seen.wait_for(|seen| is_it(seen)) => return known.map(drop).context("no watcher"),
        () = limit => {}
    }
    let Seen { placed, running } = *seen.borrow();
    bail!("{placed} machines are placed, {running} run")
}
