//! Quotas of namespaces and machines: whether there is room for a machine that starts, and the
//! room that a machine needs twice while it moves. Pure.
//!
//! ```text
//!   start      hard - used >= limits of the machine, else the machine is halted with SHORTAGE
//!   migration  hard = limits of the project + limits of each machine that moves
//! ```

use serde_json::{Value, json};
use types::Quantity;

use crate::launcher;

/// On a machine that was halted: the quota that was too small.
pub const SHORTAGE: &str = "harvesterhci.io/insufficient-resource-quota";
/// On a ResourceQuota, with the uid of an instance: its limits, which are added while it moves.
pub const MIGRATING: &str = "harvesterhci.io/migratingUID-";
/// On a ResourceQuota, with the name of a machine, as earlier versions of Harvester wrote it.
const MIGRATING_BY_NAME: &str = "harvesterhci.io/migrating-";
/// On a ResourceQuota with the value `true`: nothing is added to it.
pub const NO_SCALING: &str = "harvesterhci.io/skipResourceQuotaAutoScaling";
/// Label of the ResourceQuota that the project of a namespace decides.
pub const PROJECT_QUOTA: &str = "resourcequota.management.cattle.io/default-resource-quota";

const CPU: &str = "limits.cpu";
const MEMORY: &str = "limits.memory";
const STORAGE: &str = "requests.storage";

/// The resource of which a quota has too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaShortage {
    #[error("cpu insufficient resources due to resource quota")]
    Cpu,
    #[error("memory insufficient resources due to resource quota")]
    Memory,
    #[error("storage insufficient resources due to resource quota")]
    Storage,
}

/// The limits of the launcher pod of a machine; zero where the machine has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineLimits {
    cpu: Quantity,
    memory: Quantity,
}

impl MachineLimits {
    /// Those of an instance with this specification; `scale` multiplies the memory of QEMU by the
    /// ratio of the cluster.
    pub fn of(spec: &Value, scale: impl FnOnce(i64) -> i64) -> Self {
        let limits = &spec["domain"]["resources"]["limits"];
        let amount = |name: &str| Quantity::from_json(&limits[name]).unwrap_or(Quantity::ZERO);
        let mut memory = amount("memory");
        if !memory.is_zero() {
            memory += &Quantity::from_bytes(scale(launcher::overhead(spec)));
        }
        Self { cpu: amount("cpu"), memory }
    }

    /// The value of the annotation [`MIGRATING`]; nothing if the quota limits none of it.
    pub fn annotation(&self, hard: &Value) -> Option<String> {
        let mut amounts = json!({});
        for (name, amount) in [(CPU, &self.cpu), (MEMORY, &self.memory)] {
            if limit(hard, name).is_some() && !amount.is_zero() {
                amounts[name] = amount.to_string().into();
            }
        }
        amounts.as_object().is_some_and(|all| !all.is_empty()).then(|| amounts.to_string())
    }
}

/// Whether a project decides the quota.
pub fn is_of_project(quota: &Value) -> bool {
    let labels = &quota["metadata"]["labels"];
    labels[PROJECT_QUOTA] == "true" || labels["management.cattle.io/project"].is_string()
}

/// Whether machines of the namespace move, for which the quota was raised.
pub fn has_migrations(quota: &Value) -> bool {
    let annotations = quota["metadata"]["annotations"].as_object().into_iter().flatten();
    let mut keys = annotations.map(|(key, _)| key);
    keys.any(|key| key.starts_with(MIGRATING) || key.starts_with(MIGRATING_BY_NAME))
}

/// The limits with those of the machines that move on top.
pub fn raised(hard: &Value, annotations: &[String]) -> Value {
    let mut raised = hard.clone();
    for text in annotations {
        let amounts: Value = serde_json::from_str(text).unwrap_or_default();
        for name in [CPU, MEMORY] {
            let added = Quantity::from_json(&amounts[name]);
            if let (Some(mut limit), Ok(added)) = (limit(&raised, name), added) {
                limit += &added;
                raised[name] = limit.to_string().into();
            }
        }
    }
    raised
}

/// A limit; zero means that there is none.
fn limit(hard: &Value, name: &str) -> Option<Quantity> {
    Quantity::from_json(&hard[name]).ok().filter(|limit| !limit.is_zero())
}

