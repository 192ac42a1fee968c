use serde_json::json;

use super::*;

struct Shelf(Vec<(&'static str, &'static str, Value)>);

impl Objects for Shelf {
    fn get(&self, _: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.0.iter().find(|(kind, place, object)| {
            *kind == plural && *place == namespace && object["metadata"]["name"] == name
        });
        found.map(|(_, _, object)| object.clone())
    }

    fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
        Vec::new()
    }
}

fn size() -> Value {
    json!({
        "cpu": {"guest": 4, "model": "host-model", "maxSockets": 8},
        "memory": {"guest": "2Gi", "overcommitPercent": 50},
        "nodeSelector": {"a": "b"},
        "annotations": {"x": "y"},
        "ioThreadsPolicy": "auto",
    })
}

fn preference() -> Value {
    json!({
        "cpu": {"preferredCPUTopology": "cores", "preferredCPUFeatures": [{"name": "vmx"}]},
        "devices": {
            "preferredDiskBus": "virtio",
            "preferredCdromBus": "scsi",
            "preferredInterfaceModel": "virtio",
            "preferredInterfaceMasquerade": {},
            "preferredRng": {},
        },
        "features": {"preferredSmm": {"enabled": true}, "preferredHyperv": {"relaxed": {}}},
        "firmware": {"preferredEfi": {"secureBoot": true}},
        "machine": {"preferredMachineType": "q35"},
        "clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": {"hyperv": {}}},
        "preferredTerminationGracePeriodSeconds": 180,
        "annotations": {"p": "q"},
    })
}

fn template() -> Value {
    json!({"spec": {
        "domain": {"devices": {
            "disks": [{"name": "a"}, {"name": "b", "cdrom": {}}, {"name": "c", "disk": {"bus": "sata"}}],
            "interfaces": [{"name": "default"}],
        }},
        "networks": [{"name": "default", "pod": {}}],
    }})
}

#[test]
fn an_overcommitted_machine_requests_the_bytes_that_upstream_calculates() {
    for (guest, percent, expected) in
        [("2Gi", 50, "1Gi"), ("128Mi", 15, "114085072"), ("1Gi", 100, "0")]
    {
        let size = json!({"cpu": {"guest": 1},
            "memory": {"guest": guest, "overcommitPercent": percent}});
        let mut made = template();
        let sizing = Sizing { size: Some(size), preference: None };
        assert_eq!(sizing.apply("spec.template.spec", &mut made), []);
        assert_eq!(made["spec"]["domain"]["resources"]["requests"]["memory"], expected);
    }
}

#[test]
fn a_size_and_a_preference_make_a_machine() {
    let sizing = Sizing { size: Some(size()), preference: Some(preference()) };
    let mut made = template();
    assert_eq!(sizing.apply("spec.template.spec", &mut made), []);
    let expected = json!({
        "metadata": {"annotations": {"x": "y", "p": "q"}},
        "spec": {
            "nodeSelector": {"a": "b"},
            "terminationGracePeriodSeconds": 180,
            "networks": [{"name": "default", "pod": {}}],
            "domain": {
                "cpu": {
                    "model": "host-model", "maxSockets": 8, "sockets": 1, "cores": 4, "threads": 1,
                    "features": [{"name": "vmx"}],
                },
                "memory": {"guest": "2Gi"},
                "resources": {"requests": {"memory": "1Gi"}},
                "ioThreadsPolicy": "auto",
                "machine": {"type": "q35"},
                "firmware": {"bootloader": {"efi": {"secureBoot": true}}},
                "features": {"smm": {"enabled": true}, "hyperv": {"relaxed": {}}},
                "clock": {"utc": {}, "timer": {"hyperv": {}}},
                "devices": {
                    "rng": {},
                    "disks": [
                        {"name": "a", "disk": {"bus": "virtio"}},
                        {"name": "b", "cdrom": {"bus": "scsi"}},
                        {"name": "c", "disk": {"bus": "sata"}},
                    ],
                    "interfaces": [{"name": "default", "model": "virtio", "masquerade": {}}],
                },
            },
        },
    });
    assert_eq!(made, expected);
}

