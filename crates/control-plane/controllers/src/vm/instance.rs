//! The objects that a virtual machine brings into being: its instance, the record of what
//! the instance was started from, and its data volumes. Pure.
//!
//! Templates are copied as they are, so that fields this version does not know survive.

use hci::together::RESUME;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::object::{
    self, annotation, controlled_by, controller, copied_map, generation, is_deleting, list, name,
    namespace, text, uid, version,
};
use crate::vmi::VM_FINALIZER;

/// UID of the machine that a disk was taken from before its deletion. That machine must not take it
/// back: the disk would go with it.
pub(crate) const RELEASED_BY: &str = "sheaf.io/released-by";
pub(crate) const GENERATION: &str = "kubevirt.io/vm-generation";
const API_VERSION: &str = "kubevirt.io/v1";
const KIND: &str = "VirtualMachine";
/// The namespace of identities of machines that were given none, upstream's own.
const IDENTITIES: Uuid = Uuid::from_u128(0x6a1a_24a1_4061_4607_8bf4_a396_3d0c_5895);

/// A reference that makes the virtual machine the controller.
pub(crate) fn owned_by(vm: &Value) -> Value {
    controlled_by(vm, API_VERSION, KIND)
}

/// The fields that a start adds to the template.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// Annotations that name instancetype and preference.
    pub(crate) annotations: Map<String, Value>,
    /// The instant whose memory the guest resumes from.
    pub(crate) resume: Option<String>,
    /// Whether the guest's processors are to wait.
    pub(crate) paused: bool,
}

/// The instance of a virtual machine, given its spec with instancetype and preference
/// applied.
pub(crate) fn instance(vm: &Value, spec: &Value, start: &Start) -> Value {
    let template = &spec["template"];
    let mut meta = template.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for unwanted in ["generateName", "creationTimestamp", "namespace", "uid", "resourceVersion"] {
        meta.remove(unwanted);
    }
    let mut annotations =
        meta.get("annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.extend(start.annotations.clone());
    // Only a restore decides on it, never the owner of a template.
    annotations.remove(RESUME);
    if let Some(instant) = &start.resume {
        annotations.insert(RESUME.into(), json!(instant));
    }
    annotations.insert(GENERATION.into(), json!(generation(vm).to_string()));
    meta.insert("annotations".into(), Value::Object(annotations));
    meta.insert("name".into(), json!(name(vm)));
    meta.insert("namespace".into(), json!(namespace(vm)));
    meta.insert("finalizers".into(), json!([VM_FINALIZER]));
    meta.insert("ownerReferences".into(), json!([owned_by(vm)]));
    let mut body = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    // A dump belongs to the run in which it was requested.
    if let Some(volumes) = body.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| volume.get("memoryDump").is_none());
    }
    if start.paused {
        body["startStrategy"] = json!("Paused");
    }
    if text(&body, "/domain/firmware/uuid").is_empty() {
        let identity = Uuid::new_v5(&IDENTITIES, name(vm).as_bytes());
        body["domain"]["firmware"]["uuid"] = json!(identity.to_string());
    }
    json!({"apiVersion": API_VERSION, "kind": "VirtualMachineInstance", "metadata": meta,
        "spec": body, "status": {"virtualMachineRevisionName": revision_name(vm)}})
}

pub(crate) fn revision_name(vm: &Value) -> String {
    format!("revision-start-vm-{}-{}", uid(vm), generation(vm))
}

/// The record of what an instance is started from.
pub(crate) fn revision(vm: &Value) -> Value {
    let mut spec = vm["spec"].clone();
    for (field, status) in [
        ("instancetype", "/status/instancetypeRef/controllerRevisionRef/name"),
        ("preference", "/status/preferenceRef/controllerRevisionRef/name"),
    ] {
        let recorded = text(vm, status);
        if spec.get(field).is_some() && !recorded.is_empty() {
            spec[field]["revisionName"] = json!(recorded);
        }
    }
    json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": revision_name(vm), "namespace": namespace(vm),
            "ownerReferences": [owned_by(vm)]},
        "data": {"spec": spec}, "revision": generation(vm)})
}

/// The data volume of one of the machine's templates.
pub(crate) fn data_volume(vm: &Value, template: &Value) -> Value {
    let mut labels = copied_map(object::labels(template));
    let mut annotations = copied_map(object::annotations(template));
    labels.insert("kubevirt.io/created-by".into(), json!(uid(vm)));
    annotations.insert("cdi.kubevirt.io/allowClaimAdoption".into(), json!("true"));
    let mut spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    let priority = text(vm, "/spec/template/spec/priorityClassName");
    if !priority.is_empty() && text(&spec, "/priorityClassName").is_empty() {
        spec["priorityClassName"] = json!(priority);
    }
    json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name(template), "namespace": namespace(vm), "labels": labels,
            "annotations": annotations, "ownerReferences": [owned_by(vm)]},
        "spec": spec})
}

