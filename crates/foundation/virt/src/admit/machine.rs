//! Admission of VirtualMachines.

use serde_json::Value;

use super::spec::{CheckedSpec, check};
use super::{Causes, Denial, Write, clone_source, hotplug, instance, network, read};
use crate::config::ClusterConfig;
use crate::default::default_instance_spec;
use crate::instancetype::Sizing;
use crate::state::{RunStrategy, list, text};
use crate::v1::VirtualMachineInstanceSpec;
use crate::{memory, state};

const DEPRECATED: &str = "spec.running is deprecated, please use spec.runStrategy instead.";

pub(super) fn validate(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let vm = write.object;
    if state::is_deleting(vm) {
        return Ok(Vec::new());
    }
    if !vm["spec"]["template"].is_object() {
        let mut causes = Causes::default();
        causes.required("spec.template", "missing virtual machine template.");
        causes.finish()?;
    }
    check_matchers(write)?;
    let mut sized = vm.clone();
    let sizing = Sizing::find(vm, write.namespace, write.objects);
    check_sizing(&sizing, &mut sized, write.config)?;
    if write.old.is_none() {
        let spec: VirtualMachineInstanceSpec = read(&sized["spec"]["template"]["spec"])?;
        let judged = CheckedSpec { at: "spec", spec: &spec, config: write.config };
        let mut causes = Causes::default();
        network::check_discontinued(&judged, &mut causes);
        causes.finish()?;
    }
    let mut causes = Causes::default();
    check_spec("spec", &sized["spec"], write, &mut causes)?;
    causes.finish()?;
    check_storage(write)?;
    authorize_data_volumes(write)?;
    check_requests(vm)?;
    let old_fashioned = vm["spec"]["running"].is_boolean();
    Ok(if old_fashioned { vec![DEPRECATED.to_owned()] } else { Vec::new() })
}

/// KubeVirt's rule: templates that clone from another namespace are authorized as the service
/// account of the machine, and only while their DataVolume does not exist.
fn authorize_data_volumes(write: &Write<'_>) -> Result<(), Denial> {
    let (spec, old) = (&write.object["spec"], write.old.map_or(&Value::Null, |old| &old["spec"]));
    let account = clone_source::service_account(spec);
    let is_same = old["dataVolumeTemplates"] == spec["dataVolumeTemplates"];
    if write.old.is_some() && is_same && account == clone_source::service_account(old) {
        return Ok(());
    }
    let access = write.access.of_service_account(write.namespace, account);
    let mut causes = Causes::default();
    for (index, template) in list(&spec["dataVolumeTemplates"]).iter().enumerate() {
        let source = clone_source::find(template, write.namespace, write.objects);
        let foreign = source.filter(|source| source.namespace != write.namespace);
        let Some(source) = foreign.filter(|source| !source.is_allowed(&*access)) else { continue };
        let name = text(template, "/metadata/name");
        if write.objects.get("cdi.kubevirt.io", "datavolumes", write.namespace, name).is_some() {
            continue;
        }
        let refusal = source.refusal(access.user());
        let message = format!("Authorization failed, message is: {refusal}");
        causes.invalid(format!("spec.dataVolumeTemplates[{index}]"), message);
    }
    causes.finish()
}

/// Writes to the status may add requests for volumes, and must wait for snapshots.
pub(super) fn validate_status(write: &Write<'_>) -> Result<(), Denial> {
    check_requests(write.object)?;
    check_pauses(write)
}

/// The size and the preference are applied to a copy: the result must be a valid machine.
fn check_sizing(sizing: &Sizing, vm: &mut Value, config: &ClusterConfig) -> Result<(), Denial> {
    let template = &mut vm["spec"]["template"];
    let conflicts = sizing.apply("spec.template.spec", template);
    let mut causes = Causes::default();
    for conflict in conflicts {
        causes.invalid(conflict.field.clone(), conflict.to_string());
    }
    causes.finish()?;
    default_instance_spec(crate::default::object(template, "spec"), config)
        .map_err(|error| Denial::bad_request(error.to_string()))?;
    if let Err(unmet) = sizing.check_requirements(&template["spec"]) {
        let mut causes = Causes::default();
        let message = format!("failure checking preference requirements: {unmet}");
        causes.not_found(unmet.fields.clone(), message);
        causes.finish()?;
    }
    Ok(())
}

