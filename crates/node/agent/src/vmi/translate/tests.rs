use expect_test::{Expect, expect};
use qemu::machine::{
    Accelerator, Backing as Pages, Bus, Cache, DiskSource, FileImage, Firmware, NicBackend,
};
use serde_json::{Value, json};

use super::*;
use crate::host::Efi;
use crate::machine::fixture::vmi;

fn host() -> HostCapabilities {
    let efi =
        |secure_boot, code: &str| Efi { secure_boot, code: code.into(), vars: "/vars".into() };
    HostCapabilities {
        accelerator: Accelerator::Tcg,
        firmware: vec![efi(true, "/secure"), efi(false, "/plain")],
        has_tpm: true,
    }
}

fn file(path: &str) -> VolumeBacking {
    VolumeBacking {
        source: DiskSource::File(FileImage::raw(path)),
        read_only: false,
        direct: true,
        allocated: false,
    }
}

/// The machine of a specification whose volumes are files of their name.
fn make(spec: Value) -> Result<Machine, TranslateError> {
    let vmi = vmi(spec);
    let volumes = vmi.spec.volumes.iter();
    let volumes =
        volumes.map(|volume| (volume.name.clone(), file(&format!("/v/{}", volume.name)))).collect();
    let outlet = || InterfaceBackend {
        backend: NicBackend::Tap { ifname: "tap0".into(), queues: 1, vhost: false },
        mtu: None,
    };
    let interfaces = vmi.spec.domain.devices.interfaces.iter();
    let outlets = interfaces.map(|interface| (interface.name.clone(), outlet())).collect();
    let host = host();
    let around = TranslateContext {
        host: &host,
        volumes: &volumes,
        outlets: &outlets,
        nvram: "/run/nvram.fd".into(),
        tpm: "/run/tpm".into(),
    };
    machine(&vmi, &around)
}

fn domain(domain: Value) -> Machine {
    let mut domain = domain;
    if domain["memory"].is_null() {
        domain["memory"] = json!({"guest": "64Mi"});
    }
    make(json!({"domain": domain})).unwrap()
}

fn check(part: &impl serde::Serialize, want: Expect) {
    want.assert_eq(&serde_json::to_string(part).unwrap());
}

#[test]
fn a_plain_machine_has_what_upstream_gives_to_everyone() {
    let machine = domain(json!({}));
    assert_eq!(machine.name, "ns_vm");
    assert_eq!(machine.uuid, "5d307ca9-b3ef-428c-8861-06e72d69f223");
    assert_eq!(machine.machine_type, "q35");
    check(
        &machine.cpu,
        expect![[
            r#"{"model":"best","features":[],"sockets":1,"cores":1,"threads":1,"max_sockets":1}"#
        ]],
    );
    check(
        &machine.memory,
        expect![[
            r#"{"guest":67108864,"max":0,"slots":0,"backing":"anonymous","shared":false,"locked":false}"#
        ]],
    );
    check(
        &machine.devices,
        expect![[
            r#"{"rng":false,"balloon":{"statistics_interval":10,"free_page_reporting":true},"watchdog":null,"inputs":[],"sound":null,"video":"vga","vnc":true,"serial":true,"guest_agent":true,"panic":null,"vsock_cid":null,"usb_redirection":false,"scsi":true,"scsi_queues":0,"spare_ports":8}"#
        ]],
    );
    let lent = domain(json!({"devices": {"clientPassthrough": {}}}));
    assert!(lent.devices.usb_redirection);
}

#[test]
fn processors_follow_the_topology() {
    let machine = domain(json!({"cpu": {
        "sockets": 2, "cores": 3, "maxSockets": 8, "model": "Nehalem",
        "features": [{"name": "vmx", "policy": "disable"}, {"name": "aes"}, {"name": "x", "policy": "optional"}],
    }}));
    check(
        &machine.cpu,
        expect![[
            r#"{"model":{"named":"Nehalem"},"features":[{"name":"vmx","enabled":false},{"name":"aes","enabled":true}],"sockets":2,"cores":3,"threads":1,"max_sockets":8}"#
        ]],
    );
    let pinned =
        domain(json!({"cpu": {"sockets": 2, "maxSockets": 8, "dedicatedCpuPlacement": true}}));
    assert_eq!(pinned.cpu.max_sockets, 2);
    assert!(pinned.devices.balloon.is_none());
}

