//! Machines whose node is emptied or dies: live migration beside a migration between two QEMUs
//! started by hand, and failover of a node whose processes are killed.
//!
//! Each node is a network namespace of this machine; all share its cores. Bare QEMU sends over
//! loopback without TLS, Sheaf between namespaces with TLS.

mod bare;
mod pause;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use self::pause::PauseMeter;
use crate::cluster::lab::{Cluster, Role};
use crate::figures::{Figures, Limit, percentile};
use crate::process::{assemble, tool};
use crate::session::longhorn;

/// Migrations of each side, in turns, and deaths of a node.
const ROUNDS: usize = 7;
/// Memory of the guest that migrates; as much as its program writes to.
const MEMORY_MIB: u64 = 1024;
const CLAIM: &str = "survive";
const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMI: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/survive";
const MIGRATIONS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
/// Nodes that the machine may run on; the control plane is on another one.
const WORKERS: [&str; 2] = ["two", "three"];

/// One migration.
#[derive(Debug, Clone, Copy)]
struct Migration {
    took: Duration,
    /// Between the last sign of life on the source and the first on the target.
    pause: Duration,
}

pub(crate) async fn run(sheaf: &Path, figures: &mut Figures) -> Result<()> {
    let mut cluster = Cluster::start(sheaf).await?;
    for name in WORKERS {
        cluster.join(name, Role::Worker).await?;
    }
    for name in ["one", "two", "three"] {
        cluster.session.use_disk(name).await?;
    }
    let guest = assemble("memory").await?;
    let volume = boot_volume(&mut cluster, &guest).await?;
    cluster.session.post(VMS, &machine()).await?;
    migrations(&mut cluster, &guest, figures).await.context("cannot measure migrations")?;
    failovers(&mut cluster, &volume, figures).await.context("cannot measure failovers")
}

/// A volume with a copy on each node that has the guest's program; its name.
async fn boot_volume(cluster: &mut Cluster, guest: &[u8]) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("guest.img");
    std::fs::write(&image, guest)?;
    let session = &mut cluster.session;
    session.claim(CLAIM, "16Mi", None).await?;
    let volume = session.until_bound(CLAIM).await?;
    let engine = session.attach(&volume, "one").await?;
    let endpoint = engine["status"]["endpoint"].as_str().context("the engine has no endpoint")?;
    let uri = format!("nbd+unix:///?socket={}", endpoint.trim_start_matches("unix://"));
    let image = image.display().to_string();
    tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &image, &uri]).await?;
    session.detach(&volume).await?;
    Ok(volume)
}

fn machine() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "survive"},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "terminationGracePeriodSeconds": 0, "evictionStrategy": "LiveMigrate",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname",
                    "operator": "In", "values": WORKERS}]}],
            }}},
            "domain": {"memory": {"guest": format!("{MEMORY_MIB}Mi")},
                "resources": {"requests": {"cpu": "10m"}}, "devices": {
                "autoattachPodInterface": false,
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
            }},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": CLAIM}}],
        }}},
    })
}

/// Where the serial port of a machine is logged on a node.
fn serial_log(cluster: &Cluster, node: &str, uid: &str) -> PathBuf {
    cluster.dir(node).join("agent/vmis").join(uid).join("serial.log")
}

fn other(node: &str) -> &'static str {
    if node == WORKERS[0] { WORKERS[1] } else { WORKERS[0] }
}

fn is_migratable(vmi: &Value) -> bool {
    let mut all = vmi["status"]["conditions"].as_array().into_iter().flatten();
    vmi["status"]["phase"] == "Running"
        && all.any(|own| own["type"] == "LiveMigratable" && own["status"] == "True")
}