fn check_matchers(write: &Write<'_>) -> Result<(), Denial> {
    let mut causes = Causes::default();
    for (kind, name) in
        [("instancetype", "InstancetypeMatcher"), ("preference", "PreferenceMatcher")]
    {
        let matcher = &write.object["spec"][kind];
        if !matcher.is_object() {
            continue;
        }
        if let Some(old) = write.old {
            check_matcher_update(kind, matcher, &old["spec"][kind], &mut causes);
        }
        let at = format!("spec.{kind}");
        let (given, inferred) = (text(matcher, "/name"), text(matcher, "/inferFromVolume"));
        if given.is_empty() && inferred.is_empty() {
            causes.not_found(
                at.clone(),
                format!("Either Name or InferFromVolume should be provided within the {name}"),
            );
        }
        if !inferred.is_empty() {
            for (field, label) in [("name", "Name"), ("kind", "Kind")] {
                if !text(matcher, &format!("/{field}")).is_empty() {
                    let message = format!(
                        "{label} already set, should be cleared before setting inferFromVolume"
                    );
                    causes.unsupported(format!("{at}.{field}"), message);
                }
            }
        }
        let policy = text(matcher, "/inferFromVolumeFailurePolicy");
        if !matches!(policy, "" | "Ignore" | "Reject") {
            causes.invalid(
                format!("{at}.inferFromVolumeFailurePolicy"),
                format!("Invalid value '{policy}' for InferFromVolumeFailurePolicy"),
            );
        }
    }
    causes.finish()
}

fn check_matcher_update(kind: &str, new: &Value, old: &Value, causes: &mut Causes) {
    let revision = text(new, "/revisionName");
    let renamed = text(old, "/name") != text(new, "/name");
    if old.is_object() && !revision.is_empty() && renamed && revision == text(old, "/revisionName")
    {
        causes.invalid(
            format!("spec.{kind}.revisionName"),
            "the Matcher Name has been updated without updating the RevisionName",
        );
    }
}

/// The rules of a machine's specification, also inside a pool.
pub(super) fn check_spec(
    at: &str,
    spec: &Value,
    write: &Write<'_>,
    causes: &mut Causes,
) -> Result<(), Denial> {
    let template = &spec["template"];
    if !template.is_object() {
        causes.required(format!("{at}.template"), "missing virtual machine template.");
        return Ok(());
    }
    instance::check_metadata(
        &format!("{at}.template.metadata"),
        &template["metadata"],
        write,
        causes,
    );
    let typed: VirtualMachineInstanceSpec = read(&template["spec"])?;
    let field = format!("{at}.template.spec");
    check(&CheckedSpec { at: &field, spec: &typed, config: write.config }, causes);
    check_data_volumes(at, spec, causes);
    check_run_strategy(at, spec, write.config, causes);
    if write.config.updates_live() {
        check_live_update(at, spec, causes);
    }
    Ok(())
}

fn check_run_strategy(at: &str, spec: &Value, config: &ClusterConfig, causes: &mut Causes) {
    let (running, strategy) = (spec["running"].is_boolean(), spec["runStrategy"].as_str());
    if running && strategy.is_some() {
        causes.invalid(
            format!("{at}.running"),
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
        );
    }
    if !running && strategy.is_none() {
        causes.invalid(format!("{at}.running"), "RunStrategy must be specified");
    }
    let Some(strategy) = strategy else { return };
    match RunStrategy::parse(strategy) {
        Some(RunStrategy::WaitAsReceiver) if !config.has("DecentralizedLiveMigration") => {
            let message = format!(
                "Invalid RunStrategy ({strategy}), DecentralizedLiveMigration feature gate is not enabled in kubevirt resource"
            );
            causes.invalid(format!("{at}.runStrategy"), message);
        }
        Some(_) => {}
        None => {
            causes.invalid(format!("{at}.runStrategy"), format!("Invalid RunStrategy ({strategy})"))
        }
    }
}

fn check_live_update(at: &str, spec: &Value, causes: &mut Causes) {
    let template = &spec["template"]["spec"];
    let cpu = &template["domain"]["cpu"];
    let (sockets, most) = (cpu["sockets"].as_u64(), cpu["maxSockets"].as_u64());
    if let (Some(sockets), Some(most @ 1..)) = (sockets, most)
        && sockets > most
    {
        causes.invalid(
            format!("{at}.template.spec.domain.cpu.sockets"),
            "Number of sockets in CPU topology is greater than the maximum sockets allowed",
        );
    }
    let most = &template["domain"]["memory"]["maxGuest"];
    if !most.is_null()
        && let Err(error) = memory::check_growth(template, memory::read(most).as_ref())
    {
        causes.invalid(format!("{at}.template.spec.domain.memory.guest"), error.to_string());
    }
}

fn check_data_volumes(at: &str, spec: &Value, causes: &mut Causes) {
    for (index, volume) in list(&spec["dataVolumeTemplates"]).iter().enumerate() {
        let field = format!("{at}.dataVolumeTemplate[{index}]");
        if let Some((part, message)) = data_volume_problem(&field, volume) {
            let path = format!("{field}.{part}");
            if part == "name" {
                causes.required(path, message);
            } else {
                causes.invalid(path, message);
            }
            continue;
        }
        let name = text(volume, "/metadata/name");
        let used = list(&spec["template"]["spec"]["volumes"]).iter().any(|volume| {
            volume["persistentVolumeClaim"]["claimName"] == name
                || volume["dataVolume"]["name"] == name
        });
        if !used {
            let message = format!(
                "DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list"
            );
            causes.required(field, message);
        }
    }
}

