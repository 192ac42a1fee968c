//! PersistentVolumeClaims: clones across namespaces, and annotations that only controllers write.
//!
//! The agents and the provisioner fill a claim as its annotations say, so every source in the
//! annotations of a stored claim has been authorized here. That holds for claims that our own
//! controllers write, too: they copy annotations from objects of tenants.

use serde_json::Value;

use super::clone_source::{AUTHORIZED_SOURCE, CloneSource, covers};
use super::{Causes, Denial, Write};
use crate::state::{list, text};

/// CDI: the claim is filled from the claim `NAMESPACE/NAME`.
const CLONE_REQUEST: &str = "k8s.io/CloneRequest";
/// The driver creates the volume as a clone of `KIND/NAMESPACE/NAME`.
const DRIVER_CLONE: &str = "sheaf.io/clone-source";

/// Annotations that only controllers write.
const CONTROLLER_OWNED: [&str; 4] =
    [DRIVER_CLONE, "sheaf.io/populator", "sheaf.io/upload-token", AUTHORIZED_SOURCE];

pub(super) fn judge(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let mut causes = Causes::default();
    if !write.trusted {
        check_owned(write, &mut causes);
    }
    check_reference(write, &mut causes);
    for (key, source) in sources(write.object) {
        let known = write.old.map_or(&Value::Null, |old| &old["metadata"]["annotations"][key]);
        let is_new = *known != write.object["metadata"]["annotations"][key];
        if is_new && source.namespace != write.namespace && !is_authorized(&source, write) {
            let message = source.refusal(write.access.user());
            causes.invalid(format!("metadata.annotations[{key}]"), message);
        }
    }
    causes.finish()?;
    Ok(Vec::new())
}

fn check_owned(write: &Write<'_>, causes: &mut Causes) {
    let (new, old) = (&write.object["metadata"], write.old.unwrap_or(&Value::Null));
    for key in CONTROLLER_OWNED {
        let value = &new["annotations"][key];
        if !value.is_null() && *value != old["metadata"]["annotations"][key] {
            let field = format!("metadata.annotations[{key}]");
            let message =
                format!("annotation {key} may only be set by the controllers of the cluster");
            causes.forbidden(field, message);
        }
    }
}

/// Upstream ignores the namespace unless an alpha feature is enabled; here it is refused, since
/// a claim that silently begins with other data is worse.
fn check_reference(write: &Write<'_>, causes: &mut Causes) {
    let there = text(write.object, "/spec/dataSourceRef/namespace");
    if write.old.is_none() && !there.is_empty() && there != write.namespace {
        let message = format!(
            "spec.dataSourceRef.namespace is {there}: a claim can only be created from objects of \
             its own namespace {}; use a DataVolume to clone from another namespace",
            write.namespace
        );
        causes.forbidden("spec.dataSourceRef.namespace", message);
    }
}

/// The sources of a clone in the annotations of a claim.
fn sources(claim: &Value) -> impl Iterator<Item = (&'static str, CloneSource)> {
    let annotation = |key: &str| claim["metadata"]["annotations"][key].as_str();
    let requested = annotation(CLONE_REQUEST).and_then(|own| own.split_once('/'));
    let requested = requested.map(|(namespace, name)| CloneSource {
        kind: "pvc",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    });
    let driven = annotation(DRIVER_CLONE).and_then(CloneSource::parse);
    let all = [(CLONE_REQUEST, requested), (DRIVER_CLONE, driven)];
    all.into_iter().filter_map(|(key, source)| Some((key, source?)))
}

/// A user needs rights in the source's namespace. The writes of a controller were authorized when
/// the DataVolume of the claim was created.
fn is_authorized(source: &CloneSource, write: &Write<'_>) -> bool {
    if !write.trusted {
        return source.is_allowed(write.access);
    }
    let metadata = &write.object["metadata"];
    let owner = list(&metadata["ownerReferences"]).iter().find(|own| own["controller"] == true);
    let Some(owner) = owner.filter(|own| text(own, "/kind") == "DataVolume") else { return false };
    let name = text(owner, "/name");
    let dv = write.objects.get("cdi.kubevirt.io", "datavolumes", write.namespace, name);
    let dv = dv.filter(|dv| dv["metadata"]["uid"] == owner["uid"]).unwrap_or_default();
    dv["metadata"]["annotations"][AUTHORIZED_SOURCE]
        .as_str()
        .is_some_and(|own| covers(own, source.kind, &source.namespace, &source.name))
}
