//! The content of an export, whether it can be downloaded now, and its status: pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use virt::api::export::{
    VirtualMachineExport, VirtualMachineExportLink, VirtualMachineExportLinks,
    VirtualMachineExportManifest, VirtualMachineExportVolume, VirtualMachineExportVolumeFormat,
};

use crate::condition::{self, Condition};
use crate::installation::UploadProxy;
use crate::object::{controlled_by, is_deleting, list, name, namespace, text};
use crate::populate;

pub(super) const API: &str = "export.kubevirt.io/v1";
pub(super) const KIND: &str = "VirtualMachineExport";
/// How long an export lives that does not say so.
const DEFAULT_TTL: SignedDuration = SignedDuration::from_hours(2);

/// The source of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExportSource {
    Claim(String),
    Machine(String),
    Snapshot(String),
}

pub(super) fn source(export: &VirtualMachineExport) -> Option<ExportSource> {
    let source = &export.spec.source;
    let own = source.name.clone();
    match source.kind.as_str() {
        "PersistentVolumeClaim" => Some(ExportSource::Claim(own)),
        "VirtualMachine" => Some(ExportSource::Machine(own)),
        "VirtualMachineSnapshot" => Some(ExportSource::Snapshot(own)),
        _ => None,
    }
}

/// Why an export cannot be downloaded yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExportHold {
    #[error("{kind} {namespace}/{name} does not exist")]
    Missing { kind: &'static str, namespace: String, name: String },
    #[error("VirtualMachineSnapshot {name} is not ready to use")]
    Snapshot { name: String },
    #[error("PersistentVolumeClaim {name} is not bound")]
    Unbound { name: String },
    #[error("PersistentVolumeClaim {name} is not populated")]
    Unpopulated { name: String },
    #[error("PersistentVolumeClaim {claim} is in use by VirtualMachineInstance {vmi}")]
    InUse { claim: String, vmi: String },
}

impl ExportHold {
    fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "SourceNotFound",
            Self::InUse { .. } => "InUse",
            _ => "Initializing",
        }
    }

    fn is_about_claims(&self) -> bool {
        matches!(self, Self::Unbound { .. } | Self::Unpopulated { .. } | Self::InUse { .. })
    }
}

/// The state of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExportPhase {
    /// Its claims can be read.
    Ready(Vec<String>),
    Held(ExportHold),
    /// There is nothing to export.
    Empty,
}

/// The claims of a machine's disks.
pub(super) fn claims_of(machine: &Value) -> Vec<String> {
    let volumes = list(machine, "/spec/template/spec/volumes").iter();
    let claim = |volume: &Value| {
        [volume["persistentVolumeClaim"].get("claimName"), volume["dataVolume"].get("name")]
            .into_iter()
            .flatten()
            .find_map(|own| own.as_str().map(str::to_owned))
    };
    volumes.filter_map(claim).collect()
}

/// Whether claims can be read: each was found, or not.
pub(super) fn phase(claims: &[(String, Option<Value>)], vmis: &[Value]) -> ExportPhase {
    for (name, claim) in claims {
        let Some(claim) = claim.as_ref().filter(|claim| !is_deleting(claim)) else {
            return ExportPhase::Held(ExportHold::Unbound { name: name.clone() });
        };
        if text(claim, "/status/phase") != "Bound" {
            return ExportPhase::Held(ExportHold::Unbound { name: name.clone() });
        }
        if !populate::is_populated(claim) {
            return ExportPhase::Held(ExportHold::Unpopulated { name: name.clone() });
        }
        if let Some(vmi) = vmis.iter().find(|vmi| uses(vmi, name)) {
            let vmi = crate::object::name(vmi).to_owned();
            return ExportPhase::Held(ExportHold::InUse { claim: name.clone(), vmi });
        }
    }
    match claims {
        [] => ExportPhase::Empty,
        all => ExportPhase::Ready(all.iter().map(|(name, _)| name.clone()).collect()),
    }
}

fn uses(vmi: &Value, claim: &str) -> bool {
    let over = matches!(text(vmi, "/status/phase"), "Succeeded" | "Failed");
    !over
        && list(vmi, "/spec/volumes").iter().any(|volume| {
            text(volume, "/persistentVolumeClaim/claimName") == claim
                || text(volume, "/dataVolume/name") == claim
                || text(volume, "/memoryDump/claimName") == claim
        })
}

/// The claims that represent the snapshots of a machine's disks while they are exported.
pub(super) fn snapshot_claims(export: &Value, content: &Value) -> Vec<Value> {
    list(content, "/spec/volumeBackups")
        .iter()
        .filter(|backup| !text(backup, "/volumeSnapshotName").is_empty())
        .map(|backup| {
            let own = &backup["persistentVolumeClaim"]["spec"];
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": format!("{}-{}", name(export), text(backup, "/volumeName")),
                    "namespace": namespace(export),
                    "ownerReferences": [controlled_by(export, API, KIND)],
                    "annotations": {populate::IMMEDIATE: ""},
                },
                "spec": {
                    "storageClassName": own["storageClassName"],
                    "accessModes": own["accessModes"],
                    "volumeMode": own["volumeMode"],
                    "resources": own["resources"],
                    "dataSource": {
                        "apiGroup": hci::snapshot::GROUP, "kind": "VolumeSnapshot",
                        "name": text(backup, "/volumeSnapshotName"),
                    },
                },
            })
        })
        .collect()
}

