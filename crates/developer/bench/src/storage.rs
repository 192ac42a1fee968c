//! Waiting times of people who use volumes and images through the API: an import beside `qemu-img
//! convert` of the same file, a claim from an image until a machine could use it, how long a guest
//! is paused for its snapshot, and the leftovers of many volumes.

mod node;
mod web;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use self::node::{NODE, StorageNode};
use self::web::Web;
use crate::figures::{Figures, Limit, percentile};
use crate::process::tool;
use crate::session::{CLAIMS, longhorn};

const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const SNAPSHOTS: &str =
    "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const ROUNDS: usize = 3;
/// Data in the image that is imported.
const MIB: usize = 512;
/// Volumes that come and go, some at a time.
const VOLUMES: usize = 200;
const AT_A_TIME: usize = 20;
/// After this the store has forgotten a burst.
const HISTORY: Duration = Duration::from_secs(100);

pub(crate) async fn run(sheaf: &Path, figures: &mut Figures) -> Result<()> {
    let mut node = StorageNode::start(sheaf).await?;
    let class = import(&mut node, figures).await?;
    claim(&mut node, &class, figures).await?;
    pause(&mut node, figures).await?;
    loops(&mut node, figures).await
}

/// The same file in turns; answers the class of the last image.
async fn import(node: &mut StorageNode, figures: &mut Figures) -> Result<String> {
    let dir = tempfile::tempdir_in(node.dir())?;
    let (raw, image) = (dir.path().join("raw"), dir.path().join("image.qcow2"));
    let text = |path: &Path| path.display().to_string();
    let (from, count) = ("if=/dev/urandom", format!("count={MIB}"));
    tool("dd", &[from, &format!("of={}", text(&raw)), "bs=1M", &count]).await?;
    tool("truncate", &["-s", "2G", &text(&raw)]).await?;
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &text(&raw), &text(&image)]).await?;
    let web = Web::serve(&image)?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    let mut class = String::new();
    for round in 0..ROUNDS {
        let out = text(&dir.path().join("out"));
        let begun = Instant::now();
        tool("qemu-img", &["convert", "-f", "qcow2", "-O", "raw", &text(&image), &out]).await?;
        // An import survives a power cut.
        tool("sync", &[&out]).await?;
        peer.push(begun.elapsed());
        std::fs::remove_file(&out)?;
        let name = format!("image-{round}");
        let wanted = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
            "metadata": {"name": name}, "spec": {"displayName": name, "sourceType": "download",
                "url": web.url(), "retry": 0}});
        let begun = Instant::now();
        node.post(IMAGES, &wanted).await?;
        let done = node.until(&format!("{IMAGES}/{name}"), |own| is(own, "Imported")).await?;
        ours.push(begun.elapsed());
        class = done["status"]["storageClassName"].as_str().unwrap_or_default().to_owned();
        if round + 1 < ROUNDS {
            node.delete(&format!("{IMAGES}/{name}")).await?;
        }
    }
    let (ours, peer) = (percentile(&mut ours, 0.5), percentile(&mut peer, 0.5));
    figures.add(format!("image with {MIB} MiB: import"), ours, "ms");
    figures.add(format!("image with {MIB} MiB: qemu-img convert"), peer, "ms");
    figures.held("image import / qemu-img convert", peer / ours, "×", Limit::Least(0.8));
    Ok(class)
}

fn is(object: &Value, kind: &str) -> bool {
    let all = object["status"]["conditions"].as_array();
    all.into_iter().flatten().any(|own| own["type"] == kind && own["status"] == "True")
}

/// From the request to a socket that a machine could use.
async fn claim(node: &mut StorageNode, class: &str, figures: &mut Figures) -> Result<()> {
    let mut times = Vec::new();
    for round in 0..9 {
        let name = format!("root-{round}");
        let begun = Instant::now();
        node.claim(&name, "4Gi", Some(class)).await?;
        let volume = node.until_bound(&name).await?;
        node.attach(&volume, NODE).await?;
        times.push(begun.elapsed());
        node.detach(&volume).await?;
        node.delete(&format!("{CLAIMS}/{name}")).await?;
    }
    let middle = percentile(&mut times, 0.5);
    figures.held("claim from an image: bound and attached", middle, "ms", Limit::Most(300.0));
    Ok(())
}

