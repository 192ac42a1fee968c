//! Making, growing, copying and deleting volumes.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::{bytes, claim_path, find_claim, human, quantity, text, wait};
use crate::cli::{Access, NewVolume, Taking, Volume, VolumeMode};
use crate::command::link::Link;
use crate::command::print;

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1";

pub(super) async fn create(new: &NewVolume) -> Result<()> {
    let link = Link::to(&new.volume.place).await?;
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
    let size = match size {
        None => bail!("say how large it shall be: --size 10Gi"),
        Some(0) => bail!("--size 0 is no size of a volume: it must be more, like 10Gi"),
        Some(size) => size,
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
    volume: &Volume,
    new: &str,
    size: Option<u64>,
    no_wait: bool,
) -> Result<()> {
    let link = Link::to(&volume.place).await?;
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

/// Makes a claim and waits until it has its volume.
async fn make(link: &Link, claim: &Value, no_wait: bool) -> Result<()> {
    let made = link.post(&link.core("persistentvolumeclaims"), claim).await?;
    let name = text(&made, "/metadata/name");
    let size = human(text(&made, "/spec/resources/requests/storage"));
    let class = text(&made, "/spec/storageClassName");
    if class.is_empty() {
        return print(&format!(
            "{name} is asked for; it has no storage class, and the cluster no default one\n"
        ));
    }
    let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
    let Some(class) = link.find(&path).await? else {
        bail!(
            "{name} is asked for, but there is no storage class {class}; \
             `kubectl get storageclass` lists them"
        );
    };
    if text(&class, "/volumeBindingMode") == "WaitForFirstConsumer" {
        return print(&format!("{name} ({size}) is made when a machine uses it\n"));
    }
    if no_wait {
        return print(&format!("{name} ({size}) is asked for\n"));
    }
    loop {
        let is_bound = |claim: Option<&Value>| match claim {
            None => bail!("somebody deleted {name}"),
            Some(claim) => Ok((text(claim, "/status/phase") == "Bound").then_some(())),
        };
        let what = format!("volume {name} is made");
        let path = claim_path(link, name);
        let bound = wait::until(link, &path, &what, is_bound);
        match tokio::time::timeout(std::time::Duration::from_secs(2), bound).await {
            Ok(bound) => {
                bound?;
                return print(&format!("{name} ({size}) is ready\n"));
            }
            Err(_) => {
                if let Some(why) = wait::complaint(link, &made).await? {
                    bail!("{why}; the claim stays: `sheaf volume delete {name}` takes it back");
                }
                eprintln!("waiting: {what} …");
            }
        }
    }
}

pub(super) async fn grow(volume: &Volume, size: u64, no_wait: bool) -> Result<()> {
    let link = Link::to(&volume.place).await?;
    let claim = find_claim(&link, volume).await?;
    let name = &volume.name;
    let asked = text(&claim, "/spec/resources/requests/storage");
    let before = bytes(asked).and_then(|own| u64::try_from(own).ok()).unwrap_or_default();
    if size < before {
        bail!("{name} has {}: volumes do not shrink", human(asked));
    }
    let wanted = quantity(size);
    let patch = json!({"spec": {"resources": {"requests": {"storage": wanted}}}});
    let path = claim_path(&link, name);
    link.merge(&path, &patch).await.with_context(|| format!("cannot grow {name}"))?;
    if no_wait {
        return print(&format!("{name} grows to {}\n", human(&wanted)));
    }
    let what = format!("{name} grows to {}", human(&wanted));
    wait::until(&link, &path, &what, |claim| {
        let Some(claim) = claim else { bail!("somebody deleted {name}") };
        let has = bytes(text(claim, "/status/capacity/storage"));
        let has = has.and_then(|own| u64::try_from(own).ok());
        Ok(has.is_some_and(|own| own >= size).then_some(()))
    })
    .await?;
    print(&format!("{name} has {}\n", human(&wanted)))
}

fn snapshot_path(link: &Link, name: &str) -> String {
    format!("{SNAPSHOTS}/namespaces/{}/volumesnapshots/{name}", link.namespace)
}

pub(super) async fn snapshot(taking: &Taking) -> Result<()> {
    let link = Link::to(&taking.volume.place).await?;
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
        return print(&format!("{name} is asked for\n"));
    }
    let what = format!("snapshot {name} of {volume}");
    let path = snapshot_path(&link, name);
    let size = wait::until(&link, &path, &what, |snapshot| {
        let Some(snapshot) = snapshot else { bail!("somebody deleted {name}") };
        let error = text(snapshot, "/status/error/message");
        if !error.is_empty() {
            bail!("cannot take snapshot {name}: {error}");
        }
        let ready = snapshot.pointer("/status/readyToUse") == Some(&json!(true));
        Ok(ready.then(|| text(snapshot, "/status/restoreSize").to_owned()))
    })
    .await?;
    print(&format!("{name} ({}) is taken\n", human(&size)))
}

pub(super) async fn delete(volume: &Volume, no_wait: bool) -> Result<()> {
    let link = Link::to(&volume.place).await?;
    let claim = find_claim(&link, volume).await?;
    let name = &volume.name;
    let path = claim_path(&link, name);
    link.delete(&path).await.with_context(|| format!("cannot delete {name}"))?;
    let bound = text(&claim, "/spec/volumeName");
    if no_wait {
        return print(&format!("{name} is deleted\n"));
    }
    let gone = |object: Option<&Value>| Ok(object.is_none().then_some(()));
    let what = format!("nobody uses {name} any more");
    wait::until(&link, &path, &what, gone).await?;
    if !bound.is_empty() {
        let path = format!("/api/v1/persistentvolumes/{bound}");
        let kept = link
            .find(&path)
            .await?
            .is_some_and(|own| text(&own, "/spec/persistentVolumeReclaimPolicy") == "Retain");
        if kept {
            return print(&format!("{name} is deleted; its data stay in volume {bound}\n"));
        }
        wait::until(&link, &path, &format!("the data of {name} are removed"), gone).await?;
    }
    print(&format!("{name} is deleted\n"))
}
