//! Creating, growing, cloning and deleting volumes.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::{LONGHORN, bytes, claim_path, find_claim, human, quantity, text, wait};
use crate::cli::{Access, NewVolume, SnapshotArgs, VolumeClaim, VolumeMode};
use crate::command::link::ClusterClient;
use crate::command::{interrupt, print};

/// After this long, the user is shown what the command waits for.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
/// How long the decision may take where the data of a new volume goes.
const PLACEMENT_TIMEOUT: Duration = Duration::from_secs(10);
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1";

pub(super) async fn create(new: &NewVolume) -> Result<()> {
    let link = ClusterClient::to(&new.volume.place).await?;
    let mut size = new.size;
    let mut source = None;
    if let Some(name) = &new.from_snapshot {
        let found = link.find(&snapshot_path(&link, name)).await?;
        let Some(snapshot) = found else {
            bail!("there is no snapshot {name} in namespace {}", link.namespace);
        };
        let own = bytes(text(&snapshot, "/status/restoreSize"));
        size = size.or(own.and_then(|own| u64::try_from(own).ok()));
        source = Some(json!({
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name,
        }));
    }
    let Some(size) = size else {
        bail!("the snapshot does not report its size; add --size, for example --size 10Gi");
    };
    let access = match new.access {
        Access::One => "ReadWriteOnce",
        Access::Many => "ReadWriteMany",
    };
    let mode = match new.mode {
        VolumeMode::Block => "Block",
        VolumeMode::Filesystem => "Filesystem",
    };
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": new.volume.name, "namespace": link.namespace},
        "spec": {"accessModes": [access], "volumeMode": mode,
            "resources": {"requests": {"storage": quantity(size)}}},
    });
    if let Some(class) = &new.class {
        claim["spec"]["storageClassName"] = json!(class);
    }
    if let Some(source) = source {
        claim["spec"]["dataSource"] = source;
    }
    make(&link, &claim, new.no_wait).await
}

pub(super) async fn clone(
    volume: &VolumeClaim,
    new: &str,
    size: Option<u64>,
    no_wait: bool,
) -> Result<()> {
    let link = ClusterClient::to(&volume.place).await?;
    let source = find_claim(&link, volume).await?;
    let own = match text(&source, "/status/capacity/storage") {
        "" => text(&source, "/spec/resources/requests/storage"),
        own => own,
    };
    let size = size.map_or_else(|| own.to_owned(), quantity);
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": new, "namespace": link.namespace},
        "spec": {
            "accessModes": source["spec"]["accessModes"],
            "volumeMode": source["spec"]["volumeMode"],
            "storageClassName": source["spec"]["storageClassName"],
            "resources": {"requests": {"storage": size}},
            "dataSource": {"kind": "PersistentVolumeClaim", "name": volume.name},
        },
    });
    make(&link, &claim, no_wait).await
}

/// Creates a claim and waits until it has a volume with room for its data.
async fn make(link: &ClusterClient, claim: &Value, no_wait: bool) -> Result<()> {
    let wanted = text(claim, "/spec/storageClassName");
    if !wanted.is_empty() {
        find_class(link, wanted).await?;
    }
    let made = link.post(&link.core("persistentvolumeclaims"), claim).await?;
    let name = text(&made, "/metadata/name");
    let size = human(text(&made, "/spec/resources/requests/storage"));
    let class = text(&made, "/spec/storageClassName");
    if class.is_empty() {
        bail!(
            "{name} gets no volume: no storage class was given, and the cluster has no default \
             one; `sheaf volume delete {name}` removes the claim"
        );
    }
    let class = find_class(link, class).await?;
    if text(&class, "/volumeBindingMode") == "WaitForFirstConsumer" {
        return print(&format!("{name} ({size}) is created when a machine uses it\n"));
    }
    if no_wait {
        return print(&format!("{name} ({size}) is being created\n"));
    }
    let continues = format!(
        "volume {name} is still being created; `sheaf volume list` shows it, `sheaf volume \
         delete {name}` removes it"
    );
    interrupt::or_report(until_usable(link, &made), continues).await?;
    print(&format!("{name} ({size}) is ready\n"))
}

async fn find_class(link: &ClusterClient, name: &str) -> Result<Value> {
    let path = format!("/apis/storage.k8s.io/v1/storageclasses/{name}");
    match link.find(&path).await? {
        Some(class) => Ok(class),
        None => bail!("there is no storage class {name}; `kubectl get storageclass` lists them"),
    }
}

