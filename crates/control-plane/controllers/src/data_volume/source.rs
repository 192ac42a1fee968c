//! The source of a DataVolume's content, and whether its claim can be created now: pure.

use serde_json::Value;
use virt::reason::FillFailure;

use super::record::{
    CopiedSource, DataVolumeFields, DataVolumeSpec, HttpSource, NamedSources, RegistrySource,
};
use crate::longhorn;
use crate::object::{annotation, is_deleting, namespace, read};
use crate::populate;
use crate::record::claim::{ClaimFields, StorageClassFields};

/// Where the content of a data volume comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataVolumeSource {
    Http {
        url: String,
        secret: String,
        certificates: String,
        checksum: String,
        /// `Name: value`
        headers: Vec<String>,
        /// Secrets with more of them.
        secret_headers: Vec<String>,
    },
    Registry {
        url: String,
        secret: String,
        certificates: String,
    },
    Clone {
        namespace: String,
        name: String,
    },
    /// A VolumeSnapshot.
    Snapshot {
        namespace: String,
        name: String,
    },
    Upload,
    Blank,
    /// The DataSource that `sourceRef` names does not exist, or names no source yet.
    Unresolved {
        name: String,
    },
    /// Named in the spec, but not something that can be fetched here.
    Unsupported(String),
}

/// The source of a data volume; `data_source` is the one that `sourceRef` names, if it does.
pub(crate) fn source(dv: &Value, data_source: Option<&Value>) -> DataVolumeSource {
    let DataVolumeSpec { source: own, source_ref, .. } = read::<DataVolumeFields<'_>>(dv).spec;
    let named = || read::<DataVolumeFields<'_>>(data_source?).spec.source;
    let holder = if own.is_some() { Some(dv) } else { data_source };
    let found = own.or_else(named);
    let is_given = found.is_some();
    let source = found.unwrap_or_default();
    let there = |own: &CopiedSource<'_>| match own.namespace {
        "" => namespace(dv).to_owned(),
        from => from.to_owned(),
    };
    if let Some(http) = source.http {
        return http.into();
    }
    if let Some(registry) = source.registry {
        return registry.into();
    }
    if let Some(claim) = source.pvc {
        return DataVolumeSource::Clone { namespace: there(&claim), name: claim.name.to_owned() };
    }
    if let Some(own) = source.snapshot {
        return DataVolumeSource::Snapshot { namespace: there(&own), name: own.name.to_owned() };
    }
    if source.upload.is_some() {
        return DataVolumeSource::Upload;
    }
    let reference = source_ref.name;
    if source.blank.is_some() || (!is_given && reference.is_empty()) {
        return DataVolumeSource::Blank;
    }
    let sources = holder.map(|own| read::<NamedSources<'_>>(own).spec.source);
    match sources.unwrap_or_default().into_keys().collect::<Vec<_>>() {
        kinds if kinds.is_empty() && !reference.is_empty() => {
            DataVolumeSource::Unresolved { name: reference.to_owned() }
        }
        kinds => DataVolumeSource::Unsupported(kinds.join(", ")),
    }
}

impl From<HttpSource<'_>> for DataVolumeSource {
    fn from(own: HttpSource<'_>) -> Self {
        let words = |own: Vec<&str>| own.into_iter().map(str::to_owned).collect();
        Self::Http {
            url: own.url.to_owned(),
            secret: own.secret_ref.to_owned(),
            certificates: own.cert_config_map.to_owned(),
            checksum: own.checksum.to_owned(),
            headers: words(own.extra_headers),
            secret_headers: words(own.secret_extra_headers),
        }
    }
}

impl From<RegistrySource<'_>> for DataVolumeSource {
    fn from(own: RegistrySource<'_>) -> Self {
        Self::Registry {
            url: own.url.to_owned(),
            secret: own.secret_ref.to_owned(),
            certificates: own.cert_config_map.to_owned(),
        }
    }
}

impl DataVolumeSource {
    /// The object that is copied: its kind, namespace and name.
    pub(crate) fn copied(&self) -> Option<(&'static str, &str, &str)> {
        match self {
            Self::Clone { namespace, name } => Some(("pvc", namespace, name)),
            Self::Snapshot { namespace, name } => Some(("snapshot", namespace, name)),
            _ => None,
        }
    }
}

