//! Mainboard, processors, memory, clock and firmware.

use serde_json::{Value, json};

use super::line::{Line, escape};
use crate::machine::{Accelerator, Backing, Clock, CpuModel, Efi, Firmware, Machine};

/// The growable part of the guest's memory, as a QEMU object and as a device.
const GROWTH_BACKEND: &str = "growth-memory";
pub const GROWTH_DEVICE: &str = "growth";
/// The smallest step in which a guest's memory grows.
pub const GROWTH_BLOCK: u64 = 2 << 20;

pub(super) fn board(line: &mut Line, machine: &Machine) {
    let mut options = escape(&machine.machine_type);
    let mut set = |option: &str| {
        options.push(',');
        options.push_str(option);
    };
    set(&format!("accel={}", machine.accelerator.name()));
    set("usb=off");
    set("vmport=off");
    set("dump-guest-core=off");
    set(&format!("hpet={}", on_off(machine.features.hpet)));
    set(&format!("acpi={}", on_off(machine.features.acpi)));
    match &machine.firmware {
        Firmware::Efi(efi) => {
            set(&format!("smm={}", on_off(efi.secure_boot || machine.features.smm)));
            set("pflash0=efi-code");
            set("pflash1=efi-vars");
        }
        Firmware::Bios | Firmware::BiosWithSerial => {
            set(&format!("smm={}", on_off(machine.features.smm)));
        }
    }
    if machine.firmware == Firmware::BiosWithSerial {
        // Without graphics SeaBIOS takes the serial port for its screen.
        set("graphics=off");
    }
    if needs_backend(machine) && machine.numa.is_empty() {
        set("memory-backend=memory");
    }
    line.option("-machine", options);
    line.option("-cpu", cpu(machine));
    let cpu = &machine.cpu;
    line.option(
        "-smp",
        format!(
            "{},maxcpus={},sockets={},cores={},threads={}",
            cpu.count(),
            cpu.most(),
            cpu.max_sockets.max(cpu.sockets),
            cpu.cores,
            cpu.threads
        ),
    );
    line.option("-rtc", clock(machine));
    if machine.accelerator == Accelerator::Kvm {
        line.option("-global", "kvm-pit.lost_tick_policy=delay");
    }
    smbios(line, machine);
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn cpu(machine: &Machine) -> String {
    let model = match (&machine.cpu.model, machine.accelerator) {
        (CpuModel::Named(name), _) => escape(name),
        (CpuModel::Best | CpuModel::HostPassthrough, Accelerator::Kvm) => "host".to_owned(),
        (CpuModel::Best | CpuModel::HostPassthrough, Accelerator::Tcg) => "max".to_owned(),
    };
    let mut parts = vec![model];
    let features = machine.cpu.features.iter().chain(&machine.features.paravirtual);
    for feature in features {
        parts.push(format!("{}={}", escape(&feature.name), on_off(feature.enabled)));
    }
    if machine.features.kvm_hidden && machine.accelerator == Accelerator::Kvm {
        parts.push("kvm=off".to_owned());
    }
    // TCG knows no Hyper-V: a guest that asks for it starts without.
    if machine.accelerator == Accelerator::Kvm {
        for feature in &machine.features.hyperv {
            let value = feature.value.as_deref().unwrap_or("on");
            parts.push(format!("hv-{}={}", escape(&feature.name), escape(value)));
        }
    }
    parts.join(",")
}

fn clock(machine: &Machine) -> String {
    let base = match &machine.clock {
        Clock::Utc => "utc",
        Clock::Local => "localtime",
        Clock::At(moment) => moment,
    };
    // Lost ticks are made up for where the guest counts them, which only KVM reports.
    let drift = if machine.accelerator == Accelerator::Kvm { ",driftfix=slew" } else { "" };
    format!("base={}{drift}", escape(base))
}

fn smbios(line: &mut Line, machine: &Machine) {
    let smbios = &machine.smbios;
    let mut system = vec!["type=1".to_owned()];
    let fields = [
        ("manufacturer", &smbios.manufacturer),
        ("product", &smbios.product),
        ("version", &smbios.version),
        ("serial", &smbios.serial),
        ("sku", &smbios.sku),
        ("family", &smbios.family),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            system.push(format!("{name}={}", escape(value)));
        }
    }
    system.push(format!("uuid={}", machine.uuid));
    line.option("-smbios", system.join(","));
    if let Some(asset) = &smbios.asset {
        line.option("-smbios", format!("type=3,asset={}", escape(asset)));
    }
}

