//! Whether the disks of a volume have room for it to grow. Longhorn has the same rule: the size of a
//! volume is never taken back, so one that is larger than its disks would stay unfinished for good.

use serde_json::Value;

use super::{read, setting_value};
use crate::admit::{AdmissionResult, LONGHORN, Refusal, Write, text};
use crate::longhorn::NAMESPACE;
use crate::longhorn::node::{DiskSpec, DiskStatus, Node};

const OVER_PROVISIONING: &str = "storage-over-provisioning-percentage";
/// The block store cannot address more.
const LARGEST: u64 = 15 << 40;

/// Refuses to make a volume larger than the block store or the disks of its replicas allow.
pub(super) fn validate(write: &Write<'_>, before: u64, size: u64) -> AdmissionResult {
    if size <= before {
        return Ok(());
    }
    if size > LARGEST {
        let message =
            format!("volume {} cannot have {size} bytes: the maximum is {LARGEST}", write.name);
        return Err(Refusal::longhorn("spec.size", message));
    }
    let percent = setting_value(write, OVER_PROVISIONING).parse().unwrap_or(100);
    let more = i64::try_from(size - before).unwrap_or(i64::MAX);
    for replica in write.objects.list(LONGHORN, "replicas", NAMESPACE) {
        if text(&replica, "/spec/volumeName") != write.name {
            continue;
        }
        let node = write.objects.get(LONGHORN, "nodes", NAMESPACE, text(&replica, "/spec/nodeID"));
        if let Some(why) = obstacle(node.as_ref(), text(&replica, "/spec/diskID"), more, percent) {
            let message = format!("volume {} cannot grow by {more} bytes: {why}", write.name);
            return Err(Refusal::longhorn("spec.size", message));
        }
    }
    Ok(())
}

/// Why a disk cannot promise so many more bytes; nothing for one that has not been measured yet.
fn obstacle(node: Option<&Value>, disk: &str, more: i64, percent: i64) -> Option<String> {
    let Node { metadata, spec, status, .. } = read(node);
    let (name, measured) = status?.disk_status.into_iter().find(|(_, own)| has_id(own, disk))?;
    let wanted = spec.unwrap_or_default().disks.remove(&name).unwrap_or_default();
    let maximum = measured.storage_maximum.filter(|maximum| *maximum > 0)?;
    let ceiling = ceiling(maximum, &wanted, percent);
    let promised = measured.storage_scheduled.unwrap_or_default();
    (promised.saturating_add(more) > ceiling).then(|| {
        format!(
            "disk {name} of node {} may promise {ceiling} bytes, and has promised {promised}",
            metadata.name.unwrap_or_default()
        )
    })
}

fn has_id(measured: &DiskStatus, disk: &str) -> bool {
    measured.disk_uuid.as_deref().is_some_and(|uuid| !uuid.is_empty() && uuid == disk)
}

fn ceiling(maximum: i64, wanted: &DiskSpec, percent: i64) -> i64 {
    let usable = maximum.saturating_sub(wanted.storage_reserved.unwrap_or_default());
    i64::try_from(i128::from(usable) * i128::from(percent) / 100).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_disk_promises_no_more_than_its_share() {
        let node = json!({"metadata": {"name": "one"},
        "spec": {"disks": {"d": {"storageReserved": 100}}},
        "status": {"diskStatus": {
            "d": {"diskUUID": "u", "storageMaximum": 1100, "storageScheduled": 400},
            "new": {"diskUUID": "v"},
        }}});
        let check =
            |disk: &str, more: i64, percent: i64| obstacle(Some(&node), disk, more, percent);
        assert_eq!(check("u", 600, 100), None);
        let refused = "disk d of node one may promise 1000 bytes, and has promised 400";
        assert_eq!(check("u", 601, 100), Some(refused.to_owned()));
        assert_eq!(check("u", 601, 200), None);
        assert!(check("u", i64::MAX, 200).is_some());
        for unmeasured in ["v", "", "other"] {
            assert_eq!(check(unmeasured, i64::MAX, 100), None, "{unmeasured}");
        }
        assert_eq!(obstacle(None, "u", 1, 100), None);
    }
}
