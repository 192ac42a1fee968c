//! Findings from volumes: claims that are missing or unbound, imports that fail, and storage
//! that has lost copies.

use super::event::is_about;
use super::object::{Claim, StorageVolume};
use super::{DiagnosisInput, Findings, claim_fill, image};
use crate::api::cdi::{DataVolume, DataVolumeCondition, DataVolumeSource};
use crate::api::v1::Volume;
use crate::reason::{FillFailure, VolumeFailure};

/// The names of the claims behind the volumes of the machine.
pub(super) fn claim_names(facts: &DiagnosisInput) -> Vec<String> {
    let template = facts.machine.as_ref().and_then(|machine| machine.spec.template.spec.as_ref());
    let spec = template.or(facts.instance.as_ref().map(|instance| &instance.spec));
    spec.into_iter().flat_map(|spec| &spec.volumes).filter_map(claim_name).collect()
}

fn claim_name(volume: &Volume) -> Option<String> {
    let claim = volume.persistent_volume_claim.as_ref().map(|own| own.claim_name.clone());
    let data_volume = || volume.data_volume.as_ref().map(|own| own.name.clone());
    let ephemeral = || {
        let source = volume.ephemeral.as_ref()?.persistent_volume_claim.as_ref()?;
        source.0["claimName"].as_str().map(str::to_owned)
    };
    let dump = || volume.memory_dump.as_ref().map(|own| own.claim_name.clone());
    claim.or_else(data_volume).or_else(ephemeral).or_else(dump)
}

pub(super) fn examine(findings: &mut Findings<'_>) {
    let facts = findings.facts;
    for name in claim_names(facts) {
        let is_named = |meta: &crate::api::atom::ObjectMeta| meta.name.as_deref() == Some(&name);
        let data_volume = facts.data_volumes.iter().find(|own| is_named(&own.metadata));
        if let Some(data_volume) = data_volume {
            examine_data_volume(findings, &name, data_volume);
        }
        match facts.claims.iter().find(|own| is_named(&own.metadata)) {
            Some(claim) => {
                examine_claim(findings, claim);
                if data_volume.is_none() {
                    claim_fill::examine(findings, claim);
                }
            }
            None if data_volume.is_some() || is_template(facts, &name) => {}
            None => findings.error(
                format!("The claim {name} does not exist."),
                "A volume of the machine refers to it.",
                format!("sheaf volume create {name} --size 10Gi{}", facts.place()),
            ),
        }
    }
}

/// Whether the machine creates this data volume itself.
fn is_template(facts: &DiagnosisInput, name: &str) -> bool {
    let machine = facts.machine.iter();
    let mut templates = machine.flat_map(|machine| &machine.spec.data_volume_templates);
    templates.any(|template| template.metadata.name.as_deref() == Some(name))
}

fn examine_data_volume(findings: &mut Findings<'_>, name: &str, data_volume: &DataVolume) {
    let facts = findings.facts;
    let status = data_volume.status.clone().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or("Pending");
    if phase == "Succeeded" {
        return;
    }
    let is_false = |kind: &str| {
        let of_kind = |own: &&DataVolumeCondition| own.r#type == kind && own.status == "False";
        status.conditions.iter().find(of_kind)
    };
    let misbound = is_false("Bound").filter(|own| text(&own.reason) == FillFailure::Claim.as_str());
    let stalled = is_false("Running").filter(|own| !text(&own.message).is_empty());
    let failing = misbound.or(stalled);
    if phase == "Failed" || failing.is_some() {
        return examine_fill_failure(findings, name, data_volume, failing, phase == "Failed");
    }
    let progress = status.progress.as_deref().unwrap_or("N/A");
    match phase {
        "UploadReady" => findings.info(
            format!("The volume {name} waits for the upload of its image."),
            "Its source is `upload`, and nothing has been sent yet.",
            format!(
                "virtctl image-upload dv {name} --no-create --image-path FILE{}",
                facts.place()
            ),
        ),
        "WaitForFirstConsumer" | "PendingPopulation" => findings.info(
            format!("The volume {name} is created when the machine is placed on a node."),
            "The storage class binds volumes to their first consumer.",
            facts.kubectl("describe", "dv", name),
        ),
        "ImportInProgress" | "CloneInProgress" => findings.info(
            format!("The volume {name} is being filled: {progress}."),
            format!("The source is {}.", source(data_volume)),
            facts.kubectl("get", "dv", name) + " --watch",
        ),
        phase => findings.info(
            format!("The volume {name} is not ready: its phase is {phase}."),
            format!("The source is {}.", source(data_volume)),
            facts.kubectl("describe", "dv", name),
        ),
    }
}

