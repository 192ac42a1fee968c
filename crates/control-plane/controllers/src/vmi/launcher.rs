//! The pod that represents an instance: a view for tools that search for one. Nothing runs in
//! it; its deletion ends the instance (`pod`).

use base::clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::limits::{AutoLimits, limits};
use super::requests::{Requests, requests};
use super::storage::claim_name;
use crate::condition::{self, Condition};
use crate::object::{
    annotation, annotations, controlled_by, controller, copied_map, int, is_deleting, labels, list,
    name, text, uid,
};

/// Letters that a server makes names with; none of them spells anything.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// As long as a generated name may begin.
const LONGEST_BASE: usize = 58;
pub(crate) const PREFIX: &str = "virt-launcher-";
const IMAGE: &str = "sheaf/virt-launcher";

/// The name of the pod. It follows from the instance, so that a second attempt finds the
/// pod of the first.
pub(crate) fn pod_name(vmi: &Value) -> String {
    pod_name_after(vmi, annotation(vmi, virt::LAUNCHER).unwrap_or_default())
}

/// The name of the pod after the migration with this uid: on another node it is another pod.
pub(crate) fn pod_name_after(vmi: &Value, migration: &str) -> String {
    let mut base = format!("{PREFIX}{}-", name(vmi));
    base.truncate(LONGEST_BASE);
    let mut hash =
        uid(vmi).bytes().chain(migration.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    for _ in 0..5 {
        let index = usize::try_from(hash % 27).expect("less than 27");
        base.push(char::from(LETTERS[index]));
        hash /= 27;
    }
    base
}

/// The instance that a pod with this name represents; the beginning of its name, if it is cut
/// off in the pod's.
pub(crate) fn instance_of(pod: &str) -> Option<&str> {
    let named = pod.strip_prefix(PREFIX)?;
    let (start, suffix) = named.split_at_checked(named.len().checked_sub(5)?)?;
    let is_cut = pod.len() == LONGEST_BASE + 5;
    let instance = start.strip_suffix('-').or_else(|| is_cut.then_some(start))?;
    (!suffix.contains('-') && !instance.is_empty()).then_some(instance)
}

/// Whether a pod that represents an instance is given time to end.
pub(crate) fn lingers(pod: &Value) -> bool {
    let owner = controller(pod).map(|own| text(own, "/kind"));
    owner == Some("VirtualMachineInstance")
        && is_deleting(pod)
        && int(pod, "/metadata/deletionGracePeriodSeconds").is_some_and(|left| left > 0)
}

/// The pod of an instance that was placed on `node`.
pub(crate) fn pod(vmi: &Value, node: &str, auto: AutoLimits) -> Value {
    let spec = &vmi["spec"];
    let mut labels = copied_map(labels(vmi));
    for (key, value) in [
        ("kubevirt.io", "virt-launcher"),
        ("kubevirt.io/created-by", uid(vmi)),
        ("vm.kubevirt.io/name", name(vmi)),
        ("vmi.kubevirt.io/id", name(vmi)),
    ] {
        // Label values are shorter than names.
        labels.insert(key.into(), json!(shortened(value)));
    }
    let mut annotations = copied_map(annotations(vmi));
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert("kubevirt.io/domain".into(), json!(name(vmi)));
    let requests = requests(vmi);
    let limits = limits(vmi, &requests, auto);
    let mut resources = json!({"requests": amounts(&requests)});
    if !limits.is_empty() {
        resources["limits"] = amounts(&limits);
    }
    let mut pod_spec = json!({
        "nodeName": node, "restartPolicy": "Never", "automountServiceAccountToken": false,
        "enableServiceLinks": false, "volumes": volumes(spec),
        "terminationGracePeriodSeconds": int(spec, "/terminationGracePeriodSeconds").unwrap_or(30),
        "readinessGates": [{"conditionType": UNPAUSED}],
        "containers": [{"name": "compute", "image": IMAGE, "resources": resources,
            "ports": ports(spec)}],
    });
    for field in
        ["nodeSelector", "affinity", "tolerations", "priorityClassName", "hostname", "subdomain"]
    {
        if let Some(value) = spec.get(field) {
            pod_spec[field] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod_name(vmi), "labels": labels, "annotations": annotations,
            "ownerReferences": [controlled_by(vmi, "kubevirt.io/v1", "VirtualMachineInstance")]},
        "spec": pod_spec})
}

fn amounts(resources: &Requests) -> Value {
    resources.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
}

/// Claims that the machine has from start to end, which must not be deleted under it.
fn volumes(spec: &Value) -> Vec<Value> {
    let claim = |volume: &Value| {
        let claim = claim_name(volume)?;
        let source = json!({"claimName": claim});
        Some(json!({"name": text(volume, "/name"), "persistentVolumeClaim": source}))
    };
    list(spec, "/volumes").iter().filter_map(claim).collect()
}

/// Ports that the interfaces name, by which services find them.
fn ports(spec: &Value) -> Vec<Value> {
    let interfaces = list(spec, "/domain/devices/interfaces").iter();
    let port = |own: &Value| {
        let mut port = json!({"containerPort": int(own, "/port")?});
        for field in ["name", "protocol"] {
            if !text(own, &format!("/{field}")).is_empty() {
                port[field] = own[field].clone();
            }
        }
        Some(port)
    };
    interfaces.flat_map(|interface| list(interface, "/ports")).filter_map(port).collect()
}

const UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";

