//! Applying a size, and whether it is enough for a preference.

use serde_json::Value;
use types::Quantity;

use super::{Conflict, UnmetPreference};
use crate::default::object;
use crate::memory::read;
use crate::state::{list, text};

/// Names of topologies, and their former names.
pub(crate) const TOPOLOGIES: &[(&str, &str)] = &[
    ("sockets", "preferSockets"),
    ("cores", "preferCores"),
    ("threads", "preferThreads"),
    ("spread", "preferSpread"),
    ("any", "preferAny"),
];

/// The levels of the topology that processors are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuSpread {
    SocketsCores,
    CoresThreads,
    SocketsCoresThreads,
}

impl CpuSpread {
    fn name(self) -> &'static str {
        match self {
            Self::SocketsCores => "SocketsCores",
            Self::CoresThreads => "CoresThreads",
            Self::SocketsCoresThreads => "SocketsCoresThreads",
        }
    }
}

/// Ratio and target of a preference that spreads processors; an unknown name.
pub(crate) fn spread(preference: &Value) -> (u64, Result<CpuSpread, &str>) {
    let options = &preference["cpu"]["spreadOptions"];
    let old = preference["preferSpreadSocketToCoreRatio"].as_u64().filter(|ratio| *ratio > 0);
    let ratio = options["ratio"].as_u64().or(old).unwrap_or(2);
    let across = match text(options, "/across") {
        "" | "SocketsCores" => Ok(CpuSpread::SocketsCores),
        "CoresThreads" => Ok(CpuSpread::CoresThreads),
        "SocketsCoresThreads" => Ok(CpuSpread::SocketsCoresThreads),
        other => Err(other),
    };
    (ratio, across)
}

fn topology(preference: Option<&Value>) -> &'static str {
    let wanted = preference.map(|one| text(one, "/cpu/preferredCPUTopology")).unwrap_or_default();
    let known = TOPOLOGIES.iter().find(|(name, old)| *name == wanted || *old == wanted);
    known.map_or("sockets", |(name, _)| name)
}

fn processors(size: &Value) -> u64 {
    size["cpu"]["guest"].as_u64().unwrap_or_default()
}

/// Threads of a core when processors are spread over all three.
const THREADS: u64 = 2;

/// Whether the processors of a size can be spread evenly.
pub(super) fn check_spread(size: &Value, preference: Option<&Value>) -> Option<Conflict> {
    if topology(preference) != "spread" {
        return None;
    }
    let count = processors(size);
    let (ratio, across) = spread(preference?);
    let ratio = ratio.max(1);
    let message = match across.ok()? {
        CpuSpread::SocketsCores if !count.is_multiple_of(ratio) => format!(
            "{count} vCPUs provided by the instance type are not divisible by the Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of {ratio} provided by the preference"
        ),
        CpuSpread::CoresThreads if !count.is_multiple_of(ratio) => format!(
            "{count} vCPUs provided by the instance type are not divisible by the number of threads per core {ratio}"
        ),
        CpuSpread::SocketsCoresThreads if !count.is_multiple_of(THREADS * ratio) => {
            format!(
                "{count} vCPUs provided by the instance type are not divisible by the number of threads per core {THREADS} and Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of {ratio}"
            )
        }
        _ => return None,
    };
    Some(Conflict { field: "instancetype.spec.cpu.guest".to_owned(), message: Some(message) })
}

pub(super) fn apply(
    at: &str,
    size: &Value,
    preference: Option<&Value>,
    template: &mut Value,
) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    let spec = object(template, "spec");
    take(at, spec, size, "nodeSelector", &mut conflicts);
    take(at, spec, size, "schedulerName", &mut conflicts);
    apply_cpu(at, spec, size, preference, &mut conflicts);
    apply_memory(at, spec, size, &mut conflicts);
    let domain = object(spec, "domain");
    let inside = format!("{at}.domain");
    if let Some(threads) = size["ioThreads"].get("supplementalPoolThreadCount") {
        let own = object(domain, "ioThreads");
        if own["supplementalPoolThreadCount"].is_null() {
            own["supplementalPoolThreadCount"] = threads.clone();
        } else {
            conflicts
                .push(Conflict::new(format!("{inside}.ioThreads.supplementalPoolThreadCount")));
        }
    }
    take(&inside, domain, size, "ioThreadsPolicy", &mut conflicts);
    take(&inside, domain, size, "launchSecurity", &mut conflicts);
    let devices = object(domain, "devices");
    for field in ["gpus", "hostDevices"] {
        if !list(&size[field]).is_empty() {
            take(&format!("{inside}.devices"), devices, size, field, &mut conflicts);
        }
    }
    apply_annotations(template, size, &mut conflicts);
    conflicts
}

