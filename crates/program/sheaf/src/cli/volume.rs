//! `sheaf dev volume` and `sheaf replica`: volumes without a cluster around them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum DevCommand {
    /// Serve a replicated volume from a directory, or inspect one that is served.
    Volume(VolumeArgs),
}

/// Serve a volume over NBD, with its replicas as processes on this host and a file as its
/// control plane, for tests and benchmarks of the storage engine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf dev volume --dir /srv/v --size 1GiB --replicas 3 --nbd /tmp/v.sock\n  \
    qemu-io -f raw 'nbd+unix:///?socket=/tmp/v.sock' -c 'write -P 1 0 1M' -c flush\n  \
    sheaf dev volume status --dir /srv/v\n  \
    sheaf dev volume kill-replica 1 --dir /srv/v\n  \
    sheaf dev volume --dir /srv/v --standby --nbd /tmp/w.sock     a second engine, for a handover\n  \
    sheaf dev volume handover --dir /srv/v\n\n\
    Stop it with Ctrl-C or SIGTERM. After a crash, the same command resumes.")]
pub(crate) struct VolumeArgs {
    /// Directory of the volume; created on first use.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Size of a new volume in bytes, or with KiB, MiB, GiB or TiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Number of replicas of a new volume.
    #[arg(long, value_name = "N")]
    pub(crate) replicas: Option<usize>,
    /// Unix socket that NBD clients connect to.
    #[arg(long, value_name = "PATH")]
    pub(crate) nbd: Option<PathBuf>,
    /// Address that NBD clients connect to, without encryption or authentication.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Unix socket that QEMU connects to with `vhost-user-blk`.
    #[arg(long, value_name = "PATH")]
    pub(crate) vhost: Option<PathBuf>,
    /// File with the passphrase of an encrypted volume; a new volume is encrypted with it.
    #[arg(long, value_name = "PATH")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Start as a standby engine: serve reads, and take over at the first write or on `handover`.
    #[arg(long)]
    pub(crate) standby: bool,
    /// Run the replicas in the process of the engine.
    #[arg(long)]
    pub(crate) in_process: bool,
    /// I/O driver for files.
    #[arg(long, value_enum, default_value = "best", hide = true)]
    pub(crate) io: IoDriver,
    #[command(subcommand)]
    pub(crate) action: Option<VolumeAction>,
}

/// Requests to a volume that is served.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeAction {
    /// Show the replicas: in sync, rebuilding with progress, or unreachable.
    Status {
        /// Print JSON.
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Take a snapshot.
    Snapshot { name: String },
    /// List the snapshots.
    Snapshots {
        /// Print JSON.
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Delete a snapshot; its space is freed in the background.
    DeleteSnapshot { name: String },
    /// Revert the volume to a snapshot. Clients should be disconnected.
    Revert { name: String },
    /// Grow the volume.
    Resize {
        /// New size in bytes, or with KiB, MiB, GiB or TiB.
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Compare all replicas, and repair differences.
    Scrub,
    /// Discard a replica and rebuild it from the others.
    Rebuild { index: usize },
    /// Kill a replica's process, as a crash would.
    KillReplica { index: usize },
    /// Start a replica's process.
    StartReplica { index: usize },
    /// Hand the volume over to the standby engine.
    Handover,
    /// Keep one replica when the replicas in sync are lost; the volume must not be served.
    ///
    /// Data that only the other replicas have is lost. They are rebuilt from the replica that is
    /// kept when the volume is served again.
    Salvage {
        /// Replica to keep.
        index: usize,
        /// Discard replicas that are in sync and readable.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IoDriver {
    Best,
    Uring,
    Threads,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplicaCommand {
    /// Verify the directory of a replica, and explain the result.
    ///
    /// Nothing is changed. Exits with 0 if the replica can be opened and read, with 1 if something
    /// is damaged, and with 3 if the directory is not one of a replica.
    Check {
        /// Directory of the replica; it must not be in use.
        dir: PathBuf,
        /// Check the super block, log and maps only, not the data.
        #[arg(long)]
        metadata_only: bool,
        /// Print JSON.
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Serve the replica in a directory to engines.
    #[command(hide = true)]
    Serve {
        dir: PathBuf,
        /// Unix socket that engines connect to.
        #[arg(
            long,
            value_name = "PATH",
            conflicts_with = "listen",
            required_unless_present = "listen"
        )]
        socket: Option<PathBuf>,
        /// Address that engines connect to.
        #[arg(long, value_name = "IP:PORT")]
        listen: Option<SocketAddr>,
        /// Stop when no engine has been connected for this many seconds.
        #[arg(long, value_name = "SECONDS")]
        idle: Option<u64>,
        /// End when standard input does and no engine is connected.
        #[arg(long)]
        with_parent: bool,
        #[arg(long, value_enum, default_value = "best")]
        io: IoDriver,
    },
}

/// A number of bytes with an optional unit.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "K" | "Ki" | "KiB" => 10,
        "M" | "Mi" | "MiB" => 20,
        "G" | "Gi" | "GiB" => 30,
        "T" | "Ti" | "TiB" => 40,
        _ => return Err(format!("unknown unit {unit:?}; valid units are Ki, Mi, Gi and Ti")),
    };
    let number: u64 = number.parse().map_err(|_| "expected a size such as 10Gi".to_owned())?;
    // Kubernetes' quantities are signed.
    let size = number.checked_mul(1 << shift).filter(|size| i64::try_from(*size).is_ok());
    size.ok_or_else(|| format!("{text} is too large: sizes are below 8388608Ti"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, size) in [
            ("4096", Ok(4096)),
            ("1GiB", Ok(1 << 30)),
            ("10G", Ok(10 << 30)),
            ("3 MiB", Ok(3 << 20)),
            ("0", Ok(0)),
        ] {
            assert_eq!(parse_size(text), size, "{text}");
        }
        for text in ["", "GiB", "-1", "1.5GiB", "1GB", "99999999999TiB", "8388608Ti"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