/// The status that the pod of this instance should have, given the one it has.
pub(crate) fn status(vmi: &Value, pod: &Value, host: &str, now: Timestamp) -> Value {
    let phase = match text(vmi, "/status/phase") {
        "Running" | "Unknown" => "Running",
        over @ ("Succeeded" | "Failed") => over,
        _ => "Pending",
    };
    let running = phase == "Running";
    let ready = running && condition::is(vmi, "Ready", "True");
    let paused = condition::is(vmi, "Paused", "True");
    let flag = |value: bool| if value { "True" } else { "False" };
    let mut conditions = condition::of(pod);
    for (kind, value) in [
        ("PodScheduled", true),
        ("Initialized", true),
        ("ContainersReady", running),
        (UNPAUSED, running && !paused),
        ("Ready", ready && !paused),
    ] {
        condition::set(&mut conditions, &Condition::new(kind, flag(value)), now);
    }
    let since = |own: &str| match text(pod, own) {
        "" => clock::rfc3339(now),
        known => known.to_owned(),
    };
    let started = since("/status/containerStatuses/0/state/running/startedAt");
    let state = match phase {
        "Running" => json!({"running": {"startedAt": started}}),
        "Pending" => json!({"waiting": {"reason": "ContainerCreating"}}),
        _ => json!({"terminated": {"exitCode": i64::from(phase == "Failed"),
            "reason": if phase == "Failed" { "Error" } else { "Completed" },
            "finishedAt": since("/status/containerStatuses/0/state/terminated/finishedAt")}}),
    };
    let mut status = json!({"phase": phase, "conditions": conditions,
        "startTime": since("/status/startTime"),
        "containerStatuses": [{"name": "compute", "image": IMAGE, "imageID": "", "ready": running,
            "started": running, "restartCount": 0, "state": state}]});
    if !host.is_empty() {
        status["hostIP"] = json!(host);
        status["hostIPs"] = json!([{"ip": host}]);
    }
    let addresses = addresses(vmi);
    if let Some(first) = addresses.first() {
        status["podIP"] = json!(first);
        let all = addresses.iter().map(|address| json!({"ip": address}));
        status["podIPs"] = all.collect();
    }
    status
}

/// The addresses of the first interface: at most one of each family.
fn addresses(vmi: &Value) -> Vec<&str> {
    let Some(first) = list(vmi, "/status/interfaces").first() else { return Vec::new() };
    let mut all: Vec<&str> = list(first, "/ipAddresses").iter().filter_map(Value::as_str).collect();
    if all.is_empty() {
        all.push(text(first, "/ipAddress"));
    }
    let mut chosen: Vec<&str> = Vec::new();
    for address in all.into_iter().filter(|address| !address.is_empty()) {
        if !chosen.iter().any(|own| own.contains(':') == address.contains(':')) {
            chosen.push(address);
        }
    }
    chosen
}

fn shortened(value: &str) -> &str {
    value.get(..63).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(status: Value) -> Value {
        json!({"metadata": {"name": "web", "namespace": "n", "uid": "u-1",
                "labels": {"app": "web"}},
            "spec": {"domain": {"memory": {"guest": "1Gi"}},
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}]},
            "status": status})
    }

    #[test]
    fn names_are_stable_and_lead_back_to_the_instance() {
        let first = pod_name(&vmi(json!({})));
        assert_eq!(first, pod_name(&vmi(json!({}))));
        assert_eq!(instance_of(&first), Some("web"));
        assert_eq!((instance_of("web-0"), instance_of("virt-launcher-x")), (None, None));
        let long = json!({"metadata": {"name": "v".repeat(63), "uid": "u"}});
        assert_eq!(instance_of(&pod_name(&long)), Some(&*"v".repeat(44)), "cut off");
        let long = json!({"metadata": {"name": "x".repeat(200), "uid": "u"}});
        assert_eq!(pod_name(&long).len(), 63);
    }

    #[test]
    fn the_pod_carries_what_services_and_claims_select() {
        let vmi = vmi(json!({}));
        let pod = pod(&vmi, "one", AutoLimits::default());
        let labels = &pod["metadata"]["labels"];
        assert_eq!((&labels["app"], &labels["vmi.kubevirt.io/id"]), (&json!("web"), &json!("web")));
        assert_eq!(labels["kubevirt.io/created-by"], "u-1");
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "c");
        let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
        assert_eq!(requests["memory"], "1098Mi");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "u-1");
    }

    #[test]
    fn the_status_follows_the_instance() {
        let now = Timestamp::from_second(60).unwrap();
        let status = |own: Value, pod: &Value| status(&vmi(own), pod, "10.0.0.1", now);
        let early = status(json!({"phase": "Scheduled"}), &json!({}));
        assert_eq!(early["phase"], "Pending");
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let interfaces = json!([{"ipAddress": "10.52.0.2", "ipAddresses": ["10.52.0.2", "fd::2"]}]);
        let running =
            json!({"phase": "Running", "conditions": conditions, "interfaces": interfaces});
        let running = status(running, &json!({"status": early}));
        assert_eq!(
            (&running["phase"], &running["podIP"]),
            (&json!("Running"), &json!("10.52.0.2"))
        );
        assert_eq!(running["podIPs"], json!([{"ip": "10.52.0.2"}, {"ip": "fd::2"}]));
        let ready = condition::find(list(&running, "/conditions"), "Ready").unwrap();
        assert_eq!(ready["status"], "True");
        let over = status(json!({"phase": "Failed"}), &json!({"status": running}));
        assert_eq!(over["containerStatuses"][0]["state"]["terminated"]["exitCode"], 1);
        let again = status(json!({"phase": "Failed"}), &json!({"status": over}));
        assert_eq!(again, over, "a second reconciliation changes nothing");
    }
}
