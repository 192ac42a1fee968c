use serde_json::{Value, json};

use super::*;
use crate::default::{default_instance, default_instance_spec, default_machine};

/// Objects in a list; `kind` and names decide.
#[derive(Default)]
struct Shelf(Vec<(&'static str, Value)>);

impl Objects for Shelf {
    fn get(&self, _: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.0.iter().find(|(known, object)| {
            *known == plural
                && object["metadata"]["name"] == name
                && object["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
        });
        found.map(|(_, object)| object.clone())
    }

    fn list(&self, _: &str, plural: &str, _: &str) -> Vec<Value> {
        self.0.iter().filter(|(known, _)| *known == plural).map(|(_, one)| one.clone()).collect()
    }
}

fn config() -> ClusterConfig {
    ClusterConfig::new(&json!({}), "amd64")
}

struct Case<'a> {
    plural: &'a str,
    object: Value,
    old: Option<Value>,
    trusted: bool,
    config: ClusterConfig,
    shelf: Shelf,
}

impl<'a> Case<'a> {
    fn new(plural: &'a str, object: Value) -> Self {
        let shelf = Shelf::default();
        Self { plural, object, old: None, trusted: false, config: config(), shelf }
    }

    fn judge(&self) -> Result<Vec<String>, Denial> {
        let group = RULES.iter().find(|rule| rule.1 == self.plural).map(|rule| rule.0).unwrap();
        let write = Write {
            object: &self.object,
            old: self.old.as_ref(),
            namespace: "n",
            trusted: self.trusted,
            config: &self.config,
            objects: &self.shelf,
            access: &NoRights,
        };
        admit(group, self.plural, &write)
    }

    /// `field: message` of the first cause, or nothing.
    fn first(&self) -> Option<String> {
        let denial = self.judge().err()?;
        let cause = &denial.causes()[0];
        Some(format!("{}: {}", cause.field, cause.message))
    }
}

fn spec() -> Value {
    json!({
        "domain": {
            "memory": {"guest": "1Gi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "i"}}],
    })
}

/// An instance with a specification that is changed at pointers.
fn instance(changes: &[(&str, Value)]) -> Value {
    let mut spec = spec();
    for (pointer, value) in changes {
        put(&mut spec, pointer, value.clone());
    }
    let mut vmi = json!({"metadata": {"name": "m", "namespace": "n"}, "spec": spec});
    let mut count = 0;
    let mut uuid = || {
        count += 1;
        count.to_string()
    };
    default_instance(&mut vmi, &config(), "now", &mut uuid).unwrap();
    vmi
}

fn put(value: &mut Value, pointer: &str, new: Value) {
    let mut place = value;
    for part in pointer.split('/').skip(1) {
        place = match part.parse::<usize>() {
            Ok(index) => {
                let items = place.as_array_mut().unwrap();
                while items.len() <= index {
                    items.push(json!({}));
                }
                &mut items[index]
            }
            Err(_) => {
                if !place.is_object() {
                    *place = json!({});
                }
                &mut place[part]
            }
        };
    }
    *place = new;
}

fn machine(changes: &[(&str, Value)]) -> Value {
    let mut vm = json!({
        "metadata": {"name": "m", "namespace": "n"},
        "spec": {"runStrategy": "Always", "template": {"spec": spec()}},
    });
    for (pointer, value) in changes {
        put(&mut vm, pointer, value.clone());
    }
    let mut uuid = || "u".to_owned();
    default_machine(&mut vm, true, &config(), &mut uuid);
    vm
}

#[test]
fn a_plain_instance_and_a_plain_machine_are_fine() {
    assert_eq!(Case::new("virtualmachineinstances", instance(&[])).judge(), Ok(vec![]));
    assert_eq!(Case::new("virtualmachines", machine(&[])).judge(), Ok(vec![]));
}

#[test]
fn errors_of_an_instance_say_where_and_why() {
    let disk = "spec.domain.devices.disks[0]";
    let table: Vec<(&str, Value, String)> = vec![
        ("/hostname", json!("A_b"), "spec.hostname: spec.hostname does not conform to the kubernetes DNS_LABEL rules".into()),
        ("/subdomain", json!("-"), "spec.subdomain: spec.subdomain does not conform to the kubernetes DNS_SUBDOMAIN rules".into()),
        ("/domain/memory", json!({"guest": "-1Gi"}), "spec.domain.memory.guest: spec.domain.memory.guest '-1Gi': must be greater than 0.".into()),
        ("/domain/resources", json!({"requests": {"memory": "-64M"}}), "spec.domain.resources.requests.memory: spec.domain.resources.requests.memory '-64M': must be greater than or equal to 0.".into()),
        ("/domain/resources", json!({"requests": {"memory": "64k"}}), "spec.domain.resources.requests.memory: spec.domain.resources.requests.memory '64k': must be greater than or equal to 1M.".into()),
        ("/domain/resources", json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}), "spec.domain.resources.requests.memory: spec.domain.resources.requests.memory '2Gi' is greater than spec.domain.resources.limits.memory '1Gi'".into()),
        ("/domain/resources", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), "spec.domain.resources.requests.cpu: spec.domain.resources.requests.cpu '2' is greater than spec.domain.resources.limits.cpu '1'".into()),
        ("/domain/memory", json!({"guest": "1Gi", "hugepages": {"pageSize": "2Gi"}}), "spec.domain.resources.requests.memory: spec.domain.resources.requests.memory '0' must be equal to or larger than page size spec.domain.memory.hugepages.pageSize '2Gi'".into()),
        ("/domain/memory", json!({"guest": "1025Mi", "hugepages": {"pageSize": "2Mi"}}), "spec.domain.resources.requests.memory: spec.domain.resources.requests.memory '0' is not a multiple of the page size spec.domain.memory.hugepages.pageSize '2Mi'".into()),
        ("/domain/machine", json!({"type": "pc"}), "spec.domain.machine.type: spec.domain.machine.type is not supported: pc (allowed values: [q35* pc-q35*])".into()),
        ("/domain/machine", json!({"type": "q35,kernel=/k"}), "spec.domain.machine.type: spec.domain.machine.type is not supported: q35,kernel=/k (allowed values: [q35* pc-q35*])".into()),
        ("/domain/cpu", json!({"isolateEmulatorThread": true}), "spec.domain.cpu.isolateEmulatorThread: IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement".into()),
        ("/domain/cpu", json!({"sockets": 2, "maxSockets": 1}), "spec.domain.cpu.sockets: Number of sockets in CPU topology is greater than the maximum sockets allowed".into()),
        ("/domain/cpu", json!({"features": [{"name": "x", "policy": "must"}]}), "spec.domain.cpu.features[0].policy: CPU feature x uses policy must that is not supported.".into()),
        ("/domain/cpu", json!({"dedicatedCpuPlacement": true, "threads": 3}), "spec.domain.cpu.dedicatedCpuPlacement: Not more than two threads must be provided at spec.domain.cpu.threads (got 3) when DedicatedCPUPlacement is true".into()),
        ("/domain/cpu", json!({"numa": {"guestMappingPassthrough": {}}}), "spec.domain.cpu.numa.guestMappingPassthrough: spec.domain.cpu.dedicatedCpuPlacement must be set to true when NUMA topology strategy is set in spec.domain.cpu.numa.guestMappingPassthrough".into()),
        ("/domain/cpu", json!({"realtime": {}}), "spec.domain.cpu.dedicatedCpuPlacement: spec.domain.cpu.dedicatedCpuPlacement must be set to true when spec.domain.cpu.realtime is used".into()),
        ("/startStrategy", json!("Later"), "spec.startStrategy: spec.startStrategy is set with an unrecognized option: Later".into()),
        ("/evictionStrategy", json!("Run"), "spec.evictionStrategy: spec.evictionStrategy is set with an unrecognized option: Run".into()),
        ("/domain/ioThreadsPolicy", json!("many"), "spec.domain.ioThreadsPolicy: Invalid IOThreadsPolicy (many)".into()),
        ("/domain/devices/inputs", json!([{"name": "i", "type": "mouse"}]), "spec.domain.devices.inputs[0].type: Input device can have only tablet type.".into()),
        ("/readinessProbe", json!({"tcpSocket": {"port": 1}, "exec": {}}), "spec.readinessProbe: spec.readinessProbe must have exactly one probe type set".into()),
        ("/readinessProbe", json!({}), "spec.readinessProbe: either spec.readinessProbe.tcpSocket, spec.readinessProbe.exec or spec.readinessProbe.httpGet must be set if a spec.readinessProbe is specified".into()),
        ("/domain/devices/disks/0/name", json!("other"), format!("{disk}.name: {disk}.Name 'other' not found.")),
        ("/domain/devices/disks/0", json!({"name": "root", "disk": {}, "cdrom": {}}), format!("{disk}: {disk} can only have a single target type defined")),
        ("/domain/devices/disks/0/disk/bus", json!("ide"), format!("{disk}.disk.bus: IDE bus is not supported")),
        ("/domain/devices/disks/0/disk/bus", json!("foo"), format!("{disk}.disk.bus: {disk} is set with an unrecognized bus foo, must be one of: [virtio scsi sata usb]")),
        ("/domain/devices/disks/0", json!({"name": "root", "cdrom": {"bus": "virtio"}}), format!("{disk}.cdrom.bus: Bus type virtio is invalid for CD-ROM device")),
        ("/domain/devices/disks/0/disk", json!({"bus": "sata", "readonly": true}), format!("{disk}.disk.bus: sata hard-disks do not support read-only.")),
        ("/domain/devices/disks/0/bootOrder", json!(0), format!("{disk}.bootOrder: {disk} must have a boot order > 0, if supplied")),
        ("/domain/devices/disks/0/serial", json!("a b"), format!("{disk}.serial: {disk} must be made up of the following characters [A-Za-z0-9_.+-], if specified")),
        ("/domain/devices/disks/0/cache", json!("fast"), format!("{disk}.cache: {disk}.cache has invalid value fast")),
        ("/domain/devices/disks/0/errorPolicy", json!("x"), format!("{disk}.errorPolicy: {disk}.errorPolicy has invalid value \"x\"")),
        ("/domain/devices/disks/0/blockSize", json!({"custom": {"logical": 1000, "physical": 1000}}), format!("{disk}.blockSize.custom.logical: Provided size of 1000 is not a power of 2")),
        ("/domain/devices/disks/0/lun", json!({"bus": "scsi"}), format!("{disk}.lun: {disk}.lun can only be mapped to a DataVolume or PersistentVolumeClaim volume.")),
        ("/domain/firmware", json!({"bootloader": {"efi": {}}}), "spec.domain: spec.domain has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled.".into()),
        ("/domain/firmware", json!({"bootloader": {"efi": {"secureBoot": false}, "bios": {}}}), "spec.domain.firmware.bootloader: spec.domain.firmware.bootloader has both EFI and BIOS configured, but they are mutually exclusive.".into()),
        ("/domain/firmware", json!({"kernelBoot": {"kernelArgs": "a"}}), "spec.domain.firmware.kernelBoot.kernelArgs: kernel arguments cannot be provided without an external kernel".into()),
        ("/volumes/0", json!({"name": "root"}), "spec.volumes[0]: spec.volumes[0] must have exactly one source type set".into()),
        ("/volumes/0", json!({"name": "root", "emptyDisk": {}, "containerDisk": {"image": "i"}}), "spec.volumes[0]: spec.volumes[0] must have exactly one source type set".into()),
        ("/volumes/0", json!({"name": "root", "cloudInitNoCloud": {}}), "spec.volumes[0].cloudInitNoCloud: spec.volumes[0].cloudInitNoCloud must have at least one userdatasource or one networkdatasource set.".into()),
        ("/volumes/0", json!({"name": "root", "cloudInitNoCloud": {"userData": "x".repeat(2049)}}), "spec.volumes[0].cloudInitNoCloud: spec.volumes[0].cloudInitNoCloud userdata exceeds 2048 byte limit. Should use UserDataSecretRef for larger data.".into()),
        ("/volumes/0", json!({"name": "root", "cloudInitNoCloud": {"userData": "x", "secretRef": {"name": "s"}}}), "spec.volumes[0].cloudInitNoCloud: spec.volumes[0].cloudInitNoCloud must have only one userdatasource set.".into()),
        ("/volumes/0", json!({"name": "root", "cloudInitConfigDrive": {"userDataBase64": "#"}}), "spec.volumes[0].cloudInitConfigDrive.userDataBase64: spec.volumes[0].cloudInitConfigDrive.userDataBase64.cloudInitConfigDrive.userDataBase64 is not a valid base64 value.".into()),
        ("/volumes/0", json!({"name": "root", "containerDisk": {"image": "i", "path": "/"}}), "spec.volumes[0].containerDisk: spec.volumes[0].containerDisk must not point to root".into()),
        ("/volumes/0", json!({"name": "root", "hostDisk": {"path": "/p", "type": "Disk"}}), "spec.volumes[0]: HostDisk feature gate is not enabled".into()),
        ("/volumes/1", json!({"name": "root", "emptyDisk": {"capacity": "1"}}), "spec.volumes[1].name: spec.volumes[1] and spec.volumes[0] must not have the same Name.".into()),
        ("/accessCredentials", json!([{"sshPublicKey": {"source": {"secret": {"secretName": "s"}}, "propagationMethod": {"noCloud": {}}}}]), "spec.accessCredentials[0].sshPublicKey.propagationMethod: spec.accessCredentials[0] requires a noCloud volume to exist when the noCloud propagationMethod is in use.".into()),
        ("/accessCredentials", json!([{}]), "spec.accessCredentials[0]: spec.accessCredentials[0] must have exactly one access credential type set".into()),
        ("/dnsPolicy", json!("None"), "spec.dnsConfig: must provide `dnsConfig` when `dnsPolicy` is None".into()),
        ("/domain/devices/sound", json!({"name": "s", "model": "x"}), "spec.Sound: Sound device type is not supported. Options: 'ich9' or 'ac97'".into()),
        ("/domain/devices/hostDevices", json!([{"name": "d", "deviceName": "x/y"}]), "spec.HostDevices: Host Devices feature gate is not enabled in kubevirt-config".into()),
        ("/networks", json!([]), "spec.domain.devices.interfaces[0].name: Masquerade interface only implemented with pod network".into()),
        ("/networks/1", json!({"name": "b", "pod": {}}), "spec.interfaces: more than one interface is connected to a pod network in spec.interfaces".into()),
        ("/networks/1", json!({"name": "b", "multus": {"networkName": ""}}), "spec.networks[1]: CNI delegating plugin must have a networkName".into()),
        ("/networks/1", json!({"name": "b", "multus": {"networkName": "x"}}), "spec.networks[1].name: spec.networks[1].name 'b' not found.".into()),
        ("/domain/devices/interfaces/0", json!({"name": "default"}), "spec.domain.devices.interfaces[0]: logical default interface must have exactly one binding method or binding plugin".into()),
        ("/domain/devices/interfaces/0", json!({"name": "default", "slirp": {}}), "spec.domain.devices.interfaces[0].slirp: Slirp interface support has been discontinued since v1.3".into()),
        ("/domain/devices/interfaces/0/model", json!("x"), "spec.domain.devices.interfaces[0].model: interface spec.domain.devices.interfaces[0].name uses model x that is not supported.".into()),
        ("/domain/devices/interfaces/0/macAddress", json!("x"), "spec.domain.devices.interfaces[0].macAddress: interface spec.domain.devices.interfaces[0].name has malformed MAC address (x).".into()),
        ("/domain/devices/interfaces/0/macAddress", json!("02:00:00:00:00:00"), "spec.domain.devices.interfaces[0].macAddress: The requested MAC address is reserved for the in-pod bridge. Please choose another one.".into()),
        ("/domain/devices/interfaces/0/pciAddress", json!("x"), "spec.domain.devices.interfaces[0].pciAddress: interface spec.domain.devices.interfaces[0].name has malformed PCI address (x).".into()),
        ("/domain/devices/interfaces/0/ports", json!([{"port": 70000}]), "spec.domain.devices.interfaces[0].ports[0].port: Port field must be in range 0 < x < 65536.".into()),
        ("/domain/devices/interfaces/0/state", json!("absent"), "spec.domain.devices.interfaces[0].state: \"default\" interface's state \"absent\" is supported only for bridge binding".into()),
        ("/domain/devices/interfaces/0/dhcpOptions", json!({"privateOptions": [{"option": 1, "value": "v"}]}), "spec: provided DHCPPrivateOptions are out of range, must be in range 224 to 254".into()),
    ];
    for (pointer, value, expected) in table {
        let case = Case::new("virtualmachineinstances", instance(&[(pointer, value.clone())]));
        let found = case.first().unwrap_or_else(|| panic!("{pointer} {value} was taken"));
        assert!(
            found.starts_with(&expected),
            "{pointer} {value}\n found {found}\n wanted {expected}"
        );
    }
}

#[test]
fn boot_orders_are_unique_over_disks_and_interfaces() {
    let vmi = instance(&[
        ("/domain/devices/disks/0/bootOrder", json!(1)),
        ("/domain/devices/interfaces/0/bootOrder", json!(1)),
    ]);
    assert_eq!(
        Case::new("virtualmachineinstances", vmi).first().unwrap(),
        "spec.domain.devices.interfaces[0].bootOrder: Boot order for spec.domain.devices.interfaces[0].bootOrder already set for a different device."
    );
}

#[test]
fn memory_is_needed_and_the_answer_is_what_a_webhook_says() {
    let mut vmi = instance(&[]);
    vmi["spec"]["domain"]["memory"] = json!({});
    let denial = Case::new("virtualmachineinstances", vmi).judge().unwrap_err();
    let message = "no memory requested, at least one of 'spec.domain.memory.guest', 'spec.domain.memory.hugepages.pageSize' or 'spec.domain.resources.requests.memory' must be set";
    let text = format!(
        "admission webhook \"virtualmachineinstances-create-validator.kubevirt.io\" denied the request: {message}"
    );
    assert_eq!(
        denial.status(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": text, "reason": "Invalid", "code": 422,
            "details": {"causes": [{"reason": "FieldValueRequired", "message": message}]},
        })
    );
}