#[test]
fn fields_of_a_size_may_not_be_set_again() {
    let table = [
        ("/domain/cpu/sockets", json!(2), "domain.cpu.sockets"),
        ("/domain/cpu/model", json!("x"), "domain.cpu.model"),
        ("/domain/memory/guest", json!("1Gi"), "domain.memory.guest"),
        ("/domain/resources/requests/cpu", json!("1"), "domain.resources.requests.cpu"),
        ("/domain/resources/limits/memory", json!("1Gi"), "domain.resources.limits.memory"),
        ("/nodeSelector", json!({}), "nodeSelector"),
        ("/domain/ioThreadsPolicy", json!("shared"), "domain.ioThreadsPolicy"),
    ];
    for (pointer, value, field) in table {
        let mut made = template();
        let mut place = &mut made["spec"];
        let parts: Vec<&str> = pointer.split('/').skip(1).collect();
        for part in &parts[..parts.len() - 1] {
            place = crate::default::object(place, part);
        }
        place[*parts.last().unwrap()] = value;
        let sizing = Sizing { size: Some(size()), preference: None };
        let conflicts = sizing.apply("spec.template.spec", &mut made);
        let fields: Vec<&str> = conflicts.iter().map(|conflict| conflict.field.as_str()).collect();
        assert_eq!(fields, [format!("spec.template.spec.{field}")], "{pointer}");
        assert_eq!(
            conflicts[0].to_string(),
            format!("VM field(s) spec.template.spec.{field} conflicts with selected instance type")
        );
    }
}

#[test]
fn a_size_without_memory_leaves_it_to_the_machine() {
    for memory in [json!(null), json!({}), json!({"guest": "0"}), json!({"guest": 0})] {
        let mut size = size();
        size["memory"] = memory.clone();
        let sizing = Sizing { size: Some(size), preference: None };
        let mut made = template();
        made["spec"]["domain"]["memory"] = json!({"guest": "1Gi"});
        assert_eq!(sizing.apply("spec.template.spec", &mut made), [], "{memory}");
        assert_eq!(made["spec"]["domain"]["memory"], json!({"guest": "1Gi"}), "{memory}");
        let mut plain = template();
        assert_eq!(sizing.apply("spec.template.spec", &mut plain), [], "{memory}");
        assert_eq!(plain["spec"]["domain"]["memory"], json!(null), "{memory}");
    }
}

#[test]
fn processors_are_arranged_as_preferred() {
    let spread = |across: &str| json!({"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": across}}});
    let table = [
        (json!({}), (4, 1, 1)),
        (json!({"cpu": {"preferredCPUTopology": "preferCores"}}), (1, 4, 1)),
        (json!({"cpu": {"preferredCPUTopology": "threads"}}), (1, 1, 4)),
        (spread("SocketsCores"), (2, 2, 1)),
        (spread("CoresThreads"), (1, 2, 2)),
        (spread("SocketsCoresThreads"), (1, 2, 2)),
    ];
    for (preference, (sockets, cores, threads)) in table {
        let sizing = Sizing { size: Some(size()), preference: Some(preference.clone()) };
        let mut made = template();
        assert_eq!(sizing.apply("s", &mut made), [], "{preference}");
        let cpu = &made["spec"]["domain"]["cpu"];
        assert_eq!(
            (&cpu["sockets"], &cpu["cores"], &cpu["threads"]),
            (&json!(sockets), &json!(cores), &json!(threads)),
            "{preference}"
        );
    }
    let mut odd = size();
    odd["cpu"]["guest"] = json!(3);
    let sizing = Sizing { size: Some(odd), preference: Some(spread("SocketsCores")) };
    assert_eq!(
        sizing.apply("s", &mut template())[0].to_string(),
        "3 vCPUs provided by the instance type are not divisible by the Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of 2 provided by the preference"
    );
}

