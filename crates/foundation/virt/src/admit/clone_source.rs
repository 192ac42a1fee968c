//! Clones across namespaces: whose rights count, and the annotation by which admission records
//! what it authorized.
//!
//! The annotation names the source as it was resolved when the DataVolume was created, so a
//! DataSource that changes later does not change what was authorized.

use kinds::DataPlace;
use serde_json::Value;

use super::{Causes, Denial, Objects};
use crate::default::object;
use crate::state::{list, text};

/// `KIND/NAMESPACE/NAME` of the source; KIND is `pvc` or `snapshot`. `any/NAMESPACE/*` is
/// for a DataSource of another namespace that named no source yet. Only admission writes it.
pub const AUTHORIZED_SOURCE: &str = "sheaf.io/authorized-clone-source";

const GROUP: &str = "cdi.kubevirt.io";
const ANY: &str = "any";

/// Rights of the user who sent a request.
pub trait Access {
    /// The user's name.
    fn user(&self) -> &str;
    /// Whether the user may create an object with this name. `resource` is `PLURAL` or
    /// `PLURAL/SUBRESOURCE`.
    fn may_create(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool;
    /// The rights of a service account instead.
    fn of_service_account(&self, namespace: &str, name: &str) -> Box<dyn Access + '_>;
}

/// A claim or a snapshot that is cloned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CloneSource {
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl CloneSource {
    /// Parses `KIND/NAMESPACE/NAME`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        let kind = ["pvc", "snapshot"].into_iter().find(|known| *known == kind)?;
        Some(Self { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Whether a user may read the source.
    pub(super) fn is_allowed(&self, access: &dyn Access) -> bool {
        let Self { kind, namespace, name } = self;
        let place = if *kind == "pvc" { DataPlace::Claim } else { DataPlace::Snapshot };
        kinds::may_read_data(place, |group, resource| {
            access.may_create(group, resource, namespace, name)
        })
    }

    pub(super) fn refusal(&self, user: &str) -> String {
        kinds::data_refusal(user, &self.namespace)
    }
}

/// Whether the annotation [`AUTHORIZED_SOURCE`] of a DataVolume covers a source.
pub fn covers(authorized: &str, kind: &str, namespace: &str, name: &str) -> bool {
    authorized == format!("{kind}/{namespace}/{name}")
        || authorized == format!("{ANY}/{namespace}/*")
}

/// Sets the annotation of a DataVolume that is created, and keeps it as it was afterwards.
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
                check(&source, dv, namespace, objects, access, trusted)?;
                let CloneSource { kind, namespace, name } = source;
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

/// A DataVolume that the VirtualMachine controller creates is authorized as the machine's
/// service account, as in KubeVirt: the controller's own rights must not leak to tenants.
fn check(
    source: &CloneSource,
    dv: &Value,
    namespace: &str,
    objects: &dyn Objects,
    access: &dyn Access,
    trusted: bool,
) -> Result<(), Denial> {
    let account = if trusted { owner_account(dv, namespace, objects) } else { None };
    let of_account = account.map(|account| access.of_service_account(namespace, &account));
    let (access, known) = match &of_account {
        Some(of_account) => (&**of_account, true),
        None => (access, !trusted),
    };
    if known && source.is_allowed(access) {
        return Ok(());
    }
    let mut causes = Causes::default();
    causes.invalid("spec.source.PVC.namespace", source.refusal(access.user()));
    causes.finish()
}

/// The service account of the VirtualMachine that controls a DataVolume.
fn owner_account(dv: &Value, namespace: &str, objects: &dyn Objects) -> Option<String> {
    let owners = list(&dv["metadata"]["ownerReferences"]);
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let is_machine = text(owner, "/kind") == "VirtualMachine"
        && text(owner, "/apiVersion").starts_with("kubevirt.io/");
    let machine = objects
        .get("kubevirt.io", "virtualmachines", namespace, text(owner, "/name"))
        .filter(|machine| is_machine && machine["metadata"]["uid"] == owner["uid"])?;
    Some(service_account(&machine["spec"]).to_owned())
}

/// The service account that KubeVirt authorizes the dataVolumeTemplates of a machine as.
pub(super) fn service_account(vm_spec: &Value) -> &str {
    let volumes = list(&vm_spec["template"]["spec"]["volumes"]).iter().rev();
    let named = volumes.map(|volume| text(volume, "/serviceAccount/serviceAccountName"));
    named.into_iter().find(|name| !name.is_empty()).unwrap_or("default")
}

/// The source of a DataVolume, or of a template of one.
pub(super) fn find(dv: &Value, namespace: &str, objects: &dyn Objects) -> Option<CloneSource> {
    let spec = &dv["spec"];
    if spec["source"].is_object() {
        return named(&spec["source"], namespace);
    }
    let name = text(spec, "/sourceRef/name");
    if name.is_empty() {
        return None;
    }
    let there = text(spec, "/sourceRef/namespace");
    let there = if there.is_empty() { namespace } else { there };
    let found = objects.get(GROUP, "datasources", there, name).unwrap_or_default();
    let unresolved =
        || CloneSource { kind: ANY, namespace: there.to_owned(), name: "*".to_owned() };
    Some(named(&found["spec"]["source"], namespace).unwrap_or_else(unresolved))
}

fn named(source: &Value, namespace: &str) -> Option<CloneSource> {
    let kind = ["pvc", "snapshot"].into_iter().find(|kind| source[kind].is_object())?;
    let there = text(&source[kind], "/namespace");
    let there = if there.is_empty() { namespace } else { there };
    let name = text(&source[kind], "/name").to_owned();
    Some(CloneSource { kind, namespace: there.to_owned(), name })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ClusterConfig;
    use crate::admit::{Write, admit};

    /// A DataSource with a snapshot, one without a source, and a machine.
    struct Cluster;

    impl Objects for Cluster {
        fn get(&self, _: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
            let source = json!({"snapshot": {"namespace": "images", "name": "s"}});
            let account = json!({"serviceAccount": {"serviceAccountName": "cloner"}});
            Some(match (plural, namespace, name) {
                ("datasources", "images", "debian") => json!({"spec": {"source": source}}),
                ("datasources", "images", "empty") => json!({"spec": {"source": {}}}),
                ("virtualmachines", "n", "vm") => json!({
                    "metadata": {"uid": "u"},
                    "spec": {"template": {"spec": {"volumes": [account]}}},
                }),
                ("datavolumes", "n", "dv") => json!({
                    "metadata": {"uid": "d", "annotations": {AUTHORIZED_SOURCE: "pvc/images/c"}},
                }),
                _ => return None,
            })
        }

        fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
            Vec::new()
        }
    }

    /// A user, and the resources that every user and the service account `cloner` may create in
    /// `images`.
    #[derive(Clone)]
    struct Rights(String, &'static [&'static str]);

    impl Access for Rights {
        fn user(&self) -> &str {
            &self.0
        }

        fn may_create(&self, _: &str, resource: &str, namespace: &str, _: &str) -> bool {
            namespace == "images" && (self.1.contains(&resource) || self.0.ends_with(":cloner"))
        }

        fn of_service_account(&self, namespace: &str, name: &str) -> Box<dyn Access + '_> {
            Box::new(Self(format!("system:serviceaccount:{namespace}:{name}"), &[]))
        }
    }

