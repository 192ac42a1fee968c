//! Disks of other namespaces.

use http::Request;
use serde_json::{Value, json};

use super::{bind, role, tenant};
use crate::harness::{Http, Sheaf, assert_has, eventually, poll};

const TEAM_CLAIMS: &str = "/api/v1/namespaces/team/persistentvolumeclaims";
const VICTIM_CLAIMS: &str = "/api/v1/namespaces/victim/persistentvolumeclaims";
const TEAM_DATA_VOLUMES: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/team/datavolumes";
const DATA_SOURCES: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces";
const TEAM_MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/team/virtualmachines";
const REFUSAL: &str = "User mallory has insufficient permissions in clone source namespace victim";

fn claim(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    })
}

fn data_volume(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["storage"] = json!({"resources": {"requests": {"storage": "1Mi"}}});
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name}, "spec": spec,
    })
}

fn data_source(admin: &Http, namespace: &str, name: &str) {
    let source = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource", "metadata": {"name": name},
        "spec": {"source": {"pvc": {"namespace": "victim", "name": "secret"}}},
    });
    admin.post(&format!("{DATA_SOURCES}/{namespace}/datasources"), &source).ok();
}

fn from_victim() -> Value {
    json!({"source": {"pvc": {"namespace": "victim", "name": "secret"}}})
}

fn machine(spec: Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"},
        "spec": {
            "runStrategy": "Halted",
            "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": spec}],
            "template": {"spec": {
                "domain": {
                    "memory": {"guest": "64Mi"},
                    "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                },
                "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
            }},
        },
    })
}

#[test]
fn a_data_volume_clones_from_another_namespace_only_with_rights_there() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    admin.post(VICTIM_CLAIMS, &claim("secret", json!({}))).ok();
    data_source(&admin, "victim", "golden");
    data_source(&admin, "team", "pointer");
    for spec in [
        from_victim(),
        json!({"source": {"snapshot": {"namespace": "victim", "name": "secret"}}}),
        json!({"sourceRef": {"kind": "DataSource", "namespace": "victim", "name": "golden"}}),
        json!({"sourceRef": {"kind": "DataSource", "namespace": "victim", "name": "later"}}),
        json!({"sourceRef": {"kind": "DataSource", "name": "pointer"}}),
    ] {
        let refused = mallory.post(TEAM_DATA_VOLUMES, &data_volume("copy", spec.clone()));
        assert_has(refused.refused(422), REFUSAL);
    }
    // A DataSource that gets its source after the DataVolume exists.
    let later = json!({"sourceRef": {"kind": "DataSource", "name": "swapped"}});
    mallory.post(TEAM_DATA_VOLUMES, &data_volume("waiting", later)).ok();
    data_source(&mallory, "team", "swapped");
    let waiting = format!("{TEAM_DATA_VOLUMES}/waiting");
    poll("the clone is refused", || {
        let dv = admin.get(&waiting).ok();
        let conditions = dv["status"]["conditions"].to_string();
        if conditions.contains("was not authorized") { Ok(()) } else { Err(conditions) }
    });
    assert_eq!(admin.get(&format!("{TEAM_CLAIMS}/waiting")).status, 404);

    let rule = json!({
        "apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"], "verbs": ["create"],
    });
    role(&admin, "victim", "cloner", rule);
    bind(&admin, "victim", "Role/cloner", "User", "mallory");
    let made = mallory.post(TEAM_DATA_VOLUMES, &data_volume("copy", from_victim())).ok();
    let vouched = &made["metadata"]["annotations"]["sheaf.io/authorized-clone-source"];
    assert_eq!(vouched, "pvc/victim/secret");
}

#[test]
fn annotations_do_not_clone_from_another_namespace() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    admin.post(VICTIM_CLAIMS, &claim("secret", json!({}))).ok();
    let request = json!({"k8s.io/CloneRequest": "victim/secret"});
    let refused = mallory.post(TEAM_CLAIMS, &claim("copy", request.clone()));
    assert_has(refused.refused(422), REFUSAL);
    for key in ["sheaf.io/clone-source", "sheaf.io/populator", "sheaf.io/upload-token"] {
        let forged = claim("copy", json!({key: "pvc/victim/secret"}));
        let refused = mallory.post(TEAM_CLAIMS, &forged).refused(422);
        assert_has(refused, &format!("annotation {key} may only be set by the controllers"));
    }
    let mut reference = claim("copy", json!({}));
    reference["spec"]["dataSourceRef"] =
        json!({"kind": "PersistentVolumeClaim", "name": "secret", "namespace": "victim"});
    let refused = mallory.post(TEAM_CLAIMS, &reference).refused(422);
    assert_has(refused, "can only be created from objects of its own namespace team");

    mallory.post(TEAM_CLAIMS, &claim("copy", json!({}))).ok();
    let patch = json!({"metadata": {"annotations": request}});
    let patched = mallory.merge(&format!("{TEAM_CLAIMS}/copy"), &patch);
    assert_has(patched.refused(422), REFUSAL);
    // Not even with the right to write the status, which may carry annotations, too.
    let rule = json!({
        "apiGroups": [""], "resources": ["persistentvolumeclaims/status"], "verbs": ["patch"],
    });
    role(&admin, "team", "status", rule);
    bind(&admin, "team", "Role/status", "User", "mallory");
    let patched = mallory.merge(&format!("{TEAM_CLAIMS}/copy/status"), &patch);
    assert_has(patched.refused(422), REFUSAL);
}

