//! The memory that QEMU needs beside that of the guest: an estimate on the safe side, by which
//! instances are placed and quotas are checked. Nothing enforces it. Pure.

use serde_json::Value;
use types::Quantity;

const MIB: i64 = 1 << 20;
/// QEMU itself with its devices.
const PROCESS: i64 = 48 * MIB;
const PER_CPU: i64 = 8 * MIB;
const GRAPHICS: i64 = 16 * MIB;
const TPM: i64 = 16 * MIB;
/// Memory that devices of the host map for themselves.
const PASSTHROUGH: i64 = 1024 * MIB;

/// The bytes for an instance with this specification, before they are multiplied by the ratio of
/// the cluster.
pub fn overhead(spec: &Value) -> i64 {
    let domain = &spec["domain"];
    // Page tables take 8 bytes for each 4 KiB.
    let mut bytes = PROCESS + guest_memory(domain) / 512;
    bytes = bytes.saturating_add(processor_count(domain).saturating_mul(PER_CPU));
    let devices = &domain["devices"];
    if devices["autoattachGraphicsDevice"] != false {
        bytes = bytes.saturating_add(GRAPHICS);
    }
    if devices.get("tpm").is_some() && devices["tpm"]["enabled"] != false {
        bytes = bytes.saturating_add(TPM);
    }
    let has = |kind: &str| devices[kind].as_array().is_some_and(|all| !all.is_empty());
    if has("gpus") || has("hostDevices") {
        bytes = bytes.saturating_add(PASSTHROUGH);
    }
    bytes
}

fn guest_memory(domain: &Value) -> i64 {
    ["/memory/guest", "/resources/requests/memory", "/resources/limits/memory"]
        .iter()
        .find_map(|pointer| Quantity::from_json(domain.pointer(pointer)?).ok())
        .map_or(0, |amount| amount.units())
}

fn processor_count(domain: &Value) -> i64 {
    let part = |field: &str| domain["cpu"][field].as_i64().filter(|count| *count > 0).unwrap_or(1);
    part("sockets").saturating_mul(part("cores")).saturating_mul(part("threads"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn qemu_needs_memory_by_guest_processors_and_devices() {
        for (domain, mib) in [
            (json!({"memory": {"guest": "1Gi"}}), 74),
            (json!({"resources": {"limits": {"memory": "1Gi"}}}), 74),
            (json!({"memory": {"guest": "1Gi"}, "cpu": {"cores": 2, "sockets": 2}}), 98),
            (json!({"devices": {"autoattachGraphicsDevice": false}}), 56),
            (json!({"devices": {"tpm": {}}}), 88),
            (json!({"devices": {"tpm": {"enabled": false}}}), 72),
            (json!({"devices": {"gpus": [{"name": "a"}]}}), 1096),
        ] {
            assert_eq!(overhead(&json!({"domain": domain})), mib * MIB, "{domain}");
        }
    }
}