fn needs_backend(machine: &Machine) -> bool {
    machine.memory.shared || machine.memory.backing != Backing::Anonymous
}

pub(super) fn memory(line: &mut Line, machine: &Machine) {
    let memory = &machine.memory;
    let mut size = format!("size={}b", memory.guest);
    if memory.growth() > 0 || memory.slots > 0 {
        let most = memory.guest.max(memory.max);
        size.push_str(&format!(",slots={},maxmem={most}b", memory.slots));
    }
    line.option("-m", size);
    line.option("-overcommit", format!("mem-lock={}", on_off(memory.locked)));
    if machine.numa.is_empty() {
        if needs_backend(machine) {
            line.object(&backend(machine, "memory", memory.guest));
        }
        return;
    }
    for (index, node) in machine.numa.iter().enumerate() {
        let id = format!("memory{index}");
        let mut object = backend(machine, &id, node.memory);
        if let Some(host_node) = node.host_node {
            object["host-nodes"] = json!([host_node]);
            object["policy"] = json!("bind");
        }
        line.object(&object);
        let cpus: Vec<String> = node.cpus.iter().map(|cpu| format!(",cpus={cpu}")).collect();
        line.option("-numa", format!("node,nodeid={index},memdev={id}{}", cpus.concat()));
    }
}

fn backend(machine: &Machine, id: &str, size: u64) -> Value {
    let memory = &machine.memory;
    let mut object = json!({ "id": id, "size": size });
    if needs_backend(machine) {
        object["qom-type"] = json!("memory-backend-memfd");
        object["share"] = json!(memory.shared);
    } else {
        object["qom-type"] = json!("memory-backend-ram");
    }
    if let Backing::HugePages(page) = memory.backing {
        object["hugetlb"] = json!(true);
        object["hugetlbsize"] = json!(page);
        // A page that is missing later would kill the guest; a missing one now is an error.
        object["prealloc"] = json!(true);
    }
    object
}

/// Memory that can be added while the guest runs, given block by block through virtio-mem.
pub(super) fn growth(line: &mut Line, machine: &Machine) {
    let growth = machine.memory.growth() / GROWTH_BLOCK * GROWTH_BLOCK;
    if growth == 0 {
        return;
    }
    let mut object = backend(machine, GROWTH_BACKEND, growth);
    object["prealloc"] = json!(false);
    object["reserve"] = json!(false);
    line.object(&object);
    let bus = line.port(GROWTH_DEVICE, None);
    line.device(&json!({
        "driver": "virtio-mem-pci",
        "id": GROWTH_DEVICE,
        "bus": bus,
        "memdev": GROWTH_BACKEND,
        "requested-size": 0,
        "block-size": match machine.memory.backing {
            Backing::HugePages(page) => page.max(GROWTH_BLOCK),
            Backing::Anonymous => GROWTH_BLOCK,
        },
    }));
}

pub(super) fn firmware(line: &mut Line, machine: &Machine) {
    line.option("-boot", "strict=on");
    if let Firmware::Efi(efi) = &machine.firmware {
        flash(line, efi);
    }
    if let Some(kernel) = &machine.kernel {
        line.option("-kernel", kernel.image.as_os_str());
        if let Some(initrd) = &kernel.initrd {
            line.option("-initrd", initrd.as_os_str());
        }
        if !kernel.arguments.is_empty() {
            line.option("-append", &kernel.arguments);
        }
    }
}

fn flash(line: &mut Line, efi: &Efi) {
    for (node, path, read_only) in [("efi-code", &efi.code, true), ("efi-vars", &efi.vars, false)] {
        line.json(
            "-blockdev",
            &json!({
                "driver": "raw",
                "node-name": node,
                "read-only": read_only,
                "file": { "driver": "file", "filename": path, "read-only": read_only },
            }),
        );
    }
    if efi.secure_boot {
        // Without these the guest could rewrite the variables behind the firmware's back.
        line.option("-global", "driver=cfi.pflash01,property=secure,value=on");
        line.option("-global", "ICH9-LPC.disable_s3=1");
    }
}
