//! `sheaf storage`: the storage process of a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::volume::{IoDriver, Output, parse_size};

/// Serves the replicas and volumes of this node, or looks after a process that does.
///
/// The agent starts one per node and speaks to it; by hand it serves volumes of this machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf storage --dir /srv/storage --listen 10.0.0.1:9000 &\n  \
    v=$(sheaf storage create 10GiB --dir /srv/storage)\n  \
    sheaf storage attach $v --nbd /run/v.sock --dir /srv/storage\n  \
    qemu-io -f raw 'nbd+unix:///?socket=/run/v.sock' -c 'write -P 1 0 1M' -c flush\n  \
    sheaf storage snapshot $v monday --dir /srv/storage\n  \
    sheaf storage status --dir /srv/storage\n\n\
    SIGTERM lets go of all volumes and ends; the same command serves them again. So it does \
    after a kill.")]
pub(crate) struct StorageArgs {
    /// Directory of the process; made on first use.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Address where other nodes reach the replicas here.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Certificate of the cluster's authority, in PEM form: nodes meet over TLS, and only nodes.
    #[arg(long, value_name = "PATH", requires = "cert")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate of this node, as it has one for the API server.
    #[arg(long, value_name = "PATH", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, value_name = "PATH", requires = "ca")]
    pub(crate) key: Option<PathBuf>,
    /// How files are read and written.
    #[arg(long, value_enum, default_value = "best", hide = true)]
    pub(crate) io: IoDriver,
    #[command(subcommand)]
    pub(crate) action: Option<StorageAction>,
}

/// What can be asked of a storage process that runs.
#[derive(Debug, Subcommand)]
pub(crate) enum StorageAction {
    /// Show volumes and replicas, and how far long work is.
    Status {
        /// Print JSON.
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Make a volume on this node, and print its id.
    Create {
        /// Bytes, or with KiB, MiB, GiB or TiB.
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Delete a volume that `create` made, with its data.
    Delete { volume: String },
    /// Serve a volume of this node to clients.
    Attach {
        volume: String,
        /// Unix socket that NBD clients connect to.
        #[arg(long, value_name = "PATH")]
        nbd: Option<PathBuf>,
        /// Address that NBD clients connect to; the protocol has neither encryption nor passwords.
        #[arg(long, value_name = "IP:PORT", required_unless_present_any = ["nbd", "vhost"])]
        nbd_tcp: Option<SocketAddr>,
        /// Unix socket that QEMU connects to with `vhost-user-blk`.
        #[arg(long, value_name = "PATH")]
        vhost: Option<PathBuf>,
    },
    /// Let go of a volume. Clients should be gone.
    Detach { volume: String },
    /// Take a snapshot.
    Snapshot { volume: String, name: String },
    /// Delete a snapshot; its space comes back in the background.
    DeleteSnapshot { volume: String, name: String },
    /// Make the volume what it was when a snapshot was taken. Clients should be gone.
    Revert { volume: String, name: String },
    /// Grow a volume.
    Resize {
        volume: String,
        /// The new size: bytes, or with KiB, MiB, GiB or TiB.
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Compare everything on all replicas of a volume, and repair what differs.
    Scrub { volume: String },
    /// Send a request, one line of JSON, and print the answer.
    #[command(hide = true)]
    Ask { request: String },
    /// Let go of all volumes and end the process.
    Stop,
}
