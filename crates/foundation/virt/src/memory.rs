//! The memory of guests: how much one has, and whether it can grow while it runs.

use serde_json::Value;
use types::Quantity;

use crate::config::ClusterConfig;
use crate::default::object;
use crate::state::text;

/// Why the memory of a guest cannot change while it runs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GrowError {
    #[error("Memory hotplug is not compatible with realtime VMs")]
    Realtime,
    #[error("Memory hotplug is not compatible with guest mapping passthrough")]
    GuestMapping,
    #[error("Memory hotplug is not compatible with encrypted VMs")]
    Encrypted,
    #[error("Guest memory must be configured when memory hotplug is enabled")]
    NoGuest,
    #[error("Max guest memory must be configured when memory hotplug is enabled")]
    NoMaxGuest,
    #[error("Guest memory is greater than the configured maxGuest memory")]
    TooMuch,
    #[error("Guest memory must be {0} aligned")]
    Alignment(Quantity),
    #[error("MaxGuest must be {0} aligned")]
    MaxAlignment(Quantity),
    #[error("Memory hotplug is only available for x86_64 VMs")]
    Architecture,
    #[error("Memory hotplug is only available for VMs with at least 1Gi of guest memory")]
    TooLittle,
}

const BLOCK: i64 = 2 << 20;
const HUGE_BLOCK: i64 = 1 << 30;
const LEAST: i64 = 1 << 30;

/// Whether a guest of this specification can grow up to a size.
pub fn check_growth(spec: &Value, most: Option<&Quantity>) -> Result<(), GrowError> {
    let domain = &spec["domain"];
    if domain["cpu"]["realtime"].is_object() {
        return Err(GrowError::Realtime);
    }
    if domain["cpu"]["numa"]["guestMappingPassthrough"].is_object() {
        return Err(GrowError::GuestMapping);
    }
    if domain["launchSecurity"].is_object() {
        return Err(GrowError::Encrypted);
    }
    let guest = read(&domain["memory"]["guest"]).ok_or(GrowError::NoGuest)?;
    let most = most.ok_or(GrowError::NoMaxGuest)?;
    if guest > *most {
        return Err(GrowError::TooMuch);
    }
    let huge = text(domain, "/memory/hugepages/pageSize") == "1Gi";
    let block = if huge { HUGE_BLOCK } else { BLOCK };
    if guest.units() % block != 0 {
        return Err(GrowError::Alignment(Quantity::from_bytes(block)));
    }
    if most.units() % block != 0 {
        return Err(GrowError::MaxAlignment(Quantity::from_bytes(block)));
    }
    if text(spec, "/architecture") != "amd64" {
        return Err(GrowError::Architecture);
    }
    if guest.units() < LEAST {
        return Err(GrowError::TooLittle);
    }
    Ok(())
}

/// A guest has the memory that is requested for it, or its limit, or one huge page.
pub(crate) fn default_guest(spec: &mut Value) {
    let domain = object(spec, "domain");
    if !domain["memory"]["guest"].is_null() {
        return;
    }
    let resources = &domain["resources"];
    let candidates = [
        &resources["requests"]["memory"],
        &resources["limits"]["memory"],
        &domain["memory"]["hugepages"]["pageSize"],
    ];
    let found =
        candidates.into_iter().find(|amount| read(amount).is_some_and(|amount| !amount.is_zero()));
    let found = found.cloned();
    let memory = object(domain, "memory");
    if let Some(found) = found {
        memory["guest"] = found;
    }
}

/// The maximum memory of a guest: the cluster's setting, or a multiple of its memory.
pub(crate) fn default_max_guest(spec: &mut Value, config: &ClusterConfig) {
    let memory = &spec["domain"]["memory"];
    if !memory["maxGuest"].is_null() {
        return;
    }
    let most = config.max_guest().or_else(|| {
        let guest = read(&memory["guest"])?;
        Some(Quantity::from_bytes(
            guest.units().checked_mul(i64::from(config.max_hotplug_ratio()))?,
        ))
    });
    if check_growth(spec, most.as_ref()).is_ok()
        && let Some(most) = most
    {
        spec["domain"]["memory"]["maxGuest"] = most.to_string().into();
    }
}

/// An amount in an object; nothing if there is none.
pub(crate) fn read(amount: &Value) -> Option<Quantity> {
    if amount.is_null() { None } else { Quantity::from_json(amount).ok() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn growth_has_its_conditions() {
        let spec = |domain: Value| json!({"architecture": "amd64", "domain": domain});
        let most: Quantity = "4Gi".parse().unwrap();
        let guest = |size: &str| json!({"memory": {"guest": size}});
        let table = [
            (spec(guest("1Gi")), None),
            (
                spec(guest("512Mi")),
                Some("Memory hotplug is only available for VMs with at least 1Gi of guest memory"),
            ),
            (
                spec(guest("5Gi")),
                Some("Guest memory is greater than the configured maxGuest memory"),
            ),
            (spec(guest("1025Mi")), Some("Guest memory must be 2Mi aligned")),
            (
                spec(json!({})),
                Some("Guest memory must be configured when memory hotplug is enabled"),
            ),
            (
                spec(json!({"memory": {"guest": "1Gi"}, "cpu": {"realtime": {}}})),
                Some("Memory hotplug is not compatible with realtime VMs"),
            ),
            (
                spec(json!({"memory": {"guest": "1Gi"}, "launchSecurity": {}})),
                Some("Memory hotplug is not compatible with encrypted VMs"),
            ),
            (
                spec(json!({"memory": {"guest": "1536Mi", "hugepages": {"pageSize": "1Gi"}}})),
                Some("Guest memory must be 1Gi aligned"),
            ),
            (
                json!({"architecture": "arm64", "domain": guest("1Gi")}),
                Some("Memory hotplug is only available for x86_64 VMs"),
            ),
        ];
        for (spec, expected) in table {
            let found = check_growth(&spec, Some(&most)).err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected, "{spec}");
        }
    }
}