#[test]
fn many_causes_are_counted() {
    let disks: Vec<Value> = (0..12).map(|index| json!({"name": format!("d{index}")})).collect();
    let vmi = instance(&[("/domain/devices/disks", json!(disks)), ("/volumes", json!([]))]);
    let denial = Case::new("virtualmachineinstances", vmi).judge().unwrap_err();
    assert!(denial.message().ends_with(", and 2 more validation errors"), "{denial}");
    assert_eq!(denial.status()["details"]["causes"].as_array().unwrap().len(), 10);
}

#[test]
fn errors_of_a_machine_say_where_and_why() {
    let volume = |spec: Value| json!([{"metadata": {"name": "v"}, "spec": spec}]);
    let table = [
        (
            "/spec/running",
            json!(true),
            "spec.running: Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
        ),
        ("/spec/runStrategy", Value::Null, "spec.running: RunStrategy must be specified"),
        ("/spec/runStrategy", json!("Often"), "spec.runStrategy: Invalid RunStrategy (Often)"),
        ("/spec/template", Value::Null, "spec.template: missing virtual machine template."),
        (
            "/spec/template/metadata",
            json!({"labels": {"kubevirt.io/nodeName": "a"}}),
            "spec.template.metadata.labels: creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
        ),
        (
            "/spec/template/spec/domain/devices/disks/0/name",
            json!("x"),
            "spec.template.spec.domain.devices.disks[0].name: spec.template.spec.domain.devices.disks[0].Name 'x' not found.",
        ),
        (
            "/spec/template/spec/domain/memory",
            json!({"guest": "512Mi", "maxGuest": "1Gi"}),
            "spec.template.spec.domain.memory.guest: Memory hotplug is only available for VMs with at least 1Gi of guest memory",
        ),
        (
            "/spec/dataVolumeTemplates",
            json!([{"spec": {}}]),
            "spec.dataVolumeTemplate[0].name: 'name' field must not be empty for DataVolumeTemplate entry spec.dataVolumeTemplate[0].name.",
        ),
        (
            "/spec/dataVolumeTemplates",
            volume(json!({})),
            "spec.dataVolumeTemplate[0].PVC.Storage: Missing Data volume PVC or Storage",
        ),
        (
            "/spec/dataVolumeTemplates",
            volume(json!({"pvc": {}, "storage": {}})),
            "spec.dataVolumeTemplate[0].PVC.Storage: Duplicate storage definition, both target storage and target pvc defined",
        ),
        (
            "/spec/dataVolumeTemplates",
            volume(json!({"storage": {}})),
            "spec.dataVolumeTemplate[0].source.sourceRef: Data volume should have either Source, SourceRef, or be externally populated",
        ),
        (
            "/spec/dataVolumeTemplates",
            volume(json!({"storage": {}, "source": {}})),
            "spec.dataVolumeTemplate[0].source: Missing dataVolume valid source",
        ),
        (
            "/spec/dataVolumeTemplates",
            volume(json!({"storage": {}, "source": {"blank": {}, "upload": {}}})),
            "spec.dataVolumeTemplate[0].source: Multiple dataVolume sources",
        ),
        (
            "/spec/dataVolumeTemplates",
            volume(json!({"storage": {}, "source": {"blank": {}}})),
            "spec.dataVolumeTemplate[0]: DataVolumeTemplate entry spec.dataVolumeTemplate[0] must be referenced in the VMI template's 'volumes' list",
        ),
        (
            "/spec/instancetype",
            json!({"kind": "x"}),
            "spec.instancetype: Either Name or InferFromVolume should be provided within the InstancetypeMatcher",
        ),
        (
            "/spec/preference",
            json!({"name": "a", "inferFromVolume": "b"}),
            "spec.preference.name: Name already set, should be cleared before setting inferFromVolume",
        ),
        (
            "/status/volumeRequests",
            json!([{}]),
            "Status.volumeRequests: VolumeRequests require one of either addVolumeOptions or removeVolumeOptions to be set",
        ),
        (
            "/status/volumeRequests",
            json!([{"addVolumeOptions": {"name": "v", "disk": {"disk": {"bus": "sata"}}}}]),
            "Status.volumeRequests: AddVolume request for disk [v] requires bus to be 'scsi' or 'virtio'. [sata] is not permitted.",
        ),
    ];
    for (pointer, value, expected) in table {
        let mut vm = machine(&[]);
        put(&mut vm, pointer, value.clone());
        let found = Case::new("virtualmachines", vm).first();
        assert_eq!(found.as_deref(), Some(expected), "{pointer} {value}");
    }
}