async fn migrations(cluster: &mut Cluster, guest: &[u8], figures: &mut Figures) -> Result<()> {
    let vmi = cluster.session.until(VMI, is_migratable).await?;
    let uid = vmi["metadata"]["uid"].as_str().context("it has no uid")?.to_owned();
    let mut node = vmi["status"]["nodeName"].as_str().context("it has no node")?.to_owned();
    pause::until_alive(&serial_log(cluster, &node, &uid)).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        theirs.push(bare::migrate(guest, MEMORY_MIB).await.context("bare QEMU")?);
        let target = other(&node);
        ours.push(migrate(cluster, round, &uid, &node, target).await?);
        target.clone_into(&mut node);
    }
    let median = |of: &[Migration], value: fn(&Migration) -> Duration| {
        percentile(&mut of.iter().map(value).collect::<Vec<_>>(), 0.5)
    };
    let (own_time, bare_time) = (median(&ours, |it| it.took), median(&theirs, |it| it.took));
    let rate = |millis: f64| MEMORY_MIB as f64 / millis * 1e3;
    figures.add("migration: bare QEMU", rate(bare_time), "MiB/s");
    figures.add("migration", rate(own_time), "MiB/s");
    let ratio = bare_time / own_time;
    figures.held("migration: throughput / bare QEMU", ratio, "×", Limit::Least(0.8));
    let (own_pause, bare_pause) = (median(&ours, |it| it.pause), median(&theirs, |it| it.pause));
    figures.add("migration: pause of the guest, bare QEMU, p50", bare_pause, "ms");
    figures.add("migration: pause of the guest, p50", own_pause, "ms");
    let mut pauses: Vec<Duration> = ours.iter().map(|it| it.pause).collect();
    figures.add("migration: pause of the guest, longest", percentile(&mut pauses, 1.0), "ms");
    let over = own_pause - bare_pause;
    figures.held("migration: pause over bare QEMU", over, "ms", Limit::Most(50.0));
    Ok(())
}

/// From the first byte of the guest to the moment when it runs on the target.
async fn migrate(
    cluster: &mut Cluster,
    round: usize,
    uid: &str,
    source: &str,
    target: &str,
) -> Result<Migration> {
    let meter =
        PauseMeter::start(serial_log(cluster, source, uid), serial_log(cluster, target, uid))?;
    let name = format!("round-{round}");
    let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name}, "spec": {"vmiName": "survive"}});
    cluster.session.post(MIGRATIONS, &object).await?;
    let path = format!("{MIGRATIONS}/{name}");
    let is_in = |own: &Value, phases: &[&str]| {
        own["status"]["phase"].as_str().is_some_and(|phase| phases.contains(&phase))
    };
    let over = ["Succeeded", "Failed"];
    let moving = |own: &Value| is_in(own, &["Running", "Succeeded", "Failed"]);
    cluster.session.until(&path, moving).await?;
    let begun = Instant::now();
    let end = cluster.session.until(&path, |own| is_in(own, &over)).await?;
    let took = begun.elapsed();
    ensure!(end["status"]["phase"] == "Succeeded", "the migration failed: {end}");
    Ok(Migration { took, pause: meter.stop().await? })
}

/// Kills the node of the machine again and again.
async fn failovers(cluster: &mut Cluster, volume: &str, figures: &mut Figures) -> Result<()> {
    let path = format!("{}/{volume}", longhorn("volumes"));
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        cluster.session.until(&path, |own| own["status"]["robustness"] == "healthy").await?;
        let vmi = cluster.session.until(VMI, |own| own["status"]["phase"] == "Running").await?;
        let node = vmi["status"]["nodeName"].as_str().context("it has no node")?.to_owned();
        let uid = vmi["metadata"]["uid"].clone();
        let begun = Instant::now();
        cluster.kill(&node)?;
        let runs_again = |own: &Value| {
            own["status"]["phase"] == "Running"
                && own["metadata"]["uid"] != uid
                && own["status"]["nodeName"] != node.as_str()
        };
        cluster.session.until(VMI, runs_again).await?;
        samples.push(begun.elapsed());
        cluster.restart(&node).await?;
    }
    for (share, name) in [(0.0, "shortest"), (0.5, "p50"), (1.0, "longest")] {
        let seconds = percentile(&mut samples, share) / 1e3;
        let title = format!("failover: node killed to machine Running elsewhere, {name}");
        match name {
            "longest" => figures.held(title, seconds, "s", Limit::Most(15.0)),
            _ => figures.add(title, seconds, "s"),
        }
    }
    Ok(())
}