/// Why the claim of a data volume is not made yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CloneHold {
    #[error("The source {kind} {name} doesn't exist")]
    Missing { kind: &'static str, name: String },
    #[error("The source {kind} {name} is not ready: {why}")]
    NotReady { kind: &'static str, name: String, why: &'static str },
    #[error(
        "the source {kind} {namespace}/{name} was not authorized when the DataVolume was created; \
         create the DataVolume again with rights in namespace {namespace}"
    )]
    Unauthorized { kind: &'static str, namespace: String, name: String },
    #[error("a VolumeSnapshot can only be copied to a class of its own driver")]
    Driver,
}

impl CloneHold {
    pub(crate) fn reason(&self) -> &'static str {
        let reason = match self {
            Self::Missing { .. } => FillFailure::NoSource,
            Self::NotReady { .. } => FillFailure::SourceNotReady,
            Self::Driver => FillFailure::Claim,
            Self::Unauthorized { .. } => FillFailure::NotAuthorized,
        };
        reason.as_str()
    }
}

/// How the claim of a data volume begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// Empty; the agent fills it.
    Plain,
    /// As a copy that the driver makes, which shares the space of its source.
    Linked,
    Hold(CloneHold),
}

/// The facts that the provisioning of a claim depends on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Copied<'a> {
    /// The class of the new claim.
    pub(crate) class: Option<&'a Value>,
    /// The claim or snapshot that is copied.
    pub(crate) object: Option<&'a Value>,
    /// The persistent volume of that claim.
    pub(crate) volume: Option<&'a Value>,
}

/// A source of another namespace counts only if admission authorized it for this DataVolume.
pub(crate) fn unauthorized(dv: &Value, source: &DataVolumeSource) -> Option<CloneHold> {
    let (kind, there, name) = source.copied()?;
    let authorized = annotation(dv, populate::AUTHORIZED).unwrap_or_default();
    if there == namespace(dv) || virt::admit::covers(authorized, kind, there, name) {
        return None;
    }
    Some(CloneHold::Unauthorized { kind, namespace: there.to_owned(), name: name.to_owned() })
}