#[test]
fn an_old_fashioned_machine_is_warned() {
    let mut vm = machine(&[]);
    vm["spec"]["running"] = json!(false);
    vm["spec"].as_object_mut().unwrap().remove("runStrategy");
    assert_eq!(
        Case::new("virtualmachines", vm).judge().unwrap(),
        ["spec.running is deprecated, please use spec.runStrategy instead."]
    );
}

#[test]
fn a_machine_waits_for_its_snapshot_and_restore() {
    let old = machine(&[]);
    let volumes = "/spec/template/spec/volumes/0/containerDisk/image";
    let table = [
        (
            "snapshotInProgress",
            volumes,
            "spec: Cannot update vm disks or volumes until snapshot \"s\" completes",
        ),
        (
            "snapshotInProgress",
            "/spec/runStrategy",
            "spec: Cannot update vm running state until snapshot \"s\" completes",
        ),
        (
            "restoreInProgress",
            "/spec/runStrategy",
            "spec: Cannot update VM runStrategy until restore \"s\" completes",
        ),
    ];
    for (status, pointer, expected) in table {
        let mut vm = old.clone();
        vm["status"][status] = json!("s");
        put(&mut vm, pointer, json!("Halted"));
        let case = Case { old: Some(old.clone()), ..Case::new("virtualmachines", vm) };
        assert_eq!(case.first().as_deref(), Some(expected));
    }
    let mut gone = machine(&[("/spec/runStrategy", json!("Often"))]);
    gone["metadata"]["deletionTimestamp"] = json!("t");
    assert!(Case { old: Some(old), ..Case::new("virtualmachines", gone) }.judge().is_ok());
}

