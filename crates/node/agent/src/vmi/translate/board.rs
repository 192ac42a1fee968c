//! Processor, memory, firmware, clock and SMBIOS fields of a machine.

use qemu::machine::{
    Backing, Clock, Cpu, CpuFeature, CpuModel, Efi, Features, Firmware, HyperV, Memory, Smbios,
};
use virt::v1::{DomainSpec, FeatureHyperv, FeatureState};

use super::{TranslateContext, TranslateError};

/// Memory that can be added is handed out in blocks of this size.
const BLOCK: u64 = 2 << 20;
const LEAST_MEMORY: u64 = 1 << 20;

pub(super) fn memory(domain: &DomainSpec) -> Result<Memory, TranslateError> {
    let spec = domain.memory.as_ref();
    let resource = |wanted: fn(
        &virt::v1::ResourceRequirements,
    ) -> &virt::api::atom::Map<virt::api::atom::Quantity>| {
        domain.resources.as_ref().and_then(|resources| wanted(resources).get("memory"))
    };
    let guest = spec
        .and_then(|memory| memory.guest.as_ref())
        .or_else(|| resource(|resources| &resources.requests))
        .or_else(|| resource(|resources| &resources.limits));
    let Some(guest) = guest else {
        return Err(TranslateError::Needs { field: "memory", what: "memory.guest" });
    };
    let bytes = |quantity: &virt::api::atom::Quantity, field| {
        let bytes = quantity.units().and_then(|units| u64::try_from(units).ok());
        bytes.filter(|bytes| *bytes >= LEAST_MEMORY).ok_or_else(|| TranslateError::Value {
            field,
            value: quantity.to_string(),
            expected: "a size of at least 1Mi",
        })
    };
    let mut memory = Memory::of(bytes(guest, "memory.guest")?);
    if let Some(most) = spec.and_then(|memory| memory.max_guest.as_ref()) {
        let most = bytes(most, "memory.maxGuest")?;
        // Memory is added in whole blocks.
        let growth = most.saturating_sub(memory.guest) / BLOCK * BLOCK;
        memory.max = if growth == 0 { 0 } else { memory.guest + growth };
    }
    let pages = spec.and_then(|memory| memory.hugepages.as_ref());
    if let Some(size) = pages.and_then(|pages| pages.page_size.as_ref()) {
        let size = virt::api::atom::Quantity::from(size.clone());
        memory.backing = Backing::HugePages(bytes(&size, "memory.hugepages.pageSize")?);
        memory.max = 0;
    }
    memory.locked = domain.cpu.as_ref().is_some_and(|cpu| cpu.realtime.is_some());
    Ok(memory)
}

