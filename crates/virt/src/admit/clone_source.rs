//! Data volumes that copy from another namespace: who may create them, and the annotation by
//! which admission vouches for that.
//!
//! The annotation names the source as it was resolved when the data volume was created. A
//! DataSource that changes later so does not change what was authorized.

use serde_json::Value;

use super::{Causes, Denial, Objects};
use crate::default::object;
use crate::state::text;

/// `KIND/NAMESPACE/NAME` of the source; KIND is `pvc` or `snapshot`. Only admission writes it.
pub const AUTHORIZED_SOURCE: &str = "sheaf.io/authorized-clone-source";

const GROUP: &str = "cdi.kubevirt.io";

/// What the writer of an object may do elsewhere.
pub trait Access {
    /// The name of the writer.
    fn user(&self) -> &str;
    /// Whether they may create an object with this name. `resource` is `PLURAL` or
    /// `PLURAL/SUBRESOURCE`.
    fn may_create(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool;
}

/// A claim or a snapshot that a data volume copies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    kind: &'static str,
    namespace: String,
    name: String,
}

/// Sets the annotation of a data volume that is created, and keeps it as it was afterwards.
pub(super) fn authorize(
    dv: &mut Value,
    old: Option<&Value>,
    namespace: &str,
    objects: &dyn Objects,
    access: &dyn Access,
    trusted: bool,
) -> Result<(), Denial> {
    let authorized = match old {
        Some(old) => old["metadata"]["annotations"].get(AUTHORIZED_SOURCE).cloned(),
        None => match find(dv, namespace, objects) {
            Some(source) if source.namespace != namespace => {
                if !trusted && !may_copy(&source, access) {
                    return Err(refuse(&source, access.user()));
                }
                let Source { kind, namespace, name } = source;
                Some(format!("{kind}/{namespace}/{name}").into())
            }
            _ => None,
        },
    };
    let present = dv["metadata"]["annotations"].get(AUTHORIZED_SOURCE).is_some();
    if authorized.is_none() && !present {
        return Ok(());
    }
    let annotations = object(object(dv, "metadata"), "annotations");
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(AUTHORIZED_SOURCE);
        annotations.extend(authorized.map(|source| (AUTHORIZED_SOURCE.to_owned(), source)));
    }
    Ok(())
}

fn find(dv: &Value, namespace: &str, objects: &dyn Objects) -> Option<Source> {
    let spec = &dv["spec"];
    let found;
    let source = if spec["source"].is_object() {
        &spec["source"]
    } else {
        let there = text(spec, "/sourceRef/namespace");
        let there = if there.is_empty() { namespace } else { there };
        let name = text(spec, "/sourceRef/name");
        found = objects.get(GROUP, "datasources", there, name)?;
        &found["spec"]["source"]
    };
    let kind = ["pvc", "snapshot"].into_iter().find(|kind| source[kind].is_object())?;
    let there = text(&source[kind], "/namespace");
    let there = if there.is_empty() { namespace } else { there };
    Some(Source {
        kind,
        namespace: there.to_owned(),
        name: text(&source[kind], "/name").to_owned(),
    })
}

/// CDI's rule: an explicit right, or rights that allow reading the data anyway.
fn may_copy(source: &Source, access: &dyn Access) -> bool {
    let Source { kind, namespace, name } = source;
    let may = |group: &str, resource: &str| access.may_create(group, resource, namespace, name);
    may(GROUP, "datavolumes/source")
        || may("", "pods") && (*kind == "pvc" || may("", "persistentvolumeclaims"))
}

fn refuse(source: &Source, user: &str) -> Denial {
    let mut causes = Causes::default();
    let message = format!(
        "User {user} has insufficient permissions in clone source namespace {}",
        source.namespace
    );
    causes.invalid("spec.source.PVC.namespace", message);
    match causes.finish() {
        Err(denial) => denial,
        Ok(()) => Denial::bad_request("clone source is not authorized"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Cluster;

    impl Objects for Cluster {
        fn get(&self, _: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
            let known = (plural, namespace, name) == ("datasources", "images", "debian");
            let source = json!({"snapshot": {"namespace": "images", "name": "s"}});
            known.then(|| json!({"spec": {"source": source}}))
        }

        fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
            Vec::new()
        }
    }

    struct Rights(&'static [&'static str]);

    impl Access for Rights {
        fn user(&self) -> &str {
            "ann"
        }

        fn may_create(&self, _: &str, resource: &str, namespace: &str, _: &str) -> bool {
            namespace == "images" && self.0.contains(&resource)
        }
    }

    fn created(spec: Value, rights: &'static [&'static str]) -> Result<Value, String> {
        let annotations = json!({AUTHORIZED_SOURCE: "pvc/images/forged"});
        let mut dv = json!({"metadata": {"annotations": annotations}, "spec": spec});
        authorize(&mut dv, None, "n", &Cluster, &Rights(rights), false)
            .map(|()| dv["metadata"]["annotations"][AUTHORIZED_SOURCE].clone())
            .map_err(|denial| denial.message())
    }

    #[test]
    fn a_copy_from_another_namespace_needs_rights_there() {
        let claim = || json!({"source": {"pvc": {"namespace": "images", "name": "c"}}});
        let snapshot = || json!({"sourceRef": {"kind": "DataSource", "namespace": "images", "name": "debian"}});
        let own = || json!({"source": {"pvc": {"namespace": "n", "name": "c"}}});
        let refused = Err(
            "User ann has insufficient permissions in clone source namespace images".to_owned()
        );
        let (by_claim, by_snapshot) = (json!("pvc/images/c"), json!("snapshot/images/s"));
        assert_eq!(created(claim(), &["datavolumes/source"]), Ok(by_claim.clone()));
        assert_eq!(created(claim(), &["pods"]), Ok(by_claim));
        assert_eq!(created(claim(), &[]), refused);
        assert_eq!(created(snapshot(), &["pods"]), refused);
        assert_eq!(created(snapshot(), &["pods", "persistentvolumeclaims"]), Ok(by_snapshot));
        assert_eq!(created(own(), &[]), Ok(Value::Null), "and nothing can be forged");
        assert_eq!(created(json!({"source": {"blank": {}}}), &[]), Ok(Value::Null));
    }

    #[test]
    fn nobody_changes_what_was_authorized() {
        let old = json!({"metadata": {"annotations": {AUTHORIZED_SOURCE: "pvc/images/c"}}});
        let mut new = json!({"metadata": {"annotations": {AUTHORIZED_SOURCE: "pvc/secret/x"}}});
        authorize(&mut new, Some(&old), "n", &Cluster, &Rights(&[]), false).unwrap();
        assert_eq!(new, old);
        let mut gone = json!({"metadata": {}});
        authorize(&mut gone, Some(&old), "n", &Cluster, &Rights(&[]), true).unwrap();
        assert_eq!(gone, old);
    }
}