#[test]
fn a_size_that_conflicts_or_is_too_small_is_reported() {
    let small = json!({"metadata": {"name": "small"}, "spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}});
    let hungry =
        json!({"metadata": {"name": "hungry"}, "spec": {"requirements": {"cpu": {"guest": 2}}}});
    let shelf = || {
        Shelf(vec![
            ("virtualmachineclusterinstancetypes", small.clone()),
            ("virtualmachineclusterpreferences", hungry.clone()),
        ])
    };
    let vm = machine(&[("/spec/instancetype", json!({"name": "small"}))]);
    let case = Case { shelf: shelf(), ..Case::new("virtualmachines", vm) };
    assert_eq!(
        case.first().unwrap(),
        "spec.template.spec.domain.memory.guest: VM field(s) spec.template.spec.domain.memory.guest conflicts with selected instance type"
    );
    let vm = machine(&[
        ("/spec/instancetype", json!({"name": "small"})),
        ("/spec/preference", json!({"name": "hungry"})),
        ("/spec/template/spec/domain/memory", Value::Null),
    ]);
    let case = Case { shelf: shelf(), ..Case::new("virtualmachines", vm) };
    assert_eq!(
        case.first().unwrap(),
        "spec.instancetype: failure checking preference requirements: insufficient CPU resources of 1 vCPU provided by instance type, preference requires 2 vCPU"
    );
}

#[test]
fn only_the_cluster_changes_an_instance() {
    let old = instance(&[]);
    let mut new = old.clone();
    new["spec"]["domain"]["cpu"]["sockets"] = json!(2);
    let case = |new: Value, trusted| Case {
        old: Some(old.clone()),
        trusted,
        ..Case::new("virtualmachineinstances", new)
    };
    assert_eq!(case(new.clone(), false).first().unwrap(), ": update of VMI object is restricted");
    assert_eq!(case(new.clone(), true).judge(), Ok(vec![]));
    new["spec"]["domain"]["cpu"]["maxSockets"] = json!(9);
    assert_eq!(case(new, true).first().unwrap(), ": CPU topology maxSockets changed");
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"kubevirt.io/nodeName": "b"});
    assert_eq!(
        case(labelled.clone(), false).first().unwrap(),
        ": modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
    );
    assert_eq!(case(labelled, true).judge(), Ok(vec![]));
    let mut own = old.clone();
    own["metadata"]["labels"] = json!({"mine": "b"});
    assert_eq!(case(own, false).judge(), Ok(vec![]));
}

