//! The volumes that a node may write: its local ones, and its part of replicated ones.

use std::collections::BTreeSet;

use serde_json::Value;

use super::metadata::keeps_labels;
use super::{NodeDenial, NodeWrite, changed_keys, text};
use crate::local_volume::{PREVIOUS_NODES, VOLUME_MOVE, node_of};
use crate::longhorn::{MIGRATION_PARAMETER, NAMESPACE};

const LONGHORN: &str = "longhorn.io";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotations of a claim by which controllers fill it, beside names of Secrets and certificates.
const SOURCES: [&str; 4] = [
    "k8s.io/CloneRequest",
    "sheaf.io/authorized-clone-source",
    "sheaf.io/clone-source",
    "sheaf.io/populator",
];

/// Local volumes are made by the node that has their files, and moved by the controller.
pub(super) fn persistent_volume(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let versions = [write.object, write.old];
    if !versions.into_iter().flatten().all(|volume| node_of(volume) == Some(write.node)) {
        return Err(write.not_placed());
    }
    if let Some(object) = write.object {
        let notes = |volume: &Value| volume["metadata"]["annotations"].clone();
        let (new, had) = (notes(object), write.old.map(notes).unwrap_or_default());
        let is_move = |key: &&str| [VOLUME_MOVE, PREVIOUS_NODES].contains(key);
        if let Some(note) = changed_keys(&new, &had).into_iter().find(is_move) {
            return Err(write.field(format!("the annotation {note} of a volume")));
        }
    }
    if let (Some(object), Some(old)) = (write.object, write.old) {
        let (object, old) = (&object["spec"], &old["spec"]);
        for field in ["claimRef", "local", "nodeAffinity", "storageClassName"] {
            if object[field] != old[field] {
                return Err(write.field(format!("the {field} of a volume")));
            }
        }
    }
    match (write.object, write.old) {
        // A volume without a claim could be bound to any claim that fits, and one that names a claim
        // takes it from the provisioner of that claim.
        (Some(object), None) if !is_claimed_here(write, &object["spec"]) => {
            Err(write
                .field("the claimRef of a volume: it must have the uid of a claim for this node"))
        }
        _ => Ok(()),
    }
}

/// Whether a new volume is for exactly one claim, which waits for a volume of this node.
fn is_claimed_here(write: &NodeWrite<'_>, volume: &Value) -> bool {
    let reference = &volume["claimRef"];
    let (namespace, name) = (text(reference, "namespace"), text(reference, "name"));
    let uid = text(reference, "uid");
    let claim = write.objects.get("", "persistentvolumeclaims", namespace, name);
    claim.is_some_and(|claim| {
        !uid.is_empty()
            && text(&claim["metadata"], "uid") == uid
            && text(&claim["spec"], "storageClassName") == text(volume, "storageClassName")
            && is_claim_of(write, &claim)
    })
}

/// A node reports on the claims whose volumes it makes, fills or grows.
pub(super) fn claim(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    if !is_claim_of(write, old) {
        return Err(write.not_placed());
    }
    write.keeps_spec(object, old)?;
    let (new, old) = (&object["metadata"]["annotations"], &old["metadata"]["annotations"]);
    // A node may not change the node of a claim or the source of its data.
    let is_source = |key: &&str| {
        *key == SELECTED_NODE
            || SOURCES.contains(key)
            || key.ends_with(".secretName")
            || key.ends_with(".certConfigMap")
    };
    match changed_keys(new, old).into_iter().find(is_source) {
        Some(note) => Err(write.field(format!("the annotation {note} of a claim"))),
        None => Ok(()),
    }
}

fn is_claim_of(write: &NodeWrite<'_>, claim: &Value) -> bool {
    claim_concerns(write.node, claim, write.objects)
}

/// Whether the volume of a claim is, or will be, on a node.
pub fn claim_concerns(node: &str, claim: &Value, objects: &dyn crd::lookup::Objects) -> bool {
    let is_selected = claim["metadata"]["annotations"][SELECTED_NODE] == node;
    let name = text(&claim["spec"], "volumeName");
    let volume = objects.get("", "persistentvolumes", "", name);
    let Some(volume) = volume else { return is_selected };
    // A local volume may have left the node that was selected for it.
    if let Some(home) = node_of(&volume) {
        return home == node;
    }
    if is_selected {
        return true;
    }
    let handle = text(&volume["spec"]["csi"], "volumeHandle");
    !handle.is_empty() && is_stored_on(node, handle, objects)
}

/// Whether a node has a replica or the engine of a replicated volume.
pub fn is_stored_on(node: &str, volume: &str, objects: &dyn crd::lookup::Objects) -> bool {
    ["replicas", "engines"].iter().any(|plural| {
        objects
            .list(LONGHORN, plural, NAMESPACE)
            .iter()
            .any(|it| it["spec"]["volumeName"] == volume && it["spec"]["nodeID"] == node)
    })
}

