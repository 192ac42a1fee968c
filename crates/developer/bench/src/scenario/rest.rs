//! Cost of Harvester's REST API beside the Kubernetes API that it is served from: lists with
//! envelopes, many subscribers, and a flood of logins.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::fairness::{self, Flood};
use super::{MAPS, map};
use crate::figures::{Figures, Limit};
use crate::process::Server;

const MACHINES: usize = 1000;
const MACHINE_PATH: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
/// Lists that are averaged.
const LISTS: u32 = 20;
const SUBSCRIBERS: usize = 200;
const RATE: u64 = 200;
const SECONDS: u64 = 10;
const LOGIN: &str = "/v3-public/localProviders/local?action=login";

pub(crate) async fn run(
    server: &Server,
    sheaf: &Path,
    data: &Path,
    figures: &mut Figures,
) -> Result<()> {
    lists(server, figures).await?;
    subscribers(server, figures).await?;
    let quiet = fairness::user(server, sheaf, data, "quiet").await?;
    server.client.connect().await?.send(Method::POST, MAPS, map("fair", 0)).await?;
    // Each of another user: wrong passwords of one user are refused without being checked.
    let login = |number| {
        let body = json!({"username": format!("user-{number}"), "password": "wrong"});
        (LOGIN.to_owned(), Bytes::from(body.to_string()))
    };
    let flood = Flood::new(&server.client, Method::POST, login);
    fairness::notice(figures, "logins", &quiet, &format!("{MAPS}/fair"), flood).await
}

/// A stopped machine as Harvester's dashboard makes it.
fn machine(number: usize) -> Bytes {
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {
            "name": format!("machine-{number:05}"),
            "labels": {"harvesterhci.io/creator": "harvester", "part": format!("{}", number % 10)},
            "annotations": {"harvesterhci.io/volumeClaimTemplates": "[]"},
        },
        "spec": {"runStrategy": "Halted", "template": {
            "metadata": {"labels": {"harvesterhci.io/vmName": format!("machine-{number:05}")}},
            "spec": {
                "domain": {
                    "cpu": {"cores": 2, "sockets": 1, "threads": 1},
                    "resources": {"limits": {"cpu": "2", "memory": "2Gi"}},
                    "devices": {
                        "disks": [{"name": "disk-0", "disk": {"bus": "virtio"}, "bootOrder": 1}],
                        "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio"}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "disk-0",
                    "persistentVolumeClaim": {"claimName": format!("machine-{number:05}-disk-0")}}],
            },
        }},
    });
    Bytes::from(machine.to_string())
}

async fn lists(server: &Server, figures: &mut Figures) -> Result<()> {
    let mut connection = server.client.connect().await?;
    for number in 0..MACHINES {
        connection.expect(Method::POST, MACHINE_PATH, machine(number)).await?;
    }
    // The controllers have reconciled all of them.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let plain = cost(server, MACHINE_PATH, "items").await?;
    let envelope =
        cost(server, "/v1/harvester/kubevirt.io.virtualmachines/default", "data").await?;
    figures.add(format!("list of {MACHINES} machines, CPU"), plain, "ms");
    figures.add(format!("list of {MACHINES} machines with envelopes, CPU"), envelope, "ms");
    let name = "the second as a multiple of the first";
    figures.held(name, envelope / plain, "×", Limit::Most(3.0));
    Ok(())
}

/// CPU of the server for one list, in milliseconds.
async fn cost(server: &Server, path: &str, field: &str) -> Result<f64> {
    let mut connection = server.client.connect().await?;
    let body = connection.expect(Method::GET, path, Bytes::new()).await?;
    let list: Value = serde_json::from_slice(&body)?;
    let count = list[field].as_array().map_or(0, Vec::len);
    ensure!(count == MACHINES, "{path} has {count} machines");
    let before = server.cpu();
    for _ in 0..LISTS {
        connection.expect(Method::GET, path, Bytes::new()).await?;
    }
    Ok(server.cpu().saturating_sub(before).as_secs_f64() * 1e3 / f64::from(LISTS))
}

