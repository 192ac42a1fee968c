//! `sheaf storage`: the storage process of a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::volume::{IoDriver, Output, parse_size};

/// Serve the replicas and volumes of this node, or inspect a running storage process.
///
/// The agent starts one storage process per node; it can also be started by hand.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf storage --dir /srv/storage &\n  \
    v=$(sheaf storage create 10GiB --dir /srv/storage)\n  \
    sheaf storage attach $v --nbd /run/v.sock --dir /srv/storage\n  \
    qemu-io -f raw 'nbd+unix:///?socket=/run/v.sock' -c 'write -P 1 0 1M' -c flush\n  \
    sheaf storage snapshot $v monday --dir /srv/storage\n  \
    sheaf storage status --dir /srv/storage\n\n\
    SIGTERM releases all volumes and ends; the same command serves them again. So it does \
    after a kill.")]
pub(crate) struct StorageArgs {
    /// Directory of the process; created on first use.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Address at which other nodes reach the replicas of this node; outside of the loopback with TLS.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// CA certificate of the cluster (PEM), for mutual TLS between nodes.
    #[arg(long, value_name = "PATH", requires = "cert")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate of this node (PEM).
    #[arg(long, value_name = "PATH", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Key of the certificate (PEM).
    #[arg(long, value_name = "PATH", requires = "ca")]
    pub(crate) key: Option<PathBuf>,
    /// User and group (numbers) that the process changes to at its start; needs root.
    #[arg(long, value_name = "UID:GID", hide = true, value_parser = parse_user)]
    pub(crate) user: Option<(u32, u32)>,
    /// I/O driver for files.
    #[arg(long, value_enum, default_value = "best", hide = true)]
    pub(crate) io: IoDriver,
    #[command(subcommand)]
    pub(crate) action: Option<StorageAction>,
}

/// Requests to a running storage process.
#[derive(Debug, Subcommand)]
pub(crate) enum StorageAction {
    /// Show volumes, replicas and the progress of long operations.
    Status {
        /// Print JSON.
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Create a volume on this node, and print its ID.
    Create {
        /// Size in bytes, or with KiB, MiB, GiB or TiB.
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Delete a volume that was created with `create`, with its data.
    Delete { volume: String },
    /// Serve a volume of this node to clients.
    Attach {
        volume: String,
        /// Unix socket that NBD clients connect to.
        #[arg(long, value_name = "PATH")]
        nbd: Option<PathBuf>,
        /// Address that NBD clients connect to, without encryption or authentication.
        #[arg(long, value_name = "IP:PORT", required_unless_present_any = ["nbd", "vhost"])]
        nbd_tcp: Option<SocketAddr>,
        /// Unix socket that QEMU connects to with `vhost-user-blk`.
        #[arg(long, value_name = "PATH")]
        vhost: Option<PathBuf>,
    },
    /// Detach a volume. Clients should be disconnected.
    Detach { volume: String },
    /// Take a snapshot.
    Snapshot { volume: String, name: String },
    /// Delete a snapshot; its space is freed in the background.
    DeleteSnapshot { volume: String, name: String },
    /// Revert a volume to a snapshot. Clients should be disconnected.
    Revert { volume: String, name: String },
    /// Grow a volume.
    Resize {
        volume: String,
        /// New size in bytes, or with KiB, MiB, GiB or TiB.
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Compare all replicas of a volume, and repair differences.
    Scrub { volume: String },
    /// Send a request (one line of JSON) and print the response.
    #[command(hide = true)]
    Ask { request: String },
    /// Detach all volumes and stop the process.
    Stop,
}

fn parse_user(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(uid, gid)| {
        let pair = (uid.parse().ok()?, gid.parse().ok()?);
        (pair.0 != 0).then_some(pair)
    });
    numbers
        .ok_or_else(|| "expected the numbers of a user other than root and a group, UID:GID".into())
}
