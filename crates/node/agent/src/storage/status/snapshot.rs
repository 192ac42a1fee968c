//! The status of a snapshot, and of the snapshots in an engine. Pure.

use std::collections::BTreeMap;

use block::ids::SnapshotId;
use block::run::VolumeStatus;
use block::storage::{ReplicaState, StorageStatus};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::names;
use crate::storage::object::Snapshot;
use crate::storage::plan::{StorageWorld, snapshot_place};
use crate::storage::{damage, group_snapshot};

/// The name of what was written since the last snapshot.
const HEAD: &str = "volume-head";

/// A replica of the volume whose sizes are known.
pub(super) fn fullest<'a>(
    state: &'a StorageStatus,
    status: &VolumeStatus,
) -> Option<&'a ReplicaState> {
    let is_member =
        |it: &&ReplicaState| status.replicas.iter().any(|member| member.id == it.replica);
    state.replicas.iter().filter(is_member).find(|it| it.used_bytes.is_some())
}

pub(super) fn snapshots(status: &VolumeStatus, sizes: Option<&ReplicaState>) -> Value {
    let by_id: BTreeMap<SnapshotId, &str> =
        status.snapshots.iter().map(|it| (it.id, it.name.as_str())).collect();
    let bytes =
        |id: &SnapshotId| sizes.and_then(|it| it.snapshot_bytes.get(id)).copied().unwrap_or(0);
    let mut all = Map::new();
    for info in &status.snapshots {
        let children = status.snapshots.iter().filter(|it| it.parent == Some(info.id));
        let mut children: BTreeMap<String, bool> =
            children.map(|it| (it.name.clone(), true)).collect();
        if status.snapshots.last().map(|it| it.id) == Some(info.id) {
            children.insert(HEAD.into(), true);
        }
        let parent = info.parent.and_then(|id| by_id.get(&id).copied()).unwrap_or_default();
        all.insert(
            info.name.clone(),
            json!({
                "name": info.name, "parent": parent, "children": children, "removed": false,
                "usercreated": true, "created": created(&info.created),
                "size": bytes(&info.id).to_string(), "labels": info.labels,
            }),
        );
    }
    let parent = status.snapshots.last().map(|it| it.name.as_str()).unwrap_or_default();
    let head = sizes.and_then(|it| it.head_bytes).unwrap_or(0);
    all.insert(
        HEAD.into(),
        json!({
            "name": HEAD, "parent": parent, "children": {}, "removed": false,
            "usercreated": false, "created": "", "size": head.to_string(), "labels": {},
        }),
    );
    Value::Object(all)
}

/// Seconds since 1970, as time is written in objects.
fn created(seconds: &str) -> String {
    let time = seconds.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// The status of a snapshot; nothing while its volume is not served here.
pub(super) fn snapshot(
    world: &StorageWorld<'_>,
    snapshot: &Snapshot,
    trouble: Option<&str>,
) -> Option<Value> {
    let (_, served) = snapshot_place(world, snapshot)?;
    let status = served.status.as_ref()?;
    let all = snapshots(status, world.state.and_then(|it| fullest(it, status)));
    let Some(info) = all.get(&snapshot.name) else {
        let error = match (snapshot.was_taken(), snapshot.is_to_be_taken, trouble) {
            (_, _, Some(trouble)) => trouble,
            (true, _, _) => "the snapshot does not exist in the volume any more",
            (false, false, _) => "there is no such snapshot, and createSnapshot is not set",
            (false, true, None) => return None,
        };
        let gone = !snapshot.is_deleting || trouble.is_some();
        return gone.then(|| json!({"error": error, "readyToUse": false, "ownerID": world.node}));
    };
    if group_snapshot::is_torn(world, snapshot) {
        return None;
    }
    let size = info["size"].as_str().and_then(|size| size.parse::<i64>().ok()).unwrap_or(0);
    let id = status.snapshots.iter().find(|it| it.name == snapshot.name).map(|it| it.id);
    let before = snapshot.status["error"].as_str().unwrap_or_default();
    let names = names(world, &snapshot.volume);
    let damage = id.map(|id| damage::error(status, id, &names, before)).unwrap_or_default();
    // A volume that grows later does not make its snapshots larger.
    let then = snapshot.status["restoreSize"].as_u64().filter(|size| *size > 0);
    Some(json!({
        "ownerID": world.node,
        "parent": info["parent"],
        "children": info["children"],
        "labels": info["labels"],
        "userCreated": true,
        "markRemoved": snapshot.is_deleting,
        "creationTime": info["created"],
        "size": size,
        "restoreSize": then.unwrap_or(status.size),
        "readyToUse": !snapshot.is_deleting,
        "error": trouble.unwrap_or(&damage),
    }))
}
