//! Impact of losing a node: the machines that would start elsewhere, those that would not, and the
//! volumes that would lose copies. Pure, by the rules that a real loss is handled by.

use std::collections::{BTreeMap, BTreeSet};

use hci::longhorn::VOLUME_LABEL;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failover::{self, DiskCopies, FailoverDecision, FailoverInput};
use super::ledger::CapacityLedger;
use super::node::is_declared_lost;
use super::placement::VolumeReach;
use super::plan;
use super::storage::{Need, check_claims, need_names};
use crate::condition;
use crate::longhorn::engine_name;
use crate::object::{int, name, namespace, text};

/// All objects that decide.
#[derive(Debug, Default, Clone, Deserialize)]
pub struct ClusterLists {
    pub nodes: Vec<Value>,
    pub instances: Vec<Value>,
    pub machines: Vec<Value>,
    pub claims: Vec<Value>,
    /// PersistentVolumes.
    pub volumes: Vec<Value>,
    /// Longhorn's volumes, engines and replicas.
    pub storage_volumes: Vec<Value>,
    pub engines: Vec<Value>,
    pub replicas: Vec<Value>,
}

/// Impact of losing a node.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLoss {
    pub node: String,
    pub machines: Vec<MachineLoss>,
    pub volumes: Vec<VolumeLoss>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineLoss {
    pub namespace: String,
    pub name: String,
    #[serde(flatten)]
    pub fate: MachineFate,
}

/// The state of a machine of the node after the loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "camelCase")]
pub enum MachineFate {
    /// It would be started on another node.
    Restarted { node: String },
    /// It would wait: no node has room for it, in the scheduler's words.
    Waiting { message: String },
    /// It would not be started before the node is back.
    Down { message: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeLoss {
    pub name: String,
    /// The claim that it belongs to, `namespace/name`.
    pub claim: String,
    /// Up-to-date copies that would be left, and those that are asked for.
    pub copies_left: usize,
    pub copies_wanted: i64,
}

impl VolumeLoss {
    pub fn is_unavailable(&self) -> bool {
        self.copies_left == 0
    }
}

/// The impact of losing `node` now; nothing if there is no such node.
pub fn lose_node(node: &str, lists: &ClusterLists) -> Option<NodeLoss> {
    lists.nodes.iter().find(|own| name(own) == node)?;
    let index = StorageIndex::new(lists);
    let is_alive = |own: &&Value| {
        name(own) != node && condition::is(own, "Ready", "True") && !is_declared_lost(own)
    };
    let others: Vec<Value> = lists.nodes.iter().filter(is_alive).cloned().collect();
    let alive: BTreeSet<String> = others.iter().map(|own| name(own).to_owned()).collect();
    let (mut here, elsewhere): (Vec<&Value>, Vec<&Value>) =
        lists.instances.iter().partition(|own| text(own, "/status/nodeName") == node);
    here.retain(|own| plan::stage(own) != plan::VmiStage::Over);
    here.sort_by_key(|own| (namespace(own).to_owned(), name(own).to_owned()));
    let ledger = CapacityLedger::default();
    ledger.fill(&elsewhere.into_iter().cloned().collect::<Vec<_>>());
    let fate = |vmi: &&Value| MachineLoss {
        namespace: namespace(vmi).to_owned(),
        name: name(vmi).to_owned(),
        fate: index.fate(vmi, node, &alive, &others, &ledger),
    };
    let machines = here.iter().map(fate).collect();
    Some(NodeLoss { node: node.to_owned(), machines, volumes: index.losses(node, &alive) })
}

/// Objects by what refers to them.
struct StorageIndex<'a> {
    lists: &'a ClusterLists,
    claims: BTreeMap<(&'a str, &'a str), &'a Value>,
    volumes: BTreeMap<&'a str, &'a Value>,
    /// Nodes with every acknowledged write, by Longhorn volume.
    up_to_date: BTreeMap<&'a str, BTreeSet<String>>,
}

impl<'a> StorageIndex<'a> {
    fn new(lists: &'a ClusterLists) -> Self {
        let claims = lists.claims.iter().map(|own| ((namespace(own), name(own)), own)).collect();
        let volumes = lists.volumes.iter().map(|own| (name(own), own)).collect();
        let engines: BTreeMap<&str, &Value> =
            lists.engines.iter().map(|own| (name(own), own)).collect();
        let mut replicas = BTreeMap::<&str, Vec<&Value>>::new();
        for replica in &lists.replicas {
            let volume = replica["metadata"]["labels"][VOLUME_LABEL].as_str().unwrap_or_default();
            replicas.entry(volume).or_default().push(replica);
        }
        let up_to_date = lists.storage_volumes.iter().map(|volume| {
            let engine = engines.get(engine_name(name(volume)).as_str()).copied();
            let own = replicas.get(name(volume)).map_or(&[][..], Vec::as_slice);
            (name(volume), failover::nodes_in_sync(engine, own.iter().copied()))
        });
        Self { lists, claims, volumes, up_to_date: up_to_date.collect() }
    }