/// Waits until a claim is bound and the disks of the cluster have room for its data.
async fn until_usable(link: &ClusterClient, claim: &Value) -> Result<()> {
    let name = text(claim, "/metadata/name");
    let path = claim_path(link, name);
    let what = format!("volume {name}");
    let bound = loop {
        let bound = wait::until(link, &path, &what, |claim| match claim {
            None => bail!("{name} was deleted"),
            Some(claim) => {
                let is_bound = text(claim, "/status/phase") == "Bound";
                Ok(is_bound.then(|| text(claim, "/spec/volumeName").to_owned()))
            }
        });
        match tokio::time::timeout(NOTICE_DELAY, bound).await {
            Ok(bound) => break bound?,
            Err(_) => {
                if let Some(why) = wait::complaint(link, claim).await? {
                    bail!("{why}; `sheaf volume delete {name}` removes the claim");
                }
                eprintln!("waiting for {what} ...");
            }
        }
    };
    // A user who may not read Longhorn's objects is not shown where the data goes.
    let path = format!("{LONGHORN}/volumes/{bound}");
    if link.find(&path).await.ok().flatten().is_none() {
        return Ok(());
    }
    let placed = wait::until(link, &path, &what, |volume| Ok(wait::placement(volume)));
    let why = match tokio::time::timeout(PLACEMENT_TIMEOUT, placed).await {
        Ok(Ok(wait::ReplicaPlacement::Refused { why })) => why,
        Ok(placed) => return placed.map(drop),
        Err(_) => return Ok(()),
    };
    if wait::has_replica(link, &bound).await? {
        eprintln!("warning: {name} has fewer copies than it should have: {why}");
        return Ok(());
    }
    bail!("{name} cannot be stored: {why}; `sheaf volume delete {name}` removes the claim")
}

fn snapshot_path(link: &ClusterClient, name: &str) -> String {
    format!("{SNAPSHOTS}/namespaces/{}/volumesnapshots/{name}", link.namespace)
}

pub(super) async fn snapshot(taking: &SnapshotArgs) -> Result<()> {
    let link = ClusterClient::to(&taking.volume.place).await?;
    let claim = find_claim(&link, &taking.volume).await?;
    let volume = text(&claim, "/metadata/name");
    let mut metadata = json!({"namespace": link.namespace});
    match &taking.snapshot {
        Some(name) => metadata["name"] = json!(name),
        None => metadata["generateName"] = json!(format!("{volume}-")),
    }
    let wanted = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": metadata,
        "spec": {"volumeSnapshotClassName": taking.class,
            "source": {"persistentVolumeClaimName": volume}},
    });
    let made = link.post(snapshot_path(&link, "").trim_end_matches('/'), &wanted).await?;
    let name = text(&made, "/metadata/name");
    if taking.no_wait {
        return print(&format!("snapshot {name} is being taken\n"));
    }
    let what = format!("snapshot {name} of {volume}");
    let path = snapshot_path(&link, name);
    let taken = wait::until(&link, &path, &what, |snapshot| {
        let Some(snapshot) = snapshot else { bail!("{name} was deleted") };
        let error = text(snapshot, "/status/error/message");
        if !error.is_empty() {
            return Ok(Some(SnapshotOutcome::Failed { why: error.to_owned() }));
        }
        let ready = snapshot.pointer("/status/readyToUse") == Some(&json!(true));
        let size = || text(snapshot, "/status/restoreSize").to_owned();
        Ok(ready.then(|| SnapshotOutcome::Taken { size: size() }))
    });
    let continues =
        format!("snapshot {name} is still being taken; `sheaf volume status {volume}` shows it");
    match interrupt::or_report(taken, continues).await? {
        SnapshotOutcome::Taken { size } => print(&format!("{name} ({}) is taken\n", human(&size))),
        SnapshotOutcome::Failed { why } => {
            // It would be tried again for ever.
            let left = link.delete(&path).await.err().map(|failure| {
                format!("; its object is left, since it cannot be deleted: {failure:#}")
            });
            bail!("cannot take snapshot {name}: {why}{}", left.unwrap_or_default())
        }
    }
}

/// How a snapshot ended.
enum SnapshotOutcome {
    Taken { size: String },
    Failed { why: String },
}

pub(super) async fn delete(volume: &VolumeClaim, no_wait: bool) -> Result<()> {
    let link = ClusterClient::to(&volume.place).await?;
    let claim = find_claim(&link, volume).await?;
    let name = &volume.name;
    let path = claim_path(&link, name);
    link.delete(&path).await.with_context(|| format!("cannot delete {name}"))?;
    let bound = text(&claim, "/spec/volumeName");
    if no_wait {
        return print(&format!("{name} is being deleted\n"));
    }
    let continues = format!(
        "{name} is still being deleted in the cluster; `sheaf volume list` shows it until it is gone"
    );
    interrupt::or_report(until_deleted(&link, name, bound), continues).await
}

/// Waits until a claim and the data of its volume are gone.
async fn until_deleted(link: &ClusterClient, name: &str, bound: &str) -> Result<()> {
    let path = claim_path(link, name);
    let gone = |object: Option<&Value>| Ok(object.is_none().then_some(()));
    let what = format!("{name} to be released by its users");
    wait::until(link, &path, &what, gone).await?;
    if !bound.is_empty() {
        let path = format!("/api/v1/persistentvolumes/{bound}");
        let kept = link
            .find(&path)
            .await?
            .is_some_and(|own| text(&own, "/spec/persistentVolumeReclaimPolicy") == "Retain");
        if kept {
            return print(&format!("{name} is deleted; its data is kept in volume {bound}\n"));
        }
        wait::until(link, &path, &format!("the data of {name} to be removed"), gone).await?;
    }
    print(&format!("{name} is deleted\n"))
}