/// Copies a field that must not be there yet.
fn take(at: &str, target: &mut Value, size: &Value, field: &str, conflicts: &mut Vec<Conflict>) {
    let given = &size[field];
    if given.is_null() || given == "" {
        return;
    }
    let own = target.get(field);
    let is_set = own.is_some_and(|own| match own {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    });
    if is_set {
        conflicts.push(Conflict::new(format!("{at}.{field}")));
    } else {
        target[field] = given.clone();
    }
}

fn apply_cpu(
    at: &str,
    spec: &mut Value,
    size: &Value,
    preference: Option<&Value>,
    conflicts: &mut Vec<Conflict>,
) {
    let given = &size["cpu"];
    let before = conflicts.len();
    let resources = &spec["domain"]["resources"];
    for kind in ["requests", "limits"] {
        if !resources[kind]["cpu"].is_null() {
            conflicts.push(Conflict::new(format!("{at}.domain.resources.{kind}.cpu")));
        }
    }
    let cpu = &spec["domain"]["cpu"];
    for part in ["sockets", "cores", "threads"] {
        if cpu[part].as_u64().is_some_and(|number| number > 0) {
            conflicts.push(Conflict::new(format!("{at}.domain.cpu.{part}")));
        }
    }
    // The size's names, the template's names, and what upstream calls them in a conflict.
    let fields = [
        ("model", "model", "model"),
        ("dedicatedCPUPlacement", "dedicatedCpuPlacement", "dedicatedCPUPlacement"),
        ("isolateEmulatorThread", "isolateEmulatorThread", "isolateEmulatorThread"),
        ("numa", "numa", "numa"),
        ("realtime", "realtime", "realtime"),
    ];
    for (theirs, ours, said) in fields {
        let own = &cpu[ours];
        let is_set = !own.is_null() && *own != "" && *own != false;
        if is_set && !given[theirs].is_null() {
            conflicts.push(Conflict::new(format!("{at}.domain.cpu.{said}")));
        }
    }
    if conflicts.len() > before {
        return;
    }
    let cpu = object(object(spec, "domain"), "cpu");
    for (theirs, ours, _) in fields {
        if !given[theirs].is_null() {
            cpu[ours] = given[theirs].clone();
        }
    }
    if !given["maxSockets"].is_null() {
        cpu["maxSockets"] = given["maxSockets"].clone();
    }
    let (sockets, cores, threads) = arrange(processors(size), preference);
    cpu["sockets"] = sockets.into();
    cpu["cores"] = cores.into();
    cpu["threads"] = threads.into();
}

/// Sockets, cores and threads for a number of processors.
fn arrange(count: u64, preference: Option<&Value>) -> (u64, u64, u64) {
    let Some(preference) = preference.filter(|_| count > 1) else { return (count.max(1), 1, 1) };
    match topology(Some(preference)) {
        "cores" => (1, count, 1),
        "threads" => (1, 1, count),
        "spread" => {
            let (ratio, across) = spread(preference);
            let ratio = ratio.max(1);
            match across {
                Ok(CpuSpread::CoresThreads) => (1, count / ratio, ratio),
                Ok(CpuSpread::SocketsCoresThreads) => (count / THREADS / ratio, ratio, THREADS),
                _ => (count / ratio, ratio, 1),
            }
        }
        _ => (count, 1, 1),
    }
}

fn apply_memory(at: &str, spec: &mut Value, size: &Value, conflicts: &mut Vec<Conflict>) {
    let mut given = size["memory"].clone();
    // Upstream's type has no way to leave it out: 0 is what its clients write then.
    let is_sized = read(&given["guest"]).is_some_and(|guest| guest.units() != 0);
    if !is_sized {
        given["guest"] = Value::Null;
    }
    let domain = &spec["domain"];
    let taken = [
        ("memory.guest", is_sized),
        ("memory.hugepages", !given["hugepages"].is_null()),
        ("memory.maxGuest", !given["maxGuest"].is_null()),
        ("resources.requests.memory", is_sized),
        ("resources.limits.memory", is_sized),
    ];
    let clash = taken.into_iter().find(|(field, matters)| {
        let path = format!("/{}", field.replace('.', "/"));
        *matters && domain.pointer(&path).is_some_and(|own| !own.is_null())
    });
    if let Some((field, _)) = clash {
        conflicts.push(Conflict::new(format!("{at}.domain.{field}")));
        return;
    }
    let domain = object(spec, "domain");
    for field in ["guest", "hugepages", "maxGuest"] {
        if !given[field].is_null() {
            object(domain, "memory")[field] = given[field].clone();
        }
    }
    let percent = given["overcommitPercent"].as_i64().unwrap_or_default();
    if percent > 0
        && let Some(guest) = read(&given["guest"])
    {
        object(object(domain, "resources"), "requests")["memory"] =
            Quantity::from_bytes(reserved(guest.units(), percent)).to_string().into();
    }
}