/// Names become parts of options of QEMU, where a comma begins the next option.
pub(super) fn check_names(domain: &DomainSpec) -> Result<(), TranslateError> {
    let machine = domain.machine.as_ref().and_then(|machine| machine.r#type.as_deref());
    let cpu = domain.cpu.as_ref();
    let model = cpu.and_then(|cpu| cpu.model.as_deref());
    let hyperv = domain.features.as_ref().and_then(|features| features.hyperv.as_ref());
    let vendor = hyperv.and_then(|hyperv| hyperv.vendorid.as_ref());
    let vendor = vendor.and_then(|vendor| vendor.vendorid.as_deref());
    let single = [
        ("machine.type", machine),
        ("cpu.model", model),
        ("features.hyperv.vendorid.vendorid", vendor),
    ];
    let features = cpu.into_iter().flat_map(|cpu| &cpu.features);
    let features = features.map(|feature| ("cpu.features.name", Some(feature.name.as_str())));
    let is_wrong = |byte: u8| !(byte.is_ascii_alphanumeric() || b"-._ ".contains(&byte));
    for (field, name) in single.into_iter().chain(features) {
        let name = name.unwrap_or_default();
        if name.bytes().any(is_wrong) {
            let expected = "a name: letters, digits, hyphens, dots and underscores";
            return Err(TranslateError::Value { field, value: name.into(), expected });
        }
    }
    Ok(())
}

pub(super) fn machine_type(domain: &DomainSpec) -> Result<String, TranslateError> {
    let wanted = domain.machine.as_ref().and_then(|machine| machine.r#type.as_deref());
    match wanted.unwrap_or_default() {
        "" | "q35" => Ok("q35".into()),
        // Machine types of another distribution are q35 all the same.
        name if name.starts_with("pc-q35-rhel") => Ok("q35".into()),
        name if name.starts_with("pc-q35-") => Ok(name.into()),
        name => Err(TranslateError::Value {
            field: "machine.type",
            value: name.into(),
            expected: "q35 or a version of it",
        }),
    }
}

pub(super) fn smbios(domain: &DomainSpec) -> Smbios {
    let chassis = domain.chassis.as_ref();
    let firmware = domain.firmware.as_ref();
    let own = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    Smbios {
        manufacturer: own(chassis.and_then(|chassis| chassis.manufacturer.as_ref()))
            .or_else(|| Some("KubeVirt".into())),
        product: Some("None".into()),
        version: own(chassis.and_then(|chassis| chassis.version.as_ref())),
        serial: own(firmware.and_then(|firmware| firmware.serial.as_ref()))
            .or_else(|| own(chassis.and_then(|chassis| chassis.serial.as_ref()))),
        sku: own(chassis.and_then(|chassis| chassis.sku.as_ref())),
        family: Some("KubeVirt".into()),
        asset: own(chassis.and_then(|chassis| chassis.asset.as_ref())),
    }
}

pub(super) fn cpu(domain: &DomainSpec) -> Cpu {
    let Some(spec) = domain.cpu.as_ref() else { return Cpu::default() };
    let count = |count: Option<u32>| count.filter(|count| *count > 0).unwrap_or(1);
    let sockets = count(spec.sockets);
    let dedicated = spec.dedicated_cpu_placement == Some(true);
    Cpu {
        model: match spec.model.as_deref().unwrap_or_default() {
            "" | "host-model" => CpuModel::Best,
            "host-passthrough" => CpuModel::HostPassthrough,
            name => CpuModel::Named(name.into()),
        },
        features: spec.features.iter().filter_map(feature).collect(),
        sockets,
        cores: count(spec.cores),
        threads: count(spec.threads),
        // Pinned processors are counted when the guest starts.
        max_sockets: if dedicated { sockets } else { count(spec.max_sockets).max(sockets) },
    }
}

fn feature(feature: &virt::v1::CPUFeature) -> Option<CpuFeature> {
    let enabled = match feature.policy.as_deref().unwrap_or("require") {
        "disable" | "forbid" => false,
        // The best model has what the host has; asking for more would refuse to start.
        "optional" => return None,
        _ => true,
    };
    Some(CpuFeature { name: feature.name.clone(), enabled })
}

pub(super) fn features(domain: &DomainSpec) -> Features {
    let Some(spec) = domain.features.as_ref() else {
        return Features { hpet: hpet(domain), ..Features::default() };
    };
    let state = |state: Option<&FeatureState>| state.map(|state| state.enabled != Some(false));
    let mut paravirtual = Vec::new();
    if let Some(enabled) = state(spec.pvspinlock.as_ref()) {
        paravirtual.push(CpuFeature { name: "kvm-pv-unhalt".into(), enabled });
    }
    Features {
        acpi: state(spec.acpi.as_ref()).unwrap_or(true),
        smm: state(spec.smm.as_ref()).unwrap_or(false),
        hpet: hpet(domain),
        kvm_hidden: spec.kvm.as_ref().is_some_and(|kvm| kvm.hidden == Some(true)),
        hyperv: spec.hyperv.as_ref().map(hyperv).unwrap_or_default(),
        paravirtual,
    }
}

fn hpet(domain: &DomainSpec) -> bool {
    let timer = domain.clock.as_ref().and_then(|clock| clock.timer.as_ref());
    timer.and_then(|timer| timer.hpet.as_ref()).is_some_and(|hpet| hpet.present != Some(false))
}

fn hyperv(spec: &FeatureHyperv) -> Vec<HyperV> {
    let switches = [
        ("relaxed", &spec.relaxed),
        ("vapic", &spec.vapic),
        ("vpindex", &spec.vpindex),
        ("runtime", &spec.runtime),
        ("synic", &spec.synic),
        ("reset", &spec.reset),
        ("frequencies", &spec.frequencies),
        ("reenlightenment", &spec.reenlightenment),
        ("ipi", &spec.ipi),
        ("evmcs", &spec.evmcs),
    ];
    let on = |enabled: Option<bool>| enabled != Some(false);
    let switch = |name: &str| HyperV { name: name.into(), value: None };
    let mut all: Vec<HyperV> = switches
        .into_iter()
        .filter(|(_, state)| state.as_ref().is_some_and(|state| on(state.enabled)))
        .map(|(name, _)| switch(name))
        .collect();
    if let Some(spinlocks) = spec.spinlocks.as_ref().filter(|each| on(each.enabled)) {
        let retries = spinlocks.spinlocks.unwrap_or(4096);
        all.push(HyperV { name: "spinlocks".into(), value: Some(format!("{retries:#x}")) });
    }
    if let Some(vendor) = spec.vendorid.as_ref().filter(|each| on(each.enabled)) {
        all.push(HyperV { name: "vendor-id".into(), value: vendor.vendorid.clone() });
    }
    if spec.tlbflush.as_ref().is_some_and(|each| on(each.enabled)) {
        all.push(switch("tlbflush"));
    }
    if let Some(timer) = spec.synictimer.as_ref().filter(|each| on(each.enabled)) {
        all.push(switch("stimer"));
        if timer.direct.as_ref().is_some_and(|direct| on(direct.enabled)) {
            all.push(switch("stimer-direct"));
        }
    }
    all
}

pub(super) fn clock(domain: &DomainSpec) -> Clock {
    let clock = domain.clock.as_ref();
    match clock.and_then(|clock| clock.timezone.as_deref()) {
        Some(zone) if !zone.is_empty() && zone != "UTC" => Clock::Local,
        _ => Clock::Utc,
    }
}

pub(super) fn firmware(
    domain: &DomainSpec,
    around: &TranslateContext<'_>,
) -> Result<Firmware, TranslateError> {
    let loader = domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    let Some(efi) = loader.and_then(|loader| loader.efi.as_ref()) else {
        let bios = loader.and_then(|loader| loader.bios.as_ref());
        return Ok(match bios.is_some_and(|bios| bios.use_serial == Some(true)) {
            true => Firmware::BiosWithSerial,
            false => Firmware::Bios,
        });
    };
    let secure_boot = efi.secure_boot != Some(false);
    let installed = around.host.firmware.iter().find(|each| each.secure_boot == secure_boot);
    let Some(installed) = installed else {
        let what = match secure_boot {
            true => "EFI firmware with secure boot on the node; install the package ovmf",
            false => "EFI firmware on the node; install the package ovmf",
        };
        return Err(TranslateError::Needs { field: "firmware.bootloader.efi", what });
    };
    Ok(Firmware::Efi(Efi { secure_boot, code: installed.code.clone(), vars: around.nvram.clone() }))
}