/// Whether a node reads and writes the data of a replicated volume: it has the engine, or gets it with
/// the machine that migrates to it. A replica alone is no reason to know the passphrase of the volume.
pub fn is_attached_to(node: &str, volume: &str, objects: &dyn crd::lookup::Objects) -> bool {
    let engines = objects.list(LONGHORN, "engines", NAMESPACE);
    let has_engine = engines
        .iter()
        .any(|engine| engine["spec"]["volumeName"] == volume && engine["spec"]["nodeID"] == node);
    has_engine
        || objects
            .get(LONGHORN, "volumes", NAMESPACE, volume)
            .is_some_and(|volume| volume["spec"]["migrationNodeID"] == node)
}

/// Replicas and engines say themselves where they are.
pub(super) fn placed(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    let (at, owner) = (text(&old["spec"], "nodeID"), text(&old["status"], "ownerID"));
    // One that is being deleted and is on no node is released by its last node.
    let is_leaving = old["metadata"]["deletionTimestamp"].is_string()
        && at.is_empty()
        && (owner.is_empty() || owner == write.node);
    if at != write.node && !is_leaving && !is_arriving(write, old) {
        return Err(write.not_placed());
    }
    write.keeps_spec(object, old)
}

/// Whether it is the engine of a volume that moves to the node with its machine.
fn is_arriving(write: &NodeWrite<'_>, engine: &Value) -> bool {
    let volume = text(&engine["spec"], "volumeName");
    let volume = write.objects.get(LONGHORN, "volumes", NAMESPACE, volume);
    write.resource == "engines"
        && volume.is_some_and(|volume| text(&volume["spec"], "migrationNodeID") == write.node)
}

/// Snapshots are taken where the engine is. While there is none, the node with the data reports, and
/// any node releases what is being deleted.
pub(super) fn snapshot(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    let volume = text(&old["spec"], "volume");
    let engines = write.objects.list(LONGHORN, "engines", NAMESPACE);
    let mut nodes = engines
        .iter()
        .filter(|engine| engine["spec"]["volumeName"] == volume)
        .map(|engine| text(&engine["spec"], "nodeID"))
        .filter(|node| !node.is_empty())
        .peekable();
    let is_detached = nodes.peek().is_none();
    let is_leaving = old["metadata"]["deletionTimestamp"].is_string();
    let is_here = is_leaving || is_stored_on(write.node, volume, write.objects);
    if is_detached && !is_here || !nodes.all(|node| node == write.node) {
        return Err(write.not_placed());
    }
    keeps_labels(write, object, old)?;
    write.keeps_spec(object, old)
}

/// Files of images are reported for the node's own disks.
pub(super) fn image(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    keeps_labels(write, object, old)?;
    write.keeps_spec(object, old)?;
    let node = write.objects.get(LONGHORN, "nodes", NAMESPACE, write.node).unwrap_or_default();
    let own = disk_ids(&node);
    let map = |value: &Value| value["status"]["diskFileStatusMap"].clone();
    let (new, old) = (map(object), map(old));
    match changed_keys(&new, &old).into_iter().find(|disk| !own.contains(disk)) {
        Some(disk) => Err(write.field(format!("the state of an image on the disk {disk}"))),
        None => Ok(()),
    }
}

/// The node that has the engine may take back the ticket of a machine that does not move after all.
fn is_refused_migration(write: &NodeWrite<'_>, new: &Value, had: &Value) -> bool {
    let is_migration = had["parameters"][MIGRATION_PARAMETER] == "true";
    let engines = write.objects.list(LONGHORN, "engines", NAMESPACE);
    let has_engine = engines.iter().any(|engine| {
        engine["spec"]["volumeName"] == write.name && engine["spec"]["nodeID"] == write.node
    });
    new.is_null() && is_migration && has_engine
}

/// Whether a node has a reason to attach a volume: it has a part of it, fills or exports its
/// claim, makes an image of it, or runs or receives a machine that uses the claim.
fn is_needed_here(write: &NodeWrite<'_>, volume: &str) -> bool {
    // A management node has the keys of the cluster.
    if write.is_management {
        return true;
    }
    if volume != write.name {
        return false;
    }
    if is_stored_on(write.node, volume, write.objects) || exports_image(write, volume) {
        return true;
    }
    let volumes = write.objects.list("", "persistentvolumes", "");
    let of_handle = volumes.iter().filter(|it| it["spec"]["csi"]["volumeHandle"] == volume);
    of_handle.into_iter().any(|it| {
        let claim = &it["spec"]["claimRef"];
        let (namespace, name) = (text(claim, "namespace"), text(claim, "name"));
        let claim = write.objects.get("", "persistentvolumeclaims", namespace, name);
        claim.is_some_and(|claim| {
            claim["spec"]["volumeName"] == it["metadata"]["name"]
                && (is_claim_of(write, &claim) || machine_uses(write, namespace, name))
        })
    })
}

