use serde_json::json;

use super::*;

fn config(configuration: Value) -> ClusterConfig {
    ClusterConfig::new(&json!({"spec": {"configuration": configuration}}), "amd64")
}

fn counted() -> impl FnMut() -> String {
    let mut count = 0;
    move || {
        count += 1;
        format!("uuid-{count}")
    }
}

fn instance(spec: Value) -> Value {
    let mut vmi = json!({"spec": spec});
    default_instance(&mut vmi, &config(json!({})), "now", &mut counted()).unwrap();
    vmi
}

#[test]
fn a_machine_gets_an_identity_and_a_machine_type() {
    let mut vm = json!({"spec": {"template": {"spec": {"domain": {"devices": {}}}}}});
    default_machine(&mut vm, true, &config(json!({})), &mut counted());
    let expected = json!({
        "metadata": {"annotations": {"kubevirt.io/pci-topology-version": "v3"}},
        "spec": {
            "architecture": "amd64",
            "domain": {
                "devices": {},
                "firmware": {"uuid": "uuid-1", "serial": "uuid-2"},
                "machine": {"type": "q35"},
            },
        },
    });
    assert_eq!(vm["spec"]["template"], expected);
    let before = vm.clone();
    default_machine(&mut vm, true, &config(json!({})), &mut counted());
    assert_eq!(vm, before, "defaults are stable");
}

#[test]
fn an_updated_machine_keeps_having_no_uuid() {
    let mut vm = json!({"spec": {"template": {"spec": {"domain": {}}}}});
    default_machine(&mut vm, false, &config(json!({})), &mut counted());
    assert_eq!(vm["spec"]["template"]["spec"]["domain"], json!({"machine": {"type": "q35"}}));
    let mut bare = json!({"spec": {}});
    default_machine(&mut bare, true, &config(json!({})), &mut counted());
    assert_eq!(bare, json!({"spec": {}}));
}

#[test]
fn an_instance_is_completed() {
    let vmi = instance(json!({
        "domain": {"resources": {"requests": {"memory": "1Gi"}}, "devices": {}},
        "volumes": [{"name": "root", "containerDisk": {"image": "cirros"}}],
    }));
    let expected = json!({
        "metadata": {
            "annotations": {"kubevirt.io/pci-topology-version": "v3"},
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
        },
        "spec": {
            "architecture": "amd64",
            "domain": {
                "cpu": {"cores": 1, "sockets": 1, "threads": 1, "maxSockets": 4, "model": "host-model"},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "sata"}}],
                    "interfaces": [{"name": "default", "bridge": {}}],
                },
                "features": {"acpi": {"enabled": true}},
                "firmware": {"uuid": "uuid-1"},
                "machine": {"type": "q35"},
                "memory": {"guest": "1Gi", "maxGuest": "4Gi"},
                "resources": {"requests": {"memory": "1Gi"}},
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "cirros", "imagePullPolicy": "Always"}}],
        },
        "status": {
            "phase": "Pending",
            "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": "now"}],
            "runtimeUser": 107,
            "currentCPUTopology": {"cores": 1, "sockets": 1, "threads": 1},
            "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
        },
    });
    assert_eq!(vmi, expected);
}

