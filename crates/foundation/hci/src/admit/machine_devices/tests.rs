//! Machines and what is wrong with their devices.

use serde_json::json;

use super::super::tests::{Cluster, uuid};
use super::super::validate as judge;
use super::*;

fn machine(name: &str, annotations: Value, spec: Value) -> Value {
    json!({
        "metadata": {
            "namespace": "default", "name": name, "annotations": annotations,
            "labels": {"harvesterhci.io/creator": "harvester"},
        },
        "spec": {"runStrategy": "Halted", "template": {"spec": spec}},
    })
}

fn judged(object: &Value, old: Option<&Value>, cluster: &Cluster) -> String {
    let write = Write {
        group: "kubevirt.io",
        resource: "virtualmachines",
        namespace: "default",
        name: text(object, "/metadata/name"),
        object: Some(object),
        old,
        trusted: false,
        objects: cluster,
        writer: cluster,
        uuid: &uuid,
    };
    match judge(&write) {
        Ok(()) => "allowed".to_owned(),
        Err(refusal) => {
            let message = refusal.message.split("denied the request: ").nth(1).unwrap_or_default();
            format!("{} {message}", refusal.code)
        }
    }
}

#[test]
fn memory_is_set_and_leaves_room() {
    let none = Cluster(Vec::new());
    let with = |reserved: &str, guest: &str, limit: &str| {
        let domain =
            json!({"memory": {"guest": guest}, "resources": {"limits": {"memory": limit}}});
        machine(
            "web",
            json!({"harvesterhci.io/reservedMemory": reserved}),
            json!({"domain": domain}),
        )
    };
    for (object, expected) in [
        (with("", "1Gi", "1Gi"), "allowed"),
        (with("1Gi", "1Gi", "2Gi"), "allowed"),
        (
            with("2Gi", "1Gi", "2Gi"),
            "422 reservedMemory cannot be equal or greater than limits.memory",
        ),
        (with("-1Gi", "1Gi", "2Gi"), "422 reservedMemory cannot be less than 0"),
        (
            with("1Gi", "2Gi", "2Gi"),
            "422 guest memory 2147483648 plus reservedMemory 1073741824 cannot be greater than limits.memory 2147483648",
        ),
        (
            machine("web", json!({}), json!({"domain": {}})),
            "422 either memory.guest or resources.limits.memory must be set",
        ),
        (
            machine("web", json!({}), json!({"terminationGracePeriodSeconds": -1})),
            "422 Termination grace period can't be negative",
        ),
    ] {
        assert_eq!(judged(&object, None, &none), expected, "{object}");
    }
    assert!(
        judged(&with("much", "1Gi", "2Gi"), None, &none).starts_with("422 reservedMemory \"much\"")
    );
}

#[test]
fn disks_are_shared_only_where_that_works() {
    let claim = |name: &str, class: &str, mode: &str| {
        let object = json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteMany"], "volumeMode": mode},
        });
        ("", "persistentvolumeclaims", object)
    };
    let class = json!({"metadata": {"name": "lh"}, "provisioner": "driver.longhorn.io"});
    let cluster = Cluster(vec![
        claim("good", "nfs", "Block"),
        claim("files", "nfs", "Filesystem"),
        claim("own", "lh", "Block"),
        ("storage.k8s.io", "storageclasses", class),
    ]);
    let with = |disk: Value, claim: &str| {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        let disks = json!([{"name": "root", "bootOrder": 1}, disk]);
        let domain = json!({"memory": {"guest": "1Gi"}, "devices": {"disks": disks}});
        machine("web", json!({}), json!({"domain": domain, "volumes": [volume]}))
    };
    let shared = json!({"name": "data", "shareable": true});
    let refused = |text: &str| format!("422 {text}");
    for (object, expected) in [
        (with(shared.clone(), "good"), "allowed".to_owned()),
        (
            with(shared.clone(), "files"),
            refused("PVC default/files cannot back a shareable disk: volumeMode must be Block"),
        ),
        (
            with(shared.clone(), "own"),
            refused(
                "PVC default/own cannot back a shareable disk: a ReadWriteMany volume from a provisioner other than Longhorn is required",
            ),
        ),
        (
            with(shared, "none"),
            refused(
                "PVC default/none does not exist: a shareable disk requires an existing volume",
            ),
        ),
        (
            with(json!({"name": "data", "shareable": true, "cache": "writeback"}), "good"),
            refused(
                "disk data cannot be shareable: a shareable disk requires cache mode none, got writeback",
            ),
        ),
        (
            with(json!({"name": "data", "shareable": true, "bootOrder": 1}), "good"),
            refused(
                "disk data cannot be shareable: a shareable disk cannot be used as the boot disk",
            ),
        ),
        (
            with(json!({"name": "other", "shareable": true}), "good"),
            refused(
                "disk other cannot be shareable: a shareable disk must be backed by a persistent volume claim",
            ),
        ),
        (
            with(json!({"name": "data", "cdrom": {"bus": "virtio"}}), "good"),
            refused("cdrom disk data has unsupported bus virtio"),
        ),
        (
            with(json!({"name": "cd", "cdrom": {"bus": "scsi"}}), "good"),
            refused("empty cd-rom device should connect via SATA bus"),
        ),
        (with(json!({"name": "cd", "cdrom": {"bus": "SATA"}}), "good"), "allowed".to_owned()),
    ] {
        assert_eq!(judged(&object, None, &cluster), expected, "{object}");
    }
}