/// Whether a machine that runs on the node or migrates to it has a claim as a disk.
fn machine_uses(write: &NodeWrite<'_>, namespace: &str, claim: &str) -> bool {
    let machines = write.objects.list("kubevirt.io", "virtualmachineinstances", namespace);
    machines.iter().any(|vmi| {
        let status = &vmi["status"];
        let is_here = status["nodeName"] == write.node
            || status["migrationState"]["targetNode"] == write.node;
        let volumes = vmi["spec"]["volumes"].as_array().into_iter().flatten();
        is_here
            && volumes.into_iter().any(|own| {
                own["persistentVolumeClaim"]["claimName"] == claim
                    || own["dataVolume"]["name"] == claim
                    || own["ephemeral"]["persistentVolumeClaim"]["claimName"] == claim
                    || own["memoryDump"]["claimName"] == claim
            })
    })
}

/// Whether an image of the volume is to be made on a disk of the node.
fn exports_image(write: &NodeWrite<'_>, volume: &str) -> bool {
    let node = write.objects.get(LONGHORN, "nodes", NAMESPACE, write.node).unwrap_or_default();
    let own = disk_ids(&node);
    let images = write.objects.list(LONGHORN, "backingimages", NAMESPACE);
    images.iter().any(|image| {
        let spec = &image["spec"];
        let disks = spec["diskFileSpecMap"].as_object().into_iter().flat_map(|map| map.keys());
        spec["sourceParameters"]["volume-name"] == volume
            && disks.into_iter().any(|disk| own.contains(disk.as_str()))
    })
}

/// The disks of a Longhorn node.
fn disk_ids(node: &Value) -> BTreeSet<&str> {
    let disks = node["status"]["diskStatus"].as_object().into_iter().flat_map(|map| map.values());
    disks.map(|disk| text(disk, "diskUUID")).filter(|id| !id.is_empty()).collect()
}

/// Tags choose the nodes that replicas of a class may be on, and administrators close disks: a node
/// makes its Longhorn node without tags, and leaves the spec alone then.
pub(super) fn storage_node(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let Some(object) = write.object else { return Ok(()) };
    if let Some(old) = write.old {
        return write.keeps_spec(object, old);
    }
    let disks = object["spec"]["disks"].as_object();
    let disks = disks.into_iter().flat_map(|disks| disks.values());
    let has_tags = |part: &Value| part["tags"].as_array().is_some_and(|tags| !tags.is_empty());
    match disks.chain([&object["spec"]]).any(has_tags) {
        true => Err(write.field("the tags of its storage")),
        false => Ok(()),
    }
}

/// A disk is on one node: a node that names another's would be given what that one may read.
pub(super) fn disks(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let nothing = Value::Null;
    let (new, had) =
        (disk_ids(write.object.unwrap_or(&nothing)), disk_ids(write.old.unwrap_or(&nothing)));
    if new.is_subset(&had) {
        return Ok(());
    }
    let nodes = write.objects.list(LONGHORN, "nodes", NAMESPACE);
    let others = nodes.iter().filter(|node| node["metadata"]["name"] != write.node);
    for node in others {
        if let Some(disk) = disk_ids(node).intersection(&new).find(|disk| !had.contains(*disk)) {
            return Err(write.field(format!("the disk {disk}, which is on another node")));
        }
    }
    Ok(())
}

/// Tickets are put and taken back by the node that they name, for a volume that it needs.
pub(super) fn attachment(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let Some(object) = write.object else { return Err(write.wrong_kind()) };
    let nothing = Value::Null;
    let old = write.old.unwrap_or(&nothing);
    let tickets = |value: &Value| value["spec"]["attachmentTickets"].clone();
    let (new, had) = (tickets(object), tickets(old));
    for ticket in changed_keys(&new, &had) {
        let named = [&new[ticket], &had[ticket]];
        let others =
            named.into_iter().filter(|it| it.is_object()).any(|it| it["nodeID"] != write.node);
        if others && !is_refused_migration(write, &new[ticket], &had[ticket]) {
            return Err(write.not_placed());
        }
        if new[ticket].is_object() && !is_needed_here(write, text(&object["spec"], "volume")) {
            return Err(write.not_placed());
        }
    }
    if write.old.is_none() {
        return Ok(());
    }
    if object["spec"]["volume"] != old["spec"]["volume"] {
        return Err(write.field("the volume of an attachment"));
    }
    keeps_labels(write, object, old)
}
