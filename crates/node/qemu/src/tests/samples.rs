//! A spread of machines: each has its command line written down here, and QEMU takes each.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use expect_test::{Expect, expect};

use super::{Stage, UUID, identity, is_root, run, spec, within};
use crate::argv::{TapFds, Wiring, argv};
use crate::machine::*;
use crate::qmp::RunState;

/// Where the samples find what they name.
struct Props {
    dir: PathBuf,
    ovmf: PathBuf,
    tap: String,
}

fn file(props: &Props, name: &str) -> PathBuf {
    props.dir.join(name)
}

fn plain(_: &Props) -> Machine {
    Machine::new("plain", UUID, 64 << 20)
}

fn cloud(props: &Props) -> Machine {
    let mut machine = Machine::new("cloud, with a comma", UUID, 256 << 20);
    machine.cpu = Cpu { sockets: 1, cores: 2, max_sockets: 4, ..Cpu::default() };
    machine.memory.max = 1 << 30;
    machine.smbios = Smbios {
        manufacturer: Some("KubeVirt".to_owned()),
        product: Some("None".to_owned()),
        family: Some("KubeVirt".to_owned()),
        ..Smbios::default()
    };
    let image = FileImage {
        path: file(props, "over.qcow2"),
        format: ImageFormat::Qcow2,
        backing: Some(Box::new(FileImage::raw(file(props, "base.img")))),
    };
    let mut root = Disk::new("rootdisk", Bus::Virtio, DiskSource::File(image));
    root.boot_index = Some(1);
    root.serial = Some("ROOT1".to_owned());
    root.io_thread = Some("rootdisk".to_owned());
    let seed = FileImage::raw(file(props, "seed.iso"));
    let mut seed = Disk::new("cloudinit", Bus::Sata, DiskSource::File(seed));
    seed.device = DiskDevice::Cdrom;
    seed.read_only = true;
    machine.disks = vec![root, seed];
    let forward = Forward {
        protocol: Protocol::Tcp,
        host: [127, 0, 0, 1].into(),
        host_port: 0,
        guest_port: 22,
    };
    let backend = NicBackend::User {
        network: Some("10.0.2.0/24".to_owned()),
        hostname: Some("cloud".to_owned()),
        forwards: vec![forward],
    };
    machine.nics = vec![Nic::new("default", "52:54:00:12:34:56", backend)];
    machine.devices.rng = true;
    machine.devices.balloon = Some(Balloon::default());
    machine.devices.video = Some(Video::Vga);
    machine.devices.vnc = true;
    machine.devices.inputs = vec![Input { name: "tablet".to_owned(), bus: InputBus::Usb }];
    machine
}

fn many_disks(props: &Props) -> Machine {
    let mut machine = Machine::new("disks", UUID, 64 << 20);
    let raw = |name: &str| DiskSource::File(FileImage::raw(file(props, name)));
    let mut scsi = Disk::new("data", Bus::Scsi, raw("a.img"));
    scsi.cache = Cache::None;
    scsi.aio = Aio::Native;
    scsi.on_error = ErrorPolicy::Report;
    scsi.shareable = true;
    scsi.block_sizes =
        Some(BlockSizes { logical: 4096, physical: 4096, discard_granularity: Some(4096) });
    let mut through = Disk::new("through", Bus::Sata, raw("b.img"));
    through.cache = Cache::WriteThrough;
    through.on_error = ErrorPolicy::Enospace;
    let usb = Disk::new("stick", Bus::Usb, raw("c.img"));
    let mut tray = Disk::new("tray", Bus::Sata, DiskSource::Empty);
    tray.device = DiskDevice::Cdrom;
    tray.read_only = true;
    let mut scsi_tray = tray.clone();
    scsi_tray.name = "scsi-tray".to_owned();
    scsi_tray.bus = Bus::Scsi;
    let nbd = DiskSource::Nbd {
        socket: file(props, "nbd.sock"),
        export: "volume".to_owned(),
        reconnect_delay: 30,
    };
    let nbd = Disk::new("volume-with-a-name-that-does-not-fit", Bus::Virtio, nbd);
    machine.disks = vec![scsi, through, usb, tray, scsi_tray, nbd];
    for index in 0..6 {
        let mut more = Disk::new(format!("sata{index}"), Bus::Sata, raw("d.img"));
        more.shareable = true;
        machine.disks.push(more);
    }
    machine
}

fn fast_disk(props: &Props) -> Machine {
    let mut machine = Machine::new("vhost", UUID, 64 << 20);
    machine.memory.shared = true;
    let source = DiskSource::VhostUser { socket: file(props, "vhost.sock") };
    machine.disks = vec![Disk::new("fast", Bus::Virtio, source)];
    machine
}

fn windows(props: &Props) -> Machine {
    let mut machine = Machine::new("windows", UUID, 128 << 20);
    machine.firmware = Firmware::Efi(Efi {
        secure_boot: true,
        code: props.ovmf.clone(),
        vars: file(props, "vars.fd"),
    });
    machine.features.hyperv = vec![
        HyperV { name: "relaxed".to_owned(), value: None },
        HyperV { name: "spinlocks".to_owned(), value: Some("8191".to_owned()) },
    ];
    machine.cpu.features = vec![CpuFeature { name: "sse4.2".to_owned(), enabled: false }];
    machine.clock = Clock::At("2026-01-02T03:04:05".to_owned());
    machine.devices.sound = Some(Sound::Ich9);
    machine.devices.video = Some(Video::Bochs);
    machine.devices.vnc = true;
    machine.devices.watchdog = Some(Watchdog { action: WatchdogAction::Poweroff });
    machine.devices.panic = Some(PanicDevice::Isa);
    machine.devices.usb_redirection = true;
    machine.devices.inputs = vec![Input { name: "tablet".to_owned(), bus: InputBus::Virtio }];
    machine.tpm = Some(Tpm { interface: TpmInterface::Crb, state: file(props, "tpm") });
    machine.on_reboot = OnReboot::Shutdown;
    machine
}

