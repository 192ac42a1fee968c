//! The bytes that the snapshots of a namespace and of its machines take, compared with their quota.
//! Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use types::Quantity;

use crate::harvester::quota::SnapshotLimit;

/// The name of the quota of a namespace; others are refused.
pub const QUOTA_NAME: &str = "default-resource-quota";

/// Bytes that snapshots take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotBytes {
    pub namespace: i64,
    /// By name of the machine that has the volume.
    pub machines: BTreeMap<String, i64>,
}

impl SnapshotBytes {
    /// Adds up the snapshots of the volumes of a namespace: its claims and machines, and all
    /// snapshots of Longhorn.
    pub fn count(claims: &[Value], machines: &[Value], snapshots: &[Value]) -> Self {
        let mut volumes: BTreeMap<&str, i64> = BTreeMap::new();
        for snapshot in snapshots {
            let status = &snapshot["status"];
            if status["markRemoved"] != true {
                let volume = snapshot["spec"]["volume"].as_str().unwrap_or_default();
                let bytes = volumes.entry(volume).or_default();
                *bytes = bytes.saturating_add(status["size"].as_i64().unwrap_or_default().max(0));
            }
        }
        let mut bytes_of: BTreeMap<&str, i64> = BTreeMap::new();
        for claim in claims {
            let volume = claim["spec"]["volumeName"].as_str().unwrap_or_default();
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(bytes) = volumes.get(volume) {
                bytes_of.insert(name, *bytes);
            }
        }
        let of_machine = |machine: &Value| {
            let own = claims_of(machine).filter_map(|claim| bytes_of.get(claim));
            own.fold(0_i64, |sum, bytes| sum.saturating_add(*bytes))
        };
        let name = |machine: &Value| machine["metadata"]["name"].as_str().map(str::to_owned);
        let machines = machines.iter().filter_map(|own| Some((name(own)?, of_machine(own))));
        Self {
            namespace: bytes_of.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            machines: machines.collect(),
        }
    }

    /// Why there is no room for another snapshot; a quota of zero is none. `machine` is the one
    /// that has the volume, if one has.
    pub fn check(&self, limit: &SnapshotLimit, machine: Option<&str>) -> Result<(), String> {
        if let Some(machine) = machine {
            let quota = limit.vm_total_snapshot_size_quota.get(machine).copied();
            fits(quota, self.machines.get(machine).copied().unwrap_or_default())?;
        }
        fits(limit.namespace_total_snapshot_size_quota, self.namespace)
    }
}

fn fits(quota: Option<i64>, bytes: i64) -> Result<(), String> {
    match quota {
        Some(quota) if quota > 0 && quota < bytes => Err(format!(
            "total snapshot size limit {} is less than total snapshot usage {}",
            Quantity::from_bytes(quota),
            Quantity::from_bytes(bytes)
        )),
        _ => Ok(()),
    }
}

/// The claims whose volumes a machine has.
pub(crate) fn claims_of(machine: &Value) -> impl Iterator<Item = &str> {
    let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten().filter_map(|volume| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
        claim.or_else(|| volume["dataVolume"]["name"].as_str())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MIB: i64 = 1 << 20;

    fn counted() -> SnapshotBytes {
        let claim = |name: &str, volume: &str| {
            json!({"metadata": {"name": name},
            "spec": {"volumeName": volume}})
        };
        let machine = |name: &str, volumes: Value| {
            json!({"metadata": {"name": name},
            "spec": {"template": {"spec": {"volumes": volumes}}}})
        };
        let snapshot = |volume: &str, mib: i64, removed: bool| {
            json!({"spec": {"volume": volume},
            "status": {"size": mib * MIB, "markRemoved": removed}})
        };
        SnapshotBytes::count(
            &[claim("root", "pvc-1"), claim("data", "pvc-2"), claim("new", "")],
            &[
                machine(
                    "web",
                    json!([{"name": "a", "persistentVolumeClaim": {"claimName": "root"}},
                        {"name": "b", "dataVolume": {"name": "data"}}]),
                ),
                machine("empty", json!([{"name": "a", "containerDisk": {"image": "i"}}])),
            ],
            &[
                snapshot("pvc-1", 10, false),
                snapshot("pvc-1", 5, false),
                snapshot("pvc-1", 100, true),
                snapshot("pvc-2", 7, false),
                snapshot("pvc-of-others", 1000, false),
                json!({"spec": {"volume": "pvc-2"}}),
            ],
        )
    }

    #[test]
    fn snapshots_count_for_their_machine_and_namespace() {
        let found = counted();
        assert_eq!(found.namespace, 22 * MIB);
        let machines = [("empty".to_owned(), 0), ("web".to_owned(), 22 * MIB)];
        assert_eq!(found.machines, machines.into());
    }

    #[test]
    fn a_quota_that_is_used_up_leaves_no_room() {
        let limit = |namespace: i64, machine: i64| SnapshotLimit {
            namespace_total_snapshot_size_quota: Some(namespace * MIB),
            vm_total_snapshot_size_quota: [("web".to_owned(), machine * MIB)].into_iter().collect(),
        };
        let found = counted();
        assert_eq!(found.check(&SnapshotLimit::default(), Some("web")), Ok(()));
        assert_eq!(found.check(&limit(0, 0), Some("web")), Ok(()), "zero is no limit");
        assert_eq!(found.check(&limit(22, 22), Some("web")), Ok(()));
        let refused = found.check(&limit(0, 21), Some("web")).unwrap_err();
        assert_eq!(
            refused,
            "total snapshot size limit 21Mi is less than total snapshot usage 22Mi"
        );
        assert_eq!(found.check(&limit(0, 21), Some("empty")), Ok(()));
        assert!(found.check(&limit(21, 0), Some("empty")).is_err());
        assert!(found.check(&limit(21, 0), None).is_err());
    }
}
