//! Processors and memory: requests, limits, topology, pages, machine type.

use types::Quantity;

use super::spec::CheckedSpec;
use super::{Causes, firmware};
use crate::v1::CPU;

/// An amount that is requested or limited; zero if it is not.
fn amount(judged: &CheckedSpec<'_>, kind: &str, resource: &str) -> Quantity {
    let resources = judged.spec.domain.resources.as_ref();
    let map = resources.map(|resources| match kind {
        "limits" => &resources.limits,
        _ => &resources.requests,
    });
    let found = map.and_then(|map| map.get(resource)).and_then(|quantity| quantity.amount());
    found.unwrap_or_else(|| Quantity::from_units(0))
}

fn field(judged: &CheckedSpec<'_>, kind: &str, resource: &str) -> String {
    judged.field(&format!("domain.resources.{kind}.{resource}"))
}

fn guest(judged: &CheckedSpec<'_>) -> Option<Quantity> {
    judged.spec.domain.memory.as_ref()?.guest.as_ref()?.amount()
}

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    check_memory(judged, causes);
    check_pages(judged, causes);
    check_guest(judged, causes);
    check_machine(judged, causes);
    firmware::check_acpi(judged, causes);
    check_amounts(judged, causes);
    let Some(cpu) = &judged.spec.domain.cpu else { return };
    if cpu.dedicated_cpu_placement == Some(true) {
        check_pinning(judged, cpu, causes);
    }
    check_numa(judged, cpu, causes);
    if cpu.isolate_emulator_thread == Some(true) && cpu.dedicated_cpu_placement != Some(true) {
        causes.invalid(
            judged.field("domain.cpu.isolateEmulatorThread"),
            "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement",
        );
    }
    check_features(judged, cpu, causes);
    let most = cpu.max_sockets.unwrap_or_default();
    if most != 0 && cpu.sockets.unwrap_or_default() > most {
        causes.invalid(
            judged.field("domain.cpu.sockets"),
            "Number of sockets in CPU topology is greater than the maximum sockets allowed",
        );
    }
    check_realtime(judged, cpu, causes);
}

fn negative(judged: &CheckedSpec<'_>, kind: &str, resource: &str, causes: &mut Causes) -> bool {
    let found = amount(judged, kind, resource);
    if found.signum() >= 0 {
        return false;
    }
    let field = field(judged, kind, resource);
    let message = format!("{field} '{found}': must be greater than or equal to 0.");
    causes.invalid(field, message);
    true
}

/// Nothing may be requested beyond its limit.
fn exceeds(judged: &CheckedSpec<'_>, resource: &str, causes: &mut Causes) {
    let (request, limit) =
        (amount(judged, "requests", resource), amount(judged, "limits", resource));
    if limit.signum() > 0 && request > limit {
        let requests = field(judged, "requests", resource);
        let limits = field(judged, "limits", resource);
        let message = format!("{requests} '{request}' is greater than {limits} '{limit}'");
        causes.invalid(requests, message);
    }
}

fn check_memory(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let request = amount(judged, "requests", "memory");
    let too_little = request.signum() > 0 && request < Quantity::from_units(1_000_000);
    if !negative(judged, "requests", "memory", causes) && too_little {
        let field = field(judged, "requests", "memory");
        let message = format!("{field} '{request}': must be greater than or equal to 1M.");
        causes.invalid(field, message);
    }
    negative(judged, "limits", "memory", causes);
    exceeds(judged, "memory", causes);
}

