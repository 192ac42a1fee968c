//! `sheaf node` and `sheaf cluster`: their words.

use clap::Subcommand;

use super::ClusterScope;
use super::value::node_name;

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes with their role, state, address and load.
    List {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Show a node: its state, machines and replicas.
    Show {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        name: String,
    },
    /// Set or remove labels of a node.
    #[command(after_help = "Examples:\n  \
        sheaf node label n2 topology.kubernetes.io/zone=rack-1\n  \
        sheaf node label n2 disk-          removes the label disk")]
    Label {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        name: String,
        /// KEY=VALUE, or KEY- to remove a label.
        #[arg(required = true)]
        labels: Vec<String>,
    },
    /// Remove a node from the cluster; its certificate gets in nowhere from then on.
    ///
    /// Nothing on the node itself is changed. A node with machines or replicas is removed only
    /// with --force.
    Remove {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        name: String,
        /// Remove it although machines run on it or replicas are stored on it.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the state of the cluster: nodes, machines, volumes.
    Status {
        #[command(flatten)]
        place: ClusterScope,
    },
}
