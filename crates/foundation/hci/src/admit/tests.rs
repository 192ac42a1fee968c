//! Tables of writes and what becomes of them.

use crd::lookup::Objects;
use serde_json::{Value, json};

use super::{LONGHORN_WEBHOOK, RequestUser, WEBHOOK, Write, complete, recurring_job, validate};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

pub(super) fn uuid() -> String {
    "5f0c9d3a-1b2c-4d5e-8f90-112233445566".to_owned()
}

/// Group, plural and the object.
pub(super) struct Cluster(pub(super) Vec<(&'static str, &'static str, Value)>);

impl Objects for Cluster {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut all = self.list(group, plural, namespace).into_iter();
        all.find(|object| object["metadata"]["name"] == name)
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let is_there =
            |object: &Value| namespace.is_empty() || object["metadata"]["namespace"] == namespace;
        let all = self.0.iter().filter(|own| own.0 == group && own.1 == plural);
        all.map(|own| own.2.clone()).filter(is_there).collect()
    }
}

/// May see all but one namespace.
impl RequestUser for Cluster {
    fn name(&self) -> &str {
        "ann"
    }

    fn may_get(&self, _: &str, _: &str, namespace: &str, _: &str) -> bool {
        namespace != "closed"
    }

    fn may_create(&self, _: &str, _: &str, namespace: &str, _: &str) -> bool {
        namespace != "closed"
    }
}

/// May get what is shared, and create nothing beyond what the rules let all users do.
pub(super) struct Tenant;

impl RequestUser for Tenant {
    fn name(&self) -> &str {
        "mallory"
    }

    fn may_get(&self, _: &str, _: &str, namespace: &str, _: &str) -> bool {
        namespace == "shared"
    }

    fn may_create(&self, _: &str, _: &str, _: &str, _: &str) -> bool {
        false
    }
}

pub(super) fn judged(
    kind: (&str, &str),
    object: Option<&Value>,
    old: Option<&Value>,
    cluster: &Cluster,
) -> Result<(), (u16, String)> {
    let metadata = &object.or(old).unwrap()["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let write = Write {
        group: kind.0,
        resource: kind.1,
        namespace: text("namespace"),
        name: text("name"),
        object,
        old,
        trusted: false,
        objects: cluster,
        writer: cluster,
        uuid: &uuid,
    };
    validate(&write).map_err(|refusal| {
        let webhook =
            if refusal.message.contains(LONGHORN_WEBHOOK) { LONGHORN_WEBHOOK } else { WEBHOOK };
        let prefix = format!("admission webhook \"{webhook}\" denied the request: ");
        (refusal.code, refusal.message.strip_prefix(&prefix).unwrap().to_owned())
    })
}

pub(super) fn refused(code: u16, message: &str) -> Result<(), (u16, String)> {
    Err((code, message.to_owned()))
}