fn examine_fill_failure(
    findings: &mut Findings<'_>,
    name: &str,
    data_volume: &DataVolume,
    failing: Option<&DataVolumeCondition>,
    is_final: bool,
) {
    let facts = findings.facts;
    let message = failing.map(|own| text(&own.message)).unwrap_or_default();
    let source = source(data_volume);
    let again = match is_template(facts, name) {
        // The machine makes it again, from the corrected template.
        true => format!(
            "{} && {}",
            facts.kubectl("edit", "vm", &facts.name),
            facts.kubectl("delete", "dv", name)
        ),
        false => facts.kubectl("delete", "dv", name) + " # then create it with a correct source",
    };
    let reason = FillFailure::parse(failing.map_or("", |own| own.reason.as_deref().unwrap_or("")));
    let what = match reason {
        Some(FillFailure::ImagePull) => {
            format!("The volume {name} cannot be filled: its image cannot be pulled from {source}.")
        }
        Some(FillFailure::Invalid) => format!("The volume {name} cannot be cloned from {source}."),
        Some(FillFailure::Error) | None => {
            format!("The volume {name} cannot be filled from {source}.")
        }
        Some(held) => return examine_hold(findings, name, data_volume, held, &message),
    };
    let why = match (message.as_str(), is_final) {
        ("", _) => "No cause was reported.".to_owned(),
        (message, true) => message.to_owned(),
        (message, false) => format!("{message} (the node keeps trying)"),
    };
    findings.error(what, why, again);
}

/// A data volume that waits for something else: it is mended there, not by a new data volume.
fn examine_hold(
    findings: &mut Findings<'_>,
    name: &str,
    data_volume: &DataVolume,
    reason: FillFailure,
    message: &str,
) {
    let facts = findings.facts;
    let source = source(data_volume);
    let describe = describe_source(facts, data_volume);
    match reason {
        FillFailure::SourceInUse => findings.warning(
            format!("The volume {name} waits for its clone source, which is in use."),
            message,
            format!("kubectl get vmi{}", facts.place()),
        ),
        FillFailure::NoSource => findings.error(
            format!("The volume {name} waits for its source, {source}, which does not exist."),
            format!("{message}. The volume is filled as soon as it exists."),
            describe,
        ),
        FillFailure::SourceNotReady => findings.info(
            format!("The volume {name} waits until its source, {source}, is complete."),
            message,
            describe,
        ),
        FillFailure::NotAuthorized => findings.error(
            format!("The volume {name} may not be copied from {source}."),
            message,
            format!(
                "{} # then let a user create it who has the right to create \
                 datavolumes/source there",
                facts.kubectl("delete", "dv", name)
            ),
        ),
        _ => findings.error(
            format!("The data volume {name} cannot use the claim of its name."),
            message,
            format!("kubectl describe dv,pvc {name}{}", facts.place()),
        ),
    }
}

/// The command that shows the object that is copied.
fn describe_source(facts: &DiagnosisInput, data_volume: &DataVolume) -> String {
    let source = data_volume.spec.source.as_ref();
    let claim = source.and_then(|own| own.pvc.as_ref());
    let snapshot = source.and_then(|own| own.snapshot.as_ref());
    match (claim, snapshot, &data_volume.spec.source_ref) {
        (Some(own), ..) => format!("kubectl describe dv,pvc {} -n {}", own.name, own.namespace),
        (_, Some(own), _) => {
            format!("kubectl describe volumesnapshot {} -n {}", own.name, own.namespace)
        }
        (_, _, Some(own)) => {
            let namespace = own.namespace.as_deref().unwrap_or(&facts.namespace);
            format!("kubectl describe datasource {} -n {namespace}", own.name)
        }
        _ => facts.kubectl("describe", "dv", data_volume.metadata.name.as_deref().unwrap_or("")),
    }
}

/// Where a data volume gets its data.
fn source(data_volume: &DataVolume) -> String {
    let Some(source) = &data_volume.spec.source else {
        let reference = data_volume.spec.source_ref.as_ref();
        return reference
            .map_or_else(|| "not given".to_owned(), |own| format!("{} {}", own.kind, own.name));
    };
    let DataVolumeSource { http, s3, gcs, registry, pvc, upload, snapshot, .. } = source;
    let url = http.as_ref().map(|own| own.url.clone());
    let url = url.or_else(|| s3.as_ref().map(|own| own.url.clone()));
    let url = url.or_else(|| gcs.as_ref().map(|own| own.url.clone()));
    let url = url.or_else(|| registry.as_ref().and_then(|own| own.url.clone()));
    let url =
        url.or_else(|| pvc.as_ref().map(|own| format!("claim {}/{}", own.namespace, own.name)));
    let url = url.or_else(|| {
        snapshot.as_ref().map(|own| format!("snapshot {}/{}", own.namespace, own.name))
    });
    match url {
        Some(url) => url,
        None if upload.is_some() => "an upload".to_owned(),
        None => "an empty disk".to_owned(),
    }
}

