//! Names and values by which the controllers and the agents agree about volumes of the class
//! `local`, which are files of one node and move with a machine that migrates. Pure.
//!
//! ```text
//!  instance          sheaf.io/copied-volumes: {"migration":UID,"volumes":["pvc-1"]}  by its node
//!  PersistentVolume  sheaf.io/volume-move: {"migration":UID,"source":"n1", …}   by the controller
//!                    sheaf.io/previous-nodes: n1,n3                             by the controller
//! ```
//!
//! The node affinity of the PersistentVolume names the node whose file is the volume. Files on
//! other nodes are copies that are being made, or that were the volume before.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The provisioner of the classes `local` and `local-immediate`.
pub const PROVISIONER: &str = "sheaf.io/local";
/// Annotation of a volume: its provisioner.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The label by which the node affinity of a volume names its node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Annotation of an instance: the volumes that its node copies for a migration, as
/// [`CopiedVolumes`].
pub const COPIED_VOLUMES: &str = "sheaf.io/copied-volumes";
/// Annotation of a volume that is being copied to another node: a [`LocalVolumeMove`]. No machine
/// starts on the volume meanwhile.
pub const VOLUME_MOVE: &str = "sheaf.io/volume-move";
/// Annotation of a volume: nodes that it has left, separated by commas. They delete their files.
pub const PREVIOUS_NODES: &str = "sheaf.io/previous-nodes";

/// The volumes that a node copies to the target of a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedVolumes {
    /// The uid of the migration's object.
    pub migration: String,
    pub volumes: Vec<String>,
}

impl CopiedVolumes {
    /// Reads the annotation [`COPIED_VOLUMES`]; nothing if it cannot be understood.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A volume that may be on another node soon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalVolumeMove {
    /// The uid of the migration's object.
    pub migration: String,
    /// The instance that migrates.
    pub namespace: String,
    pub instance: String,
    pub uid: String,
    pub source: String,
    pub target: String,
}

impl LocalVolumeMove {
    /// Reads the annotation [`VOLUME_MOVE`]. One that cannot be understood is a move to nowhere,
    /// which ends without a change.
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The nodes in the annotation [`PREVIOUS_NODES`].
pub fn previous_nodes(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|node| !node.is_empty())
}

/// The node whose file a PersistentVolume is; nothing if it is not in files of exactly one node.
pub fn node_of(volume: &Value) -> Option<&str> {
    let spec = &volume["spec"];
    let terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array()?;
    let [term] = terms.as_slice() else { return None };
    let expressions = term["matchExpressions"].as_array()?;
    let node = expressions.iter().find_map(|it| {
        let is_name = it["key"] == HOSTNAME && it["operator"] == "In";
        match it["values"].as_array().map(Vec::as_slice) {
            Some([node]) if is_name => node.as_str(),
            _ => None,
        }
    });
    node.filter(|_| spec["local"].is_object())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(terms: &Value) -> Value {
        let affinity = json!({"required": {"nodeSelectorTerms": terms}});
        json!({"spec": {"local": {"path": "/v"}, "nodeAffinity": affinity}})
    }

    #[test]
    fn a_local_volume_is_on_the_only_node_of_its_affinity() {
        let on = |nodes: Value| {
            let one = json!({"key": HOSTNAME, "operator": "In", "values": nodes});
            json!({"matchExpressions": [one]})
        };
        for (terms, expected) in [
            (json!([on(json!(["a"]))]), Some("a")),
            (json!([on(json!(["a", "b"]))]), None),
            (json!([on(json!(["a"])), on(json!(["b"]))]), None),
            (json!([]), None),
            (Value::Null, None),
        ] {
            assert_eq!(node_of(&volume(&terms)), expected, "{terms}");
        }
        let mut other = volume(&json!([on(json!(["a"]))]));
        other["spec"]["local"] = Value::Null;
        assert_eq!(node_of(&other), None, "it is not in files of the node");
    }

    #[test]
    fn annotations_that_cannot_be_understood_name_no_volume_and_no_node() {
        assert_eq!(CopiedVolumes::parse("x"), None);
        assert_eq!(LocalVolumeMove::parse("{}"), LocalVolumeMove::default());
        let copied = CopiedVolumes { migration: "m".into(), volumes: vec!["v".into()] };
        assert_eq!(CopiedVolumes::parse(&copied.encode()), Some(copied));
        let own = LocalVolumeMove { target: "b".into(), ..LocalVolumeMove::default() };
        assert_eq!(LocalVolumeMove::parse(&own.encode()), own);
        assert_eq!(previous_nodes("a,,b").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(previous_nodes("").count(), 0);
    }
}
