//! The rights of the cluster's nodes to read and write, handed from the crates `virt` and `hci` to
//! the server.

use apiserver::extension::{
    Denial, ExtensionRules, GuestKind, Lookup, NodeAccess, NodeObject, NodeTokenRequest, Review,
    TokenDenial,
};
use auth::rbac::bootstrap::{NODE_ROLE, WITNESS_ROLE};
use auth::user::{MANAGEMENT_NODES, MASTERS, NODES};
use hci::cluster::{CONTROL_PLANE, NODE_KEY, is_witness, node_of_user};
use hci::node_restriction::{self, NodeWrite};
use serde_json::Value;
use virt::api::cdi::DataVolumeSource;
use virt::node_access::{self, NodeReference};
use virt::v1::VirtualMachineInstanceSpec;

use super::rules::ExtensionReader;

/// Secrets and certificates that a claim is filled with.
const CLAIM_SECRET: &str = "cdi.kubevirt.io/storage.import.secretName";
const CLAIM_CERTIFICATES: &str = "cdi.kubevirt.io/storage.import.certConfigMap";
/// Where a volume names the secret with its passphrase.
const VOLUME_SECRETS: [&str; 3] =
    ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];

/// The Node authorizer's view of this platform.
pub(super) struct PlatformNodes;

impl NodeAccess for PlatformNodes {
    fn key_pin(&self, node: &str, objects: &dyn Lookup) -> Option<String> {
        let node = objects.get("", "nodes", "", node)?;
        node["metadata"]["annotations"][NODE_KEY].as_str().map(str::to_owned)
    }

    fn role(&self, node: &str, objects: &dyn Lookup) -> &'static str {
        match objects.get("", "nodes", "", node) {
            Some(own) if is_witness(&own) => WITNESS_ROLE,
            _ => NODE_ROLE,
        }
    }

    fn relates(&self, node: &str, object: NodeObject<'_>, objects: &dyn Lookup) -> bool {
        let (kind, namespace, name) = match object {
            NodeObject::Secret { namespace, name } => (NodeReference::Secret, namespace, name),
            NodeObject::ConfigMap { namespace, name } => {
                (NodeReference::ConfigMap, namespace, name)
            }
            NodeObject::ServiceAccount { namespace, name } => {
                (NodeReference::ServiceAccount, namespace, name)
            }
        };
        machine_uses(node, kind, namespace, name, objects)
            || claim_uses(node, kind, namespace, name, objects)
            || kind == NodeReference::Secret && volume_uses(node, namespace, name, objects)
            || kind == NodeReference::Secret && image_uses(node, namespace, name, objects)
            || kind == NodeReference::Secret && backup_uses(node, namespace, name, objects)
            || import_cron_uses(node, kind, namespace, name, objects)
    }

    fn guests(&self) -> GuestKind {
        GuestKind {
            group: "kubevirt.io",
            plural: "virtualmachineinstances",
            kind: "VirtualMachineInstance",
            noun: "machine",
        }
    }

    fn review_token(&self, request: &NodeTokenRequest<'_>) -> Result<(), TokenDenial> {
        let NodeTokenRequest { node, account, seconds, guest } = *request;
        node_access::check_token(node, account, seconds, guest)
            .map_err(|denial| TokenDenial(denial.to_string()))
    }
}

fn machine_uses(
    node: &str,
    kind: NodeReference,
    namespace: &str,
    name: &str,
    objects: &dyn Lookup,
) -> bool {
    let machines = objects.list("kubevirt.io", "virtualmachineinstances", namespace);
    machines.into_iter().filter(|vmi| vmi["status"]["nodeName"] == node).any(|mut vmi| {
        let spec = serde_json::from_value::<VirtualMachineInstanceSpec>(vmi["spec"].take());
        spec.is_ok_and(|spec| node_access::uses(&spec, kind, name))
    })
}

/// A claim that is filled on the node, from a place that needs credentials.
fn claim_uses(
    node: &str,
    kind: NodeReference,
    namespace: &str,
    name: &str,
    objects: &dyn Lookup,
) -> bool {
    let note = match kind {
        NodeReference::Secret => CLAIM_SECRET,
        NodeReference::ConfigMap => CLAIM_CERTIFICATES,
        NodeReference::ServiceAccount => return false,
    };
    let reader = ExtensionReader(objects);
    let claims = objects.list("", "persistentvolumeclaims", namespace);
    claims
        .iter()
        .filter(|claim| claim["metadata"]["annotations"][note] == name)
        .any(|claim| node_restriction::claim_concerns(node, claim, &reader))
}

/// An encrypted volume that is attached to the node.
fn volume_uses(node: &str, namespace: &str, name: &str, objects: &dyn Lookup) -> bool {
    let reader = ExtensionReader(objects);
    let named = |volume: &Value| {
        let csi = &volume["spec"]["csi"];
        let is_named =
            |field: &str| csi[field]["name"] == name && csi[field]["namespace"] == namespace;
        VOLUME_SECRETS.iter().any(|field| is_named(field))
    };
    let volumes = objects.list("", "persistentvolumes", "");
    volumes.iter().filter(|volume| named(volume)).any(|volume| {
        let handle = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap_or_default();
        node_restriction::is_attached_to(node, handle, &reader)
    })
}