    fn fate(
        &self,
        vmi: &Value,
        node: &str,
        alive: &BTreeSet<String>,
        others: &[Value],
        ledger: &CapacityLedger,
    ) -> MachineFate {
        let machine = self.lists.machines.iter().find(|own| {
            (namespace(own), name(own)) == (namespace(vmi), name(vmi)) && plan::owner(vmi).is_some()
        });
        let mut disks: Vec<DiskCopies> = failover::host_disks(vmi)
            .map(|name| DiskCopies::Local { name: name.to_owned() })
            .collect();
        let needs: Vec<Need> = need_names(&vmi["spec"])
            .into_iter()
            .map(|claim| self.need(namespace(vmi), claim))
            .collect();
        disks.extend(needs.iter().map(|need| self.copies(need)));
        let input = FailoverInput { vmi, machine, disks: &disks, alive, node };
        if let FailoverDecision::Stay(_, message) = failover::decide(&input) {
            return MachineFate::Down { message };
        }
        let reach: Vec<VolumeReach> = check_claims(&needs).reach;
        match ledger.take(vmi, &reach, others) {
            Ok(node) => MachineFate::Restarted { node },
            Err(error) => MachineFate::Waiting { message: error.to_string() },
        }
    }

    fn need(&self, space: &str, claim: &str) -> Need {
        let found = self.claims.get(&(space, claim)).copied();
        let volume = found.and_then(|own| self.volumes.get(text(own, "/spec/volumeName")).copied());
        Need {
            claim_name: claim.to_owned(),
            claim: found.cloned(),
            volume: volume.cloned(),
            ..Need::default()
        }
    }

    fn copies(&self, need: &Need) -> DiskCopies {
        let name = need.claim_name.clone();
        let replicated = need
            .volume
            .as_ref()
            .filter(|own| text(own, "/spec/csi/driver") == hci::DRIVER)
            .map(|own| text(own, "/spec/csi/volumeHandle"));
        match replicated {
            Some(handle) => {
                let nodes = self.up_to_date.get(handle).cloned().unwrap_or_default();
                DiskCopies::Replicated { name, nodes }
            }
            None => DiskCopies::Local { name },
        }
    }

    /// Volumes of which the node has an up-to-date copy.
    fn losses(&self, node: &str, alive: &BTreeSet<String>) -> Vec<VolumeLoss> {
        let lost = self.lists.storage_volumes.iter().filter_map(|volume| {
            let copies = self.up_to_date.get(name(volume)).filter(|nodes| nodes.contains(node))?;
            let status = "/status/kubernetesStatus";
            let claim = [
                text(volume, &format!("{status}/namespace")),
                text(volume, &format!("{status}/pvcName")),
            ];
            Some(VolumeLoss {
                name: name(volume).to_owned(),
                claim: claim.join("/").trim_matches('/').to_owned(),
                copies_left: copies.iter().filter(|own| alive.contains(*own)).count(),
                copies_wanted: int(volume, "/spec/numberOfReplicas").unwrap_or(1),
            })
        });
        let mut lost: Vec<VolumeLoss> = lost.collect();
        lost.sort_by(|one, other| {
            (one.copies_left, &one.name).cmp(&(other.copies_left, &other.name))
        });
        lost
    }
}

#[cfg(test)]
mod tests {
    use hci::longhorn::RECORD;
    use serde_json::json;

