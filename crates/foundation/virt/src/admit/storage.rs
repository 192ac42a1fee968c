//! Data volumes, snapshots, exports, and the KubeVirt object.

use serde_json::Value;

use super::{Causes, Denial, Write};
use crate::memory;
use crate::state::{list, text};

pub(super) fn validate_data_volume(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let new = write.object;
    let mut causes = Causes::default();
    let name = text(new, "/metadata/name");
    if name.len() > 253 {
        causes.invalid("", "Name of data volume cannot be more than 253 characters");
        causes.finish()?;
        return Ok(Vec::new());
    }
    match write.old {
        Some(old) => {
            if without_checkpoints(&old["spec"]) != without_checkpoints(&new["spec"]) {
                causes.invalid("DataVolume.Spec", "Cannot update DataVolume Spec");
            }
        }
        None => {
            let claim = write.objects.get("", "persistentvolumeclaims", write.namespace, name);
            if let Some(claim) = claim
                && !is_meant_for(&claim, name)
            {
                let message = format!("Destination PVC {}/{name} already exists", write.namespace);
                causes.invalid("DataVolume.Name", message);
            }
            check_data_volume(&new["spec"], &mut causes);
        }
    }
    causes.finish()?;
    Ok(Vec::new())
}

/// A claim that was filled beforehand for this very data volume.
fn is_meant_for(claim: &Value, name: &str) -> bool {
    let annotations = &claim["metadata"]["annotations"];
    annotations["cdi.kubevirt.io/storage.populatedFor"] == name
        || annotations["cdi.kubevirt.io/allowClaimAdoption"] == "true"
}

/// Checkpoints of a migration in steps may be added later.
fn without_checkpoints(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("checkpoints");
        fields.remove("finalCheckpoint");
    }
    spec
}

const MODES: &[&str] = &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

pub(super) fn check_data_volume(spec: &Value, causes: &mut Causes) {
    let (claim, storage) = (&spec["pvc"], &spec["storage"]);
    let (target, label) = match (claim.is_object(), storage.is_object()) {
        (false, false) => return causes.invalid("spec.PVC", "Missing Data volume PVC or Storage"),
        (true, true) => {
            return causes.invalid(
                "spec.PVC.Storage",
                "Duplicate storage definition, both target storage and target pvc defined",
            );
        }
        (true, false) => (claim, "PVC"),
        (false, true) => (storage, "Storage"),
    };
    let external = target["dataSource"].is_object() || target["dataSourceRef"].is_object();
    let cloned = spec["sourceRef"].is_object()
        || spec["source"]["pvc"].is_object()
        || spec["source"]["snapshot"].is_object();
    if let Some(problem) = size_problem(target, label == "Storage" && (cloned || external)) {
        return causes.invalid(
            format!("spec.{label}.resources.requests.size"),
            format!("{label} size {problem}"),
        );
    }
    let modes: Vec<&str> = list(&target["accessModes"]).iter().filter_map(Value::as_str).collect();
    let wrong = modes.iter().find(|mode| !MODES.contains(mode));
    let problem = match (label, modes.len(), wrong) {
        ("PVC", 0, _) => "Required value: at least 1 access mode is required".to_owned(),
        ("PVC", 2.., _) => "PVC multiple accessModes".to_owned(),
        (_, _, Some(mode)) => format!(
            "Unsupported value: \"{mode}\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\""
        ),
        _ => return check_source(spec, external, causes),
    };
    causes.invalid("spec.PVC.accessModes", problem);
}

fn size_problem(target: &Value, optional: bool) -> Option<&'static str> {
    match memory::read(&target["resources"]["requests"]["storage"]) {
        None if optional => None,
        None => Some("is missing"),
        Some(size) if size.signum() <= 0 => Some("can't be equal or less than zero"),
        Some(_) => None,
    }
}

fn check_source(spec: &Value, external: bool, causes: &mut Causes) {
    let (source, reference) = (&spec["source"], &spec["sourceRef"]);
    match (source.is_object(), reference.is_object(), external) {
        (false, false, true) => return,
        (_, _, true) => {
            return causes.invalid(
                "spec.source",
                "External population is incompatible with Source and SourceRef",
            );
        }
        (true, false, false) | (false, true, false) => {}
        _ => {
            return causes.invalid(
                "spec.source",
                "Data volume should have either Source or SourceRef, or be externally populated",
            );
        }
    }
    if reference.is_object() {
        return check_reference(reference, causes);
    }
    let kinds: Vec<&str> = source
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, source)| source.is_object())
        .map(|(kind, _)| kind.as_str())
        .collect();
    match kinds.as_slice() {
        [] => causes.invalid("spec.source", "Missing dataVolume valid source"),
        [kind] => check_kind(spec, kind, causes),
        _ => causes.invalid("spec.source", "Multiple dataVolume sources"),
    }
}

fn check_reference(reference: &Value, causes: &mut Causes) {
    match (text(reference, "/kind"), text(reference, "/name")) {
        ("", _) => causes.invalid("spec.sourceRef.Kind", "Missing sourceRef kind"),
        ("DataSource", "") => causes.invalid("spec.sourceRef.Name", "Missing sourceRef name"),
        ("DataSource", _) => {}
        (kind, _) => {
            let message = format!(
                "Unsupported sourceRef kind {kind}, currently only DataSource is supported"
            );
            causes.invalid("spec.sourceRef.Kind", message);
        }
    }
}