/// How long a guest with three disks is paused, as reported by its node.
async fn pause(node: &mut StorageNode, figures: &mut Figures) -> Result<()> {
    let disks = ["a", "b", "c"];
    for disk in disks {
        node.claim(disk, "1Gi", None).await?;
        node.until_bound(disk).await?;
    }
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "three"},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {"memory": {"guest": "64Mi"}, "devices": {
                "disks": disks.map(|disk| json!({"name": disk, "disk": {"bus": "virtio"}}))}},
            "volumes": disks.map(|disk|
                json!({"name": disk, "persistentVolumeClaim": {"claimName": disk}})),
        }}},
    });
    node.post(VMS, &machine).await?;
    let runs = |own: &Value| own["status"]["phase"] == "Running";
    node.until(&format!("{VMIS}/three"), runs).await?;
    let (mut whole, mut paused) = (Vec::new(), Vec::new());
    for round in 0..9 {
        let name = format!("moment-{round}");
        let wanted = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1",
            "kind": "VirtualMachineSnapshot", "metadata": {"name": name},
            "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine",
                "name": "three"}}});
        let begun = Instant::now();
        node.post(SNAPSHOTS, &wanted).await?;
        let ready = |own: &Value| own["status"]["readyToUse"] == true;
        node.until(&format!("{SNAPSHOTS}/{name}"), ready).await?;
        whole.push(begun.elapsed());
        let events = node
            .until(EVENTS, |list| pauses(list).len() > paused.len())
            .await
            .context("no event reports how long the guest was paused")?;
        paused = pauses(&events);
    }
    figures.add("snapshot of a running 3-disk VM takes", percentile(&mut whole, 0.5), "ms");
    let name = "snapshot of a running 3-disk VM pauses it";
    figures.held(name, percentile(&mut paused, 0.5), "ms", Limit::Most(50.0));
    figures.add("the longest of nine pauses", percentile(&mut paused, 1.0), "ms");
    for round in 0..9 {
        node.delete(&format!("{SNAPSHOTS}/moment-{round}")).await?;
    }
    node.delete(&format!("{VMS}/three")).await?;
    node.until_gone(&format!("{VMIS}/three")).await?;
    for disk in disks {
        node.delete(&format!("{CLAIMS}/{disk}")).await?;
    }
    Ok(())
}

fn pauses(events: &Value) -> Vec<Duration> {
    let all = events["items"].as_array().into_iter().flatten();
    let taken = all.filter(|own| own["reason"] == "SnapshotTaken");
    taken
        .filter_map(|own| {
            let words = own["message"].as_str()?.split_whitespace().rev();
            words.skip(1).find_map(|word| word.parse().ok()).map(Duration::from_millis)
        })
        .collect()
}

/// Many volumes come, are used and go. The first time shows what all of it needs at all, the
/// second what is lost each time; and both are measured when the store has forgotten what
/// happened, which it keeps for a while for watchers who come back.
async fn loops(node: &mut StorageNode, figures: &mut Figures) -> Result<()> {
    rounds(node, "warm", VOLUMES).await?;
    tokio::time::sleep(HISTORY).await;
    let before = node.footprint()?;
    let begun = Instant::now();
    rounds(node, "loop", VOLUMES).await?;
    let each = begun.elapsed().as_secs_f64() * 1e3 / VOLUMES as f64;
    figures.add("volume: made, attached, detached, deleted, each", each, "ms");
    let peak = node.footprint()?.memory - before.memory;
    figures.add(format!("{VOLUMES} volumes: memory that their history takes"), peak, "MB");
    tokio::time::sleep(HISTORY).await;
    let after = node.footprint()?;
    let none = Limit::Most(0.0);
    let name = |what: &str| format!("{VOLUMES} volumes leave {what}");
    figures.held(name("files and sockets"), after.files as f64 - before.files as f64, "", none);
    let open = after.open as f64 - before.open as f64;
    figures.held(name("open files"), open, "", Limit::Most(2.0));
    figures.held(name("memory"), after.memory - before.memory, "MB", Limit::Most(8.0));
    Ok(())
}

async fn rounds(node: &mut StorageNode, prefix: &str, count: usize) -> Result<()> {
    for first in (0..count).step_by(AT_A_TIME) {
        let names: Vec<String> =
            (first..(first + AT_A_TIME).min(count)).map(|it| format!("{prefix}-{it}")).collect();
        let mut volumes = Vec::new();
        for name in &names {
            node.claim(name, "64Mi", None).await?;
        }
        for name in &names {
            volumes.push(node.until_bound(name).await?);
        }
        for volume in &volumes {
            node.want(volume, Some(NODE)).await?;
        }
        for volume in &volumes {
            node.attach(volume, NODE).await?;
        }
        for volume in &volumes {
            node.want(volume, None).await?;
        }
        for volume in &volumes {
            node.detach(volume).await?;
        }
        for name in &names {
            node.delete(&format!("{CLAIMS}/{name}")).await?;
        }
        for volume in &volumes {
            node.until_gone(&format!("{}/{volume}", longhorn("volumes"))).await?;
        }
    }
    Ok(())
}