#[test]
fn the_status_of_an_instance_is_the_clusters() {
    let old = json!({"status": {"phase": "Running"}});
    let mut new = json!({"status": {"phase": "Failed"}});
    keep_instance_status(&mut new, Some(&old), true);
    assert_eq!(new["status"]["phase"], "Failed");
    keep_instance_status(&mut new, Some(&old), false);
    assert_eq!(new["status"]["phase"], "Running");
    // Addresses that a user invents must not become endpoints.
    let mut created = json!({"spec": {}, "status": {"interfaces": [{"ipAddress": "10.0.0.5"}]}});
    keep_instance_status(&mut created, None, false);
    assert_eq!(created, json!({"spec": {}}));
}

#[test]
fn volumes_of_an_instance_come_with_their_disks() {
    let mut old = instance(&[]);
    old["status"]["volumeStatus"] = json!([{"name": "root"}]);
    let judge = |change: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new);
        let case = Case {
            old: Some(old.clone()),
            trusted: true,
            ..Case::new("virtualmachineinstances", new)
        };
        case.first()
    };
    let add = |vmi: &mut Value, volume: Value, disk: Value| {
        vmi["spec"]["volumes"].as_array_mut().unwrap().push(volume);
        vmi["spec"]["domain"]["devices"]["disks"].as_array_mut().unwrap().push(disk);
    };
    let claim =
        json!({"name": "d", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}});
    assert_eq!(
        judge(&|vmi| add(vmi, claim.clone(), json!({"name": "d", "disk": {"bus": "scsi"}}))),
        None
    );
    assert_eq!(
        judge(&|vmi| add(vmi, claim.clone(), json!({"name": "d", "disk": {"bus": "sata"}})))
            .unwrap(),
        ": Hotplug configuration for disk [d] requires bus to be 'scsi' or 'virtio'. [sata] is not permitted."
    );
    assert_eq!(
        judge(&|vmi| add(
            vmi,
            json!({"name": "d", "emptyDisk": {}}),
            json!({"name": "d", "disk": {"bus": "scsi"}})
        ))
        .unwrap(),
        ": volume d is not a PVC or DataVolume"
    );
    assert_eq!(
        judge(&|vmi| {
            vmi["spec"]["volumes"] = json!([]);
            vmi["spec"]["domain"]["devices"]["disks"] = json!([]);
        })
        .unwrap(),
        ": Number of permanent volumes has changed"
    );
    assert_eq!(
        judge(&|vmi| vmi["spec"]["volumes"][0]["containerDisk"]["image"] = json!("j")).unwrap(),
        ": permanent volume root, changed"
    );
    assert_eq!(
        judge(&|vmi| vmi["spec"]["volumes"].as_array_mut().unwrap().push(claim.clone())).unwrap(),
        ": mismatch between volumes declared (2) and required (1)"
    );
}

