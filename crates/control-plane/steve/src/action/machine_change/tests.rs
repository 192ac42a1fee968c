use serde_json::{Value, json};

use super::*;

fn machine() -> Value {
    json!({
        "metadata": {
            "namespace": "n", "name": "web",
            "annotations": {
                "harvesterhci.io/reservedMemory": "128Mi", "other": "x",
                CLAIM_TEMPLATES: r#"[{"metadata":{"name":"web-root"}}]"#,
            },
        },
        "spec": {
            "runStrategy": "Always",
            "template": {"spec": {
                "domain": {"devices": {
                    "disks": [{"name": "root"}, {"name": "cd", "cdrom": {"bus": "SATA"}}],
                    "interfaces": [{"name": "default", "macAddress": "52:54:00:00:00:01"}],
                }},
                "volumes": [
                    {"name": "root", "persistentVolumeClaim": {"claimName": "web-root"}},
                    {"name": "cd", "persistentVolumeClaim": {"claimName": "web-cd"}},
                    {"name": "cloudinit", "cloudInitNoCloud": {}},
                ],
            }},
        },
    })
}

fn claim(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "c",
            "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

#[test]
fn a_machine_starts_as_it_ran_before() {
    let mut vm = machine();
    assert_eq!(start(&vm), None);
    let patch = stop(&vm).unwrap();
    assert_eq!(patch["spec"]["runStrategy"], "Halted");
    assert_eq!(patch["metadata"]["annotations"][RUN_STRATEGY], "Always");
    vm["spec"]["runStrategy"] = "Halted".into();
    assert_eq!(start(&vm).unwrap()["spec"]["runStrategy"], "RerunOnFailure");
    vm["metadata"]["annotations"][RUN_STRATEGY] = "Always".into();
    assert_eq!(start(&vm).unwrap()["spec"]["runStrategy"], "Always");
    assert_eq!(stop(&vm).unwrap().get("metadata"), None);
    vm["spec"] = json!({"running": true});
    assert_eq!(stop(&vm), None);
}

#[test]
fn volumes_are_added_and_removed_with_their_templates() {
    let mut vm = machine();
    add_volume(&mut vm, "data", &claim("data-claim")).unwrap();
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let added = volumes.last().unwrap();
    assert_eq!(
        added["persistentVolumeClaim"],
        json!({"claimName": "data-claim", "hotpluggable": true})
    );
    assert_eq!(templates(&vm).len(), 2);
    assert!(matches!(
        add_volume(&mut vm, "data", &claim("x")),
        Err(ChangeError::DiskExists { .. })
    ));
    remove_volume(&mut vm, "data").unwrap();
    assert_eq!(vm["spec"], machine()["spec"]);
    assert_eq!(templates(&vm).len(), 1);
    let error = remove_volume(&mut vm, "data").unwrap_err();
    assert_eq!(error.to_string(), "disk `data` not found in virtual machine n/web");
}

#[test]
fn a_cdrom_stays_when_its_volume_goes() {
    let mut vm = machine();
    assert_eq!(eject(&mut vm, "cd").unwrap(), "web-cd");
    assert_eq!(vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"][1]["name"], "cd");
    assert!(eject(&mut vm, "cd").is_err() && eject(&mut vm, "root").is_err());
}

#[test]
fn a_clone_has_claims_and_addresses_of_its_own() {
    let sources =
        [(claim("web-root"), "new-root-1".to_owned()), (claim("web-cd"), "new-cd-2".to_owned())];
    let copy = clone(&machine(), "new", "Halted", &sources).unwrap();
    let spec = &copy["spec"]["template"]["spec"];
    assert_eq!(spec["volumes"][0]["persistentVolumeClaim"]["claimName"], "new-root-1");
    assert_eq!(spec["domain"]["devices"]["interfaces"][0].get("macAddress"), None);
    assert_eq!(
        (&spec["hostname"], &copy["spec"]["runStrategy"]),
        (&json!("new"), &json!("Halted"))
    );
    let annotations = &copy["metadata"]["annotations"];
    assert_eq!((annotations.get("other"), annotations[KEPT[0]].as_str()), (None, Some("128Mi")));
    let templates = templates(&copy);
    assert_eq!(templates[0]["spec"]["dataSource"]["name"], "web-root");
    assert_eq!(templates[0]["spec"].get("volumeName"), None);
    let error = clone(&machine(), "new", "", &[]).unwrap_err();
    assert!(error.to_string().starts_with("invalid volume root, only support"), "{error}");
    assert_eq!(claims(&machine()), ["web-root", "web-cd"]);
}