fn pinned(props: &Props) -> Machine {
    let mut machine = Machine::new("numa", UUID, 128 << 20);
    machine.cpu = Cpu { sockets: 2, cores: 1, max_sockets: 2, ..Cpu::default() };
    machine.numa = vec![
        NumaNode { memory: 64 << 20, cpus: vec![0], host_node: None },
        NumaNode { memory: 64 << 20, cpus: vec![1], host_node: None },
    ];
    let tap = NicBackend::Tap { ifname: props.tap.clone(), queues: 2, vhost: false };
    let mut nic = Nic::new("lan", "52:54:00:00:00:01", tap);
    nic.boot_index = Some(1);
    nic.mtu = Some(1450);
    machine.nics = vec![nic];
    machine.features.acpi = true;
    machine.firmware = Firmware::BiosWithSerial;
    machine.clock = Clock::Local;
    machine.devices.sound = Some(Sound::Ac97);
    machine.devices.panic = Some(PanicDevice::Pci);
    machine.devices.spare_ports = 20;
    machine
}

fn arriving(props: &Props) -> Machine {
    let mut machine = cloud(props);
    machine.name = "arriving".to_owned();
    machine.start = Start::Incoming;
    machine
}

type Sample = fn(&Props) -> Machine;
const ALL: &[Sample] = &[plain, cloud, many_disks, fast_disk, windows, pinned, arriving];

/// The command line with one option per line.
fn golden(sample: Sample, expect: &Expect) {
    let props =
        Props { dir: "/d".into(), ovmf: "/firmware/code.fd".into(), tap: "tap0".to_owned() };
    let machine = sample(&props);
    let mut next: RawFd = 13;
    let taps = machine.nics.iter().filter_map(|nic| match &nic.backend {
        NicBackend::Tap { queues, .. } => {
            let queues = (0..*queues).map(|_| {
                next += 1;
                next
            });
            Some((nic.name.clone(), TapFds { queues: queues.collect(), vhost: Vec::new() }))
        }
        NicBackend::User { .. } => None,
    });
    let wiring = Wiring {
        pid_file: "/run/vm/qemu.pid".into(),
        qmp: 11,
        serial: 12,
        guest_agent: 13,
        taps: taps.collect::<BTreeMap<_, _>>(),
        vnc: "vnc.sock".into(),
        tpm: machine.tpm.is_some().then_some(9),
    };
    let mut lines = String::new();
    for argument in argv(&machine, &wiring) {
        let argument = argument.into_string().unwrap();
        let starts = argument.starts_with('-');
        lines.push_str(if !starts {
            " "
        } else if lines.is_empty() {
            ""
        } else {
            "\n"
        });
        lines.push_str(&argument);
    }
    lines.push('\n');
    expect.assert_eq(&lines);
}