/// The field that is wrong with a template, and why.
fn data_volume_problem(field: &str, volume: &Value) -> Option<(&'static str, String)> {
    let spec = &volume["spec"];
    if text(volume, "/metadata/name").is_empty() {
        let message =
            format!("'name' field must not be empty for DataVolumeTemplate entry {field}.name.");
        return Some(("name", message));
    }
    let (claim, storage) = (&spec["pvc"], &spec["storage"]);
    let target = match (claim.is_object(), storage.is_object()) {
        (false, false) => {
            return Some(("PVC.Storage", "Missing Data volume PVC or Storage".to_owned()));
        }
        (true, true) => {
            let message =
                "Duplicate storage definition, both target storage and target pvc defined";
            return Some(("PVC.Storage", message.to_owned()));
        }
        (true, false) => claim,
        (false, true) => storage,
    };
    let external = target["dataSourceRef"].is_object() || target["dataSource"].is_object();
    let internal = spec["source"].is_object() || spec["sourceRef"].is_object();
    if external && internal {
        let message = "External population is incompatible with Source and SourceRef";
        return Some(("source", message.to_owned()));
    }
    if !external && !internal {
        let message =
            "Data volume should have either Source, SourceRef, or be externally populated";
        return Some(("source.sourceRef", message.to_owned()));
    }
    let sources = spec["source"].as_object()?;
    let message = match sources.values().filter(|source| source.is_object()).count() {
        0 => "Missing dataVolume valid source",
        1 => return None,
        _ => "Multiple dataVolume sources",
    };
    Some(("source", message.to_owned()))
}

fn check_storage(write: &Write<'_>) -> Result<(), Denial> {
    let (new, mut causes) = (write.object, Causes::default());
    let templates = &new["spec"]["dataVolumeTemplates"];
    if write.old.is_none_or(|old| old["spec"]["dataVolumeTemplates"] != *templates) {
        let home = match text(new, "/metadata/namespace") {
            "" => write.namespace,
            home => home,
        };
        for (index, volume) in list(templates).iter().enumerate() {
            let namespace = text(volume, "/metadata/namespace");
            if !namespace.is_empty() && namespace != home {
                causes.invalid(
                    format!("spec.dataVolumeTemplates[{index}]"),
                    format!(
                        "Embedded DataVolume namespace {namespace} differs from VM namespace {home}"
                    ),
                );
            }
        }
    }
    causes.finish()?;
    check_pauses(write)
}

/// While a snapshot is taken or restored, some things stay as they are.
fn check_pauses(write: &Write<'_>) -> Result<(), Denial> {
    let (new, mut causes) = (write.object, Causes::default());
    let Some(old) = write.old else { return Ok(()) };
    let volumes = |vm: &Value| vm["spec"]["template"]["spec"]["volumes"].clone();
    let switch = |vm: &Value| (vm["spec"]["running"].clone(), vm["spec"]["runStrategy"].clone());
    if let Some(snapshot) = new["status"]["snapshotInProgress"].as_str() {
        if volumes(old) != volumes(new) {
            let message =
                format!("Cannot update vm disks or volumes until snapshot {snapshot:?} completes");
            causes.unsupported("spec", message);
        } else if switch(old) != switch(new) {
            let message =
                format!("Cannot update vm running state until snapshot {snapshot:?} completes");
            causes.unsupported("spec", message);
        }
        causes.finish()?;
        causes = Causes::default();
    }
    if let Some(restore) = new["status"]["restoreInProgress"].as_str()
        && RunStrategy::of(old) != RunStrategy::of(new)
    {
        let message = format!("Cannot update VM runStrategy until restore {restore:?} completes");
        causes.unsupported("spec", message);
    }
    causes.finish()
}

/// Requests for volumes that wait in the status.
fn check_requests(vm: &Value) -> Result<(), Denial> {
    let mut causes = Causes::default();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for request in list(&vm["status"]["volumeRequests"]) {
        let (add, remove) = (&request["addVolumeOptions"], &request["removeVolumeOptions"]);
        let field = "Status.volumeRequests";
        let (what, name) = match (add.is_object(), remove.is_object()) {
            (true, true) => {
                causes.invalid(field, "VolumeRequests require either addVolumeOptions or removeVolumeOptions to be set, not both");
                break;
            }
            (false, false) => {
                causes.invalid(field, "VolumeRequests require one of either addVolumeOptions or removeVolumeOptions to be set");
                break;
            }
            (true, false) => ("AddVolume", text(add, "/name")),
            (false, true) => ("RemoveVolume", text(remove, "/name")),
        };
        if seen.contains(&(what, name)) {
            // The missing letter is upstream's.
            causes.invalid(field, format!("{what} request for [{name}] aleady exists"));
            break;
        }
        seen.push((what, name));
        if add.is_object() {
            hotplug::check_disk(&add["disk"], name, "AddVolume request", field, &mut causes)?;
        }
        if !causes.is_empty() {
            break;
        }
    }
    causes.finish()
}