#[test]
fn memory_comes_from_the_guest_size_or_else_from_the_request() {
    let size = |domain: Value| make(json!({"domain": domain})).map(|machine| machine.memory);
    let request = json!({"resources": {"requests": {"memory": "1Gi"}}});
    assert_eq!(size(request).unwrap().guest, 1 << 30);
    let growing = json!({"memory": {"guest": "1Gi", "maxGuest": "4Gi"}});
    assert_eq!(size(growing).unwrap().max, 4 << 30);
    let huge =
        json!({"memory": {"guest": "1Gi", "maxGuest": "4Gi", "hugepages": {"pageSize": "2Mi"}}});
    let huge = size(huge).unwrap();
    assert_eq!((huge.backing, huge.max), (Pages::HugePages(2 << 20), 0));
    for (domain, message) in [
        (json!({}), "spec.domain.memory needs memory.guest"),
        (
            json!({"memory": {"guest": "1k"}}),
            "spec.domain.memory.guest: \"1k\" is not a size of at least 1Mi",
        ),
    ] {
        assert_eq!(size(domain).unwrap_err().to_string(), message);
    }
}

#[test]
fn firmware_is_chosen_by_what_is_installed() {
    let efi = |efi: Value| domain(json!({"firmware": {"bootloader": {"efi": efi}}})).firmware;
    check(
        &efi(json!({})),
        expect![[r#"{"efi":{"secure_boot":true,"code":"/secure","vars":"/run/nvram.fd"}}"#]],
    );
    check(
        &efi(json!({"secureBoot": false})),
        expect![[r#"{"efi":{"secure_boot":false,"code":"/plain","vars":"/run/nvram.fd"}}"#]],
    );
    let bios = domain(json!({"firmware": {"bootloader": {"bios": {"useSerial": true}}}}));
    assert_eq!(bios.firmware, Firmware::BiosWithSerial);
}

#[test]
fn a_machine_type_of_another_distribution_is_q35() {
    let kind = |kind: &str| domain(json!({"machine": {"type": kind}})).machine_type;
    assert_eq!(kind("pc-q35-rhel9.6.0"), "q35");
    assert_eq!(kind("pc-q35-7.2"), "pc-q35-7.2");
    let error = make(json!({"domain": {"memory": {"guest": "1Gi"}, "machine": {"type": "virt"}}}));
    assert_eq!(
        error.unwrap_err().to_string(),
        "spec.domain.machine.type: \"virt\" is not q35 or a version of it"
    );
}

/// A comma in one of these would begin another option on QEMU's command line.
#[test]
fn names_bring_no_options_of_qemu() {
    for (field, spec) in [
        ("machine.type", json!({"machine": {"type": "pc-q35-7.2,firmware=/etc/passwd"}})),
        ("cpu.model", json!({"cpu": {"model": "qemu64,+vmx"}})),
        (
            "cpu.features.name",
            json!({"cpu": {"features": [{"name": "x2apic=on,kvm", "policy": "require"}]}}),
        ),
        (
            "features.hyperv.vendorid.vendorid",
            json!({"features": {"hyperv": {"vendorid": {"vendorid": "a,kvm=off"}}}}),
        ),
    ] {
        let mut domain = spec;
        domain["memory"] = json!({"guest": "1Gi"});
        let error = make(json!({ "domain": domain })).unwrap_err().to_string();
        assert!(error.starts_with(&format!("spec.domain.{field}: ")), "{error}");
        assert!(error.ends_with("letters, digits, hyphens, dots and underscores"), "{error}");
    }
}

fn with_disks(disks: Value, volumes: Value) -> Vec<qemu::machine::Disk> {
    let domain = json!({"memory": {"guest": "64Mi"}, "devices": {"disks": disks}});
    make(json!({"domain": domain, "volumes": volumes})).unwrap().disks
}

#[test]
fn disks_have_their_bus_and_boot_in_order() {
    let disks = with_disks(
        json!([
            {"name": "seed", "disk": {"bus": "virtio"}},
            {"name": "root", "disk": {"bus": "virtio"}, "serial": "S1"},
            {"name": "data", "disk": {"bus": "scsi"}, "cache": "writethrough"},
            {"name": "cd", "cdrom": {}},
        ]),
        json!([
            {"name": "seed", "cloudInitNoCloud": {"userData": "x"}},
            {"name": "root", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "data", "dataVolume": {"name": "b"}},
            {"name": "cd", "containerDisk": {"image": "c"}},
        ]),
    );
    let found: Vec<_> = disks
        .iter()
        .map(|disk| (disk.name.as_str(), disk.bus, disk.boot_index, disk.cache, disk.read_only))
        .collect();
    assert_eq!(
        found,
        [
            ("seed", Bus::Virtio, None, Cache::None, false),
            ("root", Bus::Virtio, Some(1), Cache::None, false),
            ("data", Bus::Scsi, Some(2), Cache::WriteThrough, false),
            ("cd", Bus::Sata, Some(3), Cache::None, true),
        ]
    );
    assert_eq!(disks[1].serial.as_deref(), Some("S1"));
}

#[test]
fn a_pci_address_is_kept_or_refused_with_its_reason() {
    let made = |addresses: [&str; 2]| {
        let disk = |name: &str, address: &str| json!({"name": name, "disk": {"bus": "virtio", "pciAddress": address}});
        let [first, second] = addresses;
        let disks = json!([disk("a", first), disk("b", second)]);
        let domain = json!({"memory": {"guest": "64Mi"}, "devices": {"disks": disks}});
        let volume =
            |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        make(json!({"domain": domain, "volumes": [volume("a"), volume("b")]}))
    };
    let disks = made(["0000:05:00.0", ""]).unwrap().disks;
    assert_eq!(disks[0].pci_bus, qemu::machine::PciBus::from_address("0000:05:00.0").ok());
    assert_eq!(disks[1].pci_bus, None);
    let refused = |addresses| made(addresses).unwrap_err().to_string();
    let text = refused(["0000:02:01.0", ""]);
    assert!(text.starts_with("a: pciAddress: the PCI address has to be 0000:BB:00.0"), "{text}");
    let text = refused(["0000:05:00.0", "0000:05:00.0"]);
    assert_eq!(text, "b: pciAddress: a has the same address; change one of them");
}

#[test]
fn an_explicit_order_is_the_only_one() {
    let disks = with_disks(
        json!([{"name": "a", "disk": {}}, {"name": "b", "disk": {}, "bootOrder": 1}]),
        json!([{"name": "a", "hostDisk": {"path": "/a", "type": "Disk"}},
               {"name": "b", "hostDisk": {"path": "/b", "type": "Disk"}}]),
    );
    assert_eq!((disks[0].boot_index, disks[1].boot_index), (None, Some(1)));
}

#[test]
fn a_cd_drive_may_be_empty_and_a_disk_may_not() {
    let disks = with_disks(
        json!([{"name": "cd", "cdrom": {"bus": "sata"}}, {"name": "no", "disk": {}}]),
        json!([]),
    );
    assert_eq!(disks.len(), 1);
    assert_eq!(disks[0].source, DiskSource::Empty);
}

#[test]
fn io_threads_follow_the_policy() {
    let spec = |policy: &str| {
        let disks = json!([
            {"name": "a", "disk": {"bus": "virtio"}},
            {"name": "b", "disk": {"bus": "virtio"}, "dedicatedIOThread": true},
        ]);
        let domain = json!({
            "memory": {"guest": "64Mi"}, "ioThreadsPolicy": policy, "devices": {"disks": disks},
            "ioThreads": {"supplementalPoolThreadCount": 2},
        });
        let volumes = json!([{"name": "a", "emptyDisk": {"capacity": "1Mi"}},
                             {"name": "b", "emptyDisk": {"capacity": "1Mi"}}]);
        let machine = make(json!({"domain": domain, "volumes": volumes})).unwrap();
        let threads: Vec<_> =
            machine.disks.iter().map(|disk| disk.io_thread.clone().unwrap()).collect();
        (machine.io_threads.join(","), threads.join(","))
    };
    assert_eq!(spec("shared"), ("shared".into(), "shared,b".into()));
    assert_eq!(spec("auto"), ("pool-0,pool-1".into(), "pool-0,b".into()));
    assert_eq!(spec("supplementalPool"), ("pool-0,pool-1".into(), "pool-0,b".into()));
}

#[test]
fn unsupported_devices_are_refused_by_name() {
    let disk = |disk: Value| {
        let volumes = json!([{"name": "d", "emptyDisk": {"capacity": "1Mi"}}]);
        let domain = json!({"memory": {"guest": "64Mi"}, "devices": {"disks": [disk]}});
        make(json!({"domain": domain, "volumes": volumes})).unwrap_err().to_string()
    };
    assert_eq!(
        disk(json!({"name": "d", "disk": {"bus": "ide"}})),
        "disk d: its bus is not virtio, scsi, sata or usb"
    );
    assert_eq!(
        disk(json!({"name": "d", "cdrom": {"bus": "virtio"}})),
        "disk d: a CD-ROM cannot be on the virtio bus"
    );
}

#[test]
fn interfaces_keep_their_addresses_over_restarts() {
    let spec = || {
        json!({
            "domain": {
                "memory": {"guest": "64Mi"},
                "firmware": {"uuid": "u"},
                "devices": {"interfaces": [
                    {"name": "a", "masquerade": {}},
                    {"name": "b", "bridge": {}, "macAddress": "52-54-00-AA-BB-CC", "model": "e1000e"},
                    {"name": "c", "bridge": {}, "state": "absent"},
                    {"name": "d", "bridge": {}, "state": "down"},
                ]},
            },
        })
    };
    let one = make(spec()).unwrap().nics;
    assert_eq!(one, make(spec()).unwrap().nics);
    let names: Vec<_> = one.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "d"]);
    assert!(one[0].mac.starts_with("02:"));
    assert_eq!(one[1].mac, "52:54:00:aa:bb:cc");
    assert_eq!(one[2].link, qemu::machine::LinkState::Down);
}
