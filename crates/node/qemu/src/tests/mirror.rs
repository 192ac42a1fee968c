//! Disks that move to another image under a running guest.

use std::path::Path;

use super::{Stage, boot, identity, within};
use crate::machine::{Disk, DiskSource, FileImage};
use crate::process::RunningMachine;
use crate::qmp::{MirrorError, MirrorJob, MirrorOptions, Qmp};

/// The disk that the guest has booted from, as it is recorded.
fn root(running: &RunningMachine) -> Disk {
    running.spec().machine.disks[0].clone()
}

/// The same disk on another image of `size` bytes.
fn on_image(disk: &Disk, path: &Path, size: u64) -> Disk {
    std::fs::File::create(path).unwrap().set_len(size).unwrap();
    if let Some(user) = identity() {
        std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)).unwrap();
    }
    let source = DiskSource::File(FileImage::raw(path));
    Disk { source, moves: disk.moves + 1, ..disk.clone() }
}

fn size_of(disk: &Disk) -> u64 {
    let DiskSource::File(image) = &disk.source else { panic!("{disk:?}") };
    std::fs::metadata(&image.path).unwrap().len()
}

async fn reaches(qmp: &Qmp, disk: &Disk, next: &Disk, wanted: fn(&MirrorJob) -> bool) {
    within("the job", async {
        let mut events = qmp.events();
        loop {
            if wanted(&qmp.observe_mirror(disk, next).await.unwrap().job) {
                return;
            }
            events.recv().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_disk_moves_to_a_larger_image_and_another_connection_finishes_it() {
    let stage = Stage::new();
    let (running, _console) = boot(&stage, "moves").await;
    let disk = root(&running);
    let size = size_of(&disk);
    let (old, new) = (stage.path().join("old.img"), stage.path().join("new.img"));
    let next = on_image(&disk, &new, size + (1 << 20));
    let qmp = running.qmp().await.unwrap();
    assert_eq!(qmp.observe_mirror(&disk, &next).await.unwrap().job, MirrorJob::Absent);
    qmp.start_mirror(&disk, &next, MirrorOptions::default()).await.unwrap();
    reaches(&qmp, &disk, &next, |job| *job == MirrorJob::Ready).await;
    // A later connection finds the job by its name.
    qmp.disconnect();
    let (qmp, observed) = within("another connection", async {
        loop {
            let qmp = running.qmp().await.unwrap();
            if let Ok(observed) = qmp.observe_mirror(&disk, &next).await {
                return (qmp, observed);
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((observed.job, observed.is_switched), (MirrorJob::Ready, false));
    qmp.complete_mirror(&next).await.unwrap();
    reaches(&qmp, &disk, &next, |job| *job == MirrorJob::Ended { error: None }).await;
    assert!(qmp.observe_mirror(&disk, &next).await.unwrap().is_switched);
    for _ in 0..2 {
        qmp.tidy_mirror(&next).await.unwrap();
    }
    let nodes: Vec<serde_json::Value> =
        qmp.execute("query-named-block-nodes", serde_json::json!({})).await.unwrap();
    let find = |name: &str| nodes.iter().find(|node| node["node-name"] == name);
    assert!(find(&disk.node()).is_none() && find(&disk.storage_node()).is_none());
    assert_eq!(find(&next.node()).unwrap()["image"]["virtual-size"], size + (1 << 20));
    // And back again, to an image of the size that it has now.
    let back = on_image(&next, &old, size + (1 << 20));
    qmp.start_mirror(&next, &back, MirrorOptions::default()).await.unwrap();
    reaches(&qmp, &next, &back, |job| *job == MirrorJob::Ready).await;
    within("kill", running.kill()).await;
    let (one, two) = (std::fs::read(&new).unwrap(), std::fs::read(&old).unwrap());
    assert!(one == two, "the copies differ");
    let DiskSource::File(image) = &disk.source else { panic!("{disk:?}") };
    let first = std::fs::read(&image.path).unwrap();
    assert!(one.starts_with(&first[..512]) && first.iter().any(|byte| *byte != 0));
}

#[tokio::test]
async fn a_mirror_that_fails_or_is_canceled_leaves_the_guest_where_it_is() {
    let stage = Stage::new();
    let (running, _console) = boot(&stage, "stays").await;
    let disk = root(&running);
    let size = size_of(&disk);
    let path = stage.path().join("new.img");
    let qmp = running.qmp().await.unwrap();
    let small = on_image(&disk, &path, size / 2 / 512 * 512);
    let refused = qmp.start_mirror(&disk, &small, MirrorOptions::default()).await;
    assert!(matches!(refused, Err(MirrorError::TooSmall { .. })), "{refused:?}");
    let missing = DiskSource::File(FileImage::raw(stage.path().join("missing.img")));
    let missing = Disk { source: missing, ..small.clone() };
    assert!(matches!(
        qmp.start_mirror(&disk, &missing, MirrorOptions::default()).await,
        Err(MirrorError::Qmp(_))
    ));
    let next = on_image(&disk, &path, size);
    qmp.start_mirror(&disk, &next, MirrorOptions::default()).await.unwrap();
    qmp.cancel_mirror(&next).await.unwrap();
    reaches(&qmp, &disk, &next, |job| matches!(job, MirrorJob::Ended { error: Some(_) })).await;
    assert!(!qmp.observe_mirror(&disk, &next).await.unwrap().is_switched);
    for _ in 0..2 {
        qmp.discard_mirror(&next).await.unwrap();
    }
    assert_eq!(qmp.observe_mirror(&disk, &next).await.unwrap().job, MirrorJob::Absent);
    // The names are free again.
    qmp.start_mirror(&disk, &next, MirrorOptions::default()).await.unwrap();
    reaches(&qmp, &disk, &next, |job| *job == MirrorJob::Ready).await;
    within("kill", running.kill()).await;
}
