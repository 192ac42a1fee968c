//! The source of a claim's content, from CDI's annotations and the claim itself. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};

const PREFIX: &str = "cdi.kubevirt.io/storage.";
const CLONE: &str = "k8s.io/CloneRequest";

/// The source that fills a claim after it was bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FillSource {
    Http(RemoteSource),
    Registry(RemoteSource),
    /// Another claim.
    Clone {
        namespace: String,
        name: String,
    },
    Upload,
    Blank,
    /// Something that cannot be fetched here; the text says what.
    Unsupported(String),
}

/// Something to be fetched over the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RemoteSource {
    pub(super) url: String,
    /// With `accessKeyId` and `secretKey`; empty for none.
    pub(super) secret: String,
    /// A config map of further certificates to trust; empty for none.
    pub(super) certificates: String,
    /// `algorithm:hex`; empty for none.
    pub(super) checksum: String,
    /// `Name: value`
    pub(super) headers: Vec<String>,
    /// Secrets whose values are more of them.
    pub(super) secret_headers: Vec<String>,
}

/// The initial content of a volume: a claim's `dataSource`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VolumeOrigin {
    /// Another claim of the same namespace.
    Claim(String),
    Unsupported(String),
}

/// The source in a claim's annotations; nothing if it has none and so is ready as it is.
pub(super) fn read(notes: &BTreeMap<String, String>) -> Option<FillSource> {
    let note = |key: &str| notes.get(&format!("{PREFIX}{key}")).cloned().unwrap_or_default();
    if let Some(from) = notes.get(CLONE) {
        let (namespace, name) = from.split_once('/')?;
        return Some(FillSource::Clone { namespace: namespace.into(), name: name.into() });
    }
    if note("contentType") == "archive" {
        let text = "an archive: volumes of this class are disks, not directories".into();
        return Some(FillSource::Unsupported(text));
    }
    if notes.contains_key("cdi.kubevirt.io/storage.upload.target") {
        return Some(FillSource::Upload);
    }
    let all = |key: &str| {
        let start = format!("{PREFIX}import.{key}.");
        let own = notes.iter().filter(|(key, _)| key.starts_with(&start));
        own.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let remote = || RemoteSource {
        url: note("import.endpoint"),
        secret: note("import.secretName"),
        certificates: note("import.certConfigMap"),
        checksum: note("import.checksum"),
        headers: all("extraHeaders"),
        secret_headers: all("secretExtraHeaders"),
    };
    let kind = note("import.source");
    match kind.as_str() {
        "http" => Some(FillSource::Http(remote())),
        "registry" => Some(FillSource::Registry(remote())),
        "none" => Some(FillSource::Blank),
        // CDI's default when only an address is given.
        "" if !note("import.endpoint").is_empty() => Some(FillSource::Http(remote())),
        "" => None,
        _ => Some(FillSource::Unsupported(format!("the source {kind}"))),
    }
}

pub(super) fn origin(spec: &PersistentVolumeClaimSpec) -> Option<VolumeOrigin> {
    let reference = spec.data_source_ref.as_ref().map(|from| {
        let other = from.namespace.as_deref().is_some_and(|namespace| !namespace.is_empty());
        (&from.api_group, &from.kind, &from.name, other)
    });
    let plain = spec.data_source.as_ref();
    let plain = plain.map(|from| (&from.api_group, &from.kind, &from.name, false));
    let (group, kind, name, other) = reference.or(plain)?;
    let core = group.as_deref().unwrap_or_default().is_empty();
    Some(match kind.as_str() {
        "PersistentVolumeClaim" if core && !other => VolumeOrigin::Claim(name.clone()),
        // Filled afterwards, as the annotations say.
        _ if group.as_deref() == Some("cdi.kubevirt.io") && !other => return None,
        _ => VolumeOrigin::Unsupported(format!("{kind} {name}")),
    })
}

/// Why the disk of a claim must not be used yet: it is still to be filled, or could not be.
pub(crate) fn unfilled(claim: &PersistentVolumeClaim) -> Option<String> {
    let notes = claim.metadata.annotations.as_ref()?;
    read(notes)?;
    match notes.get("cdi.kubevirt.io/storage.pod.phase").map(String::as_str) {
        Some("Succeeded") => None,
        Some("Failed") => Some("it could not be filled".into()),
        _ => Some(match notes.get("sheaf.io/import-progress") {
            Some(progress) => format!("it is being filled ({progress})"),
            None => "it is still to be filled".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(notes: serde_json::Value, expected: Option<FillSource>) {
        let read = read(&serde_json::from_value(notes.clone()).unwrap());
        assert_eq!(read, expected, "{notes}");
    }

    #[test]
    fn sources_are_read_from_annotations() {
        check(json!({}), None);
        check(json!({"cdi.kubevirt.io/storage.import.source": "none"}), Some(FillSource::Blank));
        check(json!({"cdi.kubevirt.io/storage.upload.target": ""}), Some(FillSource::Upload));
        let clone = FillSource::Clone { namespace: "n".into(), name: "c".into() };
        check(json!({"k8s.io/CloneRequest": "n/c"}), Some(clone));
        let remote = RemoteSource {
            url: "http://x/i".into(),
            secret: "s".into(),
            checksum: "md5:1".into(),
            headers: vec!["A: b".into()],
            secret_headers: vec!["h".into()],
            ..RemoteSource::default()
        };
        let notes = json!({
            "cdi.kubevirt.io/storage.import.source": "http",
            "cdi.kubevirt.io/storage.import.endpoint": "http://x/i",
            "cdi.kubevirt.io/storage.import.secretName": "s",
            "cdi.kubevirt.io/storage.import.checksum": "md5:1",
            "cdi.kubevirt.io/storage.import.extraHeaders.0": "A: b",
            "cdi.kubevirt.io/storage.import.secretExtraHeaders.0": "h",
        });
        check(notes, Some(FillSource::Http(remote)));
        check(
            json!({"cdi.kubevirt.io/storage.import.source": "vddk"}),
            Some(FillSource::Unsupported("the source vddk".into())),
        );
    }

    #[test]
    fn a_data_source_is_another_claim_or_refused() {
        let read = |spec: serde_json::Value| origin(&serde_json::from_value(spec).unwrap());
        let claim = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "c"}});
        assert_eq!(read(claim), Some(VolumeOrigin::Claim("c".into())));
        let snapshot = json!({"dataSource": {
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s",
        }});
        assert_eq!(read(snapshot), Some(VolumeOrigin::Unsupported("VolumeSnapshot s".into())));
        assert_eq!(read(json!({})), None);
        let populated = json!({"dataSourceRef": {
            "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "s",
        }});
        assert_eq!(read(populated), None);
    }

    #[test]
    fn a_disk_is_used_when_it_is_filled() {
        let claim = |notes: serde_json::Value| {
            let object = json!({"metadata": {"annotations": notes}, "spec": {}});
            unfilled(&serde_json::from_value(object).unwrap())
        };
        let target = "cdi.kubevirt.io/storage.upload.target";
        assert_eq!(claim(json!({})), None);
        assert!(claim(json!({target: ""})).is_some());
        let phase = "cdi.kubevirt.io/storage.pod.phase";
        assert!(claim(json!({target: "", phase: "Failed"})).is_some());
        assert_eq!(claim(json!({target: "", phase: "Succeeded"})), None);
    }
}
