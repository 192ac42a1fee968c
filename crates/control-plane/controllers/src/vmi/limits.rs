//! Resource limits of the launcher pod: those of the instance with the memory overhead on top,
//! and those that a ResourceQuota of the namespace makes mandatory. Pure.

use serde_json::Value;
use types::Quantity;

use super::requests::{Requests, asked_memory, guest_memory, overhead, processor_count};
use crate::object::{entries, is_true, labels, quantity, text};
use crate::selector;

/// Limits by resource name.
pub(crate) type Limits = Requests;

/// A namespace sets its own ratio of memory limit to memory request with this label.
const RATIO_LABEL: &str = "alpha.kubevirt.io/auto-memory-limits-ratio";
const DEFAULT_RATIO: f64 = 2.0;

/// Which limits are set for instances of a namespace that set none themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct AutoLimits {
    /// Limit the CPU time to the number of virtual CPUs.
    pub(crate) cpu: bool,
    /// Limit the memory to this multiple of the request.
    pub(crate) memory_ratio: Option<f64>,
}

impl AutoLimits {
    /// `cpu_selector` is `autoCPULimitNamespaceLabelSelector` of the KubeVirt configuration.
    pub(crate) fn decide(
        quotas: &[Value],
        namespace: Option<&Value>,
        cpu_selector: Option<&Value>,
    ) -> Self {
        let limited = |resource: &str| {
            let mut hard = quotas.iter().flat_map(|quota| entries(quota, "/spec/hard"));
            hard.any(|(name, _)| name.strip_prefix("limits.") == Some(resource))
        };
        let labels = namespace.map_or(&Value::Null, labels);
        let selected = cpu_selector.is_some_and(|own| selector::matches(own, labels));
        let ratio = labels.get(RATIO_LABEL).and_then(Value::as_str);
        let ratio = ratio.and_then(|own| own.parse().ok()).filter(|own: &f64| *own >= 1.0);
        Self {
            cpu: limited("cpu") || selected,
            memory_ratio: limited("memory").then(|| ratio.unwrap_or(DEFAULT_RATIO)),
        }
    }
}

/// The limits of the launcher pod of an instance whose pod requests `requests`.
pub(crate) fn limits(vmi: &Value, requests: &Requests, auto: AutoLimits) -> Limits {
    let spec = &vmi["spec"];
    let mut limits: Limits = entries(spec, "/domain/resources/limits")
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::from_json(amount).ok()?)))
        .collect();
    let dedicated = is_true(spec, "/domain/cpu/dedicatedCpuPlacement");
    if dedicated && let Some(cpu) = requests.get("cpu") {
        limits.insert("cpu".into(), cpu.clone());
    } else if auto.cpu {
        limits.entry("cpu".into()).or_insert_with(|| Quantity::from_units(processor_count(spec)));
    }
    // Dedicated CPUs need the QoS class Guaranteed, which limits the memory too.
    let memory = match quantity(spec, "/domain/resources/limits/memory") {
        _ if dedicated => Some(asked_memory(spec)),
        set => set,
    };
    if let Some(memory) = memory {
        let paged = !text(spec, "/domain/memory/hugepages/pageSize").is_empty();
        let own = if paged { beyond(memory, &guest_memory(spec)) } else { memory };
        limits.insert("memory".into(), own + &overhead(vmi));
    } else if let (Some(ratio), Some(request)) = (auto.memory_ratio, requests.get("memory")) {
        let limit = request.units() as f64 * ratio;
        limits.insert("memory".into(), Quantity::from_bytes(limit as i64));
    }
    // Devices and huge pages cannot be overcommitted: their limit is the request.
    for (name, amount) in requests {
        if name.contains('/') || name.starts_with("hugepages-") {
            limits.insert(name.clone(), amount.clone());
        }
    }
    limits
}