    use super::*;

    const REPLICA: [&str; 2] =
        ["11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"];

    fn node(name: &str, memory: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "8", "memory": memory, "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]}})
    }

    fn vmi(name: &str, memory: &str, claim: &str) -> Value {
        json!({"metadata": {"namespace": "d", "name": name}, "spec": {
                "domain": {"resources": {"requests": {"memory": memory}}, "devices": {}},
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]},
            "status": {"phase": "Running", "nodeName": "n2"}})
    }

    /// A claim with its volume; `nodes` have up-to-date copies.
    fn add_disk(lists: &mut ClusterLists, name: &str, nodes: &[&str]) {
        let csi = json!({"driver": hci::DRIVER, "volumeHandle": name});
        lists.claims.push(json!({"metadata": {"namespace": "d", "name": name},
            "spec": {"volumeName": name}, "status": {"phase": "Bound"}}));
        lists.volumes.push(json!({"metadata": {"name": name}, "spec": {"csi": csi}}));
        lists.storage_volumes.push(json!({"metadata": {"name": name},
            "spec": {"numberOfReplicas": 3},
            "status": {"kubernetesStatus": {"namespace": "d", "pvcName": name}}}));
        let in_sync: Vec<&str> = REPLICA[..nodes.len()].to_vec();
        let record = json!({"record": {"isr": in_sync}}).to_string();
        lists.engines.push(json!({"metadata": {"name": engine_name(name),
            "annotations": {RECORD: record}}}));
        for (node, uid) in nodes.iter().zip(REPLICA) {
            lists.replicas.push(json!({"metadata": {"name": uid, "uid": uid,
                "labels": {VOLUME_LABEL: name}}, "spec": {"nodeID": node}}));
        }
    }

    #[test]
    fn machines_start_elsewhere_while_there_is_room_and_a_copy() {
        let mut lists = ClusterLists {
            nodes: vec![node("n1", "4Gi"), node("n2", "64Gi"), node("n3", "1Mi")],
            ..ClusterLists::default()
        };
        for (name, memory, nodes) in [
            ("a", "2Gi", vec!["n1", "n2"]),
            ("b", "3Gi", vec!["n1", "n2"]),
            ("c", "1Gi", vec!["n2"]),
        ] {
            add_disk(&mut lists, name, &nodes);
            lists.instances.push(vmi(name, memory, name));
        }
        let mut elsewhere = vmi("x", "1Gi", "x");
        elsewhere["status"]["nodeName"] = json!("n1");
        lists.instances.push(elsewhere);
        lists.instances.push(json!({"metadata": {"namespace": "d", "name": "over"},
            "status": {"phase": "Failed", "nodeName": "n2"}}));

        let loss = lose_node("n2", &lists).unwrap();
        let fates: Vec<(&str, &MachineFate)> =
            loss.machines.iter().map(|own| (own.name.as_str(), &own.fate)).collect();
        assert_eq!(fates.len(), 3, "{fates:?}");
        assert_eq!(fates[0], ("a", &MachineFate::Restarted { node: "n1".into() }));
        let MachineFate::Waiting { message } = fates[1].1 else { panic!("{fates:?}") };
        assert!(message.contains("0/2 nodes are available: 2 Insufficient memory"), "{message}");
        let MachineFate::Down { message } = fates[2].1 else { panic!("{fates:?}") };
        assert!(message.contains("the only up-to-date copy of disk c"), "{message}");
        let volumes: Vec<(&str, usize)> =
            loss.volumes.iter().map(|own| (own.claim.as_str(), own.copies_left)).collect();
        assert_eq!(volumes, [("d/c", 0), ("d/a", 1), ("d/b", 1)]);
        assert!(loss.volumes[0].is_unavailable());

        let loss = lose_node("n3", &lists).unwrap();
        assert_eq!((loss.machines.len(), loss.volumes.len()), (0, 0));
        assert_eq!(lose_node("n9", &lists), None);
        let loss = serde_json::to_value(lose_node("n1", &lists).unwrap()).unwrap();
        assert_eq!(loss["machines"][0]["fate"], "down", "{loss}");
        assert_eq!(loss["volumes"][0]["copiesLeft"], 1, "{loss}");
    }
}
