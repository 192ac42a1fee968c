//! The cost of several nodes: each is a network namespace of this machine, so all of them share
//! its cores and its disk, and TLS is on between them.
//!
//! Writes on three nodes are beside qemu-nbd on a raw file, creates on three voters beside puts
//! to a bare etcd, in the same run.

pub(crate) mod lab;
mod scale;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use self::lab::{Cluster, Role};
use crate::figures::{Figures, Limit};
use crate::peer;
use crate::session::longhorn;
use crate::volume::lab::{Load, Sample, VolumeServer, fio};

const ROUNDS: usize = 3;
/// After which nothing of a join goes on any more.
const SETTLE: Duration = Duration::from_secs(10);
const CLIENTS: usize = 64;
const CREATES: usize = 6_400;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) async fn run(sheaf: &Path, seconds: u32, figures: &mut Figures) -> Result<()> {
    workers(sheaf, seconds, figures).await.context("one management node and two workers")?;
    Box::pin(voters(sheaf, figures)).await.context("three management nodes")?;
    scale::run(sheaf, figures).await.context("many nodes")
}

/// One management node and two workers: joining, rest, and a volume with a copy on each.
async fn workers(sheaf: &Path, seconds: u32, figures: &mut Figures) -> Result<()> {
    let mut cluster = Cluster::start(sheaf).await?;
    for name in ["two", "three"] {
        let took = cluster.join(name, Role::Worker).await?;
        let title = format!("cluster: worker {name} joins until Ready");
        figures.held(title, took.as_secs_f64(), "s", Limit::Most(10.0));
    }
    tokio::time::sleep(SETTLE).await;
    let memory = cluster.memory("two")?;
    figures.held("cluster: idle memory of a worker", memory, "MB", Limit::Most(60.0));

    for name in ["one", "two", "three"] {
        cluster.session.use_disk(name).await?;
    }
    cluster.session.claim("bench", "1Gi", None).await?;
    let volume = cluster.session.until_bound("bench").await?;
    let engine = cluster.session.attach(&volume, "one").await?;
    let path = format!("{}/{volume}", longhorn("volumes"));
    let healthy = |own: &Value| own["status"]["robustness"] == "healthy";
    cluster.session.until(&path, healthy).await?;
    let endpoint = engine["status"]["endpoint"].as_str().context("it has no endpoint")?;
    let uri = format!("nbd+unix:///?socket={}", endpoint.trim_start_matches("unix://"));

    let dir = tempfile::tempdir()?;
    let peer = VolumeServer::qemu(dir.path())?;
    let fill = Load { rw: "write", block: "1m", depth: 4, seconds: None };
    peer.fio(&fill)?;
    fio(&uri, &fill, || Duration::ZERO)?;
    for (depth, least) in [(1, 0.4), (32, 0.5)] {
        let load = Load { rw: "randwrite", block: "4k", depth, seconds: Some(seconds) };
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            theirs.push(peer.fio(&load)?);
            ours.push(fio(&uri, &load, || cluster.storage_cpu().unwrap_or_default())?);
        }
        let median = |of: &mut Vec<Sample>| {
            of.sort_by(|a, b| a.iops.total_cmp(&b.iops));
            of.swap_remove(ROUNDS / 2)
        };
        let (theirs, ours) = (median(&mut theirs), median(&mut ours));
        let name = format!("4k randwrite at QD {depth}, three nodes with TLS");
        figures.add(name.clone(), ours.iops, "IOPS");
        figures.add(format!("{name}: p50"), ours.p50_micros, "µs");
        figures.add(format!("{name}: p99"), ours.p99_micros, "µs");
        let title = format!("{name}: CPU per write");
        match depth {
            32 => figures.held(title, ours.cpu_micros, "µs", Limit::Most(60.0)),
            _ => figures.add(title, ours.cpu_micros, "µs"),
        }
        let ratio = ours.iops / theirs.iops;
        figures.held(format!("{name} / qemu-nbd"), ratio, "×", Limit::Least(least));
    }
    Ok(())
}

/// Three management nodes: the move into etcd, and creates there.
async fn voters(sheaf: &Path, figures: &mut Figures) -> Result<()> {
    Box::pin(peer::measure(figures)).await?;
    let mut cluster = Cluster::start(sheaf).await?;
    let begun = Instant::now();
    for name in ["two", "three"] {
        cluster.join(name, Role::Management).await?;
    }
    cluster.until_voters(3).await?;
    let took = begun.elapsed().as_secs_f64();
    figures.add("cluster: two management nodes join until three vote", took, "s");
    tokio::time::sleep(SETTLE).await;

    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(cluster.client()?.connect().await?);
    }
    let begun = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for (client, mut connection) in connections.into_iter().enumerate() {
        clients.spawn(async move {
            for number in (client..CREATES).step_by(CLIENTS) {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("bench-{number:05}")},
                    "data": {"filler": "x".repeat(4_000)},
                });
                connection.expect(Method::POST, MAPS, Bytes::from(map.to_string())).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    let rate = CREATES as f64 / begun.elapsed().as_secs_f64();
    figures.held("cluster: durable creates/s, three voters", rate, "/s", Limit::Least(2000.0));
    if let Some(puts) = figures.value(peer::PUTS) {
        figures.add("cluster: creates/s as a share of one etcd's puts/s", rate / puts * 100.0, "%");
    }
    Ok(())
}