/// Whether a quota has room for the launcher pod of a machine that has none.
pub fn check_start(quota: &Value, machine: &MachineLimits) -> Result<(), QuotaShortage> {
    for (name, amount, shortage) in
        [(CPU, &machine.cpu, QuotaShortage::Cpu), (MEMORY, &machine.memory, QuotaShortage::Memory)]
    {
        if exceeds(quota, name, amount) {
            return Err(shortage);
        }
    }
    Ok(())
}

/// Whether a quota has room for further claims of this size.
pub fn check_storage(quota: &Value, bytes: i64) -> Result<(), QuotaShortage> {
    match exceeds(quota, STORAGE, &Quantity::from_bytes(bytes)) {
        true => Err(QuotaShortage::Storage),
        false => Ok(()),
    }
}

fn exceeds(quota: &Value, name: &str, amount: &Quantity) -> bool {
    let Some(limit) = limit(&quota["spec"]["hard"], name) else { return false };
    let mut needed = Quantity::from_json(&quota["status"]["used"][name]).unwrap_or(Quantity::ZERO);
    needed += amount;
    needed > limit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(hard: Value, used: Value) -> Value {
        json!({"spec": {"hard": hard}, "status": {"used": used}})
    }

    fn machine(cpu: &str, memory: &str) -> MachineLimits {
        let limits = json!({"cpu": cpu, "memory": memory});
        let spec = json!({"domain": {"memory": {"guest": "1Gi"}, "resources": {"limits": limits}}});
        // 74Mi of overhead.
        MachineLimits::of(&spec, |bytes| bytes * 2)
    }

    #[test]
    fn a_machine_starts_if_the_quota_has_room_for_it() {
        let hard = json!({"limits.cpu": "4", "limits.memory": "4Gi"});
        for (used, wanted, expected) in [
            (json!({}), machine("4", "3Gi"), Ok(())),
            (json!({"limits.cpu": "1"}), machine("4", "1Gi"), Err(QuotaShortage::Cpu)),
            (json!({"limits.cpu": "1"}), machine("3", "1Gi"), Ok(())),
            (json!({}), machine("1", "4Gi"), Err(QuotaShortage::Memory)),
            (json!({"limits.memory": "924Mi"}), machine("1", "3Gi"), Err(QuotaShortage::Memory)),
            (json!({"limits.memory": "876Mi"}), machine("1", "3Gi"), Ok(())),
        ] {
            let found = check_start(&quota(hard.clone(), used.clone()), &wanted);
            assert_eq!(found, expected, "{used} {wanted:?}");
        }
        let open = quota(json!({"pods": "1", "limits.cpu": "0"}), json!({}));
        assert_eq!(check_start(&open, &machine("64", "1Ti")), Ok(()));
        let text = QuotaShortage::Storage.to_string();
        assert_eq!(text, "storage insufficient resources due to resource quota");
    }

    #[test]
    fn claims_fit_if_the_quota_has_room_for_them() {
        let quota = quota(json!({"requests.storage": "10Gi"}), json!({"requests.storage": "4Gi"}));
        assert_eq!(check_storage(&quota, 6 << 30), Ok(()));
        assert_eq!(check_storage(&quota, (6 << 30) + 1), Err(QuotaShortage::Storage));
        assert_eq!(check_storage(&json!({}), i64::MAX), Ok(()));
    }

    #[test]
    fn a_quota_is_raised_by_the_machines_that_move() {
        let hard = json!({"limits.cpu": "4", "pods": "9"});
        let own = machine("2", "1Gi").annotation(&hard).unwrap();
        assert_eq!(own, r#"{"limits.cpu":"2"}"#);
        let both = [own.clone(), own, "not JSON".into()];
        assert_eq!(raised(&hard, &both), json!({"limits.cpu": "8", "pods": "9"}));
        assert_eq!(machine("2", "1Gi").annotation(&json!({"pods": "1"})), None);
        let memory = machine("2", "1Gi").annotation(&json!({"limits.memory": "1Ti"}));
        assert_eq!(memory.as_deref(), Some(r#"{"limits.memory":"1172Mi"}"#));
        for (key, expected) in [("migratingUID-1", true), ("migrating-web", true), ("x", false)] {
            let key = format!("harvesterhci.io/{key}");
            let quota = json!({"metadata": {"annotations": {key.as_str(): "{}"}}});
            assert_eq!(has_migrations(&quota), expected, "{key}");
        }
    }
}