#[test]
fn sets_select_what_they_make() {
    let mut template = spec();
    default_instance_spec(&mut template, &config()).unwrap();
    let set = |selector: Value| json!({"spec": {"selector": selector, "template": {"metadata": {"labels": {"a": "b"}}, "spec": template}}});
    let plural = "virtualmachineinstancereplicasets";
    assert_eq!(Case::new(plural, set(json!({"matchLabels": {"a": "b"}}))).judge(), Ok(vec![]));
    assert_eq!(
        Case::new(plural, set(json!({"matchLabels": {"a": "c"}}))).first().unwrap(),
        "spec.selector: selector does not match labels."
    );
    let pool = |changes: &[(&str, Value)]| {
        let mut pool = json!({"spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "virtualMachineTemplate": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"runStrategy": "Always", "template": {"spec": template}},
            },
        }});
        for (pointer, value) in changes {
            put(&mut pool, pointer, value.clone());
        }
        pool
    };
    let plural = "virtualmachinepools";
    assert_eq!(Case::new(plural, pool(&[])).judge(), Ok(vec![]));
    let table = [
        (
            "/spec/maxUnavailable",
            json!("50"),
            "spec.maxUnavailable: maxUnavailable percentage must end with %",
        ),
        (
            "/spec/maxUnavailable",
            json!("101%"),
            "spec.maxUnavailable: maxUnavailable percentage value 101 must be between 1 and 100",
        ),
        (
            "/spec/maxUnavailable",
            json!(0),
            "spec.maxUnavailable: maxUnavailable must be greater than 0",
        ),
        (
            "/spec/updateStrategy",
            json!({"unmanaged": {}, "proactive": {}}),
            "spec.updateStrategy: only one strategy can be configured at a time: but found unmanaged, proactive strategies",
        ),
        (
            "/spec/virtualMachineTemplate/spec/runStrategy",
            json!("Often"),
            "spec.virtualMachineTemplate.spec.runStrategy: Invalid RunStrategy (Often)",
        ),
    ];
    for (pointer, value, expected) in table {
        let case = Case::new(plural, pool(&[(pointer, value)]));
        assert_eq!(case.first().as_deref(), Some(expected));
    }
    let moved = pool(&[("/spec/selector/matchLabels", json!({}))]);
    let case = Case { old: Some(pool(&[])), ..Case::new(plural, moved) };
    assert_eq!(case.first().unwrap(), "spec.selector: selector is immutable after creation.");
}

#[test]
fn a_guest_is_moved_alone_and_only_if_it_can() {
    let plural = "virtualmachineinstancemigrations";
    let guest = |status: Value| {
        (
            "virtualmachineinstances",
            json!({"metadata": {"name": "m", "namespace": "n"}, "status": status}),
        )
    };
    let judge = |shelf: Vec<(&'static str, Value)>, spec: Value| {
        Case { shelf: Shelf(shelf), ..Case::new(plural, json!({"spec": spec})) }
            .judge()
            .map_err(|denial| format!("{} {}", denial.code(), denial.causes()[0].message))
    };
    let wanted = json!({"vmiName": "m"});
    assert_eq!(judge(vec![], json!({})), Err("422 vmiName is missing".to_owned()));
    assert_eq!(judge(vec![], wanted.clone()), Err("400 the VMI \"n/m\" does not exist".to_owned()));
    assert_eq!(
        judge(vec![guest(json!({"phase": "Failed"}))], wanted.clone()),
        Err("400 Cannot migrate VMI in finalized state.".to_owned())
    );
    let stuck = json!({"phase": "Running", "conditions": [
        {"type": "LiveMigratable", "status": "False", "reason": "R", "message": "M"},
    ]});
    assert_eq!(
        judge(vec![guest(stuck)], wanted.clone()),
        Err("400 Cannot migrate VMI, Reason: R, Message: M".to_owned())
    );
    let running = || guest(json!({"phase": "Running"}));
    assert_eq!(judge(vec![running()], wanted.clone()), Ok(vec![]));
    let other = json!({
        "metadata": {"uid": "u", "labels": {"kubevirt.io/vmi-name": "m"}}, "status": {"phase": "Running"},
    });
    assert_eq!(
        judge(vec![running(), (plural, other)], wanted),
        Err("400 in-flight migration detected. Active migration job (u) is currently already in progress for VMI m.".to_owned())
    );
}