/// An image of the node's disks that is encrypted or decrypted there.
fn image_uses(node: &str, namespace: &str, name: &str, objects: &dyn Lookup) -> bool {
    let own = objects.get("longhorn.io", "nodes", hci::longhorn::NAMESPACE, node);
    let own = own.unwrap_or_default();
    let disks = own["status"]["diskStatus"].as_object().into_iter().flat_map(|map| map.values());
    let disks: Vec<&Value> = disks.map(|disk| &disk["diskUUID"]).collect();
    let images = objects.list("longhorn.io", "backingimages", "");
    images.iter().any(|image| {
        let spec = &image["spec"];
        let parameters = &spec["sourceParameters"];
        let wanted = spec["diskFileSpecMap"].as_object().into_iter().flat_map(|map| map.keys());
        parameters["secret"] == name
            && parameters["secret-namespace"] == namespace
            && wanted.into_iter().any(|disk| disks.iter().any(|own| *own == disk))
    })
}

/// The credentials of the backup target, and descriptions of machines that are stored there.
fn backup_uses(node: &str, namespace: &str, name: &str, objects: &dyn Lookup) -> bool {
    let reader = ExtensionReader(objects);
    namespace == hci::longhorn::NAMESPACE
        && (node_restriction::uses_backup_secret(node, name, &reader)
            || node_restriction::uses_backup_metadata(node, name, &reader))
}

/// An import cron, whose source a management node polls.
fn import_cron_uses(
    node: &str,
    kind: NodeReference,
    namespace: &str,
    name: &str,
    objects: &dyn Lookup,
) -> bool {
    let own = objects.get("", "nodes", "", node).unwrap_or_default();
    // No other node can set this label on itself.
    if own["metadata"]["labels"].get(CONTROL_PLANE).is_none() {
        return false;
    }
    let crons = objects.list("cdi.kubevirt.io", "dataimportcrons", namespace);
    crons.into_iter().any(|mut cron| {
        let source = cron["spec"]["template"]["spec"]["source"].take();
        let source = serde_json::from_value::<DataVolumeSource>(source).unwrap_or_default();
        source_uses(&source, kind, name)
    })
}

fn source_uses(source: &DataVolumeSource, kind: NodeReference, name: &str) -> bool {
    let is = |own: &Option<String>| own.as_deref() == Some(name);
    let (registry, http) = (source.registry.as_ref(), source.http.as_ref());
    match kind {
        NodeReference::Secret => {
            registry.is_some_and(|own| is(&own.secret_ref))
                || http.is_some_and(|own| {
                    is(&own.secret_ref) || own.secret_extra_headers.iter().any(|own| own == name)
                })
        }
        NodeReference::ConfigMap => {
            registry.is_some_and(|own| is(&own.cert_config_map))
                || http.is_some_and(|own| is(&own.cert_config_map))
        }
        NodeReference::ServiceAccount => false,
    }
}

/// Restricts what nodes write.
pub(super) struct NodeRestriction;

impl ExtensionRules for NodeRestriction {
    fn concern(&self, _: &str, _: &str) -> bool {
        true
    }

    fn complete(&self, _: &Review<'_>, _: &mut Value, _: Option<&Value>) -> Result<(), Denial> {
        Ok(())
    }

    fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Denial> {
        let user = review.user;
        // Members of this group may do anything under any name.
        if !user.is_in(NODES) || user.is_in(MASTERS) {
            return Ok(Vec::new());
        }
        let is_deletion = review.act == apiserver::extension::ExtensionOperation::Delete;
        let write = NodeWrite {
            node: node_of_user(&user.name).unwrap_or_default(),
            is_management: user.is_in(MANAGEMENT_NODES),
            group: review.group,
            resource: review.resource,
            namespace: review.namespace,
            name: review.name,
            object: object.filter(|_| !is_deletion),
            old,
            objects: &ExtensionReader(review.objects),
        };
        let kind = match review.group {
            "" => review.resource.to_owned(),
            group => format!("{}.{group}", review.resource),
        };
        node_restriction::check(&write).map(|()| Vec::new()).map_err(|denial| Denial {
            code: 403,
            reason: "Forbidden",
            message: format!("{kind} {:?} is forbidden: {denial}", review.name),
            causes: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_uses_the_secrets_and_certificates_that_it_names() {
        let cases = [
            (json!({"registry": {"secretRef": "s"}}), NodeReference::Secret, true),
            (json!({"registry": {"certConfigMap": "s"}}), NodeReference::Secret, false),
            (json!({"registry": {"certConfigMap": "s"}}), NodeReference::ConfigMap, true),
            (json!({"http": {"url": "u", "secretRef": "s"}}), NodeReference::Secret, true),
            (
                json!({"http": {"url": "u", "secretExtraHeaders": ["a", "s"]}}),
                NodeReference::Secret,
                true,
            ),
            (json!({"http": {"url": "u", "secretRef": "other"}}), NodeReference::Secret, false),
            (json!({"registry": {"secretRef": "s"}}), NodeReference::ServiceAccount, false),
        ];
        for (source, kind, expected) in cases {
            let read = serde_json::from_value(source.clone()).unwrap();
            assert_eq!(source_uses(&read, kind, "s"), expected, "{source} {kind:?}");
        }
    }
}