/// Makes a data volume of a template the machine's, if it has no owner: one that a pool kept for
/// the next machine of its number, for instance.
pub(crate) fn adoption(vm: &Value, own: &Value) -> Option<Value> {
    let is_kept = annotation(own, RELEASED_BY) == Some(uid(vm));
    if controller(own).is_some() || is_deleting(own) || is_deleting(vm) || is_kept {
        return None;
    }
    let mut meta = version(own);
    meta.insert("annotations".into(), json!({RELEASED_BY: null}));
    let mut owners = list(own, "/metadata/ownerReferences").to_vec();
    owners.push(owned_by(vm));
    meta.insert("ownerReferences".into(), owners.into());
    Some(json!({ "metadata": meta }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm() -> Value {
        json!({"metadata": {"name": "web", "namespace": "n", "uid": "u", "generation": 3},
            "spec": {"instancetype": {"name": "small"}, "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"},
                    "creationTimestamp": null},
                "spec": {"domain": {"futureField": 1}, "unknown": {"x": []}}}},
            "status": {"instancetypeRef": {"controllerRevisionRef": {"name": "r"}}}})
    }

    #[test]
    fn the_instance_is_the_template_with_its_origin() {
        let vm = vm();
        let vmi = instance(&vm, &vm["spec"], &Start::default());
        assert_eq!(vmi["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(vmi["metadata"]["annotations"], json!({"a": "b", GENERATION: "3"}));
        assert_eq!(vmi["metadata"]["finalizers"], json!([VM_FINALIZER]));
        let owner = &vmi["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["controller"]), (&json!("u"), &json!(true)));
        assert_eq!(vmi["spec"]["unknown"], json!({"x": []}));
        assert_eq!(vmi["spec"]["domain"]["futureField"], 1);
        assert_eq!(vmi["status"]["virtualMachineRevisionName"], "revision-start-vm-u-3");
        assert_eq!(vmi["metadata"].get("creationTimestamp"), None);
    }

    #[test]
    fn a_template_does_not_decide_what_memory_the_guest_resumes_from() {
        let mut vm = vm();
        vm["spec"]["template"]["metadata"]["annotations"] = json!({RESUME: "foreign"});
        let annotations = json!({RESUME: "foreign"}).as_object().cloned().unwrap();
        let resumed = |resume: Option<&str>| {
            let resume = resume.map(str::to_owned);
            let start = Start { annotations: annotations.clone(), resume, paused: false };
            instance(&vm, &vm["spec"], &start)["metadata"]["annotations"][RESUME].clone()
        };
        assert_eq!(resumed(None), Value::Null);
        assert_eq!(resumed(Some("own")), "own");
    }

    #[test]
    fn a_machine_without_an_identity_has_the_same_each_time() {
        let vm = vm();
        let identity = |vm: &Value| {
            let vmi = instance(vm, &vm["spec"], &Start::default());
            text(&vmi, "/spec/domain/firmware/uuid").to_owned()
        };
        assert_eq!(identity(&vm), identity(&vm));
        let mut own = vm.clone();
        own["spec"]["template"]["spec"]["domain"]["firmware"] = json!({"uuid": "given"});
        assert_eq!(identity(&own), "given");
    }

    #[test]
    fn a_machine_that_is_started_paused_says_so() {
        let start = Start { paused: true, ..Start::default() };
        assert_eq!(instance(&vm(), &vm()["spec"], &start)["spec"]["startStrategy"], "Paused");
    }

    #[test]
    fn the_record_names_the_revisions_in_use() {
        let revision = revision(&vm());
        assert_eq!(revision["data"]["spec"]["instancetype"]["revisionName"], "r");
        assert_eq!(revision["revision"], 3);
    }

    #[test]
    fn data_volumes_belong_to_their_machine() {
        let template = json!({"metadata": {"name": "d", "labels": {"l": "x"}},
            "spec": {"source": {"blank": {}}}});
        let made = data_volume(&vm(), &template);
        assert_eq!(made["metadata"]["labels"], json!({"l": "x", "kubevirt.io/created-by": "u"}));
        assert_eq!(made["spec"]["source"], json!({"blank": {}}));
        assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "VirtualMachine");
    }

    #[test]
    fn a_data_volume_without_an_owner_is_adopted() {
        let own = |meta: Value| json!({ "metadata": meta });
        let other = json!({"uid": "x"});
        let adopted = adoption(&vm(), &own(json!({"ownerReferences": [other]}))).unwrap();
        let owners = &adopted["metadata"]["ownerReferences"];
        assert_eq!((owners[0]["uid"].as_str(), owners[1]["uid"].as_str()), (Some("x"), Some("u")));
        let held = json!({"uid": "x", "controller": true});
        assert_eq!(adoption(&vm(), &own(json!({"ownerReferences": [held]}))), None);
        assert_eq!(adoption(&vm(), &own(json!({"deletionTimestamp": "t"}))), None);
        let released = |by: &str| own(json!({"annotations": {RELEASED_BY: by}}));
        assert_eq!(adoption(&vm(), &released("u")), None, "it is kept from this machine");
        assert!(adoption(&vm(), &released("other")).is_some());
        assert_eq!(adoption(&vm(), &data_volume(&vm(), &json!({}))), None, "it is ours already");
    }
}
