//! The objects that a node may write: its own Node, Lease and disks, the machines and volumes that
//! are placed on it, and of those only the fields that it reports. Pure; upstream's admission
//! plugin NodeRestriction, for the kinds of this platform.
//!
//! The role `system:sheaf-node` says which kinds and verbs; this says which objects and fields.

mod backup;
mod instance;
mod metadata;
mod volume;

use crd::lookup::Objects;
use serde_json::Value;

use crate::announcement::{self, AnnouncementLease};
use crate::cluster::{
    AGENT_GRANTS, API_URL, CONTROL_PLANE, ETCD_URL, JOIN_TOKEN, MANAGED, NODE_KEY,
};
use crate::failover::{LOST, SUSPECT};
use crate::host_network;
use crate::import_cron::{LAST_CRON_TIME, SOURCE_DIGEST};

pub use backup::{uses_backup_metadata, uses_backup_secret};
pub use volume::{claim_concerns, is_attached_to, is_stored_on};

/// A write of a node.
#[derive(Clone, Copy)]
pub struct NodeWrite<'a> {
    /// The node that writes.
    pub node: &'a str,
    /// Whether it also runs the API server.
    pub is_management: bool,
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The object as it would be; nothing if it is deleted.
    pub object: Option<&'a Value>,
    /// The object as it was; nothing if it is created.
    pub old: Option<&'a Value>,
    pub objects: &'a dyn Objects,
}

impl std::fmt::Debug for NodeWrite<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, group, resource, namespace, name, .. } = self;
        write!(out, "{node}: {group}/{resource} {namespace}/{name}")
    }
}

/// Why a node may not write so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeDenial {
    #[error("node {node:?} is not allowed to modify node {other:?}")]
    OtherNode { node: String, other: String },
    #[error("node {node:?} is not allowed to delete nodes")]
    Delete { node: String },
    #[error("node {node:?} is not allowed to modify {what}")]
    Field { node: String, what: String },
    #[error(
        "node {node:?} is not allowed to modify {resource} {name:?}, which is not placed on it"
    )]
    NotPlaced { node: String, resource: String, name: String },
    #[error("node {node:?} is not allowed to create or delete {resource}")]
    Kind { node: String, resource: String },
}

/// Labels that say what a node is to others, and that only others may set.
const RESTRICTED: [&str; 5] = [
    "node-restriction.kubernetes.io/",
    "node-role.kubernetes.io/",
    "node-role.harvesterhci.io/",
    "topology.kubernetes.io/",
    MANAGED,
];

/// Where a node is. It may say so until its first report; later only others may.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Whether a node that joins may have a label by its own choice.
pub fn may_label_itself(key: &str) -> bool {
    TOPOLOGY.contains(&key) || !RESTRICTED.iter().any(|own| key.starts_with(own))
}

pub fn check(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    check_placement(write)?;
    match (write.group, write.resource) {
        // Its own report goes with the configuration that it is about.
        (crate::network::GROUP, "vlanstatuses") => Ok(()),
        _ => metadata::keeps_ownership(write),
    }
}