#[test]
fn processors_follow_limits_requests_and_topology() {
    let table = [
        (json!({}), (1, 4)),
        (json!({"resources": {"requests": {"cpu": "1500m"}}}), (2, 8)),
        (json!({"resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}}), (3, 12)),
        (json!({"cpu": {"sockets": 200, "cores": 2, "threads": 1}}), (200, 256)),
        (json!({"cpu": {"sockets": 600, "cores": 1, "threads": 1}}), (600, 600)),
        (json!({"cpu": {"sockets": 2, "maxSockets": 3}}), (2, 3)),
    ];
    for (domain, (sockets, most)) in table {
        let vmi = instance(json!({"domain": domain}));
        let cpu = &vmi["spec"]["domain"]["cpu"];
        assert_eq!(cpu["sockets"], sockets, "{domain}");
        assert_eq!(cpu["maxSockets"], most, "{domain}");
    }
    let vmi = instance(json!({"domain": {"resources": {"limits": {"cpu": "2"}}}}));
    assert_eq!(vmi["spec"]["domain"]["resources"]["requests"]["cpu"], "2");
}

#[test]
fn a_cluster_can_fix_what_guests_grow_to() {
    let config =
        config(json!({"liveUpdateConfiguration": {"maxCpuSockets": 2, "maxGuest": "8Gi"}}));
    let mut vmi = json!({"spec": {"domain": {"memory": {"guest": "1Gi"}, "cpu": {"sockets": 3}}}});
    default_instance(&mut vmi, &config, "now", &mut counted()).unwrap();
    assert_eq!(vmi["spec"]["domain"]["cpu"]["maxSockets"], 3);
    assert_eq!(vmi["spec"]["domain"]["memory"]["maxGuest"], "8Gi");
    let stage = self::config(json!({"vmRolloutStrategy": "Stage"}));
    let mut vmi = json!({"spec": {"domain": {"memory": {"guest": "1Gi"}}}});
    default_instance(&mut vmi, &stage, "now", &mut counted()).unwrap();
    assert!(vmi["spec"]["domain"]["cpu"]["maxSockets"].is_null());
    assert!(vmi["spec"]["domain"]["memory"]["maxGuest"].is_null());
}

#[test]
fn small_and_uneven_guests_do_not_grow() {
    for guest in ["512Mi", "1025Mi"] {
        let vmi = instance(json!({"domain": {"memory": {"guest": guest}}}));
        assert!(vmi["spec"]["domain"]["memory"]["maxGuest"].is_null(), "{guest}");
    }
}

#[test]
fn devices_get_what_they_lack() {
    let vmi = instance(json!({
        "domain": {"memory": {"guest": "64Mi"}, "devices": {
            "autoattachPodInterface": false,
            "autoattachInputDevice": true,
            "disks": [{"name": "a"}, {"name": "b", "cdrom": {}}, {"name": "c", "lun": {"bus": "scsi"}}],
            "watchdog": {"name": "dog"},
        }},
        "readinessProbe": {"tcpSocket": {"port": 22}, "periodSeconds": 5},
    }));
    let devices = &vmi["spec"]["domain"]["devices"];
    assert_eq!(
        devices["disks"],
        json!([
            {"name": "a", "disk": {"bus": "sata"}},
            {"name": "b", "cdrom": {"bus": "sata", "readonly": true, "tray": "closed"}},
            {"name": "c", "lun": {"bus": "scsi"}},
        ])
    );
    assert_eq!(devices["inputs"], json!([{"name": "default-0", "bus": "usb", "type": "tablet"}]));
    assert_eq!(devices["watchdog"]["i6300esb"]["action"], "reset");
    assert!(devices["interfaces"].is_null() && vmi["spec"]["networks"].is_null());
    assert_eq!(
        vmi["spec"]["readinessProbe"],
        json!({
            "tcpSocket": {"port": 22},
            "periodSeconds": 5, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
        })
    );
}

#[test]
fn images_that_move_are_always_pulled() {
    for (image, policy) in [
        ("a/b", "Always"),
        ("a/b:latest", "Always"),
        ("a/b:v1", "IfNotPresent"),
        ("a/b@sha256:0", "IfNotPresent"),
    ] {
        let vmi = instance(
            json!({"domain": {}, "volumes": [{"name": "v", "containerDisk": {"image": image}}]}),
        );
        assert_eq!(
            vmi["spec"]["volumes"][0]["containerDisk"]["imagePullPolicy"], policy,
            "{image}"
        );
    }
}

#[test]
fn enlightenments_bring_what_they_need() {
    let vmi = instance(json!({"domain": {
        "features": {"hyperv": {"synictimer": {}, "evmcs": {}, "spinlocks": {}, "vapic": {"enabled": false}}},
    }}));
    let domain = &vmi["spec"]["domain"];
    assert_eq!(
        domain["features"]["hyperv"],
        json!({
            "synictimer": {"enabled": true},
            "synic": {"enabled": true},
            "vpindex": {"enabled": true},
            "evmcs": {"enabled": true},
            "spinlocks": {"enabled": true, "spinlocks": 4096},
            "vapic": {"enabled": false},
        })
    );
    assert_eq!(domain["cpu"]["features"], json!([{"name": "vmx", "policy": "require"}]));
}

#[test]
fn the_interface_is_the_clusters_choice() {
    let masquerade = config(json!({"network": {"defaultNetworkInterface": "masquerade"}}));
    let mut spec = json!({"domain": {}});
    default_instance_spec(&mut spec, &masquerade).unwrap();
    assert_eq!(
        spec["domain"]["devices"]["interfaces"],
        json!([{"name": "default", "masquerade": {}}])
    );
    let refused = config(json!({"network": {"permitBridgeInterfaceOnPodNetwork": false}}));
    assert_eq!(
        default_instance_spec(&mut json!({"domain": {}}), &refused),
        Err(DefaultError::BridgeNotPermitted)
    );
}

#[test]
fn networks_alone_say_which_interfaces_there_are() {
    let networks =
        json!([{"name": "lan", "multus": {"networkName": "lan"}}, {"name": "p", "pod": {}}]);
    let mut spec = json!({"domain": {}, "networks": networks});
    default_instance_spec(&mut spec, &config(json!({}))).unwrap();
    let wanted = json!([{"name": "lan", "bridge": {}}, {"name": "p", "masquerade": {}}]);
    assert_eq!(spec["domain"]["devices"]["interfaces"], wanted);
    // A guest that names one interface does not get the others.
    let own = json!([{"name": "lan", "sriov": {}}]);
    let mut spec = json!({"domain": {"devices": {"interfaces": own}}, "networks": networks});
    default_instance_spec(&mut spec, &config(json!({}))).unwrap();
    assert_eq!(spec["domain"]["devices"]["interfaces"], own);
}

#[test]
fn a_migration_is_marked() {
    let mut migration = json!({"spec": {"vmiName": "web"}});
    default_migration(&mut migration);
    assert_eq!(
        migration["metadata"],
        json!({
            "labels": {"kubevirt.io/vmi-name": "web"},
            "finalizers": ["kubevirt.io/migrationJobFinalize"],
        })
    );
}