/// The secret with the token of an export.
pub(super) fn token_secret(export: &VirtualMachineExport) -> String {
    let own = export.metadata.name.as_deref().unwrap_or_default();
    let named = export.spec.token_secret_ref.clone().filter(|name| !name.is_empty());
    named.unwrap_or_else(|| format!("export-token-{own}"))
}

/// When an export ends; nothing if its time is not readable.
pub(super) fn expiration(export: &VirtualMachineExport) -> Option<Timestamp> {
    let created: Timestamp = export.metadata.creation_timestamp.as_ref()?.0.parse().ok()?;
    let ttl = match &export.spec.ttl_duration {
        Some(ttl) => ttl.0.parse().ok()?,
        None => DEFAULT_TTL,
    };
    created.checked_add(ttl).ok()
}

/// The status of an export, as a patch.
pub(super) fn status(
    object: &Value,
    export: &VirtualMachineExport,
    state: &ExportPhase,
    proxy: Option<&UploadProxy>,
    now: Timestamp,
) -> Value {
    let phase = match state {
        ExportPhase::Ready(_) => "Ready",
        ExportPhase::Held(_) => "Pending",
        ExportPhase::Empty => "Skipped",
    };
    let (ready, claims) = match state {
        ExportPhase::Ready(_) => (
            Condition::new("Ready", "True").because("PodReady", ""),
            Condition::new("PVCReady", "True").because("PVCBound", ""),
        ),
        ExportPhase::Held(hold) => {
            let not_ready =
                |kind| Condition::new(kind, "False").because(hold.reason(), hold.to_string());
            match hold.is_about_claims() {
                true => (not_ready("Ready"), not_ready("PVCReady")),
                false => (not_ready("Ready"), Condition::new("PVCReady", "Unknown")),
            }
        }
        ExportPhase::Empty => {
            let why = "the source has no disks on PersistentVolumeClaims";
            let not_ready = |kind| Condition::new(kind, "False").because("NoVolumes", why);
            (not_ready("Ready"), not_ready("PVCReady"))
        }
    };
    let mut conditions = condition::of(object);
    condition::set(&mut conditions, &ready, now);
    condition::set(&mut conditions, &claims, now);
    let own = name(object);
    let mut status = json!({
        "phase": phase,
        "conditions": conditions,
        "tokenSecretRef": token_secret(export),
        "serviceName": format!("virt-export-{own}"),
        "links": links(object, export, state, proxy),
    });
    if let Some(end) = expiration(export) {
        status["ttlExpirationTime"] = json!(base::clock::rfc3339(end));
    }
    if export.spec.source.kind == "VirtualMachine" {
        status["virtualMachineName"] = json!(export.spec.source.name);
    }
    json!({"status": status})
}