#[test]
fn addresses_are_given_once_per_network() {
    let with = |name: &str, mac: &str, network: &str| {
        let interfaces = json!([{"name": "n", "macAddress": mac}]);
        let domain = json!({"memory": {"guest": "1Gi"}, "devices": {"interfaces": interfaces}});
        let networks = json!([{"name": "n", "multus": {"networkName": network}}]);
        machine(name, json!({}), json!({"domain": domain, "networks": networks}))
    };
    let label = |name: &str, cluster: &str| {
        let object = json!({"metadata": {
            "namespace": "default", "name": name,
            "labels": {"network.harvesterhci.io/clusternetwork": cluster},
        }});
        ("k8s.cni.cncf.io", "network-attachment-definitions", object)
    };
    let cluster = Cluster(vec![
        ("kubevirt.io", "virtualmachines", with("db", "02:00:00:00:00:0A", "lan")),
        label("lan", "fast"),
        label("lan2", "fast"),
        label("wan", "slow"),
    ]);
    let taken = "422 duplicate mac address present for vm web for cluster network fast";
    for (mac, network, expected) in [
        ("02:00:00:00:00:0a", "lan", taken),
        ("02-00-00-00-00-0a", "lan2", taken),
        ("02:00:00:00:00:0a", "wan", "allowed"),
        ("02:00:00:00:00:0b", "lan", "allowed"),
    ] {
        let object = with("web", mac, network);
        assert_eq!(judged(&object, None, &cluster), expected, "{mac} {network}");
    }
    let own = with("db", "02:00:00:00:00:0A", "lan");
    assert_eq!(judged(&own, None, &cluster), "allowed", "its own address");
}

#[test]
fn claims_of_a_machine_keep_class_and_image() {
    let image = json!({
        "metadata": {"namespace": "default", "name": "suse", "uid": "1"}, "spec": {"displayName": "suse"},
        "status": {"storageClassName": "lh-1"},
    });
    let cluster = Cluster(vec![("harvesterhci.io", "virtualmachineimages", image)]);
    let with = |class: &str, image: &str| {
        let template = json!([{
            "metadata": {"name": "root", "annotations": {"harvesterhci.io/imageId": image}},
            "spec": {"storageClassName": class},
        }]);
        let annotations = json!({"harvesterhci.io/volumeClaimTemplates": template.to_string()});
        machine("web", annotations, json!({"domain": {"memory": {"guest": "1Gi"}}}))
    };
    assert_eq!(judged(&with("lh-1", "default/suse"), None, &cluster), "allowed");
    assert_eq!(
        judged(&with("lh-1", "default/other"), None, &cluster),
        "422 imageId \"default/other\" in volume template does not match backing image of storage class \"lh-1\" (expected \"default/suse\")"
    );
    assert_eq!(
        judged(&with("b", ""), Some(&with("a", "")), &cluster),
        "422 storage class names for the volumes in the harvesterhci.io/volumeClaimTemplates annotation cannot be changed; new name b in volume root;"
    );
}

#[test]
fn a_machine_is_not_stopped_during_a_backup() {
    let with = |strategy: &str| {
        let mut vm = machine("web", json!({}), json!({"domain": {"memory": {"guest": "1Gi"}}}));
        vm["spec"]["runStrategy"] = strategy.into();
        vm
    };
    let backup = |ready: bool| {
        let object = json!({
            "metadata": {"namespace": "default", "name": "b"},
            "spec": {"source": {"name": "web"}}, "status": {"readyToUse": ready},
        });
        Cluster(vec![("harvesterhci.io", "virtualmachinebackups", object)])
    };
    let (runs, stops) = (with("Always"), with("Halted"));
    assert_eq!(
        judged(&stops, Some(&runs), &backup(false)),
        "400 vm default/web has a backup in progress; wait for it to finish or delete it before stopping/restarting"
    );
    assert_eq!(judged(&stops, Some(&runs), &backup(true)), "allowed");
    assert_eq!(judged(&runs, Some(&runs), &backup(false)), "allowed");
}

#[test]
fn data_of_images_is_no_disk() {
    let claim = json!({"metadata": {
        "namespace": "default", "name": "gold",
        "annotations": {"harvesterhci.io/goldenImage": "true"},
    }});
    let cluster = Cluster(vec![("", "persistentvolumeclaims", claim)]);
    let volumes = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "gold"}}]);
    let spec = json!({"domain": {"memory": {"guest": "1Gi"}}, "volumes": volumes});
    assert_eq!(
        judged(&machine("web", json!({}), spec), None, &cluster),
        "422 PVC default/gold is a golden image, it can't be used as a volume in VM"
    );
}