#[test]
fn a_machine_is_restored_once_at_a_time() {
    let plural = "virtualmachinerestores";
    let restore = |name: &str, machine: &str, status: Value| {
        json!({"metadata": {"name": name, "namespace": "n"}, "status": status,
            "spec": {"target": {"kind": "VirtualMachine", "name": machine}}})
    };
    let first = |other: Value, trusted: bool| {
        let shelf = Shelf(vec![("virtualmachinerestores", other)]);
        let object = restore("two", "m", Value::Null);
        Case { shelf, trusted, ..Case::new(plural, object) }.first()
    };
    let busy = Some("spec.target: VirtualMachineRestore \"one\" in progress".to_owned());
    let failure = json!({"complete": false, "conditions": [{"type": "Failure", "status": "True"}]});
    for (machine, status, trusted, expected) in [
        ("m", Value::Null, false, busy.clone()),
        ("m", json!({"complete": false}), false, busy),
        ("m", Value::Null, true, None),
        ("m", json!({"complete": true}), false, None),
        ("m", failure, false, None),
        ("other", Value::Null, false, None),
    ] {
        assert_eq!(first(restore("one", machine, status.clone()), trusted), expected, "{status}");
    }
}

#[test]
fn a_migration_stays_what_it_is() {
    let old =
        json!({"metadata": {"labels": {"kubevirt.io/vmi-name": "m"}}, "spec": {"vmiName": "m"}});
    let judge = |new: Value| {
        let plural = "virtualmachineinstancemigrations";
        Case { old: Some(old.clone()), ..Case::new(plural, new) }.first()
    };
    let mut new = old.clone();
    new["spec"]["vmiName"] = json!("x");
    assert_eq!(judge(new).unwrap(), ": update of Migration object's spec is restricted");
    let bare = json!({"metadata": {}, "spec": {"vmiName": "m"}});
    assert_eq!(
        judge(bare).unwrap(),
        ": selector label can't be removed from an in-flight migration"
    );
    assert_eq!(judge(old.clone()), None);
}

#[test]
fn sizes_and_preferences_are_judged() {
    let size = |memory: Value| json!({"spec": {"memory": memory}});
    let plural = "virtualmachineclusterinstancetypes";
    assert_eq!(
        Case::new(plural, size(json!({"overcommitPercent": 101}))).first().unwrap(),
        "spec.memory.overcommitPercent: spec.memory.overcommitPercent '101': must be in range between 0 and 100."
    );
    assert_eq!(
        Case::new(plural, size(json!({"overcommitPercent": 5, "hugepages": {}}))).first().unwrap(),
        "spec.memory.overcommitPercent: spec.memory.overcommitPercent and spec.memory.hugepages should not be requested together."
    );
    let preference =
        |cpu: Value| Case::new("virtualmachinepreferences", json!({"spec": {"cpu": cpu}}));
    assert_eq!(
        preference(json!({"preferredCPUTopology": "x"})).first().unwrap(),
        "spec.cpu.preferredCPUTopology: unknown preferredCPUTopology x"
    );
    assert_eq!(
        preference(json!({"preferredCPUTopology": "preferCores"})).judge().unwrap(),
        [
            "PreferredCPUTopology preferCores is deprecated for removal in a future release, please use cores instead"
        ]
    );
    assert_eq!(
        preference(json!({"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads", "ratio": 3}}))
            .first()
            .unwrap(),
        "spec.cpu.spreadOptions.ratio: only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"
    );
}

#[test]
fn data_volumes_need_a_source_and_a_size() {
    let sized = json!({"resources": {"requests": {"storage": "1Gi"}}});
    let with = |source: Value| json!({"storage": sized, "source": source});
    let mut archive = with(json!({"upload": {}}));
    archive["contentType"] = json!("archive");
    let table = [
        (json!({}), Some("spec.PVC: Missing Data volume PVC or Storage")),
        (
            json!({"storage": {}, "source": {"blank": {}}}),
            Some("spec.Storage.resources.requests.size: Storage size is missing"),
        ),
        (
            json!({"pvc": sized, "source": {"blank": {}}}),
            Some("spec.PVC.accessModes: Required value: at least 1 access mode is required"),
        ),
        (
            json!({"storage": sized}),
            Some(
                "spec.source: Data volume should have either Source or SourceRef, or be externally populated",
            ),
        ),
        (with(json!({})), Some("spec.source: Missing dataVolume valid source")),
        (
            with(json!({"blank": {}, "upload": {}})),
            Some("spec.source: Multiple dataVolume sources"),
        ),
        (
            with(json!({"http": {"url": ""}})),
            Some("spec.source.HTTP.url: spec.source source URL is empty"),
        ),
        (
            with(json!({"http": {"url": "ftp://x"}})),
            Some("spec.source.HTTP.url: spec.source Invalid source URL scheme: ftp://x"),
        ),
        (
            with(json!({"registry": {"url": "http://x"}})),
            Some("spec.source.Registry.URL: Illegal registry source URL scheme http://x"),
        ),
        (with(json!({"http": {"url": "https://x/y"}})), None),
        (with(json!({"upload": {}})), None),
        (
            archive,
            Some(
                "spec.contentType: ContentType archive is not supported: volumes are disks, not directories; use a disk image with contentType kubevirt",
            ),
        ),
        (json!({"storage": {}, "sourceRef": {"kind": "DataSource", "name": "d"}}), None),
        (
            json!({"storage": {}, "sourceRef": {"kind": "X", "name": "d"}}),
            Some(
                "spec.sourceRef.Kind: Unsupported sourceRef kind X, currently only DataSource is supported",
            ),
        ),
    ];
    for (spec, expected) in table {
        let case = Case::new("datavolumes", json!({"metadata": {"name": "d"}, "spec": spec}));
        assert_eq!(case.first().as_deref(), expected, "{spec}");
    }
    let old = json!({"metadata": {"name": "d"}, "spec": with(json!({"upload": {}}))});
    let mut new = old.clone();
    new["spec"]["checkpoints"] = json!([{}]);
    let update =
        |new: Value| Case { old: Some(old.clone()), ..Case::new("datavolumes", new) }.first();
    assert_eq!(update(new.clone()), None);
    new["spec"]["contentType"] = json!("archive");
    assert_eq!(update(new).unwrap(), "DataVolume.Spec: Cannot update DataVolume Spec");
}

