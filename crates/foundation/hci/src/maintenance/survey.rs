//! The machines on a node that maintenance concerns, and the obstacles of each.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{AffectedMachine, MaintainStrategy, MigrationBlocker, is_available};
use crate::longhorn::{OLD_RECORD, RECORD, VOLUME_LABEL, block_id, in_sync_replicas};

/// The objects that decide.
#[derive(Debug, Clone, Copy)]
pub struct ClusterObjects<'a> {
    pub nodes: &'a [Value],
    pub instances: &'a [Value],
    pub machines: &'a [Value],
    /// PersistentVolumes.
    pub volumes: &'a [Value],
    /// Longhorn's.
    pub engines: &'a [Value],
    pub replicas: &'a [Value],
}

/// The machines that run on a node, and those elsewhere that need data which only it has.
pub fn survey(node: &str, objects: &ClusterObjects<'_>) -> Vec<AffectedMachine> {
    let last_copies = last_copies(node, objects);
    let mut found = Vec::new();
    for vmi in objects.instances.iter().filter(|vmi| !is_over(vmi)) {
        let (namespace, name) = (meta(vmi, "namespace"), meta(vmi, "name"));
        let is_here = vmi["status"]["nodeName"] == node;
        let mut claims = claims(vmi);
        let has_last = claims.any(|claim| last_copies.contains(&(namespace, claim)));
        if !is_here && !has_last {
            continue;
        }
        let machine = objects
            .machines
            .iter()
            .find(|own| meta(own, "namespace") == namespace && meta(own, "name") == name);
        found.push(AffectedMachine {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_here,
            strategy: machine.map_or(MaintainStrategy::Migrate, MaintainStrategy::of),
            obstacle: obstacle(vmi, has_last, node, objects.nodes),
        });
    }
    found
}

fn obstacle(vmi: &Value, has_last: bool, node: &str, nodes: &[Value]) -> Option<MigrationBlocker> {
    if has_last {
        return Some(MigrationBlocker::LastHealthyReplica);
    }
    let mut conditions = vmi["status"]["conditions"].as_array().into_iter().flatten();
    let refused = conditions.find(|own| own["type"] == "LiveMigratable" && own["status"] != "True");
    if let Some(refused) = refused {
        let reason = refused["reason"].as_str().filter(|reason| !reason.is_empty());
        return Some(MigrationBlocker::NotMigratable(
            reason.unwrap_or("NotLiveMigratable").to_owned(),
        ));
    }
    let fits = |other: &Value| {
        let mut wanted = vmi["spec"]["nodeSelector"].as_object().into_iter().flatten();
        other["metadata"]["name"] != node
            && is_available(other)
            && wanted.all(|(key, value)| other["metadata"]["labels"][key] == *value)
    };
    (!nodes.iter().any(fits)).then_some(MigrationBlocker::NoNode)
}

/// Claims whose only up-to-date copy is on the node, as namespace and name.
fn last_copies<'a>(node: &str, objects: &ClusterObjects<'a>) -> BTreeSet<(&'a str, &'a str)> {
    let has_last = |volume: &&Value| {
        let handle = &volume["spec"]["csi"]["volumeHandle"];
        let is_own = volume["spec"]["csi"]["driver"] == crate::DRIVER;
        is_own && handle.as_str().is_some_and(|handle| is_last_copy(node, handle, objects))
    };
    let claim = |volume: &'a Value| {
        let claim = &volume["spec"]["claimRef"];
        Some((claim["namespace"].as_str()?, claim["name"].as_str()?))
    };
    objects.volumes.iter().filter(has_last).filter_map(claim).collect()
}

fn is_last_copy(node: &str, volume: &str, objects: &ClusterObjects<'_>) -> bool {
    let engine = objects.engines.iter().find(|own| own["spec"]["volumeName"] == volume);
    let notes = engine.map(|own| &own["metadata"]["annotations"]);
    let record = notes.and_then(|own| own[RECORD].as_str().or_else(|| own[OLD_RECORD].as_str()));
    let in_sync = in_sync_replicas(record.unwrap_or_default());
    let has_all = |own: &&Value| {
        own["metadata"]["labels"][VOLUME_LABEL] == volume
            && block_id(meta(own, "uid")).is_some_and(|id| in_sync.contains(&id))
    };
    let holders = objects.replicas.iter().filter(has_all).map(|own| &own["spec"]["nodeID"]);
    let holders: Vec<&Value> = holders.collect();
    !holders.is_empty() && holders.into_iter().all(|holder| holder == node)
}

/// The claims with data of an instance.
fn claims(vmi: &Value) -> impl Iterator<Item = &str> {
    let volumes = vmi["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
        claim.or_else(|| volume["dataVolume"]["name"].as_str())
    })
}

fn is_over(vmi: &Value) -> bool {
    matches!(vmi["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}
