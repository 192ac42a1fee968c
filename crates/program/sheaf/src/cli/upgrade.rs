//! `sheaf upgrade`: its arguments.

use clap::{Args, Subcommand};

use super::ClusterScope;
use super::value::{node_name, object_name};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        sheaf upgrade --binary ./sheaf --dry-run   check, and show the order of the nodes\n  \
        sheaf upgrade --binary ./sheaf             upgrade all nodes, one after the other\n  \
        sheaf upgrade abort                        go back to the program before\n\n\
        Machines keep running. A node whose new program does not become healthy goes back by\n\
        itself. An upgrade can be undone until it is finalized, by the command or after a day."
)]
pub(crate) struct UpgradeArgs {
    #[command(subcommand)]
    pub(crate) action: Option<UpgradeAction>,
    #[command(flatten)]
    pub(crate) place: ClusterScope,
    /// New program: a file, or an http(s) URL that all nodes reach.
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) binary: Option<String>,
    /// SHA-512 sum of the program at a URL.
    #[arg(long, value_name = "SUM")]
    pub(crate) checksum: Option<String>,
    /// Name of the Version object; the default is made of version and checksum.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) name: Option<String>,
    /// Check the cluster and show what would be done; changes nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Begin although checks of the cluster fail.
    #[arg(long)]
    pub(crate) skip_checks: bool,
    /// Do not wait until all nodes are upgraded.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeAction {
    /// Show the last upgrade and the program of each node.
    Status {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Begin no further node until the upgrade is resumed.
    Pause {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Go on with an upgrade that is paused.
    Resume {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Try again on a node that failed.
    Retry {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Leave nodes out, for instance one that is down. They keep the program that they have.
    Skip {
        #[command(flatten)]
        place: ClusterScope,
        /// Names of nodes.
        #[arg(required = true, value_parser = node_name)]
        nodes: Vec<String>,
    },
    /// Have all nodes go back to the program before; also after the upgrade has completed.
    Abort {
        #[command(flatten)]
        place: ClusterScope,
        /// Do not wait until all nodes have gone back.
        #[arg(long)]
        no_wait: bool,
    },
    /// Make a completed upgrade final: it cannot be undone any more.
    Finalize {
        #[command(flatten)]
        place: ClusterScope,
    },
}