/// The controller copies annotations of a DataVolume onto its claim.
#[test]
fn a_controller_does_not_carry_an_annotation_over() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    admin.post(VICTIM_CLAIMS, &claim("secret", json!({}))).ok();
    let mut blank = data_volume("copy", json!({"source": {"blank": {}}}));
    blank["metadata"]["annotations"] = json!({"k8s.io/CloneRequest": "victim/secret"});
    mallory.post(TEAM_DATA_VOLUMES, &blank).ok();
    eventually("the claim is refused", || {
        let events = admin.get("/api/v1/namespaces/team/events").ok();
        events["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "ErrClaimNotValid"
                && event["message"].to_string().contains("clone source namespace victim")
        })
    });
    assert_eq!(admin.get(&format!("{TEAM_CLAIMS}/copy")).status, 404);
}

#[test]
fn templates_of_machines_are_authorized_as_their_service_account() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    admin.post(VICTIM_CLAIMS, &claim("secret", json!({}))).ok();
    let mut spec = from_victim();
    spec["storage"] = json!({});
    let refused = mallory.post(TEAM_MACHINES, &machine(spec.clone())).refused(422);
    assert_has(
        refused,
        "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: \
         Authorization failed, message is: User system:serviceaccount:team:default has \
         insufficient permissions in clone source namespace victim",
    );
    let rule = json!({
        "apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"], "verbs": ["create"],
    });
    role(&admin, "victim", "cloner", rule);
    bind(&admin, "victim", "Role/cloner", "ServiceAccount", "default");
    mallory.post(TEAM_MACHINES, &machine(spec)).ok();
    let root = format!("{TEAM_DATA_VOLUMES}/root");
    eventually("the controller creates the data volume", || admin.get(&root).status == 200);
}

/// A tenant's claim that names the volume of another claim.
#[test]
fn a_claim_does_not_reach_the_volume_of_another_by_its_name() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    let mut owner = claim("secret", json!({}));
    owner["spec"]["volumeName"] = "disk".into();
    owner["spec"]["storageClassName"] = "".into();
    let owner = admin.post(VICTIM_CLAIMS, &owner).ok();
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "victim", "name": "secret", "uid": owner["metadata"]["uid"]},
            "csi": {"driver": "driver.longhorn.io", "volumeHandle": "disk"},
        },
    });
    admin.post("/api/v1/persistentvolumes", &volume).ok();
    let target = json!({"cdi.kubevirt.io/storage.upload.target": ""});
    let mut named = claim("mine", target);
    named["spec"]["volumeName"] = "disk".into();
    named["spec"]["storageClassName"] = "".into();
    mallory.post(TEAM_CLAIMS, &named).ok();
    // Even if the claim says that it is bound.
    let status = json!({"status": {"phase": "Bound"}});
    admin.merge(&format!("{TEAM_CLAIMS}/mine/status"), &status).ok();
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": {"name": "mine"}, "spec": {"pvcName": "mine"},
    });
    let tokens = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/team/uploadtokenrequests";
    let token = mallory.post(tokens, &request).ok()["status"]["token"].clone();
    let upload = Request::post("/v1beta1/upload")
        .header("authorization", format!("Bearer {}", token.as_str().unwrap()));
    let refused = sheaf.anonymous().send(upload, "overwritten");
    assert_has(refused.text(), "the claim team/mine has no volume yet");
}

#[test]
fn a_template_does_not_lend_the_rights_of_the_server() {
    let sheaf = Sheaf::start();
    let admin = sheaf.http();
    tenant(&sheaf);
    let template = json!({
        "apiVersion": "template.kubevirt.io/v1beta1", "kind": "VirtualMachineTemplate",
        "metadata": {"name": "golden"}, "spec": {"virtualMachine": machine(from_victim())},
    });
    let templates = "template.kubevirt.io/v1beta1/namespaces/team/virtualmachinetemplates";
    admin.post(&format!("/apis/{templates}"), &template).ok();
    let rule = json!({
        "apiGroups": ["subresources.template.kubevirt.io"],
        "resources": ["virtualmachinetemplates/create"], "verbs": ["create"],
    });
    role(&admin, "team", "processor", rule);
    bind(&admin, "team", "Role/processor", "User", "eve");
    let eve = sheaf.http().with("impersonate-user", "eve");
    let create = format!("/apis/subresources.{templates}/golden/create");
    let refused = eve.post(&create, &json!({}));
    assert_has(refused.refused(403), "User \"eve\" cannot create resource \"virtualmachines\"");
    assert_eq!(admin.get(&format!("{TEAM_MACHINES}/vm")).status, 404);
}

