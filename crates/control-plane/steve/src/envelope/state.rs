//! A summary of an object's state: one word, whether it is an error, whether it will pass.

use serde_json::{Value, json};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) error: bool,
    pub(crate) transitioning: bool,
    pub(crate) message: String,
}

impl Summary {
    fn new(name: impl Into<String>, error: bool, transitioning: bool) -> Self {
        Self { name: name.into(), error, transitioning, message: String::new() }
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({
            "name": self.name, "error": self.error, "transitioning": self.transitioning,
            "message": self.message,
        })
    }
}

/// The meaning of a condition: an error, a transition, or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// False is an error.
    Success,
    /// False will pass; the word is the state meanwhile.
    Progress(&'static str),
    /// True is an error.
    Failure,
    /// True will pass.
    Activity(&'static str),
}

/// Conditions whose meaning is known; others say nothing about the state.
const CONDITIONS: &[(&str, Meaning)] = &[
    ("Available", Meaning::Progress("updating")),
    ("Completed", Meaning::Progress("activating")),
    ("Ready", Meaning::Progress("unavailable")),
    ("Initialized", Meaning::Success),
    ("Imported", Meaning::Success),
    ("MetadataReady", Meaning::Progress("saving")),
    ("validated", Meaning::Success),
    ("configured", Meaning::Success),
    ("Failed", Meaning::Failure),
    ("Stalled", Meaning::Failure),
    ("RetryLimitExceeded", Meaning::Failure),
    ("OperationFailed", Meaning::Failure),
    ("BackingImageMissing", Meaning::Failure),
    ("InProgress", Meaning::Activity("in-progress")),
    ("Reconciling", Meaning::Activity("reconciling")),
    ("Resizing", Meaning::Activity("resizing")),
    ("DiskPressure", Meaning::Failure),
    ("MemoryPressure", Meaning::Failure),
    ("NetworkUnavailable", Meaning::Failure),
    ("PIDPressure", Meaning::Failure),
];

/// Whether a condition is an error, and whether it will pass.
pub(super) fn judge(condition: &Value) -> (bool, bool) {
    let status = condition["status"].as_str().unwrap_or_default();
    // A condition with an unknown status is an error only if it says so.
    let says_error = condition["reason"] == "Error";
    match (meaning(condition), status) {
        (Some(Meaning::Success), "False") => (has_message(condition), !has_message(condition)),
        (Some(Meaning::Failure), "True") => (true, false),
        (Some(Meaning::Progress(_)), "False") => (says_error, !says_error),
        (Some(Meaning::Activity(_)), "True") | (Some(Meaning::Success), "Unknown") => (false, true),
        _ => (says_error && status == "False", false),
    }
}

/// A setting without a value is not configured, which is no error.
fn has_message(condition: &Value) -> bool {
    condition["message"].as_str().is_some_and(|message| !message.is_empty())
}

fn meaning(condition: &Value) -> Option<Meaning> {
    let name = condition["type"].as_str()?;
    CONDITIONS.iter().find(|(own, _)| *own == name).map(|(_, meaning)| *meaning)
}

/// The state of an object.
pub(crate) fn summarize(object: &Value) -> Summary {
    if object["metadata"]["deletionTimestamp"].is_string() {
        return removing(object);
    }
    match object["kind"].as_str().unwrap_or_default() {
        "VirtualMachine" => machine(object),
        "Node" => node(object),
        "Addon" => addon(object),
        _ => general(object),
    }
}

fn removing(object: &Value) -> Summary {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let names: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
    let message = match names.as_slice() {
        [] => String::new(),
        names => format!("waiting on {}", names.join(", ")),
    };
    Summary { message, ..Summary::new("removing", false, true) }
}

fn machine(vm: &Value) -> Summary {
    let Some(status) = vm["status"]["printableStatus"].as_str().filter(|text| !text.is_empty())
    else {
        return Summary::new("in-progress", false, true);
    };
    let is_error = status.starts_with("Err")
        || matches!(status, "CrashLoopBackOff" | "ImagePullBackOff" | "DataVolumeError")
        || status.ends_with("NotFound");
    let settled = matches!(status, "Running" | "Stopped" | "Paused" | "Unknown");
    let mut summary = Summary::new(status.to_lowercase(), is_error, !is_error && !settled);
    if is_error {
        summary.message = message_of(vm, |condition| condition["status"] == "False");
    }
    summary
}

fn node(node: &Value) -> Summary {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    if ready.is_some_and(|ready| ready["status"] != "True") {
        let message = message_of(node, |condition| condition["type"] == "Ready");
        return Summary { message, ..Summary::new("unavailable", true, false) };
    }
    let annotation = |key: &str| node["metadata"]["annotations"][key].as_str().unwrap_or_default();
    match annotation("harvesterhci.io/maintain-status") {
        "running" => return Summary::new("in-progress", false, true),
        "completed" => return Summary::new("maintenance", false, false),
        _ => {}
    }
    if node["spec"]["unschedulable"] == true {
        return Summary::new("cordoned", false, false);
    }
    Summary::new("active", false, false)
}

fn addon(addon: &Value) -> Summary {
    let status = addon["status"]["status"].as_str().unwrap_or_default();
    let transitioning = matches!(status, "AddonEnabling" | "AddonUpdating" | "AddonDisabling");
    let mut summary = general(addon);
    if !status.is_empty() && !summary.error {
        summary = Summary::new(status, false, transitioning);
    }
    summary
}

fn general(object: &Value) -> Summary {
    let conditions = || object["status"]["conditions"].as_array().into_iter().flatten();
    if let Some(condition) = conditions().find(|condition| judge(condition).0) {
        let message = condition["message"].as_str().unwrap_or_default().to_owned();
        return Summary { message, ..Summary::new("error", true, false) };
    }
    let phase = object["status"]["phase"].as_str().unwrap_or_default();
    if !phase.is_empty() {
        return by_phase(object, phase);
    }
    if let Some(condition) = conditions().find(|condition| judge(condition).1) {
        let name = match meaning(condition) {
            Some(Meaning::Progress(name) | Meaning::Activity(name)) => name,
            _ => "in-progress",
        };
        let message = condition["message"].as_str().unwrap_or_default().to_owned();
        return Summary { message, ..Summary::new(name, false, true) };
    }
    Summary::new("active", false, false)
}

fn by_phase(object: &Value, phase: &str) -> Summary {
    let error = matches!(phase, "Failed" | "Lost" | "Error");
    let settled = matches!(
        phase,
        "Active" | "Available" | "Bound" | "Ready" | "Released" | "Running" | "Succeeded"
    );
    let mut summary = Summary::new(phase.to_lowercase(), error, !error && !settled);
    if !settled {
        summary.message = message_of(object, |condition| condition["status"] == "False");
    }
    summary
}

fn message_of(object: &Value, wanted: impl Fn(&Value) -> bool) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| wanted(condition));
    found.and_then(|condition| condition["message"].as_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_summarized() {
        let condition = |kind: &str, status: &str, message: &str| json!({"status": {"conditions": [{"type": kind, "status": status, "message": message}]}});
        let vm =
            |status: &str| json!({"kind": "VirtualMachine", "status": {"printableStatus": status}});
        let kind = |kind: &str, mut object: Value| {
            object["kind"] = kind.into();
            object
        };
        // Object; name, error, transitioning, message.
        let cases = [
            (json!({"kind": "ConfigMap"}), ("active", false, false, "")),
            (
                json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b", "c"]}}),
                ("removing", false, true, "waiting on a/b, c"),
            ),
            (json!({"status": {"phase": "Bound"}}), ("bound", false, false, "")),
            (json!({"status": {"phase": "Pending"}}), ("pending", false, true, "")),
            (json!({"status": {"phase": "Failed"}}), ("failed", true, false, "")),
            (vm("Running"), ("running", false, false, "")),
            (vm("Starting"), ("starting", false, true, "")),
            (vm("ErrorUnschedulable"), ("errorunschedulable", true, false, "")),
            (vm(""), ("in-progress", false, true, "")),
            (kind("Node", condition("Ready", "True", "")), ("active", false, false, "")),
            (
                kind("Node", condition("Ready", "Unknown", "gone")),
                ("unavailable", true, false, "gone"),
            ),
            (
                kind("Node", json!({"spec": {"unschedulable": true}})),
                ("cordoned", false, false, ""),
            ),
            (
                json!({"kind": "Addon", "status": {"status": "AddonDisabled"}}),
                ("AddonDisabled", false, false, ""),
            ),
            (condition("Imported", "Unknown", ""), ("in-progress", false, true, "")),
            (
                condition("Imported", "False", "no such host"),
                ("error", true, false, "no such host"),
            ),
            (condition("RetryLimitExceeded", "False", ""), ("active", false, false, "")),
            (condition("InProgress", "True", "x"), ("in-progress", false, true, "x")),
        ];
        for (object, (name, error, transitioning, message)) in cases {
            let expected =
                Summary { message: message.into(), ..Summary::new(name, error, transitioning) };
            assert_eq!(summarize(&object), expected, "{object}");
        }
    }
}