#[test]
fn requirements_are_checked_against_the_size_or_the_machine() {
    let wants = |requirements: Value| Some(json!({"requirements": requirements}));
    let spec = json!({"architecture": "amd64", "domain": {"cpu": {"sockets": 1}, "memory": {"guest": "1Gi"}}});
    let table = [
        (
            Some(size()),
            json!({"cpu": {"guest": 8}}),
            Some(
                "insufficient CPU resources of 4 vCPU provided by instance type, preference requires 8 vCPU",
            ),
        ),
        (Some(size()), json!({"cpu": {"guest": 4}}), None),
        (
            None,
            json!({"cpu": {"guest": 2}}),
            Some(
                "insufficient CPU resources of 1 vCPU provided by VirtualMachine, preference requires 2 vCPU provided as sockets",
            ),
        ),
        (
            None,
            json!({"memory": {"guest": "2Gi"}}),
            Some(
                "insufficient Memory resources of 1Gi provided by VirtualMachine, preference requires 2Gi",
            ),
        ),
        (
            None,
            json!({"architecture": "arm64"}),
            Some("preference requires architecture arm64 but amd64 is being requested"),
        ),
    ];
    for (size, requirements, expected) in table {
        let sizing = Sizing { size, preference: wants(requirements.clone()) };
        let found = sizing.check_requirements(&spec).err().map(|unmet| unmet.to_string());
        assert_eq!(found.as_deref(), expected, "{requirements}");
    }
}

#[test]
fn references_are_found_in_the_cluster_the_namespace_and_in_revisions() {
    let object = |name: &str, guest: u64| json!({"metadata": {"name": name}, "spec": {"cpu": {"guest": guest}}});
    let shelf = Shelf(vec![
        ("virtualmachineclusterinstancetypes", "", object("s", 1)),
        ("virtualmachineinstancetypes", "n", object("s", 2)),
        ("controllerrevisions", "n", json!({"metadata": {"name": "r"}, "data": object("s", 3)})),
    ]);
    let guest =
        |vm: Value| Sizing::find(&vm, "n", &shelf).size.map(|size| size["cpu"]["guest"].clone());
    let spec = |matcher: Value| json!({"spec": {"instancetype": matcher}});
    assert_eq!(guest(spec(json!({"name": "s"}))), Some(json!(1)));
    assert_eq!(
        guest(spec(json!({"name": "s", "kind": "VirtualMachineInstancetype"}))),
        Some(json!(2))
    );
    assert_eq!(guest(spec(json!({"name": "s", "revisionName": "r"}))), Some(json!(3)));
    let mut kept = spec(json!({"name": "s"}));
    kept["status"]["instancetypeRef"] =
        json!({"name": "s", "controllerRevisionRef": {"name": "r"}});
    assert_eq!(guest(kept.clone()), Some(json!(3)));
    // A machine that refers to another size now does not use what was kept for the old one.
    kept["status"]["instancetypeRef"]["name"] = json!("other");
    assert_eq!(guest(kept), Some(json!(1)));
    assert_eq!(guest(spec(json!({"name": "missing"}))), None);
}

#[test]
fn a_machine_is_written_out_in_full() {
    let shelf = Shelf(vec![(
        "virtualmachineclusterinstancetypes",
        "",
        json!({"metadata": {"name": "s"}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}}),
    )]);
    let config = ClusterConfig::new(&json!({}), "amd64");
    let vm = json!({
        "spec": {
            "instancetype": {"name": "s"},
            "template": {"spec": {"domain": {"devices": {}}, "volumes": [{"name": "root", "emptyDisk": {}}]}},
        },
        "status": {"instancetypeRef": {"name": "s"}},
    });
    let full = expand(&vm, "n", &shelf, &config).unwrap();
    assert_eq!(full["spec"]["instancetype"], Value::Null);
    assert_eq!(full["status"], json!({}));
    let spec = &full["spec"]["template"]["spec"];
    assert_eq!(spec["domain"]["cpu"], json!({"sockets": 2, "cores": 1, "threads": 1}));
    assert_eq!(spec["domain"]["memory"]["guest"], "1Gi");
    assert_eq!(spec["domain"]["devices"]["disks"], json!([{"name": "root"}]));
    assert_eq!(spec["networks"], json!([{"name": "default", "pod": {}}]));
    let missing = json!({"spec": {"instancetype": {"name": "x"}, "template": {"spec": {}}}});
    assert_eq!(
        expand(&missing, "n", &shelf, &config).unwrap_err().to_string(),
        "virtualmachineclusterinstancetypes.instancetype.kubevirt.io \"x\" not found"
    );
    let mut conflicting = vm.clone();
    conflicting["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = json!("1Gi");
    assert_eq!(
        expand(&conflicting, "n", &shelf, &config).unwrap_err().to_string(),
        "VM field(s) spec.template.spec.domain.memory.guest conflicts with selected instance type"
    );
}