#[test]
fn a_plain_machine() {
    golden(
        plain,
        &expect![[r#"
        -name guest=plain,debug-threads=on
        -uuid 6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
        -pidfile /run/vm/qemu.pid
        -no-user-config
        -nodefaults
        -display none
        -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
        -S
        -action reboot=reset,shutdown=pause,watchdog=reset
        -chardev socket,id=qmp,fd=11,server=on,wait=off
        -mon chardev=qmp,id=monitor,mode=control
        -machine q35,accel=tcg,usb=off,vmport=off,dump-guest-core=off,hpet=off,acpi=on,smm=off
        -cpu max
        -smp 1,maxcpus=1,sockets=1,cores=1,threads=1
        -rtc base=utc
        -smbios type=1,uuid=6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
        -m size=67108864b
        -overcommit mem-lock=off
        -boot strict=on
        -device {"addr":"2.0","bus":"pcie.0","chassis":1,"driver":"pcie-root-port","id":"port0","multifunction":true,"port":0}
        -device {"bus":"port0","driver":"virtio-scsi-pci","id":"scsi0"}
        -chardev socket,id=serial0,fd=12,server=on,wait=off
        -device {"chardev":"serial0","driver":"isa-serial","id":"com1"}
        -device {"addr":"2.1","bus":"pcie.0","chassis":2,"driver":"pcie-root-port","id":"port1","port":1}
        -device {"bus":"port1","driver":"virtio-serial-pci","id":"channels"}
        -chardev socket,id=agent0,fd=13,server=on,wait=off
        -device {"bus":"channels.0","chardev":"agent0","driver":"virtserialport","id":"agent","name":"org.qemu.guest_agent.0","nr":1}
        -device {"addr":"2.2","bus":"pcie.0","chassis":3,"driver":"pcie-root-port","id":"hot0","port":2}
        -device {"addr":"2.3","bus":"pcie.0","chassis":4,"driver":"pcie-root-port","id":"hot1","port":3}
        -device {"addr":"2.4","bus":"pcie.0","chassis":5,"driver":"pcie-root-port","id":"hot2","port":4}
        -device {"addr":"2.5","bus":"pcie.0","chassis":6,"driver":"pcie-root-port","id":"hot3","port":5}
        -device {"addr":"2.6","bus":"pcie.0","chassis":7,"driver":"pcie-root-port","id":"hot4","port":6}
        -device {"addr":"2.7","bus":"pcie.0","chassis":8,"driver":"pcie-root-port","id":"hot5","port":7}
        -device {"addr":"3.0","bus":"pcie.0","chassis":9,"driver":"pcie-root-port","id":"hot6","multifunction":true,"port":8}
        -device {"addr":"3.1","bus":"pcie.0","chassis":10,"driver":"pcie-root-port","id":"hot7","port":9}
    "#]],
    );
}

#[test]
fn a_machine_for_a_cloud_image() {
    golden(
        cloud,
        &expect![[r#"
            -name guest=cloud,, with a comma,debug-threads=on
            -uuid 6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
            -pidfile /run/vm/qemu.pid
            -no-user-config
            -nodefaults
            -display none
            -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
            -S
            -action reboot=reset,shutdown=pause,watchdog=reset
            -chardev socket,id=qmp,fd=11,server=on,wait=off
            -mon chardev=qmp,id=monitor,mode=control
            -machine q35,accel=tcg,usb=off,vmport=off,dump-guest-core=off,hpet=off,acpi=on,smm=off
            -cpu max
            -smp 2,maxcpus=8,sockets=4,cores=2,threads=1
            -rtc base=utc
            -smbios type=1,manufacturer=KubeVirt,product=None,family=KubeVirt,uuid=6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
            -m size=268435456b,slots=0,maxmem=1073741824b
            -overcommit mem-lock=off
            -boot strict=on
            -netdev user,id=host-ua-default,net=10.0.2.0/24,hostname=cloud,hostfwd=tcp:127.0.0.1:0-:22
            -device {"addr":"2.0","bus":"pcie.0","chassis":1,"driver":"pcie-root-port","id":"port0","multifunction":true,"port":0}
            -device {"bus":"port0","driver":"virtio-net-pci","id":"ua-default","mac":"52:54:00:12:34:56","netdev":"host-ua-default","romfile":""}
            -object {"id":"io-rootdisk","qom-type":"iothread"}
            -device {"addr":"2.1","bus":"pcie.0","chassis":2,"driver":"pcie-root-port","id":"port1","port":1}
            -device {"bus":"port1","driver":"virtio-scsi-pci","id":"scsi0"}
            -device {"addr":"1c.0","bus":"pcie.0","driver":"qemu-xhci","id":"usb","p2":8,"p3":8}
            -device {"addr":"2.2","bus":"pcie.0","chassis":3,"driver":"pcie-root-port","id":"port2","port":2}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/over.qcow2","node-name":"s-rootdisk","read-only":false}
            -blockdev {"backing":{"driver":"raw","file":{"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/base.img","read-only":true},"read-only":true},"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":"s-rootdisk","node-name":"d-rootdisk","read-only":false}
            -device {"bootindex":1,"bus":"port2","drive":"d-rootdisk","driver":"virtio-blk-pci","id":"ua-rootdisk","iothread":"io-rootdisk","rerror":"stop","serial":"ROOT1","werror":"stop","write-cache":"on"}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/seed.iso","node-name":"s-cloudinit","read-only":true}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-cloudinit","node-name":"d-cloudinit","read-only":true}
            -device {"bus":"ide.0","drive":"d-cloudinit","driver":"ide-cd","id":"ua-cloudinit","rerror":"stop","unit":0,"werror":"stop"}
            -chardev socket,id=serial0,fd=12,server=on,wait=off
            -device {"chardev":"serial0","driver":"isa-serial","id":"com1"}
            -device {"addr":"2.3","bus":"pcie.0","chassis":4,"driver":"pcie-root-port","id":"port3","port":3}
            -device {"bus":"port3","driver":"virtio-serial-pci","id":"channels"}
            -chardev socket,id=agent0,fd=13,server=on,wait=off
            -device {"bus":"channels.0","chardev":"agent0","driver":"virtserialport","id":"agent","name":"org.qemu.guest_agent.0","nr":1}
            -device {"addr":"1.0","bus":"pcie.0","driver":"VGA","id":"video0","vgamem_mb":16}
            -vnc unix:vnc.sock,share=force-shared
            -device {"bus":"usb.0","driver":"usb-tablet","id":"input-tablet"}
            -device {"addr":"2.4","bus":"pcie.0","chassis":5,"driver":"pcie-root-port","id":"port4","port":4}
            -device {"bus":"port4","driver":"virtio-balloon-pci","free-page-reporting":true,"id":"balloon0"}
            -object {"filename":"/dev/urandom","id":"rng-source","qom-type":"rng-random"}
            -device {"addr":"2.5","bus":"pcie.0","chassis":6,"driver":"pcie-root-port","id":"port5","port":5}
            -device {"bus":"port5","driver":"virtio-rng-pci","id":"rng0","rng":"rng-source"}
            -object {"id":"growth-memory","prealloc":false,"qom-type":"memory-backend-ram","reserve":false,"size":805306368}
            -device {"addr":"2.6","bus":"pcie.0","chassis":7,"driver":"pcie-root-port","id":"port6","port":6}
            -device {"block-size":2097152,"bus":"port6","driver":"virtio-mem-pci","id":"growth","memdev":"growth-memory","requested-size":0}
            -device {"addr":"2.7","bus":"pcie.0","chassis":8,"driver":"pcie-root-port","id":"hot0","port":7}
            -device {"addr":"3.0","bus":"pcie.0","chassis":9,"driver":"pcie-root-port","id":"hot1","multifunction":true,"port":8}
            -device {"addr":"3.1","bus":"pcie.0","chassis":10,"driver":"pcie-root-port","id":"hot2","port":9}
            -device {"addr":"3.2","bus":"pcie.0","chassis":11,"driver":"pcie-root-port","id":"hot3","port":10}
            -device {"addr":"3.3","bus":"pcie.0","chassis":12,"driver":"pcie-root-port","id":"hot4","port":11}
            -device {"addr":"3.4","bus":"pcie.0","chassis":13,"driver":"pcie-root-port","id":"hot5","port":12}
            -device {"addr":"3.5","bus":"pcie.0","chassis":14,"driver":"pcie-root-port","id":"hot6","port":13}
            -device {"addr":"3.6","bus":"pcie.0","chassis":15,"driver":"pcie-root-port","id":"hot7","port":14}
        "#]],
    );
}

#[test]
fn disks_on_every_bus_from_every_source() {
    golden(
        many_disks,
        &expect![[r#"
            -name guest=disks,debug-threads=on
            -uuid 6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
            -pidfile /run/vm/qemu.pid
            -no-user-config
            -nodefaults
            -display none
            -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
            -S
            -action reboot=reset,shutdown=pause,watchdog=reset
            -chardev socket,id=qmp,fd=11,server=on,wait=off
            -mon chardev=qmp,id=monitor,mode=control
            -machine q35,accel=tcg,usb=off,vmport=off,dump-guest-core=off,hpet=off,acpi=on,smm=off
            -cpu max
            -smp 1,maxcpus=1,sockets=1,cores=1,threads=1
            -rtc base=utc
            -smbios type=1,uuid=6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
            -m size=67108864b
            -overcommit mem-lock=off
            -boot strict=on
            -device {"addr":"2.0","bus":"pcie.0","chassis":1,"driver":"pcie-root-port","id":"port0","multifunction":true,"port":0}
            -device {"bus":"port0","driver":"virtio-scsi-pci","id":"scsi0"}
            -device {"addr":"1c.0","bus":"pcie.0","driver":"qemu-xhci","id":"usb","p2":8,"p3":8}
            -blockdev {"aio":"native","cache":{"direct":true,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/a.img","node-name":"s-data","read-only":false}
            -blockdev {"cache":{"direct":true,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-data","node-name":"d-data","read-only":false}
            -device {"bus":"scsi0.0","channel":0,"device_id":"drive-ua-data","discard_granularity":4096,"drive":"d-data","driver":"scsi-hd","id":"ua-data","logical_block_size":4096,"lun":0,"physical_block_size":4096,"rerror":"report","scsi-id":0,"share-rw":true,"werror":"report","write-cache":"on"}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/b.img","node-name":"s-through","read-only":false}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-through","node-name":"d-through","read-only":false}
            -device {"bus":"ide.0","drive":"d-through","driver":"ide-hd","id":"ua-through","rerror":"report","unit":0,"werror":"enospc","write-cache":"off"}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/c.img","node-name":"s-stick","read-only":false}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-stick","node-name":"d-stick","read-only":false}
            -device {"bus":"usb.0","drive":"d-stick","driver":"usb-storage","id":"ua-stick","removable":false,"rerror":"stop","werror":"stop","write-cache":"on"}
            -device {"bus":"ide.1","driver":"ide-cd","id":"ua-tray","rerror":"stop","unit":0,"werror":"stop"}
            -device {"bus":"scsi0.0","channel":0,"device_id":"drive-ua-scsi-tray","driver":"scsi-cd","id":"ua-scsi-tray","lun":1,"rerror":"stop","scsi-id":0,"werror":"stop"}
            -device {"addr":"2.1","bus":"pcie.0","chassis":2,"driver":"pcie-root-port","id":"port1","port":1}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"nbd","export":"volume","node-name":"s-volume-with-.9b9cb2f776510042","read-only":false,"reconnect-delay":30,"server":{"path":"/d/nbd.sock","type":"unix"}}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-volume-with-.9b9cb2f776510042","node-name":"d-volume-with-.9b9cb2f776510042","read-only":false}
            -device {"bus":"port1","drive":"d-volume-with-.9b9cb2f776510042","driver":"virtio-blk-pci","id":"ua-volume-with-a-name-that-does-not-fit","rerror":"stop","werror":"stop","write-cache":"on"}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/d.img","node-name":"s-sata0","read-only":false}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-sata0","node-name":"d-sata0","read-only":false}
            -device {"bus":"ide.2","drive":"d-sata0","driver":"ide-hd","id":"ua-sata0","rerror":"stop","share-rw":true,"unit":0,"werror":"stop","write-cache":"on"}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/d.img","node-name":"s-sata1","read-only":false}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-sata1","node-name":"d-sata1","read-only":false}
            -device {"bus":"ide.3","drive":"d-sata1","driver":"ide-hd","id":"ua-sata1","rerror":"stop","share-rw":true,"unit":0,"werror":"stop","write-cache":"on"}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/d.img","node-name":"s-sata2","read-only":false}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-sata2","node-name":"d-sata2","read-only":false}
            -device {"bus":"ide.4","drive":"d-sata2","driver":"ide-hd","id":"ua-sata2","rerror":"stop","share-rw":true,"unit":0,"werror":"stop","write-cache":"on"}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/d.img","node-name":"s-sata3","read-only":false}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-sata3","node-name":"d-sata3","read-only":false}
            -device {"bus":"ide.5","drive":"d-sata3","driver":"ide-hd","id":"ua-sata3","rerror":"stop","share-rw":true,"unit":0,"werror":"stop","write-cache":"on"}
            -device {"addr":"19.0","bus":"pcie.0","driver":"ich9-ahci","id":"sata1","multifunction":true}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/d.img","node-name":"s-sata4","read-only":false}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-sata4","node-name":"d-sata4","read-only":false}
            -device {"bus":"sata1.0","drive":"d-sata4","driver":"ide-hd","id":"ua-sata4","rerror":"stop","share-rw":true,"unit":0,"werror":"stop","write-cache":"on"}
            -blockdev {"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/d/d.img","node-name":"s-sata5","read-only":false}
            -blockdev {"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":"s-sata5","node-name":"d-sata5","read-only":false}
            -device {"bus":"sata1.1","drive":"d-sata5","driver":"ide-hd","id":"ua-sata5","rerror":"stop","share-rw":true,"unit":0,"werror":"stop","write-cache":"on"}
            -chardev socket,id=serial0,fd=12,server=on,wait=off
            -device {"chardev":"serial0","driver":"isa-serial","id":"com1"}
            -device {"addr":"2.2","bus":"pcie.0","chassis":3,"driver":"pcie-root-port","id":"port2","port":2}
            -device {"bus":"port2","driver":"virtio-serial-pci","id":"channels"}
            -chardev socket,id=agent0,fd=13,server=on,wait=off
            -device {"bus":"channels.0","chardev":"agent0","driver":"virtserialport","id":"agent","name":"org.qemu.guest_agent.0","nr":1}
            -device {"addr":"2.3","bus":"pcie.0","chassis":4,"driver":"pcie-root-port","id":"hot0","port":3}
            -device {"addr":"2.4","bus":"pcie.0","chassis":5,"driver":"pcie-root-port","id":"hot1","port":4}
            -device {"addr":"2.5","bus":"pcie.0","chassis":6,"driver":"pcie-root-port","id":"hot2","port":5}
            -device {"addr":"2.6","bus":"pcie.0","chassis":7,"driver":"pcie-root-port","id":"hot3","port":6}
            -device {"addr":"2.7","bus":"pcie.0","chassis":8,"driver":"pcie-root-port","id":"hot4","port":7}
            -device {"addr":"3.0","bus":"pcie.0","chassis":9,"driver":"pcie-root-port","id":"hot5","multifunction":true,"port":8}
            -device {"addr":"3.1","bus":"pcie.0","chassis":10,"driver":"pcie-root-port","id":"hot6","port":9}
            -device {"addr":"3.2","bus":"pcie.0","chassis":11,"driver":"pcie-root-port","id":"hot7","port":10}
        "#]],
    );
}

#[test]
fn a_disk_behind_vhost_user() {
    golden(
        fast_disk,
        &expect![[r#"
        -name guest=vhost,debug-threads=on
        -uuid 6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
        -pidfile /run/vm/qemu.pid
        -no-user-config
        -nodefaults
        -display none
        -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
        -S
        -action reboot=reset,shutdown=pause,watchdog=reset
        -chardev socket,id=qmp,fd=11,server=on,wait=off
        -mon chardev=qmp,id=monitor,mode=control
        -machine q35,accel=tcg,usb=off,vmport=off,dump-guest-core=off,hpet=off,acpi=on,smm=off,memory-backend=memory
        -cpu max
        -smp 1,maxcpus=1,sockets=1,cores=1,threads=1
        -rtc base=utc
        -smbios type=1,uuid=6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
        -m size=67108864b
        -overcommit mem-lock=off
        -object {"id":"memory","qom-type":"memory-backend-memfd","share":true,"size":67108864}
        -boot strict=on
        -device {"addr":"2.0","bus":"pcie.0","chassis":1,"driver":"pcie-root-port","id":"port0","multifunction":true,"port":0}
        -device {"bus":"port0","driver":"virtio-scsi-pci","id":"scsi0"}
        -device {"addr":"2.1","bus":"pcie.0","chassis":2,"driver":"pcie-root-port","id":"port1","port":1}
        -chardev socket,id=s-fast,path=/d/vhost.sock,reconnect=1
        -device {"bus":"port1","chardev":"s-fast","driver":"vhost-user-blk-pci","id":"ua-fast"}
        -chardev socket,id=serial0,fd=12,server=on,wait=off
        -device {"chardev":"serial0","driver":"isa-serial","id":"com1"}
        -device {"addr":"2.2","bus":"pcie.0","chassis":3,"driver":"pcie-root-port","id":"port2","port":2}
        -device {"bus":"port2","driver":"virtio-serial-pci","id":"channels"}
        -chardev socket,id=agent0,fd=13,server=on,wait=off
        -device {"bus":"channels.0","chardev":"agent0","driver":"virtserialport","id":"agent","name":"org.qemu.guest_agent.0","nr":1}
        -device {"addr":"2.3","bus":"pcie.0","chassis":4,"driver":"pcie-root-port","id":"hot0","port":3}
        -device {"addr":"2.4","bus":"pcie.0","chassis":5,"driver":"pcie-root-port","id":"hot1","port":4}
        -device {"addr":"2.5","bus":"pcie.0","chassis":6,"driver":"pcie-root-port","id":"hot2","port":5}
        -device {"addr":"2.6","bus":"pcie.0","chassis":7,"driver":"pcie-root-port","id":"hot3","port":6}
        -device {"addr":"2.7","bus":"pcie.0","chassis":8,"driver":"pcie-root-port","id":"hot4","port":7}
        -device {"addr":"3.0","bus":"pcie.0","chassis":9,"driver":"pcie-root-port","id":"hot5","multifunction":true,"port":8}
        -device {"addr":"3.1","bus":"pcie.0","chassis":10,"driver":"pcie-root-port","id":"hot6","port":9}
        -device {"addr":"3.2","bus":"pcie.0","chassis":11,"driver":"pcie-root-port","id":"hot7","port":10}
    "#]],
    );
}

#[test]
fn a_machine_for_windows_with_secure_boot() {
    golden(
        windows,
        &expect![[r#"
            -name guest=windows,debug-threads=on
            -uuid 6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
            -pidfile /run/vm/qemu.pid
            -no-user-config
            -nodefaults
            -display none
            -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
            -S
            -action reboot=shutdown,shutdown=pause,watchdog=poweroff
            -chardev socket,id=qmp,fd=11,server=on,wait=off
            -mon chardev=qmp,id=monitor,mode=control
            -machine q35,accel=tcg,usb=off,vmport=off,dump-guest-core=off,hpet=off,acpi=on,smm=on,pflash0=efi-code,pflash1=efi-vars
            -cpu max,sse4.2=off
            -smp 1,maxcpus=1,sockets=1,cores=1,threads=1
            -rtc base=2026-01-02T03:04:05
            -smbios type=1,uuid=6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
            -m size=134217728b
            -overcommit mem-lock=off
            -boot strict=on
            -blockdev {"driver":"raw","file":{"driver":"file","filename":"/firmware/code.fd","read-only":true},"node-name":"efi-code","read-only":true}
            -blockdev {"driver":"raw","file":{"driver":"file","filename":"/d/vars.fd","read-only":false},"node-name":"efi-vars","read-only":false}
            -global driver=cfi.pflash01,property=secure,value=on
            -global ICH9-LPC.disable_s3=1
            -device {"addr":"2.0","bus":"pcie.0","chassis":1,"driver":"pcie-root-port","id":"port0","multifunction":true,"port":0}
            -device {"bus":"port0","driver":"virtio-scsi-pci","id":"scsi0"}
            -device {"addr":"1c.0","bus":"pcie.0","driver":"qemu-xhci","id":"usb","p2":8,"p3":8}
            -chardev socket,id=serial0,fd=12,server=on,wait=off
            -device {"chardev":"serial0","driver":"isa-serial","id":"com1"}
            -device {"addr":"2.1","bus":"pcie.0","chassis":2,"driver":"pcie-root-port","id":"port1","port":1}
            -device {"bus":"port1","driver":"virtio-serial-pci","id":"channels"}
            -chardev socket,id=agent0,fd=13,server=on,wait=off
            -device {"bus":"channels.0","chardev":"agent0","driver":"virtserialport","id":"agent","name":"org.qemu.guest_agent.0","nr":1}
            -device {"addr":"1.0","bus":"pcie.0","driver":"bochs-display","id":"video0"}
            -vnc unix:vnc.sock,share=force-shared
            -device {"addr":"2.2","bus":"pcie.0","chassis":3,"driver":"pcie-root-port","id":"port2","port":2}
            -device {"bus":"port2","driver":"virtio-tablet-pci","id":"input-tablet"}
            -device {"addr":"1a.0","bus":"pcie.0","driver":"i6300esb","id":"watchdog0"}
            -device {"driver":"pvpanic","id":"panic0"}
            -chardev socket,id=usb-redirection0,path=usb0.sock,server=on,wait=off
            -device {"bus":"usb.0","chardev":"usb-redirection0","driver":"usb-redir","id":"redirected0"}
            -chardev socket,id=usb-redirection1,path=usb1.sock,server=on,wait=off
            -device {"bus":"usb.0","chardev":"usb-redirection1","driver":"usb-redir","id":"redirected1"}
            -chardev socket,id=usb-redirection2,path=usb2.sock,server=on,wait=off
            -device {"bus":"usb.0","chardev":"usb-redirection2","driver":"usb-redir","id":"redirected2"}
            -chardev socket,id=usb-redirection3,path=usb3.sock,server=on,wait=off
            -device {"bus":"usb.0","chardev":"usb-redirection3","driver":"usb-redir","id":"redirected3"}
            -audiodev driver=none,id=audio0
            -device {"addr":"1b.0","bus":"pcie.0","driver":"ich9-intel-hda","id":"sound0"}
            -device {"audiodev":"audio0","bus":"sound0.0","cad":0,"driver":"hda-duplex","id":"sound0-codec"}
            -chardev socket,id=tpm-socket,fd=9
            -tpmdev emulator,id=tpm-backend,chardev=tpm-socket
            -device {"driver":"tpm-crb","id":"tpm0","tpmdev":"tpm-backend"}
            -device {"addr":"2.3","bus":"pcie.0","chassis":4,"driver":"pcie-root-port","id":"hot0","port":3}
            -device {"addr":"2.4","bus":"pcie.0","chassis":5,"driver":"pcie-root-port","id":"hot1","port":4}
            -device {"addr":"2.5","bus":"pcie.0","chassis":6,"driver":"pcie-root-port","id":"hot2","port":5}
            -device {"addr":"2.6","bus":"pcie.0","chassis":7,"driver":"pcie-root-port","id":"hot3","port":6}
            -device {"addr":"2.7","bus":"pcie.0","chassis":8,"driver":"pcie-root-port","id":"hot4","port":7}
            -device {"addr":"3.0","bus":"pcie.0","chassis":9,"driver":"pcie-root-port","id":"hot5","multifunction":true,"port":8}
            -device {"addr":"3.1","bus":"pcie.0","chassis":10,"driver":"pcie-root-port","id":"hot6","port":9}
            -device {"addr":"3.2","bus":"pcie.0","chassis":11,"driver":"pcie-root-port","id":"hot7","port":10}
        "#]],
    );
}

#[test]
fn numa_nodes_and_a_tap_with_queues() {
    golden(
        pinned,
        &expect![[r#"
            -name guest=numa,debug-threads=on
            -uuid 6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
            -pidfile /run/vm/qemu.pid
            -no-user-config
            -nodefaults
            -display none
            -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
            -S
            -action reboot=reset,shutdown=pause,watchdog=reset
            -chardev socket,id=qmp,fd=11,server=on,wait=off
            -mon chardev=qmp,id=monitor,mode=control
            -machine q35,accel=tcg,usb=off,vmport=off,dump-guest-core=off,hpet=off,acpi=on,smm=off,graphics=off
            -cpu max
            -smp 2,maxcpus=2,sockets=2,cores=1,threads=1
            -rtc base=localtime
            -smbios type=1,uuid=6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01
            -m size=134217728b
            -overcommit mem-lock=off
            -object {"id":"memory0","qom-type":"memory-backend-ram","size":67108864}
            -numa node,nodeid=0,memdev=memory0,cpus=0
            -object {"id":"memory1","qom-type":"memory-backend-ram","size":67108864}
            -numa node,nodeid=1,memdev=memory1,cpus=1
            -boot strict=on
            -netdev tap,id=host-ua-lan,fds=14:15
            -device {"addr":"2.0","bus":"pcie.0","chassis":1,"driver":"pcie-root-port","id":"port0","multifunction":true,"port":0}
            -device {"bootindex":1,"bus":"port0","driver":"virtio-net-pci","host_mtu":1450,"id":"ua-lan","mac":"52:54:00:00:00:01","mq":true,"netdev":"host-ua-lan","vectors":6}
            -device {"addr":"2.1","bus":"pcie.0","chassis":2,"driver":"pcie-root-port","id":"port1","port":1}
            -device {"bus":"port1","driver":"virtio-scsi-pci","id":"scsi0"}
            -chardev socket,id=serial0,fd=12,server=on,wait=off
            -device {"chardev":"serial0","driver":"isa-serial","id":"com1"}
            -device {"addr":"2.2","bus":"pcie.0","chassis":3,"driver":"pcie-root-port","id":"port2","port":2}
            -device {"bus":"port2","driver":"virtio-serial-pci","id":"channels"}
            -chardev socket,id=agent0,fd=13,server=on,wait=off
            -device {"bus":"channels.0","chardev":"agent0","driver":"virtserialport","id":"agent","name":"org.qemu.guest_agent.0","nr":1}
            -device {"addr":"18.0","bus":"pcie.0","driver":"pvpanic-pci","id":"panic0"}
            -audiodev driver=none,id=audio0
            -device {"addr":"1b.0","audiodev":"audio0","bus":"pcie.0","driver":"AC97","id":"sound0"}
            -device {"addr":"2.3","bus":"pcie.0","chassis":4,"driver":"pcie-root-port","id":"hot0","port":3}
            -device {"addr":"2.4","bus":"pcie.0","chassis":5,"driver":"pcie-root-port","id":"hot1","port":4}
            -device {"addr":"2.5","bus":"pcie.0","chassis":6,"driver":"pcie-root-port","id":"hot2","port":5}
            -device {"addr":"2.6","bus":"pcie.0","chassis":7,"driver":"pcie-root-port","id":"hot3","port":6}
            -device {"addr":"2.7","bus":"pcie.0","chassis":8,"driver":"pcie-root-port","id":"hot4","port":7}
            -device {"addr":"3.0","bus":"pcie.0","chassis":9,"driver":"pcie-root-port","id":"hot5","multifunction":true,"port":8}
            -device {"addr":"3.1","bus":"pcie.0","chassis":10,"driver":"pcie-root-port","id":"hot6","port":9}
            -device {"addr":"3.2","bus":"pcie.0","chassis":11,"driver":"pcie-root-port","id":"hot7","port":10}
            -device {"addr":"3.3","bus":"pcie.0","chassis":12,"driver":"pcie-root-port","id":"hot8","port":11}
            -device {"addr":"3.4","bus":"pcie.0","chassis":13,"driver":"pcie-root-port","id":"hot9","port":12}
            -device {"addr":"3.5","bus":"pcie.0","chassis":14,"driver":"pcie-root-port","id":"hot10","port":13}
            -device {"addr":"3.6","bus":"pcie.0","chassis":15,"driver":"pcie-root-port","id":"hot11","port":14}
            -device {"addr":"3.7","bus":"pcie.0","chassis":16,"driver":"pcie-root-port","id":"hot12","port":15}
            -device {"addr":"4.0","bus":"pcie.0","chassis":17,"driver":"pcie-root-port","id":"hot13","multifunction":true,"port":16}
            -device {"addr":"4.1","bus":"pcie.0","chassis":18,"driver":"pcie-root-port","id":"hot14","port":17}
            -device {"addr":"4.2","bus":"pcie.0","chassis":19,"driver":"pcie-root-port","id":"hot15","port":18}
            -device {"addr":"4.3","bus":"pcie.0","chassis":20,"driver":"pcie-root-port","id":"hot16","port":19}
            -device {"addr":"4.4","bus":"pcie.0","chassis":21,"driver":"pcie-root-port","id":"hot17","port":20}
            -device {"addr":"4.5","bus":"pcie.0","chassis":22,"driver":"pcie-root-port","id":"hot18","port":21}
            -device {"addr":"4.6","bus":"pcie.0","chassis":23,"driver":"pcie-root-port","id":"hot19","port":22}
        "#]],
    );
}

#[test]
fn only_kvm_gets_what_only_kvm_has() {
    let props = Props { dir: "/d".into(), ovmf: "/c".into(), tap: "tap0".to_owned() };
    let cpu = |accelerator| {
        let mut machine = windows(&props);
        machine.accelerator = accelerator;
        machine.features.kvm_hidden = true;
        let wiring = Wiring {
            pid_file: "/p".into(),
            qmp: 3,
            serial: 4,
            guest_agent: 5,
            taps: BTreeMap::new(),
            vnc: "v".into(),
            tpm: None,
        };
        let arguments = argv(&machine, &wiring);
        let cpu = arguments.iter().position(|argument| argument == "-cpu").unwrap();
        arguments[cpu + 1].clone().into_string().unwrap()
    };
    assert_eq!(cpu(Accelerator::Tcg), "max,sse4.2=off");
    assert_eq!(cpu(Accelerator::Kvm), "host,sse4.2=off,kvm=off,hv-relaxed=on,hv-spinlocks=8191");
}

#[test]
fn a_machine_is_the_same_after_it_was_stored() {
    let props = Props { dir: "/d".into(), ovmf: "/c".into(), tap: "tap0".to_owned() };
    for sample in ALL {
        let machine = sample(&props);
        let stored = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&stored).unwrap(), machine);
    }
    let oldest = r#"{"name": "a", "uuid": "b", "accelerator": "tcg", "machine_type": "q35",
        "memory": {"guest": 1048576}}"#;
    let machine: Machine = serde_json::from_str(oldest).unwrap();
    assert_eq!(machine, Machine::new("a", "b", 1 << 20));
}

/// A process that a sample needs, and its end.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A tap for a test, and its end.
struct Tap(String);

impl Tap {
    fn new() -> Self {
        let name = format!("qt{}", std::process::id());
        run(Command::new("ip").args([
            "tuntap",
            "add",
            "mode",
            "tap",
            "multi_queue",
            "name",
            &name,
        ]));
        Self(name)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

fn provide(dir: &Path) -> Vec<Helper> {
    let path = |name: &str| dir.join(name);
    for name in ["a.img", "b.img", "c.img", "d.img", "base.img", "seed.iso", "fast.img", "nbd.img"]
    {
        std::fs::File::create(path(name)).unwrap().set_len(4 << 20).unwrap();
    }
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "base.img", "over.qcow2"];
    run(Command::new("qemu-img").current_dir(dir).args(create));
    std::fs::copy("/usr/share/OVMF/OVMF_VARS_4M.ms.fd", path("vars.fd")).unwrap();
    let nbd = Command::new("qemu-nbd")
        .current_dir(dir)
        .args(["-t", "-f", "raw", "-x", "volume", "-e", "4", "-k"])
        .args([path("nbd.sock"), path("nbd.img")])
        .spawn()
        .unwrap();
    let export = "type=vhost-user-blk,id=e,node-name=f,addr.type=unix,addr.path=vhost.sock";
    let vhost = Command::new("qemu-storage-daemon")
        .current_dir(dir)
        .args(["--blockdev", "driver=file,node-name=f,filename=fast.img", "--export", export])
        .arg(format!("--pidfile={}", path("daemon.pid").display()))
        .spawn()
        .unwrap();
    vec![Helper(nbd), Helper(vhost)]
}

#[tokio::test]
async fn qemu_takes_every_sample() {
    assert!(is_root(), "this test needs root to make a tap, as the tests of CI have");
    let stage = Stage::new();
    let tap = Tap::new();
    let _helpers = provide(stage.path());
    within("the servers", async {
        while !["nbd.sock", "vhost.sock"].iter().all(|name| stage.path().join(name).exists()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let uid = identity().unwrap().uid;
    run(Command::new("chown").arg("-R").arg(uid.to_string()).arg(stage.path()));
    let props = Props {
        dir: stage.path().into(),
        ovmf: "/usr/share/OVMF/OVMF_CODE_4M.ms.fd".into(),
        tap: tap.0.clone(),
    };
    for (index, sample) in ALL.iter().enumerate() {
        let machine = sample(&props);
        let dir = stage.run_dir(&format!("sample{index}"));
        let launched = stage.launcher.launch(&dir, spec(machine.clone())).await;
        let running = launched.unwrap_or_else(|error| panic!("{}: {error}", machine.name));
        let expected = match machine.start {
            Start::Incoming => RunState::InMigrate,
            _ => RunState::Prelaunch,
        };
        assert_eq!(running.state(), Some(expected), "{}", machine.name);
        let said = dir.log_tail(1000);
        assert_eq!(said, "", "{}", machine.name);
        let ids = running.qmp().await.unwrap().device_ids().await.unwrap();
        for disk in &machine.disks {
            assert!(ids.contains(&disk.id()), "{} has {ids:?}", machine.name);
        }
        if let Some(tpm) = &machine.tpm {
            let state = tpm.state.join("tpm2-00.permall");
            within("the TPM's state", async {
                while !state.exists() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        if machine.devices.vnc {
            running.vnc().await.unwrap();
            let picture = running.screenshot().await.unwrap();
            assert!(picture.starts_with(b"\x89PNG"), "{}", machine.name);
        }
        if machine.devices.usb_redirection {
            for slot in 0..USB_SLOTS {
                // Devices are talked about once the guest runs.
                running.usb_redirection(slot).await.unwrap();
            }
        }
        within("kill", running.kill()).await;
    }
    // Helper processes of a machine end with it.
    within("the end of the TPM", async {
        let state = stage.path().join("tpm").display().to_string();
        while run(Command::new("ps").args(["-eo", "args"])).contains(&state) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