fn check_placement(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    match (write.group, write.resource) {
        ("", "nodes") => own_node(write),
        ("coordination.k8s.io", "leases") => lease(write),
        ("", "events") | ("events.k8s.io", "events") => Ok(()),
        ("certificates.k8s.io", "certificatesigningrequests") => Ok(()),
        ("kubevirt.io", "virtualmachineinstances") => instance::check(write),
        ("", "persistentvolumes") => volume::persistent_volume(write),
        ("", "persistentvolumeclaims") => volume::claim(write),
        ("cdi.kubevirt.io", "dataimportcrons") if write.is_management => import_cron(write),
        ("longhorn.io", "nodes") => {
            named_as_node(write)?;
            volume::storage_node(write)?;
            volume::disks(write)
        }
        (crate::network::GROUP, "vlanstatuses") => uplink_report(write),
        (crate::network::GROUP, crate::link_monitor::PLURAL) => own_entry(write, "linkStatus"),
        (crate::network::GROUP, "hostnetworkconfigs") => own_entry(write, "nodeStatus"),
        (crate::network::GROUP, "clusternetworks") => {
            let (object, old) = write.update()?;
            keeps_all_but_status(write, object, old)
        }
        ("longhorn.io", "replicas" | "engines") => volume::placed(write),
        ("longhorn.io", "snapshots") => volume::snapshot(write),
        ("longhorn.io", "backingimages") => volume::image(write),
        ("longhorn.io", "volumeattachments") => volume::attachment(write),
        ("longhorn.io", "backuptargets") => backup::target(write),
        ("longhorn.io", "backups") => backup::backup(write),
        ("longhorn.io", "backupvolumes") => backup::backup_volume(write),
        ("harvesterhci.io", "virtualmachinebackups") => backup::machine(write),
        ("", "secrets") => backup::found_metadata(write),
        // Reviews of access change nothing.
        ("authentication.k8s.io" | "authorization.k8s.io", _) => Ok(()),
        _ => Err(write.wrong_kind()),
    }
}