pub(crate) fn start(source: &DataVolumeSource, copied: Copied<'_>) -> Start {
    if let DataVolumeSource::Unresolved { name } = source {
        return Start::Hold(CloneHold::Missing { kind: "DataSource", name: name.clone() });
    }
    let Some((kind, _, name)) = source.copied() else { return Start::Plain };
    let Some(object) = copied.object.filter(|object| !is_deleting(object)) else {
        return Start::Hold(CloneHold::Missing { kind, name: name.to_owned() });
    };
    let by_driver = copied
        .class
        .is_some_and(|class| read::<StorageClassFields<'_>>(class).provisioner == hci::DRIVER);
    if kind == "snapshot" {
        return if by_driver { Start::Linked } else { Start::Hold(CloneHold::Driver) };
    }
    if !by_driver {
        return Start::Plain;
    }
    let not_ready = |why| Start::Hold(CloneHold::NotReady { kind, name: name.to_owned(), why });
    let is_bound = read::<ClaimFields<'_>>(object).status.phase == "Bound";
    let Some(volume) = copied.volume.filter(|_| is_bound) else {
        return not_ready("it is not bound to a volume");
    };
    if longhorn::handle(volume).is_none() {
        return Start::Plain;
    }
    if !populate::is_populated(object) {
        return not_ready("its content is not complete");
    }
    Start::Linked
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dv(spec: Value) -> Value {
        json!({"metadata": {"name": "d", "namespace": "n", "uid": "u"}, "spec": spec})
    }

    #[test]
    fn sources_are_distinguished() {
        let http = dv(json!({"source": {"http": {"url": "http://x"}}}));
        assert!(
            matches!(source(&http, None), DataVolumeSource::Http { url, .. } if url == "http://x")
        );
        let clone = dv(json!({"source": {"pvc": {"name": "p"}}}));
        let from_here = DataVolumeSource::Clone { namespace: "n".into(), name: "p".into() };
        assert_eq!(source(&clone, None), from_here);
        let by_name = dv(json!({"sourceRef": {"kind": "DataSource", "name": "s"}}));
        let found = json!({"spec": {"source": {"pvc": {"name": "p", "namespace": "m"}}}});
        let from_there = DataVolumeSource::Clone { namespace: "m".into(), name: "p".into() };
        assert_eq!(source(&by_name, Some(&found)), from_there);
        let unresolved = DataVolumeSource::Unresolved { name: "s".into() };
        assert_eq!(source(&by_name, None), unresolved);
        assert_eq!(source(&by_name, Some(&json!({"spec": {"source": {}}}))), unresolved);
        assert_eq!(source(&dv(json!({"source": {"blank": {}}})), None), DataVolumeSource::Blank);
        let strange = dv(json!({"source": {"vddk": {}}}));
        assert_eq!(source(&strange, None), DataVolumeSource::Unsupported("vddk".into()));
        let taken = dv(json!({"source": {"snapshot": {"name": "s", "namespace": "m"}}}));
        let snapshot = DataVolumeSource::Snapshot { namespace: "m".into(), name: "s".into() };
        assert_eq!(source(&taken, None), snapshot);
    }

    #[test]
    fn a_source_elsewhere_has_to_be_authorized() {
        let from = |kind: &str, namespace: &str| {
            let mut own = dv(json!({"source": {kind: {"name": "p", "namespace": namespace}}}));
            own["metadata"]["annotations"] = json!({populate::AUTHORIZED: "pvc/m/p"});
            unauthorized(&own, &source(&own, None)).map(|hold| hold.to_string())
        };
        assert_eq!(from("pvc", "n"), None);
        assert_eq!(from("pvc", "m"), None);
        assert!(from("snapshot", "m").is_some());
        assert_eq!(
            from("pvc", "victim").unwrap(),
            "the source pvc victim/p was not authorized when the DataVolume was created; create \
             the DataVolume again with rights in namespace victim"
        );
    }

    #[test]
    fn a_copy_begins_when_its_source_is_complete() {
        let ours = json!({"provisioner": hci::DRIVER});
        let local = json!({"provisioner": "sheaf.io/local"});
        let bound = json!({"status": {"phase": "Bound"}});
        let pending = json!({"status": {"phase": "Pending"}});
        let filling = json!({
            "metadata": {"annotations": {populate::UPLOAD_TARGET: ""}}, "status": {"phase": "Bound"},
        });
        let replicated = json!({"spec": {"csi": {"driver": hci::DRIVER, "volumeHandle": "v"}}});
        let file = json!({"spec": {"local": {}}});
        let claim = DataVolumeSource::Clone { namespace: "m".into(), name: "p".into() };
        let snapshot = DataVolumeSource::Snapshot { namespace: "n".into(), name: "s".into() };
        let text_of = |start| match start {
            Start::Plain => "plain".to_owned(),
            Start::Linked => "linked".to_owned(),
            Start::Hold(hold) => hold.to_string(),
        };
        let missing = "The source pvc p doesn't exist";
        for (source, class, object, volume, expected) in [
            (&claim, &ours, Some(&bound), Some(&replicated), "linked"),
            (&claim, &ours, Some(&bound), Some(&file), "plain"),
            (&claim, &local, Some(&bound), Some(&replicated), "plain"),
            (&claim, &local, Some(&pending), None, "plain"),
            (&claim, &local, None, None, missing),
            (&claim, &ours, None, None, missing),
            (
                &claim,
                &ours,
                Some(&pending),
                None,
                "The source pvc p is not ready: it is not bound to a volume",
            ),
            (
                &claim,
                &ours,
                Some(&filling),
                Some(&replicated),
                "The source pvc p is not ready: its content is not complete",
            ),
            (&snapshot, &ours, Some(&json!({})), None, "linked"),
            (&snapshot, &ours, None, None, "The source snapshot s doesn't exist"),
            (
                &snapshot,
                &local,
                Some(&json!({})),
                None,
                "a VolumeSnapshot can only be copied to a class of its own driver",
            ),
            (&DataVolumeSource::Upload, &ours, None, None, "plain"),
            (
                &DataVolumeSource::Unresolved { name: "d".into() },
                &ours,
                None,
                None,
                "The source DataSource d doesn't exist",
            ),
        ] {
            let copied = Copied { class: Some(class), object, volume };
            assert_eq!(text_of(start(source, copied)), expected, "{source:?} {object:?}");
        }
    }
}