fn check_pages(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let memory = judged.spec.domain.memory.as_ref();
    let Some(pages) = memory.and_then(|memory| memory.hugepages.as_ref()) else { return };
    let page_field = judged.field("domain.memory.hugepages.pageSize");
    let size = pages.page_size.as_deref().unwrap_or_default();
    let Ok(page) = size.parse::<Quantity>() else {
        let message = format!(
            "{page_field} '{size}': quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        );
        causes.invalid(page_field, message);
        return;
    };
    let request = amount(judged, "requests", "memory");
    let whole = [Some(request.clone()), guest(judged), Some(amount(judged, "limits", "memory"))]
        .into_iter()
        .flatten()
        .find(|amount| !amount.is_zero());
    let Some(whole) = whole else { return };
    let problem = if whole < page {
        "must be equal to or larger than page size"
    } else if page.units() > 0 && whole.units() % page.units() != 0 {
        "is not a multiple of the page size"
    } else {
        return;
    };
    let field = field(judged, "requests", "memory");
    let message = format!("{field} '{request}' {problem} {page_field} '{size}'");
    causes.invalid(field, message);
}

/// A guest has some memory, and if it does not change while it runs must fit its limit.
fn check_guest(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let Some(guest) = guest(judged) else { return };
    if guest.units() <= 0 {
        let field = judged.field("domain.memory.guest");
        let message = format!("{field} '{guest}': must be greater than 0.");
        causes.invalid(field, message);
        return;
    }
    if judged.config.updates_live() {
        return;
    }
    let limit = amount(judged, "limits", "memory");
    if !limit.is_zero() && limit < guest {
        let field = judged.field("domain.memory.guest");
        let limits = self::field(judged, "limits", "memory");
        let message = format!(
            "{field} '{guest}' must be equal to or less than the memory limit {limits} '{limit}'"
        );
        causes.invalid(field, message);
    }
}

fn check_machine(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let machine = judged.spec.domain.machine.as_ref();
    let machine = machine.and_then(|machine| machine.r#type.as_deref()).unwrap_or_default();
    let allowed = judged.config.emulated_machines(judged.architecture());
    let fits = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => machine.starts_with(start),
        None => *pattern == machine,
    };
    // A comma would begin another option of QEMU.
    let is_name =
        machine.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_allowed = machine.is_empty() || (is_name && allowed.iter().any(fits));
    if !is_allowed {
        let field = judged.field("domain.machine.type");
        let message = format!(
            "{field} is not supported: {machine} (allowed values: [{}])",
            allowed.join(" ")
        );
        causes.invalid(field, message);
    }
}

fn check_amounts(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    negative(judged, "requests", "cpu", causes);
    negative(judged, "limits", "cpu", causes);
    exceeds(judged, "cpu", causes);
}

/// Virtual processors of a topology; nothing if none is given.
fn processors(cpu: &CPU) -> i64 {
    let parts = [cpu.sockets, cpu.cores, cpu.threads];
    if parts.iter().all(|part| part.unwrap_or_default() == 0) {
        return 0;
    }
    parts.into_iter().map(|part| i64::from(part.unwrap_or_default().max(1))).product()
}

fn check_pinning(judged: &CheckedSpec<'_>, cpu: &CPU, causes: &mut Causes) {
    let dedicated = judged.field("domain.cpu.dedicatedCpuPlacement");
    let requests = field(judged, "requests", "cpu");
    let limits = field(judged, "limits", "cpu");
    let cores = judged.field("domain.cpu.cores");
    let (request, limit) = (amount(judged, "requests", "cpu"), amount(judged, "limits", "cpu"));
    check_pinned_memory(judged, causes);
    for (kind, amount, field) in [("requests", &request, &requests), ("limits", &limit, &limits)] {
        if amount.units() > 0 && amount.units() * 1000 != amount.millis() {
            // The letter too many is upstream's.
            let message = format!("provided resources CPU {kind} must be an interger");
            causes.invalid(field.clone(), message);
        }
    }
    let (request, limit, given) = (request.units(), limit.units(), processors(cpu));
    if request == 0 && limit == 0 && given == 0 {
        let message = format!(
            "either {requests} or {limits} or {cores} must be provided when DedicatedCPUPlacement is true "
        );
        causes.invalid(dedicated.clone(), message);
    }
    if request > 0 && limit > 0 && request != limit {
        let message =
            format!("{requests} or {limits} must be equal when DedicatedCPUPlacement is true ");
        causes.invalid(dedicated.clone(), message);
    }
    if (request > 0 || limit > 0) && given > 0 && request != given && limit != given {
        let message = format!(
            "{requests} or {limits} must not be provided at the same time with {cores} when DedicatedCPUPlacement is true "
        );
        causes.invalid(dedicated.clone(), message);
    }
    let (threads, count) = (judged.field("domain.cpu.threads"), cpu.threads.unwrap_or_default());
    if count > 1 && judged.architecture() == "arm64" {
        let field = judged.field("architecture");
        let message = format!(
            "threads must not be greater than 1 at {threads} (got {count}) when {field} is arm64"
        );
        causes.invalid(field, message);
    }
    if count > 2 {
        let message = format!(
            "Not more than two threads must be provided at {threads} (got {count}) when DedicatedCPUPlacement is true"
        );
        causes.invalid(dedicated, message);
    }
}

fn check_pinned_memory(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let requests = field(judged, "requests", "memory");
    let limits = field(judged, "limits", "memory");
    let (request, limit) =
        (amount(judged, "requests", "memory"), amount(judged, "limits", "memory"));
    let pages = judged.spec.domain.memory.as_ref().is_some_and(|memory| memory.hugepages.is_some());
    let has_guest = guest(judged).is_some_and(|guest| !guest.is_zero());
    if request.is_zero() && limit.is_zero() && !pages && !has_guest {
        let message = format!(
            "{requests}, {limits}, {} or {} should be provided",
            judged.field("domain.memory.hugepages"),
            judged.field("domain.memory.guest")
        );
        causes.invalid(limits.clone(), message);
    }
    if request.signum() > 0 && limit.signum() > 0 && request != limit {
        let message = format!("{requests} must be equal to {limits}");
        causes.invalid(requests, message);
    }
}

fn check_numa(judged: &CheckedSpec<'_>, cpu: &CPU, causes: &mut Causes) {
    if cpu.numa.as_ref().is_none_or(|numa| numa.guest_mapping_passthrough.is_none()) {
        return;
    }
    let field = judged.field("domain.cpu.numa.guestMappingPassthrough");
    if cpu.dedicated_cpu_placement != Some(true) {
        let message = format!(
            "{} must be set to true when NUMA topology strategy is set in {field}",
            judged.field("domain.cpu.dedicatedCpuPlacement")
        );
        causes.invalid(field.clone(), message);
    }
    if judged.spec.domain.memory.as_ref().is_none_or(|memory| memory.hugepages.is_none()) {
        let message = format!(
            "{} must be requested when NUMA topology strategy is set in {field}",
            judged.field("domain.memory.hugepages")
        );
        causes.invalid(field, message);
    }
}

fn check_features(judged: &CheckedSpec<'_>, cpu: &CPU, causes: &mut Causes) {
    for (index, feature) in cpu.features.iter().enumerate() {
        let policy = feature.policy.as_deref().unwrap_or_default();
        if !matches!(policy, "" | "force" | "require" | "optional" | "disable" | "forbid") {
            causes.unsupported(
                judged.field(&format!("domain.cpu.features[{index}].policy")),
                format!("CPU feature {} uses policy {policy} that is not supported.", feature.name),
            );
        }
    }
}

fn check_realtime(judged: &CheckedSpec<'_>, cpu: &CPU, causes: &mut Causes) {
    if cpu.realtime.is_none() {
        return;
    }
    let realtime = judged.field("domain.cpu.realtime");
    if cpu.dedicated_cpu_placement != Some(true) {
        let field = judged.field("domain.cpu.dedicatedCpuPlacement");
        let message = format!("{field} must be set to true when {realtime} is used");
        causes.required(field, message);
    }
    if cpu.numa.as_ref().is_none_or(|numa| numa.guest_mapping_passthrough.is_none()) {
        let field = judged.field("domain.cpu.numa.guestMappingPassthrough");
        let message = format!("{field} must be defined when {realtime} is used");
        causes.required(field, message);
    }
}