/// The events of all subscribers together.
#[derive(Default)]
struct Deliveries {
    ready: AtomicUsize,
    events: AtomicUsize,
    worst_micros: AtomicU64,
}

async fn subscribers(server: &Server, figures: &mut Figures) -> Result<()> {
    let mut writer = server.client.connect().await?;
    let path = format!("{MAPS}/subscribed");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "subscribed"}, "data": {"at": ""}});
    writer.expect(Method::POST, MAPS, Bytes::from(object.to_string())).await?;
    let (seen, epoch) = (Arc::new(Deliveries::default()), Instant::now());
    for _ in 0..SUBSCRIBERS {
        subscribe(server, seen.clone(), epoch).await?;
    }
    wait_for(|| seen.ready.load(Ordering::Relaxed) >= SUBSCRIBERS).await;
    let ready = seen.ready.load(Ordering::Relaxed);
    ensure!(ready >= SUBSCRIBERS, "only {ready} subscriptions began");
    let (before, total) = (server.cpu(), RATE * SECONDS);
    let begun = tokio::time::Instant::now();
    for number in 0..total {
        tokio::time::sleep_until(begun + Duration::from_micros(number * 1_000_000 / RATE)).await;
        let patch = json!({"data": {"at": format!("sent-{:012}", epoch.elapsed().as_micros())}});
        writer.expect(Method::PATCH, &path, Bytes::from(patch.to_string())).await?;
    }
    let took = begun.elapsed();
    let wanted = SUBSCRIBERS * usize::try_from(total)?;
    wait_for(|| seen.events.load(Ordering::Relaxed) >= wanted).await;
    let cpu = server.cpu().saturating_sub(before);
    let missed = wanted - seen.events.load(Ordering::Relaxed).min(wanted);
    let name = format!("{SUBSCRIBERS} subscribers × {RATE} events/s: ");
    figures.held(format!("{name}events missed"), missed as f64, "", Limit::Most(0.0));
    figures.add(format!("{name}events/s"), total as f64 / took.as_secs_f64(), "/s");
    let worst = seen.worst_micros.load(Ordering::Relaxed) as f64 / 1e3;
    figures.held(format!("{name}worst lag"), worst, "ms", Limit::Most(1000.0));
    figures.add(format!("{name}CPU per delivery"), cpu.as_secs_f64() * 1e6 / wanted as f64, "µs");
    Ok(())
}

/// Waits until it is so, for at most 20 seconds.
async fn wait_for(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn subscribe(server: &Server, seen: Arc<Deliveries>, epoch: Instant) -> Result<()> {
    let stream = server.client.stream().await?;
    let request = "wss://127.0.0.1/v1/subscribe";
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream)
        .await
        .context("cannot open /v1/subscribe")?;
    let order =
        json!({"resourceType": "configmap", "namespace": "default", "id": "default/subscribed"});
    socket.send(Message::text(order.to_string())).await?;
    tokio::spawn(async move {
        while let Some(Ok(message)) = socket.next().await {
            let Ok(text) = message.to_text() else { continue };
            if text.contains("resource.start") {
                seen.ready.fetch_add(1, Ordering::Relaxed);
            }
            note(&seen, text, epoch);
        }
    });
    Ok(())
}

/// Each event carries the time at which it was sent.
fn note(seen: &Deliveries, text: &str, epoch: Instant) {
    let Some(at) = text.find("\"sent-") else { return };
    let sent = text.get(at + 6..at + 18).and_then(|digits| digits.parse::<u64>().ok());
    let Some(sent) = sent else { return };
    let now = u64::try_from(epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
    seen.events.fetch_add(1, Ordering::Relaxed);
    seen.worst_micros.fetch_max(now.saturating_sub(sent), Ordering::Relaxed);
}