/// How much of `amount` exceeds `part`.
pub(super) fn beyond(amount: Quantity, part: &Quantity) -> Quantity {
    if amount > *part { amount - part } else { Quantity::from_bytes(0) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vmi::requests::requests;

    fn quota(resource: &str) -> Value {
        json!({"spec": {"hard": {resource: "10"}}})
    }

    #[test]
    fn a_quota_with_limits_makes_limits_mandatory() {
        let labelled = |ratio: &str| json!({"metadata": {"labels": {RATIO_LABEL: ratio}}});
        let selector = json!({"matchLabels": {RATIO_LABEL: "1.5"}});
        let auto = |cpu, memory_ratio| AutoLimits { cpu, memory_ratio };
        let table = [
            (vec![], labelled("3"), None, auto(false, None)),
            (vec![quota("requests.memory"), quota("memory")], json!({}), None, auto(false, None)),
            (vec![quota("limits.memory")], json!({}), None, auto(false, Some(2.0))),
            (vec![quota("limits.memory")], labelled("1.5"), None, auto(false, Some(1.5))),
            (vec![quota("limits.memory")], labelled("0.5"), None, auto(false, Some(2.0))),
            (vec![quota("limits.memory")], labelled("x"), None, auto(false, Some(2.0))),
            (vec![quota("limits.cpu")], json!({}), None, auto(true, None)),
            (vec![], labelled("1.5"), Some(&selector), auto(true, None)),
            (vec![], labelled("2"), Some(&selector), auto(false, None)),
        ];
        for (quotas, namespace, selector, expected) in table {
            let found = AutoLimits::decide(&quotas, Some(&namespace), selector);
            assert_eq!(found, expected, "{quotas:?} {namespace}");
        }
    }

    #[track_caller]
    fn check(domain: Value, auto: AutoLimits, expected: Value) {
        let vmi = json!({"spec": {"domain": domain}});
        let requests = requests(&vmi);
        let limits = limits(&vmi, &requests, auto);
        let shown = |amounts: &Requests| -> Value {
            amounts.iter().map(|(name, own)| (name.clone(), json!(own.to_string()))).collect()
        };
        let found = json!({"requests": shown(&requests), "limits": shown(&limits)});
        assert_eq!(found, expected);
        for (name, limit) in &limits {
            assert!(requests.get(name).is_none_or(|request| request <= limit), "{name}");
        }
    }

    #[test]
    fn the_overhead_is_added_to_request_and_limit() {
        // 1Gi of guest memory and one CPU: 74Mi of overhead.
        let none = AutoLimits::default();
        check(
            json!({"memory": {"guest": "1Gi"}, "resources":
                {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}}),
            none,
            json!({"requests": {"cpu": "100m", "memory": "1098Mi"}, "limits": {"memory": "1098Mi"}}),
        );
        // Only limits: they are the requests too.
        check(
            json!({"memory": {"guest": "1Gi"}, "resources":
                {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "2Gi"}}}),
            none,
            json!({"requests": {"cpu": "2", "memory": "2122Mi"},
                "limits": {"cpu": "2", "memory": "2122Mi"}}),
        );
        check(
            json!({"memory": {"guest": "1Gi"}, "resources": {"overcommitGuestOverhead": true,
                "requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}}),
            none,
            json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1098Mi"}}),
        );
        check(
            json!({"memory": {"guest": "1Gi"}}),
            none,
            json!({"requests": {"cpu": "100m", "memory": "1098Mi"}, "limits": {}}),
        );
    }

    #[test]
    fn a_quota_sets_the_limits_that_the_instance_leaves_open() {
        let auto = AutoLimits { cpu: true, memory_ratio: Some(2.0) };
        check(
            json!({"memory": {"guest": "1Gi"}, "cpu": {"sockets": 4}}),
            auto,
            json!({"requests": {"cpu": "400m", "memory": "1122Mi"},
                "limits": {"cpu": "4", "memory": "2244Mi"}}),
        );
        check(
            json!({"memory": {"guest": "1Gi"}, "resources": {"requests": {"cpu": "1"},
                "limits": {"cpu": "1", "memory": "1Gi"}}}),
            auto,
            json!({"requests": {"cpu": "1", "memory": "1098Mi"},
                "limits": {"cpu": "1", "memory": "1098Mi"}}),
        );
    }

    #[test]
    fn dedicated_processors_and_huge_pages_are_limited_to_their_requests() {
        let none = AutoLimits::default();
        check(
            json!({"memory": {"guest": "1Gi"}, "cpu": {"cores": 2, "dedicatedCpuPlacement": true,
                "isolateEmulatorThread": true}, "resources": {"limits": {"cpu": "2"}}}),
            none,
            json!({"requests": {"cpu": "3", "memory": "1106Mi"},
                "limits": {"cpu": "3", "memory": "1106Mi"}}),
        );
        check(
            json!({"memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}},
                "resources": {"limits": {"memory": "1100Mi"}}}),
            none,
            json!({"requests": {"cpu": "100m", "hugepages-2Mi": "1Gi", "memory": "150Mi"},
                "limits": {"hugepages-2Mi": "1Gi", "memory": "150Mi"}}),
        );
    }
}