fn links(
    object: &Value,
    export: &VirtualMachineExport,
    state: &ExportPhase,
    proxy: Option<&UploadProxy>,
) -> Option<VirtualMachineExportLinks> {
    let (ExportPhase::Ready(claims), Some(proxy)) = (state, proxy) else { return None };
    let base = format!(
        "{}/api/export.kubevirt.io/v1/namespaces/{}/virtualmachineexports/{}",
        proxy.url.trim_end_matches('/'),
        namespace(object),
        name(object)
    );
    let format = |claim: &str, format: &str, file: &str| VirtualMachineExportVolumeFormat {
        format: format.to_owned(),
        url: format!("{base}/volumes/{claim}/{file}"),
    };
    let volumes: Vec<_> = claims
        .iter()
        .map(|claim| VirtualMachineExportVolume {
            name: claim.clone(),
            formats: vec![format(claim, "raw", "disk.img"), format(claim, "gzip", "disk.img.gz")],
        })
        .collect();
    let has_machine = export.spec.source.kind != "PersistentVolumeClaim";
    let link = |side: &str| {
        let manifest = |kind: &str, path: &str| VirtualMachineExportManifest {
            r#type: kind.to_owned(),
            url: format!("{base}/{side}/manifests/{path}"),
        };
        let manifests = match has_machine {
            true => vec![manifest("all", "all"), manifest("auth-header-secret", "secret")],
            false => Vec::new(),
        };
        VirtualMachineExportLink {
            cert: proxy.ca.clone(),
            volumes: volumes.clone(),
            backups: Vec::new(),
            manifests,
        }
    };
    Some(VirtualMachineExportLinks {
        internal: Some(link("internal")),
        external: Some(link("external")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(kind: &str, extra: Value) -> (Value, VirtualMachineExport) {
        let mut object = json!({
            "metadata": {"name": "e", "namespace": "n", "uid": "u",
                "creationTimestamp": "2026-11-16T08:00:00Z"},
            "spec": {"source": {"kind": kind, "name": "s"}},
        });
        for (key, value) in extra.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        let read = serde_json::from_value(object.clone()).unwrap();
        (object, read)
    }

    #[test]
    fn claims_are_exported_when_no_guest_can_change_them() {
        let bound = || Some(json!({"status": {"phase": "Bound"}}));
        let vmi = |phase: &str| {
            json!({"metadata": {"name": "m"}, "status": {"phase": phase},
                "spec": {"volumes": [{"dataVolume": {"name": "c"}}]}})
        };
        let text_of =
            |claims: Vec<(String, Option<Value>)>, vmis: &[Value]| match phase(&claims, vmis) {
                ExportPhase::Ready(claims) => claims.join(","),
                ExportPhase::Held(hold) => hold.to_string(),
                ExportPhase::Empty => "empty".to_owned(),
            };
        let one = |claim| vec![("c".to_owned(), claim)];
        assert_eq!(text_of(one(bound()), &[]), "c");
        assert_eq!(text_of(one(bound()), &[vmi("Succeeded")]), "c");
        assert_eq!(
            text_of(one(bound()), &[vmi("Running")]),
            "PersistentVolumeClaim c is in use by VirtualMachineInstance m"
        );
        assert_eq!(text_of(one(None), &[]), "PersistentVolumeClaim c is not bound");
        let filling = json!({"metadata": {"annotations": {populate::UPLOAD_TARGET: ""}},
            "status": {"phase": "Bound"}});
        assert_eq!(text_of(one(Some(filling)), &[]), "PersistentVolumeClaim c is not populated");
        assert_eq!(text_of(Vec::new(), &[]), "empty");
    }

    #[test]
    fn a_ready_export_has_links_a_token_and_an_end() {
        let proxy = UploadProxy { url: "https://h:6443".into(), ca: "PEM".into() };
        let now = "2026-11-16T08:00:00Z".parse().unwrap();
        let (object, read) = export("VirtualMachine", json!({"ttlDuration": "30m0s"}));
        let ready = ExportPhase::Ready(vec!["c".into()]);
        let report = &status(&object, &read, &ready, Some(&proxy), now)["status"];
        assert_eq!(report["phase"], "Ready");
        assert_eq!(report["tokenSecretRef"], "export-token-e");
        assert_eq!(report["ttlExpirationTime"], "2026-11-16T08:30:00Z");
        assert_eq!(report["virtualMachineName"], "s");
        let base = "https://h:6443/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/e";
        let external = &report["links"]["external"];
        assert_eq!(external["cert"], "PEM");
        let formats = &external["volumes"][0]["formats"];
        assert_eq!(formats[0]["url"], format!("{base}/volumes/c/disk.img"));
        assert_eq!(formats[1]["format"], "gzip");
        assert_eq!(external["manifests"][0]["url"], format!("{base}/external/manifests/all"));
        let (object, read) = export("PersistentVolumeClaim", json!({"tokenSecretRef": "t"}));
        let held = ExportPhase::Held(ExportHold::Unbound { name: "s".into() });
        let report = &status(&object, &read, &held, Some(&proxy), now)["status"];
        assert_eq!((&report["phase"], &report["links"]), (&json!("Pending"), &Value::Null));
        assert_eq!(report["tokenSecretRef"], "t");
        assert_eq!(report["ttlExpirationTime"], "2026-11-16T10:00:00Z");
        assert_eq!(report["conditions"][0]["message"], "PersistentVolumeClaim s is not bound");
    }

    #[test]
    fn snapshots_are_exported_through_claims_of_their_own() {
        let (object, _) = export("VirtualMachineSnapshot", json!({}));
        let content = json!({"spec": {"volumeBackups": [
            {"volumeName": "root", "volumeSnapshotName": "vs",
             "persistentVolumeClaim": {"spec": {"storageClassName": "l",
                "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
                "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pvc-1"}}},
            {"volumeName": "other", "persistentVolumeClaim": {"spec": {}}},
        ]}});
        let claims = snapshot_claims(&object, &content);
        assert_eq!(claims.len(), 1);
        assert_eq!(name(&claims[0]), "e-root");
        assert_eq!(claims[0]["spec"]["dataSource"]["name"], "vs");
        assert_eq!(claims[0]["spec"].get("volumeName"), None);
        assert_eq!(claims[0]["metadata"]["ownerReferences"][0]["uid"], "u");
        let vm = json!({"spec": {"template": {"spec": {"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "b", "dataVolume": {"name": "d"}}, {"name": "x", "containerDisk": {}},
        ]}}}});
        assert_eq!(claims_of(&vm), ["c", "d"]);
    }
}
