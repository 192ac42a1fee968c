//! The resources of all nodes together, without the host devices and GPUs that machines name: what
//! Harvester's dashboard offers to new machines. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use types::Quantity;

/// The amount of each resource that `nodes` can give, less the devices of `machines`.
pub fn capacity(nodes: &[Value], machines: &[Value]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, Quantity> = BTreeMap::new();
    for node in nodes {
        let resources = node["status"]["allocatable"].as_object().into_iter().flatten();
        for (name, amount) in resources {
            let Ok(amount) = Quantity::from_json(amount) else { continue };
            *all.entry(name.clone()).or_insert(Quantity::ZERO) += &amount;
        }
    }
    for name in machines.iter().flat_map(devices) {
        if let Some(left) = all.get_mut(name) {
            *left -= &Quantity::from_units(1);
        }
    }
    all.into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
}

/// The resources of the devices that a machine has.
fn devices(machine: &Value) -> impl Iterator<Item = &str> {
    let devices = &machine["spec"]["template"]["spec"]["domain"]["devices"];
    let lists = ["hostDevices", "gpus"].into_iter().map(move |list| &devices[list]);
    let devices = lists.flat_map(|list| list.as_array().into_iter().flatten());
    devices.filter_map(|device| device["deviceName"].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_of_machines_are_taken_from_the_resources_of_nodes() {
        let node = |cpu: &str, cards: &str| {
            json!({"status": {"allocatable": {
                "cpu": cpu, "memory": "1Gi", "nvidia.com/T4": cards, "bad": {},
            }}})
        };
        let machine = json!({"spec": {"template": {"spec": {"domain": {"devices": {
            "hostDevices": [{"deviceName": "nvidia.com/T4"}, {"deviceName": "other"}],
            "gpus": [{"deviceName": "nvidia.com/T4"}],
        }}}}}});
        let found = capacity(&[node("4", "2"), node("500m", "1")], &[machine, json!({})]);
        let shown: Vec<String> =
            found.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(shown, ["cpu=4500m", "memory=2Gi", "nvidia.com/T4=1"]);
    }
}
