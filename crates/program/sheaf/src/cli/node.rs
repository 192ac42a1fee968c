//! `sheaf node` and `sheaf cluster`: their words.

use clap::Subcommand;

use super::value::node_name;
use super::{ClusterScope, DataDir};

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
    /// Put a node into maintenance: migrate its machines away and keep new ones off it.
    ///
    /// Waits until no machine is left. Machines that cannot be migrated are listed with the reason,
    /// and nothing is changed unless --force shuts them down. Copies of volumes stay on the node
    /// and catch up when it is back.
    #[command(after_help = "Examples:\n  \
        sheaf node maintenance n2 --dry-run   show what would become of each machine\n  \
        sheaf node maintenance n2             empty the node\n  \
        sheaf node maintenance n2 --off       take it back into use")]
    Maintenance {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        name: String,
        /// Shut machines down that cannot be migrated.
        #[arg(long, conflicts_with = "off")]
        force: bool,
        /// Show what would become of each machine, and change nothing.
        #[arg(long, conflicts_with = "off")]
        dry_run: bool,
        /// Do not wait until the node is empty.
        #[arg(long, conflicts_with = "off")]
        no_wait: bool,
        /// End maintenance, or cancel it while machines still leave.
        #[arg(long)]
        off: bool,
    },
    /// Show what the loss of a node would mean; changes nothing.
    ///
    /// Lists the machines that would start on other nodes, those that would wait for room and those
    /// that would stay down, each with the reason, and the volumes that would lose a copy.
    WhatIf {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        name: String,
    },
    /// Make a management node of a worker.
    ///
    /// It takes the keys of the cluster over and waits for a seat in etcd, which has to be installed
    /// there. Machines on it go on running.
    Promote {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        name: String,
    },
    /// Make a worker of a management node.
    ///
    /// Its member is removed from etcd, if the others keep a healthy majority. Machines on it go on
    /// running. `sheaf cluster reduce` leaves one management node, with SQLite.
    Demote {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        name: String,
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
    /// Leave one management node, and move its objects from etcd back into SQLite.
    ///
    /// Run it on the management node that stays. The others become workers, and their machines go on
    /// running. The API is unavailable for some seconds while the objects move; resource versions
    /// continue. The command asks before it changes anything, and can be repeated if it is
    /// interrupted.
    Reduce {
        #[command(flatten)]
        place: ClusterScope,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },

    /// Let this management node go on alone when the majority of management nodes is lost for good.
    ///
    /// Stop Sheaf on this node first. The command reports what will be lost and asks before it
    /// changes anything. The data of etcd is copied first.
    Recover {
        #[command(flatten)]
        data: DataDir,
        /// Lose the newer changes of this node, which answers and cannot go on itself: a witness, or a
        /// node that does not vote yet. May be given more than once.
        #[arg(long, value_name = "NODE")]
        give_up: Vec<String>,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}
