//! Taints of nodes and what tolerates them.

use serde_json::Value;

use crate::object::{list, text};

/// Whether a taint of the node keeps away who has only these tolerations.
pub(super) fn repels(node: &Value, tolerations: &[Value]) -> bool {
    let strict = |taint: &&Value| matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute");
    let mut taints = list(node, "/spec/taints").iter().filter(strict);
    taints.any(|taint| !tolerations.iter().any(|own| tolerates(own, taint)))
}

pub(super) fn tolerates_unschedulable(tolerations: &[Value]) -> bool {
    let taint = serde_json::json!({"key": "node.kubernetes.io/unschedulable",
        "effect": "NoSchedule"});
    tolerations.iter().any(|own| tolerates(own, &taint))
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let agrees = |pointer: &str| {
        let own = text(toleration, pointer);
        own.is_empty() || own == text(taint, pointer)
    };
    agrees("/effect")
        && agrees("/key")
        && match text(toleration, "/operator") {
            "Exists" => true,
            // An empty key with `Equal` tolerates nothing.
            "" | "Equal" => {
                !text(toleration, "/key").is_empty()
                    && text(toleration, "/value") == text(taint, "/value")
            }
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_toleration_matches_key_value_and_effect() {
        let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "value": "v", "effect": "NoExecute"}), false),
            (json!({"value": "v"}), false),
        ] {
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration}");
        }
    }

    #[test]
    fn a_preference_of_the_node_repels_no_machine() {
        let node = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
        assert!(!repels(&node, &[]));
    }
}