impl NodeWrite<'_> {
    fn wrong_kind(&self) -> NodeDenial {
        NodeDenial::Kind { node: self.node.to_owned(), resource: self.resource.to_owned() }
    }

    fn not_placed(&self) -> NodeDenial {
        NodeDenial::NotPlaced {
            node: self.node.to_owned(),
            resource: self.resource.to_owned(),
            name: self.name.to_owned(),
        }
    }

    fn field(&self, what: impl Into<String>) -> NodeDenial {
        NodeDenial::Field { node: self.node.to_owned(), what: what.into() }
    }

    /// Both versions of an object that is neither created nor deleted.
    fn update(&self) -> Result<(&Value, &Value), NodeDenial> {
        match (self.object, self.old) {
            (Some(object), Some(old)) => Ok((object, old)),
            _ => Err(self.wrong_kind()),
        }
    }

    /// The specification is what others want of the node.
    fn keeps_spec(&self, object: &Value, old: &Value) -> Result<(), NodeDenial> {
        if object["spec"] == old["spec"] {
            return Ok(());
        }
        Err(self.field(format!("the spec of {} {:?}", self.resource, self.name)))
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn named_as_node(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    if write.name != write.node {
        let (node, other) = (write.node.to_owned(), write.name.to_owned());
        return Err(NodeDenial::OtherNode { node, other });
    }
    match write.object {
        Some(_) => Ok(()),
        None => Err(NodeDenial::Delete { node: write.node.to_owned() }),
    }
}

fn own_node(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    named_as_node(write)?;
    let nothing = Value::Null;
    let (object, old) = (write.object.unwrap_or(&nothing), write.old.unwrap_or(&nothing));
    if object["spec"] != old["spec"] && write.old.is_some() {
        return Err(write.field("the spec of its Node: taints, cordons and addresses of pods"));
    }
    if object["spec"]["taints"].is_array() && write.old.is_none() {
        return Err(write.field("taints"));
    }
    let changed = changed_keys(&object["metadata"]["labels"], &old["metadata"]["labels"]);
    let is_first = text(&old["status"]["nodeInfo"], "kubeletVersion").is_empty();
    let is_restricted = |key: &&str| {
        let is_role = write.is_management && *key == CONTROL_PLANE;
        let is_free = is_role || is_first && may_label_itself(key);
        !is_free && RESTRICTED.iter().any(|own| key.starts_with(own))
    };
    if let Some(label) = changed.into_iter().find(is_restricted) {
        return Err(write.field(format!("the label {label}")));
    }
    let notes = changed_keys(&object["metadata"]["annotations"], &old["metadata"]["annotations"]);
    let is_restricted = |key: &&str| {
        [NODE_KEY, JOIN_TOKEN, LOST, SUSPECT].contains(key)
            || !write.is_management && [AGENT_GRANTS, API_URL, ETCD_URL].contains(key)
    };
    match notes.into_iter().find(is_restricted) {
        Some(note) => Err(write.field(format!("the annotation {note}"))),
        None => Ok(()),
    }
}

/// Keys whose values differ.
fn changed_keys<'a>(new: &'a Value, old: &'a Value) -> Vec<&'a str> {
    let keys = |value: &'a Value| value.as_object().into_iter().flat_map(|map| map.keys());
    let differs = |key: &&String| new.get(*key) != old.get(*key);
    keys(new).chain(keys(old)).filter(differs).map(String::as_str).collect()
}

/// A node reports its own uplinks.
fn uplink_report(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let is_own = |report: &Value| text(&report["status"], "node") == write.node;
    let all = [write.object, write.old];
    if all.into_iter().flatten().all(is_own) { Ok(()) } else { Err(write.not_placed()) }
}

/// A node writes its own entry of a map in the status, and nothing else.
fn own_entry(write: &NodeWrite<'_>, map: &str) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    keeps_all_but_status(write, object, old)?;
    let (new, was) = (&object["status"], &old["status"]);
    if let Some(field) = changed_keys(new, was).into_iter().find(|key| *key != map) {
        return Err(write.field(format!("{field} of {} {:?}", write.resource, write.name)));
    }
    match changed_keys(&new[map], &was[map]).into_iter().find(|node| *node != write.node) {
        None => Ok(()),
        Some(other) => {
            let (node, other) = (write.node.to_owned(), other.to_owned());
            Err(NodeDenial::OtherNode { node, other })
        }
    }
}

fn keeps_all_but_status(
    write: &NodeWrite<'_>,
    object: &Value,
    old: &Value,
) -> Result<(), NodeDenial> {
    let metadata = ["name", "labels", "annotations", "finalizers", "ownerReferences"];
    match metadata.into_iter().find(|key| object["metadata"][key] != old["metadata"][key]) {
        None => write.keeps_spec(object, old),
        Some(field) => {
            Err(write.field(format!("the {field} of {} {:?}", write.resource, write.name)))
        }
    }
}

fn lease(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    if write.namespace == "kube-node-lease" && write.name == write.node {
        return Ok(());
    }
    if write.namespace == announcement::NAMESPACE {
        return announced_address(write);
    }
    let is_turn =
        (write.namespace, write.name) == (host_network::LEASE_NAMESPACE, host_network::LEASE_NAME);
    if is_turn && host_network::may_write(write.node, write.object, write.old) {
        return Ok(());
    }
    Err(write.not_placed())
}

/// A node renews the leases of addresses that it holds, and gives them back.
fn announced_address(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (Some(object), Some(old)) = (write.object, write.old) else {
        return Err(write.not_placed());
    };
    let held = AnnouncementLease::read(old).filter(|lease| lease.holder == write.node);
    if held.is_none() {
        return Err(write.not_placed());
    }
    let holder = text(&object["spec"], "holderIdentity");
    if !holder.is_empty() && holder != write.node {
        return Err(write.field(format!("the holder of the lease {:?}", write.name)));
    }
    let mut renewed = object.clone();
    for field in ["holderIdentity", "renewTime"] {
        renewed["spec"][field] = old["spec"][field].clone();
    }
    if let Some(spec) = renewed["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    keeps_all_but_status(write, &renewed, old)
}

/// A management node writes what it saw of the source, and when.
fn import_cron(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    write.keeps_spec(object, old)?;
    let notes = changed_keys(&object["metadata"]["annotations"], &old["metadata"]["annotations"]);
    match notes.into_iter().find(|key| ![SOURCE_DIGEST, LAST_CRON_TIME].contains(key)) {
        Some(note) => Err(write.field(format!("the annotation {note}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