#[test]
fn a_revision_keeps_the_object() {
    let vm = json!({"metadata": {"name": "m", "namespace": "n", "uid": "vm"}});
    let kept = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "s", "uid": "u", "generation": 3, "labels": {"a": "b"}, "managedFields": []},
        "spec": {"cpu": {"guest": 1}},
    });
    let made = revision(&vm, &kept);
    assert_eq!(made["metadata"]["name"], "m-s-v1beta1-u-3");
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "vm");
    assert_eq!(made["data"]["metadata"], json!({"name": "s", "uid": "u", "generation": 3}));
    assert_eq!(made["data"]["spec"], kept["spec"]);
    assert_eq!(made["metadata"]["labels"]["instancetype.kubevirt.io/object-generation"], "3");
}

#[test]
fn the_status_remembers_what_was_kept() {
    let keep = || Ok::<_, ()>("r".to_owned());
    let fail = || Err::<String, ()>(());
    let mut vm = json!({"spec": {"instancetype": {"name": "s", "kind": "k"}}});
    let first = status_reference("instancetype", &vm, keep).unwrap();
    assert_eq!(first, json!({"name": "s", "kind": "k", "controllerRevisionRef": {"name": "r"}}));
    vm["status"]["instancetypeRef"] = first.clone();
    assert_eq!(status_reference("instancetype", &vm, fail), Ok(first));
    vm["spec"]["instancetype"]["revisionName"] = json!("pinned");
    let pinned = status_reference("instancetype", &vm, fail).unwrap();
    assert_eq!(pinned["controllerRevisionRef"]["name"], "pinned");
    assert_eq!(status_reference("preference", &vm, fail), Ok(Value::Null));
    vm["spec"]["instancetype"] = json!({"name": "t"});
    assert_eq!(status_reference("instancetype", &vm, fail), Err(()));
}

#[test]
fn an_instance_is_annotated_with_its_size() {
    let vm = json!({"spec": {
        "instancetype": {"name": "s"},
        "preference": {"name": "p", "kind": "VirtualMachinePreference"},
    }});
    let mut vmi = json!({});
    annotate(&vm, &mut vmi);
    assert_eq!(
        vmi["metadata"]["annotations"],
        json!({"kubevirt.io/cluster-instancetype-name": "s", "kubevirt.io/preference-name": "p"})
    );
}

#[test]
fn sizes_are_read_off_volumes() {
    let labels = json!({
        "instancetype.kubevirt.io/default-instancetype": "s",
        "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
    });
    let shelf = Shelf(vec![
        ("persistentvolumeclaims", "n", json!({"metadata": {"name": "c", "labels": labels}})),
        ("persistentvolumeclaims", "n", json!({"metadata": {"name": "plain"}})),
        (
            "datasources",
            "images",
            json!({
                "metadata": {"name": "d"}, "spec": {"source": {"pvc": {"namespace": "n", "name": "c"}}},
            }),
        ),
    ]);
    let vm = |volume: Value, policy: &str| {
        json!({"spec": {
            "instancetype": {"inferFromVolume": "v", "inferFromVolumeFailurePolicy": policy},
            "dataVolumeTemplates": [{
                "metadata": {"name": "dv"},
                "spec": {"sourceRef": {"kind": "DataSource", "namespace": "images", "name": "d"}},
            }],
            "template": {"spec": {"volumes": [volume]}},
        }})
    };
    let found = json!({"name": "s", "kind": "VirtualMachineInstancetype"});
    for volume in [
        json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}),
        json!({"name": "v", "dataVolume": {"name": "dv"}}),
        json!({"name": "v", "dataVolume": {"name": "c"}}),
    ] {
        let mut vm = vm(volume, "Reject");
        infer(&mut vm, "n", &shelf).unwrap();
        assert_eq!(vm["spec"]["instancetype"], found);
    }
    let plain = json!({"name": "v", "persistentVolumeClaim": {"claimName": "plain"}});
    let mut strict = vm(plain.clone(), "Reject");
    assert_eq!(
        infer(&mut strict, "n", &shelf).unwrap_err().to_string(),
        "unable to find required instancetype.kubevirt.io/default-instancetype label on the volume"
    );
    let mut lax = vm(plain, "Ignore");
    infer(&mut lax, "n", &shelf).unwrap();
    assert_eq!(lax["spec"]["instancetype"], Value::Null);
}
