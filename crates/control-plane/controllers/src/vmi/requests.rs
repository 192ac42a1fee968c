//! How much of a node an instance takes: pure.

use std::collections::BTreeMap;

use serde_json::Value;
use types::Quantity;
use virt::{OVERHEAD_RATIO, OverheadRatio};

use super::limits::beyond;
use crate::object::{annotation, int, is_true, list, quantity, text};

/// Resource names and how much of each.
pub(crate) type Requests = BTreeMap<String, Quantity>;

/// A processor of a machine without dedicated ones counts a tenth, as upstream's
/// `cpuAllocationRatio` of 10 has it.
const MILLIS_PER_CPU: i64 = 100;
/// The resources that an instance requests of its node.
pub(crate) fn requests(vmi: &Value) -> Requests {
    let spec = &vmi["spec"];
    let mut requests = Requests::new();
    requests.insert("cpu".into(), processors(spec));
    let asked = asked_memory(spec);
    let pages = text(spec, "/domain/memory/hugepages/pageSize");
    let memory = if !pages.is_empty() {
        let guest = guest_memory(spec);
        let own = beyond(asked, &guest);
        requests.insert(format!("hugepages-{pages}"), guest);
        own + &overhead(vmi)
    } else if is_true(spec, "/domain/resources/overcommitGuestOverhead") {
        asked
    } else {
        asked + &overhead(vmi)
    };
    requests.insert("memory".into(), memory);
    for pointer in ["/domain/devices/gpus", "/domain/devices/hostDevices"] {
        for device in list(spec, pointer) {
            let count = requests
                .entry(text(device, "/deviceName").to_owned())
                .or_insert_with(|| Quantity::from_units(0));
            *count += &Quantity::from_units(1);
        }
    }
    requests.remove("");
    requests
}

pub(crate) fn processor_count(spec: &Value) -> i64 {
    let part = |pointer| int(spec, pointer).filter(|count| *count > 0).unwrap_or(1);
    part("/domain/cpu/sockets")
        .saturating_mul(part("/domain/cpu/cores"))
        .saturating_mul(part("/domain/cpu/threads"))
}

fn processors(spec: &Value) -> Quantity {
    if is_true(spec, "/domain/cpu/dedicatedCpuPlacement") {
        let extra = i64::from(is_true(spec, "/domain/cpu/isolateEmulatorThread"));
        return Quantity::from_units(processor_count(spec) + extra);
    }
    quantity(spec, "/domain/resources/requests/cpu").unwrap_or_else(|| {
        Quantity::from_millis(processor_count(spec).saturating_mul(MILLIS_PER_CPU))
    })
}

/// The memory that the instance itself requests. A limit alone is a request too.
pub(super) fn asked_memory(spec: &Value) -> Quantity {
    ["/domain/resources/requests/memory", "/domain/resources/limits/memory"]
        .iter()
        .find_map(|pointer| quantity(spec, pointer).filter(|amount| !amount.is_zero()))
        .unwrap_or_else(|| guest_memory(spec))
}

pub(super) fn guest_memory(spec: &Value) -> Quantity {
    ["/domain/memory/guest", "/domain/resources/requests/memory", "/domain/resources/limits/memory"]
        .iter()
        .find_map(|pointer| quantity(spec, pointer))
        .unwrap_or_else(|| Quantity::from_bytes(0))
}

/// The memory that QEMU needs beside that of the guest, multiplied by the ratio that the instance
/// was placed with.
pub(crate) fn overhead(vmi: &Value) -> Quantity {
    let bytes = u64::try_from(hci::launcher::overhead(&vmi["spec"])).unwrap_or_default();
    Quantity::from_bytes(i64::try_from(ratio(vmi).times(bytes)).unwrap_or(i64::MAX))
}

fn ratio(vmi: &Value) -> OverheadRatio {
    OverheadRatio::parse(annotation(vmi, OVERHEAD_RATIO).unwrap_or_default())
}

/// The instance as it is placed under a configuration with this ratio.
pub(super) fn with_ratio(vmi: &Value, ratio: OverheadRatio) -> Value {
    let mut vmi = vmi.clone();
    if let Some(text) = ratio.annotation() {
        vmi["metadata"]["annotations"][OVERHEAD_RATIO] = text.into();
    } else if let Some(Value::Object(own)) = vmi["metadata"].get_mut("annotations") {
        own.remove(OVERHEAD_RATIO);
    }
    vmi
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(domain: Value, expected: &[(&str, &str)]) {
        let found = requests(&json!({"spec": {"domain": domain}}));
        let found: Vec<(String, String)> =
            found.into_iter().map(|(name, amount)| (name, amount.to_string())).collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(name, amount)| ((*name).into(), (*amount).into())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_machine_takes_its_memory_and_what_qemu_needs() {
        check(json!({"memory": {"guest": "1Gi"}}), &[("cpu", "100m"), ("memory", "1098Mi")]);
        check(
            json!({"memory": {"guest": "1Gi"}, "cpu": {"cores": 2, "sockets": 2},
                "resources": {"requests": {"memory": "512Mi"}},
                "devices": {"autoattachGraphicsDevice": false}}),
            &[("cpu", "400m"), ("memory", "594Mi")],
        );
        check(
            json!({"resources": {"requests": {"memory": "512Mi", "cpu": "2"},
                "overcommitGuestOverhead": true}}),
            &[("cpu", "2"), ("memory", "512Mi")],
        );
    }

    #[test]
    fn the_ratio_multiplies_what_qemu_needs() {
        let vmi = json!({"metadata": {"annotations": {OVERHEAD_RATIO: "7"}},
            "spec": {"domain": {"memory": {"guest": "1Gi"}}}});
        let memory = |vmi: &Value| requests(vmi)["memory"].to_string();
        for (text, expected) in [("1.5", "1135Mi"), ("10", "1764Mi"), ("0", "1098Mi")] {
            let placed = with_ratio(&vmi, OverheadRatio::parse(text));
            assert_eq!(memory(&placed), expected, "{text}");
        }
        let bare = json!({"spec": vmi["spec"]});
        assert_eq!(memory(&with_ratio(&bare, OverheadRatio::parse("2"))), "1172Mi");
        assert_eq!(with_ratio(&bare, OverheadRatio::default())["spec"], vmi["spec"]);
    }

    #[test]
    fn special_resources_are_asked_for_by_name() {
        check(
            json!({"memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}},
                "cpu": {"cores": 2, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true},
                "devices": {"gpus": [{"deviceName": "a.io/b"}, {"deviceName": "a.io/b"}]}}),
            &[("a.io/b", "2"), ("cpu", "3"), ("hugepages-2Mi", "1Gi"), ("memory", "1106Mi")],
        );
    }
}
