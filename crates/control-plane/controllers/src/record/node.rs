//! Nodes of the cluster.

use super::condition::ConditionFields;
use super::quantity::WrittenQuantity;

fields! {
    pub(crate) struct NodeFields<'a> {
        spec: NodeSpec<'a>,
        status: NodeStatus<'a>,
    }

    pub(crate) struct NodeSpec<'a> {
        unschedulable: bool,
        taints: Vec<TaintFields<'a>>,
    }

    pub(crate) struct TaintFields<'a> {
        key: &'a str,
        effect: &'a str,
    }

    pub(crate) struct NodeStatus<'a> {
        allocatable: NodeResources,
        conditions: Vec<ConditionFields<'a>>,
    }

    pub(crate) struct NodeResources {
        memory: WrittenQuantity,
        ephemeral_storage as "ephemeral-storage": WrittenQuantity,
    }
}
