//! `sheaf host`: its arguments.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ClusterScope;
use super::value::node_name;

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// The networks of hosts: uplinks, and interfaces with addresses.
    #[command(subcommand)]
    Network(HostNetworkCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostNetworkCommand {
    /// Show the uplinks and interfaces of a node, and a change that is on trial.
    Show {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        node: String,
    },
    /// Apply VlanConfigs and HostNetworkConfigs of a file as a trial.
    ///
    /// Each node that they select changes its network, one at a time, and rolls the change back at the
    /// deadline unless `sheaf host network confirm` keeps it.
    #[command(after_help = "Examples:\n  \
        sheaf host network try -f uplink.yaml --deadline 120\n  \
        sheaf host network confirm n1")]
    Try(HostTryArgs),
    /// Keep the change that is on trial on a node.
    Confirm {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the node.
        #[arg(value_parser = node_name)]
        node: String,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct HostTryArgs {
    #[command(flatten)]
    pub(crate) place: ClusterScope,
    /// File with VlanConfigs and HostNetworkConfigs.
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Seconds until the change is rolled back: 30 to 600.
    #[arg(long, value_name = "SECONDS", default_value_t = 90,
        value_parser = clap::value_parser!(i64).range(30..=600))]
    pub(crate) deadline: i64,
    /// Let checks of the node confirm the change, instead of a person.
    #[arg(long)]
    pub(crate) auto: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WatchdogArgs {
    /// Directory of the record.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Number of the trial.
    #[arg(long, value_name = "ID")]
    pub(crate) trial: u64,
}