/// The class of an image gives volumes with its data, under any name that leads to it.
#[test]
fn the_image_of_another_namespace_is_not_to_be_had_by_its_name() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    let refusal =
        "refers to virtualmachineimages.harvesterhci.io victim/debian, which user mallory";
    let named = || json!({"harvesterhci.io/imageId": "victim/debian"});
    let spec = || {
        json!({"accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "storageClassName": "longhorn-debian", "resources": {"requests": {"storage": "1Gi"}}})
    };
    let mut asked = claim("copy", named());
    asked["spec"] = spec();
    assert_has(mallory.post(TEAM_CLAIMS, &asked).refused(403), refusal);

    let mut asked = data_volume("copy", json!({"source": {"blank": {}}}));
    asked["metadata"]["annotations"] = named();
    asked["spec"]["storage"]["storageClassName"] = "longhorn-debian".into();
    assert_has(mallory.post(TEAM_DATA_VOLUMES, &asked).refused(403), refusal);

    let templates = json!([{"metadata": {"name": "root", "annotations": named()}, "spec": spec()}]);
    let mut asked = machine(json!({}));
    asked["spec"].as_object_mut().unwrap().remove("dataVolumeTemplates");
    asked["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]);
    asked["metadata"]["annotations"] =
        json!({"harvesterhci.io/volumeClaimTemplates": templates.to_string()});
    assert_has(mallory.post(TEAM_MACHINES, &asked).refused(403), refusal);

    // A class that is set later, on a claim that was made without one.
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "of-image", "annotations": named()},
        "provisioner": "example.org/none",
    });
    admin.post("/apis/storage.k8s.io/v1/storageclasses", &class).ok();
    let beta = json!({"volume.beta.kubernetes.io/storage-class": "none"});
    mallory.post(TEAM_CLAIMS, &claim("late", beta)).ok();
    let patch = json!({"spec": {"storageClassName": "of-image"}});
    let late = mallory.merge(&format!("{TEAM_CLAIMS}/late"), &patch);
    assert_has(late.refused(403), refusal);
}

/// A controller applies these patches to a machine that it writes itself.
#[test]
fn patches_of_restores_and_clones_do_not_leave_the_namespace() {
    let sheaf = Sheaf::start();
    let mallory = tenant(&sheaf);
    let target = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"});
    let path = "/metadata/annotations/harvesterhci.io~1volumeClaimTemplates";
    let (closed, owned) = ("cannot be patched", "may only be set by the controllers");
    let annotations = json!({"sheaf.io/resume-from": "another's memory"});
    for (patch, refusal) in [
        (json!({"op": "add", "path": path, "value": "[]"}), closed),
        (json!({"op": "add", "path": "/spec/dataVolumeTemplates", "value": []}), closed),
        (json!({"op": "replace", "path": "/metadata/namespace", "value": "victim"}), closed),
        (json!({"op": "move", "from": "/metadata/namespace", "path": "/spec/x"}), closed),
        (
            json!({"op": "add", "path": "/spec/template/metadata/annotations/sheaf.io~1together",
                "value": "x"}),
            owned,
        ),
        (
            json!({"op": "replace", "path": "/spec/template",
                "value": {"metadata": {"annotations": annotations}}}),
            owned,
        ),
    ] {
        let restore = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": {"name": "r"},
            "spec": {"target": target, "virtualMachineSnapshotName": "s",
                "patches": [patch.to_string()]},
        });
        let restores = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/team/virtualmachinerestores";
        assert_has(mallory.post(restores, &restore).refused(422), refusal);
        let clone = json!({
            "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone",
            "metadata": {"name": "c"},
            "spec": {"source": target, "target": target, "patches": [patch.to_string()]},
        });
        let clones = "/apis/clone.kubevirt.io/v1beta1/namespaces/team/virtualmachineclones";
        assert_has(mallory.post(clones, &clone).refused(422), refusal);
    }
}

/// A controller creates the claims of these templates.
#[test]
fn a_template_of_claims_does_not_speak_for_controllers() {
    let sheaf = Sheaf::start();
    let mallory = tenant(&sheaf);
    let with_template = |metadata: Value, class: &str| {
        let templates = json!([{"metadata": metadata, "spec": {"storageClassName": class,
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}]);
        let mut asked = machine(json!({}));
        asked["spec"].as_object_mut().unwrap().remove("dataVolumeTemplates");
        asked["spec"]["template"]["spec"]["volumes"] =
            json!([{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]);
        asked["metadata"]["annotations"] =
            json!({"harvesterhci.io/volumeClaimTemplates": templates.to_string()});
        asked
    };
    let reserved = with_template(json!({"name": "root"}), "longhorn-static");
    let refused = mallory.post(TEAM_MACHINES, &reserved).refused(422);
    assert_has(refused, "can not create volume with the reserved storage class longhorn-static");
    for key in ["sheaf.io/populator", "sheaf.io/clone-source", "sheaf.io/upload-token"] {
        let forged = with_template(json!({"name": "root", "annotations": {key: "x"}}), "longhorn");
        let refused = mallory.post(TEAM_MACHINES, &forged).refused(403);
        assert_has(refused, &format!("annotation {key} of a claim may only be set by"));
    }
}