fn examine_claim(findings: &mut Findings<'_>, claim: &Claim) {
    let facts = findings.facts;
    let name = claim.name();
    let describe = facts.kubectl("describe", "pvc", name);
    if claim.metadata.deletion_timestamp.is_some() {
        findings.error(
            format!("The claim {name} is being deleted."),
            "It disappears when nothing uses it any more.",
            describe,
        );
        return;
    }
    // A volume that begins as an image exists before the image does, and waits for it.
    image::examine(findings, claim);
    match claim.status.phase.as_deref() {
        Some("Bound") => {
            let volume = facts
                .storage_volumes
                .iter()
                .find(|own| own.metadata.name == claim.spec.volume_name);
            if let Some(volume) = volume {
                examine_storage(findings, name, volume);
            }
        }
        Some("Lost") => findings.error(
            format!("The volume of claim {name} is lost."),
            "The PersistentVolume that it was bound to does not exist any more.",
            describe,
        ),
        _ => match complaint(facts, claim) {
            Some(message) => {
                findings.error(format!("The claim {name} gets no volume."), message, describe)
            }
            None if claim.spec.storage_class_name.is_none() => findings.error(
                format!("The claim {name} has no storage class."),
                "It names none, and the cluster has no default storage class.",
                "kubectl get storageclass",
            ),
            None => findings.info(
                format!("The claim {name} has no volume yet."),
                "It is being provisioned, or waits for the machine to be placed on a node.",
                describe,
            ),
        },
    }
}

/// The latest message about why a claim gets no volume.
fn complaint(facts: &DiagnosisInput, claim: &Claim) -> Option<String> {
    let about = |event: &&super::Event| {
        event.involved_object.kind.as_deref() == Some("PersistentVolumeClaim")
            && event.involved_object.name.as_deref() == Some(claim.name())
            && is_about(event, Some(&claim.metadata))
            && event.r#type.as_deref() == Some("Warning")
    };
    let latest = facts.events.iter().filter(about).max_by_key(|event| {
        event.last_timestamp.as_ref().map(ToString::to_string).unwrap_or_default()
    });
    latest.and_then(|event| event.message.clone())
}

fn examine_storage(findings: &mut Findings<'_>, name: &str, volume: &StorageVolume) {
    let own = volume.metadata.name.clone().unwrap_or_default();
    let command = format!("sheaf volume status {name}{}", findings.facts.place());
    for condition in volume.status.conditions.iter().filter(|own| own.status == "False") {
        let message = text(&condition.message);
        match VolumeFailure::parse(&text(&condition.reason)) {
            Some(VolumeFailure::Scheduling) => findings.error(
                format!("The data of claim {name} does not fit on the disks of the cluster."),
                message,
                "kubectl get nodes.longhorn.io -n longhorn-system -o yaml",
            ),
            Some(VolumeFailure::Attach) => findings.error(
                format!("The volume of claim {name} cannot be attached to a node."),
                message,
                command.clone(),
            ),
            Some(VolumeFailure::ReplicasDiffer) => findings.error(
                format!("Blocks of claim {name} cannot be read: its copies differ."),
                message,
                command.clone(),
            ),
            Some(VolumeFailure::NoGoodCopy) => findings.error(
                format!("Blocks of claim {name} cannot be read: no copy has their data."),
                message,
                command.clone(),
            ),
            Some(VolumeFailure::SnapshotDamaged) => findings.warning(
                format!("A snapshot of claim {name} is damaged."),
                message,
                "kubectl get snapshots.longhorn.io -n longhorn-system -o yaml",
            ),
            Some(VolumeFailure::MetadataDamaged) => findings.warning(
                format!("The only copy of claim {name} has damaged files."),
                message,
                command.clone(),
            ),
            None => {}
        }
    }
    match volume.status.robustness.as_deref() {
        Some("degraded") => findings.warning(
            format!("The volume of claim {name} has fewer healthy copies than it should have."),
            format!("Volume {own} is degraded."),
            command,
        ),
        Some("faulted") => findings.error(
            format!("The volume of claim {name} has no healthy copy."),
            format!("Volume {own} is faulted."),
            command,
        ),
        _ => {}
    }
}

fn text(part: &Option<String>) -> String {
    part.clone().unwrap_or_default()
}