/// Single precision: clients that calculate as upstream does expect the same bytes.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "upstream loses the same digits"
)]
fn reserved(guest: i64, percent: i64) -> i64 {
    (guest as f32 * (1.0 - percent as f32 / 100.0)) as i64
}

fn apply_annotations(template: &mut Value, size: &Value, conflicts: &mut Vec<Conflict>) {
    let Some(given) = size["annotations"].as_object().filter(|given| !given.is_empty()) else {
        return;
    };
    let own = object(object(template, "metadata"), "annotations");
    for (key, value) in given {
        match own.get(key) {
            Some(known) if known != value => {
                conflicts.push(Conflict::new(format!("annotations.{key}")));
            }
            Some(_) => {}
            None => own[key] = value.clone(),
        }
    }
}

pub(super) fn check_requirements(
    size: Option<&Value>,
    preference: &Value,
    spec: &Value,
) -> Result<(), UnmetPreference> {
    let wanted = &preference["requirements"];
    if let Some(count) = wanted["cpu"]["guest"].as_u64() {
        check_cpu(size, preference, spec, count)?;
    }
    if let Some(least) = read(&wanted["memory"]["guest"]) {
        check_memory(size, spec, &least)?;
    }
    let (architecture, own) = (text(wanted, "/architecture"), text(spec, "/architecture"));
    if !architecture.is_empty() && architecture != own {
        return Err(UnmetPreference {
            fields: "spec.template.spec.architecture".to_owned(),
            message: format!(
                "preference requires architecture {architecture} but {own} is being requested"
            ),
        });
    }
    Ok(())
}

fn check_cpu(
    size: Option<&Value>,
    preference: &Value,
    spec: &Value,
    wanted: u64,
) -> Result<(), UnmetPreference> {
    if let Some(size) = size {
        let count = processors(size);
        if count >= wanted {
            return Ok(());
        }
        let message = format!(
            "insufficient CPU resources of {count} vCPU provided by instance type, preference requires {wanted} vCPU"
        );
        return Err(UnmetPreference { fields: "spec.instancetype".to_owned(), message });
    }
    let (parts, noun): (&[&str], &str) = match topology(Some(preference)) {
        "threads" => (&["threads"], "threads"),
        "cores" => (&["cores"], "cores"),
        "sockets" => (&["sockets"], "sockets"),
        "spread" => match spread(preference).1 {
            Ok(CpuSpread::CoresThreads) => (&["cores", "threads"], CpuSpread::CoresThreads.name()),
            Ok(CpuSpread::SocketsCoresThreads) => {
                (&["sockets", "cores", "threads"], CpuSpread::SocketsCoresThreads.name())
            }
            _ => (&["sockets", "cores"], CpuSpread::SocketsCores.name()),
        },
        _ => (&["cores", "sockets", "threads"], "cores, sockets and threads"),
    };
    let cpu = &spec["domain"]["cpu"];
    let count: u64 = parts.iter().map(|part| cpu[part].as_u64().unwrap_or_default()).product();
    if count >= wanted {
        return Ok(());
    }
    let fields: Vec<String> =
        parts.iter().map(|part| format!("spec.template.spec.domain.cpu.{part}")).collect();
    let message = format!(
        "insufficient CPU resources of {count} vCPU provided by VirtualMachine, preference requires {wanted} vCPU provided as {noun}"
    );
    Err(UnmetPreference { fields: fields.join(", "), message })
}

fn check_memory(
    size: Option<&Value>,
    spec: &Value,
    least: &Quantity,
) -> Result<(), UnmetPreference> {
    let own = read(&spec["domain"]["memory"]["guest"]);
    let sized = size.and_then(|size| read(&size["memory"]["guest"]));
    let provided = own.or(sized).unwrap_or_else(|| Quantity::from_bytes(0));
    if provided >= *least {
        return Ok(());
    }
    let (fields, by) = match size {
        Some(_) => ("spec.instancetype", "instance type"),
        None => ("spec.template.spec.domain.memory", "VirtualMachine"),
    };
    let message = format!(
        "insufficient Memory resources of {provided} provided by {by}, preference requires {least}"
    );
    Err(UnmetPreference { fields: fields.to_owned(), message })
}