#[test]
fn snapshots_and_exports_name_what_exists() {
    let source = |group: Value, kind: &str| json!({"spec": {"source": {"apiGroup": group, "kind": kind, "name": "m"}}});
    let snapshot = |object: Value| Case::new("virtualmachinesnapshots", object).first();
    assert_eq!(snapshot(source(json!("kubevirt.io"), "VirtualMachine")), None);
    assert_eq!(
        snapshot(source(Value::Null, "VirtualMachine")).unwrap(),
        "spec.source.apiGroup: missing apiGroup"
    );
    assert_eq!(
        snapshot(source(json!("kubevirt.io"), "X")).unwrap(),
        "spec.source.kind: invalid kind"
    );
    assert_eq!(
        snapshot(source(json!("x"), "X")).unwrap(),
        "spec.source.apiGroup: invalid apiGroup"
    );
    let export = |object: Value| Case::new("virtualmachineexports", object).first();
    assert_eq!(export(source(json!("kubevirt.io"), "VirtualMachine")), None);
    assert_eq!(
        export(source(json!("x"), "PersistentVolumeClaim")).unwrap(),
        "spec.source.APIGroup: PVC API group must be missing or blank"
    );
}

#[test]
fn there_is_one_kubevirt() {
    let object = json!({"metadata": {"name": "second", "namespace": "n"}});
    let first = json!({"metadata": {"name": "kubevirt", "namespace": "kubevirt"}});
    let case = Case { shelf: Shelf(vec![("kubevirts", first)]), ..Case::new("kubevirts", object) };
    let denial = case.judge().unwrap_err();
    assert_eq!(
        (denial.code(), denial.causes()[0].message.as_str()),
        (400, "Kubevirt is already created")
    );
}

struct NoRights;

impl Access for NoRights {
    fn user(&self) -> &str {
        "ann"
    }

    fn may_create(&self, _: &str, _: &str, _: &str, _: &str) -> bool {
        false
    }

    fn of_service_account(&self, _: &str, _: &str) -> Box<dyn Access + '_> {
        Box::new(Self)
    }
}

#[test]
fn objects_are_completed_by_their_kind() {
    let shelf = Shelf(vec![(
        "virtualmachineclusterpreferences",
        json!({"metadata": {"name": "p"}, "spec": {
            "machine": {"preferredMachineType": "pc-q35-7.2"},
            "volumes": {"preferredStorageClassName": "fast"},
        }}),
    )]);
    let config = config();
    let change = |plural: &str, object: Value, old: Option<&Value>| {
        let mut object = object;
        let mut uuid = || "u".to_owned();
        let mut around = MutationContext {
            namespace: "n",
            trusted: false,
            config: &config,
            objects: &shelf,
            access: &NoRights,
            now: "now",
            uuid: &mut uuid,
        };
        mutate("kubevirt.io", plural, &mut object, old, &mut around).map(|()| object)
    };
    let vm = json!({"spec": {
        "preference": {"name": "p"},
        "dataVolumeTemplates": [{"spec": {"storage": {}}}],
        "template": {"spec": {"domain": {}}},
    }});
    let vm = change("virtualmachines", vm, None).unwrap();
    assert_eq!(vm["spec"]["template"]["spec"]["domain"]["machine"]["type"], "pc-q35-7.2");
    assert_eq!(vm["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"], "u");
    assert_eq!(vm["spec"]["dataVolumeTemplates"][0]["spec"]["storage"]["storageClassName"], "fast");
    let lost =
        json!({"spec": {"instancetype": {"inferFromVolume": "v"}, "template": {"spec": {}}}});
    assert_eq!(
        change("virtualmachines", lost, None).unwrap_err().message(),
        "admission webhook \"virtualmachines-mutator.kubevirt.io\" denied the request: unable to find volume v to infer defaults"
    );
    let vmi = change("virtualmachineinstances", json!({"spec": spec()}), None).unwrap();
    assert_eq!(vmi["status"]["phase"], "Pending");
    let forged =
        change("virtualmachineinstances", json!({"status": {"phase": "Failed"}}), Some(&vmi));
    assert_eq!(forged.unwrap()["status"], vmi["status"]);
    let migration = json!({"spec": {"vmiName": "m"}});
    let migration = change("virtualmachineinstancemigrations", migration, None).unwrap();
    assert_eq!(migration["metadata"]["labels"]["kubevirt.io/vmi-name"], "m");
}