pub(super) fn named(name: &str, rest: &Value) -> Value {
    let mut object = json!({"metadata": {"namespace": "default", "name": name}});
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

const IMAGES: (&str, &str) = ("harvesterhci.io", "virtualmachineimages");
const PAIRS: (&str, &str) = ("harvesterhci.io", "keypairs");
const VERSIONS: (&str, &str) = ("harvesterhci.io", "virtualmachinetemplateversions");

#[test]
fn key_pairs_hold_public_keys() {
    let none = Cluster(Vec::new());
    for (key, verdict) in [
        (KEY, Ok(())),
        ("", refused(422, "public key is required")),
        ("ssh-rsa nonsense", refused(422, "key is not in valid OpenSSH public key format")),
    ] {
        let pair = named("me", &json!({"spec": {"publicKey": key}}));
        assert_eq!(judged(PAIRS, Some(&pair), None, &none), verdict, "{key}");
    }
}

#[test]
fn images_say_where_their_data_comes_from() {
    let cluster = Cluster(vec![
        (IMAGES.0, IMAGES.1, named("old", &json!({"spec": {"displayName": "taken"}}))),
        ("", "persistentvolumeclaims", named("disk", &json!({}))),
    ]);
    let long = "x".repeat(64);
    let cases = [
        (json!({"displayName": "a", "sourceType": "download", "url": "http://h/i"}), Ok(())),
        (json!({"displayName": "a", "sourceType": "upload"}), Ok(())),
        (json!({"sourceType": "upload"}), refused(422, "displayName is required")),
        (
            json!({"displayName": "taken", "sourceType": "upload"}),
            refused(409, "A resource with the same name exists"),
        ),
        (json!({"displayName": "a", "sourceType": "download"}), refused(422, "url is required")),
        (
            json!({"displayName": "a", "sourceType": "upload", "url": "http://h/i"}),
            refused(422, "url should be empty when image source type is \"upload\""),
        ),
        (
            json!({"displayName": "a", "sourceType": "export-from-volume", "pvcNamespace": "default", "pvcName": "disk"}),
            Ok(()),
        ),
        (
            json!({"displayName": "a", "sourceType": "export-from-volume", "pvcNamespace": "default"}),
            refused(422, "pvcName is required when image source type is \"export-from-volume\""),
        ),
        (
            json!({"displayName": "a", "sourceType": "export-from-volume", "pvcNamespace": "closed", "pvcName": "disk"}),
            refused(422, "user has no permission to get the pvc resource disk/closed"),
        ),
    ];
    for (spec, verdict) in cases {
        let image = named("new", &json!({"spec": spec}));
        assert_eq!(judged(IMAGES, Some(&image), None, &cluster), verdict, "{spec}");
    }
    let image = named("new", &json!({"spec": {"displayName": long, "sourceType": "upload"}}));
    let (code, message) = judged(IMAGES, Some(&image), None, &cluster).unwrap_err();
    assert_eq!(code, 422);
    assert!(
        message.starts_with("displayName is not a valid Kubernetes label value: "),
        "{message}"
    );
}

#[test]
fn images_in_use_stay_and_what_they_are_does_not_change() {
    let image = named(
        "debian",
        &json!({"spec": {"displayName": "debian", "url": "http://h/a", "sourceType": "download"},
            "status": {"storageClassName": "lh-1"}}),
    );
    let claim = named("disk", &json!({"spec": {"storageClassName": "lh-1"}}));
    let used = Cluster(vec![("", "persistentvolumeclaims", claim)]);
    assert_eq!(
        judged(IMAGES, None, Some(&image), &used),
        refused(422, "Cannot delete image default/debian: being used by volume default/disk")
    );
    let version = named("v1", &json!({"spec": {"imageId": "default/debian"}}));
    let templated = Cluster(vec![(VERSIONS.0, VERSIONS.1, version)]);
    assert_eq!(
        judged(IMAGES, None, Some(&image), &templated),
        refused(
            422,
            "Cannot delete image default/debian: being used by VMTemplateVersion default/v1"
        )
    );
    let free = Cluster(Vec::new());
    assert_eq!(judged(IMAGES, None, Some(&image), &free), Ok(()));
    let mut other = image.clone();
    other["spec"]["url"] = "http://h/b".into();
    assert_eq!(
        judged(IMAGES, Some(&other), Some(&image), &free),
        refused(422, "url cannot be modified")
    );
}

#[test]
fn the_class_of_an_image_is_named_once_and_stays() {
    let mut image = named(
        "debian",
        &json!({"spec": {"displayName": "debian", "sourceType": "upload",
            "targetStorageClassName": "fast", "storageClassParameters": {"a": "b"}},
            "status": {"storageClassName": "lh-1"}}),
    );
    image["metadata"]["annotations"] = json!({"harvesterhci.io/storageClassName": "fast"});
    let none = Cluster(Vec::new());
    for (pointer, value, text) in [
        ("/spec/targetStorageClassName", "slow", "storageClassName cannot be modified"),
        (
            "/metadata/annotations/harvesterhci.io~1storageClassName",
            "slow",
            "storageClassName cannot be modified",
        ),
        ("/spec/displayName", "x", "displayName cannot be modified"),
        ("/spec/sourceType", "download", "sourceType cannot be modified"),
        (
            "/spec/storageClassParameters/a",
            "c",
            "storageClassParameters of the VM Image cannot be modified",
        ),
    ] {
        let mut other = image.clone();
        *other.pointer_mut(pointer).unwrap() = value.into();
        assert_eq!(judged(IMAGES, Some(&other), Some(&image), &none), refused(422, text));
    }
    image["spec"]["targetStorageClassName"] = "slow".into();
    let write = Write {
        group: IMAGES.0,
        resource: IMAGES.1,
        namespace: "default",
        name: "debian",
        object: None,
        old: None,
        trusted: false,
        objects: &none,
        writer: &none,
        uuid: &uuid,
    };
    let refusal = complete(&write, &mut image.clone()).unwrap_err();
    assert_eq!((refusal.code, refusal.field), (422, "spec.targetStorageClassName"));
    assert!(refusal.message.ends_with("storageClassName should keep the consistency"));

    let claim = json!({"spec": {"storageClassName": "lh-1"}});
    let volumes = json!({"volumeBackups": [{"persistentVolumeClaim": claim}]});
    let backup =
        |name: &str| (IMAGES.0, "virtualmachinebackups", named(name, &json!({"status": volumes})));
    let used = Cluster(vec![backup("a"), backup("b")]);
    let text = "Cannot delete image default/debian: being used by VMBackups default/a,default/b";
    assert_eq!(judged(IMAGES, None, Some(&image), &used), refused(422, text));
}

#[test]
fn an_image_takes_after_the_class_that_is_wished_for() {
    let class = json!({"metadata": {"name": "fast", "annotations":
            {"storageclass.kubernetes.io/is-default-class": "true"}},
        "parameters": {"numberOfReplicas": "2", "diskSelector": "ssd", "fsType": "ext4"}});
    let cluster = Cluster(vec![("storage.k8s.io", "storageclasses", class)]);
    let mut image = named("new", &json!({"spec": {"displayName": "a", "sourceType": "upload"}}));
    let before = image.clone();
    let write = Write {
        group: IMAGES.0,
        resource: IMAGES.1,
        namespace: "default",
        name: "new",
        object: Some(&before),
        old: None,
        trusted: false,
        objects: &cluster,
        writer: &cluster,
        uuid: &uuid,
    };
    complete(&write, &mut image).unwrap();
    assert_eq!(image["metadata"]["labels"], json!({"harvesterhci.io/imageDisplayName": "a"}));
    assert_eq!(image["spec"]["targetStorageClassName"], "fast");
    assert_eq!(
        image["spec"]["storageClassParameters"],
        json!({"numberOfReplicas": "2", "staleReplicaTimeout": "30", "migratable": "true",
            "diskSelector": "ssd"})
    );
}

/// A class that encrypts, with what it needs.
fn encrypting(name: &str) -> Value {
    let mut class = json!({"metadata": {"name": name}, "provisioner": "driver.longhorn.io",
        "parameters": {"numberOfReplicas": "1", "encrypted": "true"}});
    for who in ["provisioner", "node-publish", "node-stage"] {
        for (end, value) in [("name", "key"), ("namespace", "default")] {
            let key = format!("csi.storage.k8s.io/{who}-secret-{end}");
            class["parameters"][key] = json!(value);
        }
    }
    class
}

fn secret() -> Value {
    named("key", &json!({"data": {"CRYPTO_KEY_VALUE": "eA=="}}))
}

fn source(name: &str, spec: &Value, ready: &str) -> Value {
    let conditions = json!([{"type": "Imported", "status": ready}]);
    named(name, &json!({"spec": spec, "status": {"conditions": conditions}}))
}

fn clone_of(source: &str, operation: &str, class: &str) -> Value {
    let (namespace, name) = source.split_once('/').unwrap_or(("default", source));
    let mut image = named(
        "new",
        &json!({"spec": {"displayName": "new", "sourceType": "clone",
            "securityParameters": {"cryptoOperation": operation, "sourceImageName": name,
                "sourceImageNamespace": namespace}}}),
    );
    image["metadata"]["annotations"] = json!({"harvesterhci.io/storageClassName": class});
    image
}

fn images_and_classes(with_secret: bool) -> Cluster {
    let hidden = encrypting("hidden");
    let clone = json!({"displayName": "Locked", "sourceType": "clone",
        "securityParameters": {"cryptoOperation": "encrypt"},
        "storageClassParameters": hidden["parameters"]});
    let mut tied = encrypting("tied");
    tied["parameters"]["backingImage"] = json!("vmi-1");
    let plain = |name: &str| json!({"displayName": name, "sourceType": "upload"});
    let (images, classes) = (IMAGES, ("storage.k8s.io", "storageclasses"));
    let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let mut all = vec![
        (images.0, images.1, source("open", &plain("Open"), "True")),
        (images.0, images.1, source("coming", &plain("Coming"), "Unknown")),
        (images.0, images.1, source("locked", &clone, "True")),
        (classes.0, classes.1, hidden),
        (classes.0, classes.1, tied),
        (classes.0, classes.1, json!({"metadata": {"name": "plain", "annotations": default}})),
    ];
    if with_secret {
        all.push(("", "secrets", secret()));
    }
    Cluster(all)
}

fn completed(mut image: Value, cluster: &Cluster) -> Value {
    let write = Write {
        group: IMAGES.0,
        resource: IMAGES.1,
        namespace: "default",
        name: "new",
        object: None,
        old: None,
        trusted: false,
        objects: cluster,
        writer: cluster,
        uuid: &uuid,
    };
    complete(&write, &mut image).unwrap();
    image
}

#[test]
fn an_image_is_encrypted_once_and_decrypted_once() {
    let cluster = images_and_classes(true);
    let mut bare = clone_of("open", "encrypt", "hidden");
    bare["spec"].as_object_mut().unwrap().remove("securityParameters");
    let required = |what: &str| {
        refused(422, &format!("{what} is required when image source type is \"clone\""))
    };
    let plain = refused(422, "storage class plain is not for encryption or decryption");
    let cases = [
        (clone_of("open", "encrypt", "hidden"), Ok(())),
        (clone_of("locked", "decrypt", ""), Ok(())),
        (clone_of("locked", "decrypt", "hidden"), Ok(())),
        (bare, required("sourceParameters")),
        (clone_of("", "encrypt", "hidden"), required("SourceImageName")),
        (clone_of("/open", "encrypt", "hidden"), required("SourceImageNamespace")),
        (clone_of("open", "", "hidden"), required("encryption")),
        (
            clone_of("none", "encrypt", "hidden"),
            refused(422, "source image default/none not found"),
        ),
        (
            clone_of("closed/open", "encrypt", "hidden"),
            refused(422, "user \"ann\" is not allowed to access source image closed/open"),
        ),
        (
            clone_of("locked", "encrypt", "hidden"),
            refused(
                422,
                "can not re-encrypt, source image default/locked (Locked) is already encrypted",
            ),
        ),
        (
            clone_of("open", "decrypt", ""),
            refused(422, "can not re-decrypt, source image default/open (Open) is not encrypted"),
        ),
        (
            clone_of("coming", "encrypt", "hidden"),
            refused(422, "source image default/coming (Coming) is not ready"),
        ),
        (clone_of("open", "encrypt", "plain"), plain.clone()),
        (clone_of("open", "encrypt", ""), plain),
        (
            clone_of("open", "encrypt", "tied"),
            refused(
                422,
                "storage class tied is tied to a specific backing image and cannot be used as target for clone/encrypt",
            ),
        ),
    ];
    for (image, verdict) in cases {
        let image = completed(image, &cluster);
        assert_eq!(judged(IMAGES, Some(&image), None, &cluster), verdict, "{image}");
    }
    let keyless = images_and_classes(false);
    for (source, operation) in [("open", "encrypt"), ("locked", "decrypt")] {
        let image = completed(clone_of(source, operation, "hidden"), &keyless);
        let verdict = refused(422, "secret default/key not found");
        assert_eq!(judged(IMAGES, Some(&image), None, &keyless), verdict);
    }
}

#[test]
fn decrypted_data_is_not_of_an_encrypted_class() {
    let cluster = images_and_classes(true);
    let hidden = completed(clone_of("open", "encrypt", "hidden"), &cluster);
    let parameters = &hidden["spec"]["storageClassParameters"];
    assert_eq!(parameters["encrypted"], "true");
    assert_eq!(parameters["csi.storage.k8s.io/node-publish-secret-name"], "key");
    let open = completed(clone_of("locked", "decrypt", "hidden"), &cluster);
    let parameters = open["spec"]["storageClassParameters"].as_object().unwrap();
    assert!(!parameters.keys().any(|key| key.contains("secret") || key == "encrypted"), "{open}");
    let mut upload = clone_of("open", "encrypt", "hidden");
    upload["spec"]["sourceType"] = json!("upload");
    let upload = completed(upload, &cluster);
    let (code, message) = judged(IMAGES, Some(&upload), None, &cluster).unwrap_err();
    assert_eq!(code, 422);
    assert!(message.starts_with("an encrypted image is a clone"), "{message}");
}

#[test]
fn versions_of_templates_are_whole_and_stay_as_they_are() {
    let template = named("linux", &json!({"spec": {"defaultVersionId": "default/linux-1"}}));
    let cluster = Cluster(vec![("harvesterhci.io", "virtualmachinetemplates", template)]);
    let limits = json!({"cpu": "1", "memory": "1Gi"});
    let machine = |limits: &Value| {
        let domain = json!({"resources": {"limits": limits}});
        json!({"spec": {"template": {"spec": {"domain": domain}}}})
    };
    let (vm, with) = (machine(&limits), |name: &str| machine(&json!({name: "1"})));
    let cases = [
        (json!({"templateId": "default/linux", "vm": vm}), Ok(())),
        (json!({}), refused(422, "TemplateId is empty")),
        (
            json!({"templateId": "other/linux"}),
            refused(422, "Template version and template should reside in the same namespace"),
        ),
        (json!({"templateId": "default/none"}), refused(422, "template default/none is not found")),
        (
            json!({"templateId": "default/linux", "keyPairIds": ["default/me"]}),
            refused(422, "keyPair default/me is not found"),
        ),
        (
            json!({"templateId": "default/linux", "vm": {"spec": {}}}),
            refused(
                422,
                "CPU and Memory limits are required fields, but are missing from the input",
            ),
        ),
        (
            json!({"templateId": "default/linux", "vm": with("cpu")}),
            refused(422, "Memory limit is an required field, but is missing from the input"),
        ),
        (
            json!({"templateId": "default/linux", "vm": with("memory")}),
            refused(422, "CPU limit is an required field, but is missing from the input"),
        ),
    ];
    for (spec, verdict) in cases {
        let version = named("linux-2", &json!({"spec": spec}));
        assert_eq!(judged(VERSIONS, Some(&version), None, &cluster), verdict, "{spec}");
    }
    let first = named("linux-1", &json!({"spec": {"templateId": "default/linux"}}));
    assert_eq!(
        judged(VERSIONS, None, Some(&first), &cluster),
        refused(400, "Cannot delete the default templateVersion")
    );
    let changed =
        named("linux-1", &json!({"spec": {"templateId": "default/linux", "description": "x"}}));
    assert_eq!(
        judged(VERSIONS, Some(&changed), Some(&first), &cluster),
        refused(405, "Update templateVersion is not supported")
    );
}

#[test]
fn there_is_one_default_class_and_reserved_ones_stay() {
    let class = |name: &str, annotation: &str| {
        json!({"metadata": {"name": name, "annotations": {annotation: "true"}},
            "provisioner": "driver.longhorn.io"})
    };
    let default = "storageclass.kubernetes.io/is-default-class";
    let kind = ("storage.k8s.io", "storageclasses");
    let cluster = Cluster(vec![(kind.0, kind.1, class("one", default))]);
    assert_eq!(
        judged(kind, Some(&class("two", default)), None, &cluster),
        refused(
            422,
            "default storage class one already exists, please reset it first before set two as default"
        )
    );
    let mut own = class("two", default);
    let write = Write {
        group: kind.0,
        resource: kind.1,
        namespace: "",
        name: "two",
        object: None,
        old: None,
        trusted: true,
        objects: &cluster,
        writer: &cluster,
        uuid: &uuid,
    };
    super::complete(&write, &mut own).unwrap();
    assert_eq!(own["metadata"]["annotations"][default], "false", "the server's own gives way");
    let reserved = class("mine", "harvesterhci.io/is-reserved-storageclass");
    assert_eq!(
        judged(kind, None, Some(&reserved), &cluster),
        refused(422, "storage class mine is reserved by Harvester and can't be deleted")
    );
    let mut wrong = class("three", "x");
    wrong["parameters"] = json!({"numberOfReplicas": "none"});
    assert_eq!(
        judged(kind, Some(&wrong), None, &cluster),
        refused(422, "numberOfReplicas none is invalid: it must be from 1 to 20")
    );
}

#[test]
fn claims_that_machines_use_stay() {
    let machine = named(
        "web",
        &json!({"spec": {"template": {"spec": {"volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]}}}}),
    );
    let cluster = Cluster(vec![("kubevirt.io", "virtualmachines", machine)]);
    let kind = ("", "persistentvolumeclaims");
    assert_eq!(
        judged(kind, None, Some(&named("disk", &json!({}))), &cluster),
        refused(
            409,
            "can not delete the volume disk which is currently attached to VM: default/web"
        )
    );
    assert_eq!(judged(kind, None, Some(&named("other", &json!({}))), &cluster), Ok(()));
}

#[test]
fn only_harvesters_machines_may_not_name_the_disk_of_another() {
    let machine = |name: &str, metadata: Value| {
        let mut machine = named(
            name,
            &json!({"spec": {"runStrategy": "Halted", "template": {"spec": {
                "domain": {"memory": {"guest": "1Gi"}},
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]}}}}),
        );
        for (field, value) in metadata.as_object().unwrap() {
            machine["metadata"][field] = value.clone();
        }
        machine
    };
    let claim = |mode: &str| named("disk", &json!({"spec": {"accessModes": [mode]}}));
    let cluster = |mode: &str| {
        Cluster(vec![
            ("kubevirt.io", "virtualmachines", machine("web", json!({}))),
            ("", "persistentvolumeclaims", claim(mode)),
        ])
    };
    let kind = ("kubevirt.io", "virtualmachines");
    let plain = machine("db", json!({}));
    assert_eq!(judged(kind, Some(&plain), None, &cluster("ReadWriteOnce")), Ok(()));
    let harvesters = [
        json!({"labels": {"harvesterhci.io/creator": "harvester"}}),
        json!({"annotations": {"harvesterhci.io/vmRunStrategy": "RerunOnFailure"}}),
    ];
    for metadata in harvesters {
        let object = machine("db", metadata);
        assert_eq!(
            judged(kind, Some(&object), None, &cluster("ReadWriteOnce")),
            refused(
                422,
                "PVC default/disk is already used by other VM, please use a shareable RWX volume."
            )
        );
        assert_eq!(judged(kind, Some(&object), None, &cluster("ReadWriteMany")), Ok(()));
    }
}

#[test]
fn volumes_do_not_shrink_and_settings_take_what_they_take() {
    let none = Cluster(Vec::new());
    let volume = |size: &str| named("v", &json!({"spec": {"size": size, "numberOfReplicas": 3}}));
    let kind = ("longhorn.io", "volumes");
    assert_eq!(judged(kind, Some(&volume("1073741824")), None, &none), Ok(()));
    assert_eq!(
        judged(kind, Some(&volume("1")), Some(&volume("2")), &none),
        refused(400, "shrinking volume v is not supported")
    );
    for size in ["0", "-1", "ten", ""] {
        assert_eq!(
            judged(kind, Some(&volume(size)), None, &none),
            refused(400, "spec.size must be a number of bytes above 0, as a text")
        );
    }
    let setting = named("auto-salvage", &json!({"value": "maybe"}));
    assert_eq!(
        judged(("longhorn.io", "settings"), Some(&setting), None, &none),
        refused(
            400,
            "the value \"maybe\" of setting auto-salvage is invalid: it must be true or false"
        )
    );
}

#[test]
fn volumes_that_name_no_replicas_have_those_of_the_settings() {
    let setting = |name: &str, value: &str| {
        let object = json!({"metadata": {"namespace": "longhorn-system", "name": name},
            "value": value});
        ("longhorn.io", "settings", object)
    };
    let both = r#"{"v1":"2","v2":"1"}"#;
    for (settings, spec, expected) in [
        (vec![], json!({}), json!([3, "disabled"])),
        (vec![setting("default-replica-count", both)], json!({}), json!([2, "disabled"])),
        (vec![setting("default-replica-count", "1")], json!({}), json!([1, "disabled"])),
        (
            vec![setting("default-replica-count", "1")],
            json!({"numberOfReplicas": 0, "dataLocality": ""}),
            json!([1, "disabled"]),
        ),
        (
            vec![setting("default-replica-count", "1")],
            json!({"numberOfReplicas": 2}),
            json!([2, "disabled"]),
        ),
        (
            vec![setting("default-data-locality", "best-effort")],
            json!({}),
            json!([3, "best-effort"]),
        ),
    ] {
        let cluster = Cluster(settings);
        let mut volume = named("v", &json!({"spec": spec}));
        let before = volume.clone();
        let write = Write {
            group: "longhorn.io",
            resource: "volumes",
            namespace: "longhorn-system",
            name: "v",
            object: Some(&before),
            old: None,
            trusted: false,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        complete(&write, &mut volume).unwrap();
        let made = json!([volume["spec"]["numberOfReplicas"], volume["spec"]["dataLocality"]]);
        assert_eq!(made, expected, "{spec}");
    }
}

#[test]
fn a_backup_needs_its_machine_and_a_place() {
    let kind = ("harvesterhci.io", "virtualmachinebackups");
    let cluster = Cluster(vec![("kubevirt.io", "virtualmachines", named("m", &json!({})))]);
    let backup = |source: &str, of: &str| {
        named("b", &json!({"spec": {"source": {"name": source}, "type": of}}))
    };
    for (own, expected) in [
        (backup("m", "snapshot"), Ok(())),
        (backup("m", "backup"), refused(422, "backup target is not set")),
        (backup("", "snapshot"), refused(422, "source VM name is empty")),
        (backup("x", "snapshot"), refused(422, "virtualmachines.kubevirt.io \"x\" not found")),
    ] {
        assert_eq!(judged(kind, Some(&own), None, &cluster), expected, "{own}");
    }
    let mut own = backup("m", "snapshot");
    own["spec"]["fsFreezeDeadline"] = json!("-1s");
    let negative = judged(kind, Some(&own), None, &cluster);
    assert_eq!(negative, refused(422, "must not be negative"));
    let old = backup("m", "snapshot");
    let mut claimed = old.clone();
    claimed["metadata"]["annotations"] = json!({"harvesterhci.io/svmbackupId": "default/s"});
    let moved = judged(kind, Some(&claimed), Some(&old), &cluster);
    let message = "annotation harvesterhci.io/svmbackupId isn't allowed for updating";
    assert_eq!(moved, refused(400, message));
}

#[test]
fn a_recurring_job_is_completed_and_checked() {
    let kind = ("longhorn.io", "recurringjobs");
    let cluster = Cluster(Vec::new());
    let judged_job = |spec: Value| {
        let mut job = named("nightly", &json!({"spec": spec}));
        recurring_job::complete("nightly", &mut job);
        judged(kind, Some(&job), None, &cluster)
    };
    let mut job = named("nightly", &json!({"spec": {"task": "snapshot", "cron": "0 0 * * *"}}));
    recurring_job::complete("nightly", &mut job);
    assert_eq!(
        job["spec"],
        json!({"name": "nightly", "task": "snapshot", "cron": "0 0 * * *", "groups": [],
            "labels": {}, "parameters": {}, "concurrency": 10, "retain": 1,
            "retentionPolicy": "count-based"})
    );
    for (spec, expected) in [
        (json!({"task": "snapshot", "cron": "0 0 * * *", "retain": 3}), Ok(())),
        (
            json!({"task": "snapshot", "cron": "not a cron"}),
            refused(
                422,
                "invalid cron format(not a cron): expected exactly 5 fields, found 3: [not a cron]",
            ),
        ),
        (
            json!({"task": "snapshot", "cron": "@daily", "retain": 101}),
            refused(422, "retain value should be less than or equal to 100"),
        ),
        (
            json!({"task": "snapshot-cleanup", "cron": "@daily", "retentionPolicy": "age-based"}),
            refused(
                422,
                "recurring job retention policy age-based can not be used with task \
                 snapshot-cleanup",
            ),
        ),
        (
            json!({"task": "snapshot", "cron": "@daily", "groups": ["a b"]}),
            refused(422, "invalid group name a b"),
        ),
        (
            json!({"task": "snapshot", "cron": "@daily", "concurrency": -1}),
            refused(422, "recurring job concurrency -1 must be greater than 0"),
        ),
        (
            json!({"task": "snapshot", "cron": "@daily", "labels": {"k": ""}}),
            refused(422, "value for label with key k cannot be empty"),
        ),
        (
            json!({"task": "snapshot", "cron": "@daily", "labels": {"KubernetesStatus": "x"}}),
            refused(
                422,
                "specified snapshot backup labels contain reserved keyword KubernetesStatus",
            ),
        ),
        (json!({"cron": "@daily"}), refused(422, "invalid job nightly: task must not be empty")),
    ] {
        assert_eq!(judged_job(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn a_storage_node_goes_only_after_its_kubernetes_node() {
    let kind = ("longhorn.io", "nodes");
    let node = |ready: &str, reason: &str, schedulable: bool| {
        json!({"metadata": {"name": "one", "namespace": "longhorn-system"},
            "spec": {"allowScheduling": schedulable},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": reason}]}})
    };
    let empty = Cluster(Vec::new());
    let replica = json!({"metadata": {"name": "r", "namespace": "longhorn-system"},
        "spec": {"nodeID": "one"}});
    let used = Cluster(vec![("longhorn.io", "replicas", replica)]);
    let gone = node("False", "KubernetesNodeGone", false);
    assert_eq!(judged(kind, None, Some(&gone), &empty), Ok(()));
    assert_eq!(
        judged(kind, None, Some(&node("True", "", true)), &used),
        refused(
            422,
            "could not delete node one with node ready condition is True, reason is , node \
             schedulable true, and 1 replica, 0 engine running on it"
        )
    );
    assert!(judged(kind, None, Some(&gone), &used).is_err());
    let open = node("False", "KubernetesNodeGone", true);
    assert!(judged(kind, None, Some(&open), &empty).is_err());
}

#[test]
fn an_encrypted_class_needs_a_passphrase_or_a_template_for_its_secret() {
    let kind = ("storage.k8s.io", "storageclasses");
    let with = |data: Value| Cluster(vec![("", "secrets", named("key", &json!({"data": data})))]);
    let class = encrypting("hidden");
    let judged_with = |data: Value| judged(kind, Some(&class), None, &with(data));
    assert_eq!(judged_with(json!({"CRYPTO_KEY_VALUE": "eA=="})), Ok(()));
    let secret = json!({"CRYPTO_KEY_VALUE": "eA==", "CRYPTO_KEY_PROVIDER": "c2VjcmV0"});
    assert_eq!(judged_with(secret), Ok(()));
    let invalid = |problem: &str| {
        let message = "secret default/key is not a valid encryption secret";
        refused(422, &format!("{message}, {problem}"))
    };
    assert_eq!(judged_with(json!({})), invalid("missing field: CRYPTO_KEY_VALUE"));
    for (field, value, known) in [
        ("CRYPTO_KEY_PROVIDER", "a21z", "secret"),
        ("CRYPTO_KEY_SIZE", "YXNk", "256, 384, 512"),
        ("CRYPTO_KEY_HASH", "bWQ1", "sha256, sha384, sha512"),
        ("CRYPTO_PBKDF", "eA==", "argon2i, argon2id, pbkdf2"),
    ] {
        let other = json!({"CRYPTO_KEY_VALUE": "eA==", field: value});
        let problem = format!("invalid field: {field}: it must be one of {known}");
        assert_eq!(judged_with(other), invalid(&problem));
    }
    // The values that Harvester's form fills in.
    let whole = json!({"CRYPTO_KEY_VALUE": "eA==", "CRYPTO_KEY_CIPHER": "YWVzLXh0cy1wbGFpbjY0",
        "CRYPTO_KEY_HASH": "c2hhMjU2", "CRYPTO_KEY_SIZE": "MjU2", "CRYPTO_PBKDF": "YXJnb24yaQ=="});
    assert_eq!(judged_with(whole), Ok(()));
    let mut template = encrypting("hidden");
    for who in ["provisioner", "node-publish", "node-stage"] {
        let key = |end: &str| format!("csi.storage.k8s.io/{who}-secret-{end}");
        template["parameters"][key("name")] = json!("${pvc.name}");
        template["parameters"][key("namespace")] = json!("${pvc.namespace}");
    }
    assert_eq!(judged(kind, Some(&template), None, &Cluster(Vec::new())), Ok(()));
    let missing = judged(kind, Some(&class), None, &Cluster(Vec::new()));
    assert_eq!(missing, refused(422, "secret default/key not found"));
}

#[test]
fn a_machine_has_one_schedule_that_can_be_read() {
    let kind = ("harvesterhci.io", "schedulevmbackups");
    let schedule = |name: &str, machine: &str, cron: &str, failures: i64| {
        let source = json!({"source": {"name": machine}, "type": "snapshot"});
        let spec = json!({"cron": cron, "retain": 5, "maxFailure": failures, "vmbackup": source});
        named(name, &json!({"spec": spec}))
    };
    let old = schedule("a", "web", "0 2 * * *", 4);
    let cluster = Cluster(vec![(kind.0, kind.1, old.clone())]);
    let close = "same granularity as schedule a and offset less than 10m0s";
    let mut fast = schedule("b", "db", "*/5 * * * *", 4);
    fast["metadata"]["annotations"] = json!({"harvesterhci.io/svmbackupSkipCronCheck": "enable"});
    let mut far = schedule("b", "db", "30 2 * * *", 4);
    far["spec"]["vmbackup"]["type"] = json!("backup");
    let (mut asleep, mut awake) = (far.clone(), far.clone());
    asleep["spec"]["suspend"] = json!(true);
    awake["spec"]["suspend"] = json!(false);
    for (object, old, expected) in [
        (schedule("b", "db", "10 2 * * *", 4), None, Ok(())),
        (schedule("b", "db", "0 2 * * 1", 4), None, Ok(())),
        (schedule("b", "db", "9 2 * * *", 4), None, refused(422, close)),
        (
            schedule("b", "db", "*/5 * * * *", 4),
            None,
            refused(422, "schedule granularity 5m0s less than 1h0m0s"),
        ),
        (
            schedule("b", "db", "@every 30s", 4),
            None,
            refused(422, "schedule granularity 30s less than 1h0m0s"),
        ),
        (fast, None, Ok(())),
        (schedule("a", "web", "0 3 * * *", 4), Some(&old), Ok(())),
        (schedule("b", "db", "at two", 4), None, refused(422, "invalid cron format")),
        (
            schedule("b", "db", "30 2 * * *", 5),
            None,
            refused(422, "max failure should be less than retain"),
        ),
        (
            schedule("b", "web", "30 2 * * *", 4),
            None,
            refused(422, "VM default/web already has snapshot schedule"),
        ),
        (
            schedule("a", "db", "0 2 * * *", 4),
            Some(&old),
            refused(422, "source vm can't be changed"),
        ),
        (far, None, refused(422, "setting backup-target is not set")),
        (asleep.clone(), Some(&awake), Ok(())),
        (awake.clone(), Some(&asleep), refused(422, "setting backup-target is not set")),
    ] {
        assert_eq!(judged(kind, Some(&object), old, &cluster), expected, "{object}");
    }
    let mut other = schedule("b", "db", "0 2 * * *", 4);
    other["metadata"]["namespace"] = json!("closed");
    let cluster = Cluster(vec![(kind.0, kind.1, other)]);
    let hidden = judged(kind, Some(&old), None, &cluster);
    let close = "same granularity as schedule of another namespace and offset less than 10m0s";
    assert_eq!(hidden, refused(422, close));
}

#[test]
fn alarms_are_acknowledged_and_neither_made_nor_deleted() {
    let kind = (crate::alarm::GROUP, crate::alarm::PLURAL);
    let alarm = named("a", &json!({"spec": {}}));
    let cluster = Cluster(Vec::new());
    let denied = |outcome: Result<(), (u16, String)>| outcome.map_err(|(code, _)| code);
    assert_eq!(denied(judged(kind, Some(&alarm), None, &cluster)), Err(403));
    assert_eq!(denied(judged(kind, None, Some(&alarm), &cluster)), Err(403));
    assert_eq!(judged(kind, Some(&alarm), Some(&alarm), &cluster), Ok(()));
    let completed = |old: Value, new: Value| {
        let (old, mut object) = (json!({"spec": old}), json!({"spec": new}));
        let write = Write {
            group: kind.0,
            resource: kind.1,
            namespace: "",
            name: "a",
            object: None,
            old: Some(&old),
            trusted: false,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        complete(&write, &mut object).unwrap();
        object["spec"].clone()
    };
    let acknowledged = json!({"acknowledged": true});
    let by_ann = json!({"acknowledged": true, "acknowledgedBy": "ann"});
    let by_bob = json!({"acknowledged": true, "acknowledgedBy": "bob"});
    assert_eq!(completed(json!({}), acknowledged), by_ann);
    assert_eq!(completed(json!({}), by_bob.clone()), by_ann, "no user signs for another");
    assert_eq!(completed(by_bob.clone(), by_ann.clone()), by_bob, "the first one stays");
    let revoked = json!({"acknowledged": false, "acknowledgedBy": "bob"});
    assert_eq!(completed(by_bob, revoked), json!({"acknowledged": false}));
}