    fn ann(rights: &'static [&'static str]) -> Rights {
        Rights("ann".into(), rights)
    }

    fn created(spec: Value, rights: &'static [&'static str]) -> Result<Value, String> {
        let annotations = json!({AUTHORIZED_SOURCE: "pvc/images/forged"});
        let mut dv = json!({"metadata": {"annotations": annotations}, "spec": spec});
        authorize(&mut dv, None, "n", &Cluster, &ann(rights), false)
            .map(|()| dv["metadata"]["annotations"][AUTHORIZED_SOURCE].clone())
            .map_err(|denial| denial.message())
    }

    fn refusal(user: &str) -> String {
        format!("User {user} has insufficient permissions in clone source namespace images")
    }

    #[test]
    fn a_clone_from_another_namespace_needs_rights_there() {
        let claim = || json!({"source": {"pvc": {"namespace": "images", "name": "c"}}});
        let snapshot = || json!({"sourceRef": {"kind": "DataSource", "namespace": "images", "name": "debian"}});
        let later = |name: &str| json!({"sourceRef": {"namespace": "images", "name": name}});
        let own = || json!({"source": {"pvc": {"namespace": "n", "name": "c"}}});
        let refused = Err(refusal("ann"));
        let (by_claim, by_snapshot) = (json!("pvc/images/c"), json!("snapshot/images/s"));
        assert_eq!(created(claim(), &["datavolumes/source"]), Ok(by_claim.clone()));
        assert_eq!(created(claim(), &["pods"]), Ok(by_claim));
        assert_eq!(created(claim(), &[]), refused);
        assert_eq!(created(snapshot(), &["pods"]), refused);
        assert_eq!(created(snapshot(), &["pods", "persistentvolumeclaims"]), Ok(by_snapshot));
        for name in ["empty", "missing"] {
            let any = Ok(json!("any/images/*"));
            assert_eq!(created(later(name), &["datavolumes/source"]), any);
            assert_eq!(created(later(name), &[]), refused, "a DataSource may get its source later");
        }
        assert_eq!(created(own(), &[]), Ok(Value::Null), "the annotation cannot be forged");
        assert_eq!(created(json!({"source": {"blank": {}}}), &[]), Ok(Value::Null));
    }

    #[test]
    fn an_authorized_source_is_covered_and_no_other() {
        assert!(covers("pvc/images/c", "pvc", "images", "c"));
        assert!(covers("any/images/*", "snapshot", "images", "s"));
        for other in ["snapshot/images/c", "pvc/images/d", "any/other/*", "pvc/images/*", ""] {
            assert!(!covers(other, "pvc", "images", "c"), "{other}");
        }
    }

    #[test]
    fn a_controller_has_the_rights_of_the_service_account_of_the_machine() {
        let created = |owner: Value, user: Rights| {
            let mut dv = json!({
                "metadata": {"ownerReferences": [owner]},
                "spec": {"source": {"pvc": {"namespace": "images", "name": "c"}}},
            });
            authorize(&mut dv, None, "n", &Cluster, &user, true).map_err(|denial| denial.message())
        };
        let owner = |kind: &str, uid: &str| {
            json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "name": "vm", "uid": uid,
                "controller": true})
        };
        let controller = || Rights("system:controllers".into(), &["datavolumes/source"]);
        assert_eq!(created(owner("VirtualMachine", "u"), controller()), Ok(()));
        for other in [owner("VirtualMachine", "other"), owner("Pod", "u"), json!({})] {
            assert_eq!(created(other, controller()), Err(refusal("system:controllers")));
        }
    }

    #[test]
    fn the_authorized_source_cannot_be_changed() {
        let old = json!({"metadata": {"annotations": {AUTHORIZED_SOURCE: "pvc/images/c"}}});
        let mut new = json!({"metadata": {"annotations": {AUTHORIZED_SOURCE: "pvc/secret/x"}}});
        authorize(&mut new, Some(&old), "n", &Cluster, &ann(&[]), false).unwrap();
        assert_eq!(new, old);
        let mut gone = json!({"metadata": {}});
        authorize(&mut gone, Some(&old), "n", &Cluster, &ann(&[]), true).unwrap();
        assert_eq!(gone, old);
    }

    fn judged(plural: &str, object: &Value, old: Option<&Value>, trusted: bool) -> String {
        let group = if plural == "virtualmachines" { "kubevirt.io" } else { "" };
        let (config, access) = (ClusterConfig::new(&json!({}), "amd64"), ann(&[]));
        let write = Write {
            object,
            old,
            namespace: "n",
            trusted,
            config: &config,
            objects: &Cluster,
            access: &access,
        };
        let judged = admit(group, plural, &write);
        judged.map_or_else(|denial| denial.causes()[0].message.clone(), |_| "admitted".to_owned())
    }

    #[test]
    fn annotations_of_claims_clone_only_what_is_authorized() {
        let claim = |key: &str, value: &str, owner: &str| {
            json!({"metadata": {"annotations": {key: value}, "ownerReferences": [
                {"kind": "DataVolume", "name": "dv", "uid": owner, "controller": true}]}})
        };
        let request = "k8s.io/CloneRequest";
        let owned = |key: &str| {
            format!("annotation {key} may only be set by the controllers of the cluster")
        };
        for (key, value, owner, trusted, expected) in [
            (request, "n/c", "", false, "admitted".to_owned()),
            (request, "images/c", "", false, refusal("ann")),
            (request, "images/c", "d", false, refusal("ann")),
            // Controllers copy annotations of tenants' objects.
            (request, "images/c", "", true, refusal("ann")),
            (request, "images/other", "d", true, refusal("ann")),
            (request, "images/c", "d", true, "admitted".to_owned()),
            ("sheaf.io/clone-source", "pvc/images/c", "d", true, "admitted".to_owned()),
            ("sheaf.io/clone-source", "pvc/images/c", "", true, refusal("ann")),
            ("sheaf.io/clone-source", "pvc/n/c", "", false, owned("sheaf.io/clone-source")),
            ("sheaf.io/populator", "VolumeCloneSource", "", false, owned("sheaf.io/populator")),
            ("sheaf.io/upload-token", "0@1", "", false, owned("sheaf.io/upload-token")),
            ("sheaf.io/upload-token", "0@1", "", true, "admitted".to_owned()),
            (AUTHORIZED_SOURCE, "pvc/images/c", "", false, owned(AUTHORIZED_SOURCE)),
        ] {
            let claim = claim(key, value, owner);
            let found = judged("persistentvolumeclaims", &claim, None, trusted);
            assert_eq!(found, expected, "{key}={value} trusted={trusted}");
            let kept = judged("persistentvolumeclaims", &claim, Some(&claim), trusted);
            assert_eq!(kept, "admitted", "an existing value may stay");
            let added = judged("persistentvolumeclaims", &claim, Some(&json!({})), trusted);
            assert_eq!(added, expected, "an update is judged like a creation");
        }
        let reference = |namespace: &str| {
            json!({"spec": {"dataSourceRef": {
            "kind": "PersistentVolumeClaim", "name": "c", "namespace": namespace}}})
        };
        assert_eq!(judged("persistentvolumeclaims", &reference("n"), None, false), "admitted");
        let refused = judged("persistentvolumeclaims", &reference("images"), None, true);
        assert!(refused.contains("can only be created from objects of its own namespace n"));
    }

    #[test]
    fn templates_of_machines_are_authorized_as_their_service_account() {
        let vm = |account: &str| {
            let mut volumes = vec![json!({"name": "root", "dataVolume": {"name": "root"}})];
            let mut devices = json!({"disks": [{"name": "root", "disk": {"bus": "virtio"}}]});
            if !account.is_empty() {
                devices["disks"].as_array_mut().unwrap().push(json!({"name": "sa", "disk": {}}));
                let source = json!({"serviceAccountName": account});
                volumes.push(json!({"name": "sa", "serviceAccount": source}));
            }
            json!({
                "metadata": {"name": "new", "namespace": "n"},
                "spec": {
                    "runStrategy": "Halted",
                    "dataVolumeTemplates": [{
                        "metadata": {"name": "root"},
                        "spec": {"storage": {}, "source": {"pvc": {"namespace": "images", "name": "c"}}},
                    }],
                    "template": {"spec": {
                        "domain": {"memory": {"guest": "1Gi"}, "devices": devices}, "volumes": volumes,
                    }},
                },
            })
        };
        let refused = |account: &str| {
            let user = format!("system:serviceaccount:n:{account}");
            format!("Authorization failed, message is: {}", refusal(&user))
        };
        let create = |vm: &Value| judged("virtualmachines", vm, None, false);
        assert_eq!(create(&vm("")), refused("default"));
        assert_eq!(create(&vm("other")), refused("other"));
        assert_eq!(create(&vm("cloner")), "admitted");
        let update = |old: &Value, vm: &Value| judged("virtualmachines", vm, Some(old), false);
        assert_eq!(update(&vm(""), &vm("")), "admitted", "nothing new is asked for");
        assert_eq!(update(&vm("cloner"), &vm("")), refused("default"));
    }
}