fn check_kind(spec: &Value, kind: &str, causes: &mut Causes) {
    let source = &spec["source"][kind];
    let url = text(source, "/url");
    let upper = match kind {
        "http" => Some("HTTP"),
        "s3" => Some("S3"),
        "gcs" => Some("GCS"),
        "imageio" => Some("Imageio"),
        "vddk" => Some("VDDK"),
        _ => None,
    };
    if let Some(upper) = upper
        && let Some(problem) = url_problem(url)
    {
        return causes
            .invalid(format!("spec.source.{upper}.url"), format!("spec.source {problem}"));
    }
    let content = text(spec, "/contentType");
    let problem = match (kind, content) {
        (_, content) if !matches!(content, "" | "kubevirt" | "archive") => {
            "ContentType not one of: kubevirt, archive"
        }
        ("blank", "archive") => "SourceType cannot be blank and the contentType be archive",
        ("registry", "archive") => "ContentType must be kubevirt when Source is Registry",
        // Upstream unpacks it into a file system. Here it would be accepted and never done.
        (_, "archive") => {
            "ContentType archive is not supported: volumes are disks, not directories; use a disk \
             image with contentType kubevirt"
        }
        _ => "",
    };
    if !problem.is_empty() {
        return causes.invalid("spec.contentType", problem);
    }
    match kind {
        "registry" => check_registry(source, causes),
        "pvc" if text(source, "/namespace").is_empty() || text(source, "/name").is_empty() => {
            causes.invalid("spec.source.PVC", "spec.source.PVC source PVC is not valid");
        }
        "imageio" if text(source, "/diskId").is_empty() => {
            causes.invalid("spec.source.Imageio", "spec.source.Imageio source Imageio is not valid")
        }
        _ => {}
    }
}

fn url_problem(url: &str) -> Option<String> {
    if url.is_empty() {
        return Some("source URL is empty".to_owned());
    }
    match url.split_once("://") {
        None if url.starts_with('/') => Some(format!("Invalid source URL scheme: {url}")),
        None => Some(format!("Invalid source URL: {url}")),
        Some(("http" | "https" | "gs" | "s3", _)) => None,
        Some(_) => Some(format!("Invalid source URL scheme: {url}")),
    }
}

fn check_registry(source: &Value, causes: &mut Causes) {
    let (url, stream) = (text(source, "/url"), text(source, "/imageStream"));
    let pull = text(source, "/pullMethod");
    let scheme = url.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    if url.is_empty() == stream.is_empty() {
        causes.invalid(
            "spec.source.Registry",
            "source registry should have either URL or ImageStream",
        );
    } else if !url.is_empty() && !matches!(scheme, "docker" | "oci-archive") {
        causes.invalid(
            "spec.source.Registry.URL",
            format!("Illegal registry source URL scheme {url}"),
        );
    } else if !matches!(pull, "" | "pod" | "node") {
        causes.invalid(
            "spec.source.Registry.importMethod",
            format!("ImportMethod {pull} is neither pod, node or \"\""),
        );
    } else if !stream.is_empty() && pull != "node" {
        causes.invalid(
            "spec.source.Registry.imageStream",
            "Source registry imageStream is supported only with node pull import method",
        );
    }
}

const FROZEN: &str = "spec in immutable after creation";

pub(super) fn validate_snapshot(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let spec = &write.object["spec"];
    let mut causes = Causes::default();
    match write.old {
        Some(old) if old["spec"] != *spec => causes.invalid("spec", FROZEN),
        Some(_) => {}
        None if !write.config.has("Snapshot") => {
            return Err(Denial::bad_request("snapshot feature gate not enabled"));
        }
        None => match (spec["source"]["apiGroup"].as_str(), text(spec, "/source/kind")) {
            (None, _) => causes.not_found("spec.source.apiGroup", "missing apiGroup"),
            (Some("kubevirt.io"), "VirtualMachine") => {}
            (Some("kubevirt.io"), _) => causes.invalid("spec.source.kind", "invalid kind"),
            _ => causes.invalid("spec.source.apiGroup", "invalid apiGroup"),
        },
    }
    causes.finish()?;
    Ok(Vec::new())
}

pub(super) fn validate_export(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let source = &write.object["spec"]["source"];
    let mut causes = Causes::default();
    if let Some(old) = write.old {
        if old["spec"] != write.object["spec"] {
            causes.invalid("spec", FROZEN);
        }
        causes.finish()?;
        return Ok(Vec::new());
    }
    let kinds = [
        ("PersistentVolumeClaim", "PVC", "PVC", ""),
        ("VirtualMachineSnapshot", "VMSnapshot", "VMSnapshot", "snapshot.kubevirt.io"),
        ("VirtualMachine", "Virtual Machine", "VM", "kubevirt.io"),
    ];
    let kind = kinds.into_iter().find(|(kind, ..)| *kind == text(source, "/kind"));
    match kind {
        None => causes.invalid("spec.source.kind", "invalid kind"),
        Some((_, noun, short, group)) => {
            if text(source, "/name").is_empty() {
                causes.invalid("spec.source.name", format!("{noun} name must not be empty"));
            }
            if text(source, "/apiGroup") != group {
                let rule = if group.is_empty() { "missing or blank" } else { group };
                causes.invalid("spec.source.APIGroup", format!("{short} API group must be {rule}"));
            }
        }
    }
    causes.finish()?;
    Ok(Vec::new())
}

/// There is one KubeVirt object.
pub(super) fn validate_kubevirt(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let name = text(write.object, "/metadata/name");
    let others = write.objects.list("kubevirt.io", "kubevirts", "");
    let other = others.iter().any(|other| {
        text(other, "/metadata/name") != name
            || text(other, "/metadata/namespace") != write.namespace
    });
    if write.old.is_none() && other {
        return Err(Denial::bad_request("Kubevirt is already created"));
    }
    Ok(Vec::new())
}
