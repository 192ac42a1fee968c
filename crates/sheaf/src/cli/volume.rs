//! `sheaf dev volume` and `sheaf replica`: volumes without a cluster around them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum DevCommand {
    /// Serve a replicated volume from a directory, or look after one that is served.
    Volume(VolumeArgs),
}

/// Serves a volume over NBD, with its replicas as processes on this machine and a file as its
/// control plane: to try the storage engine, to measure it, and to break it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf dev volume --dir /srv/v --size 1GiB --replicas 3 --nbd /tmp/v.sock\n  \
    qemu-io -f raw 'nbd+unix:///?socket=/tmp/v.sock' -c 'write -P 1 0 1M' -c flush\n  \
    sheaf dev volume status --dir /srv/v\n  \
    sheaf dev volume kill-replica 1 --dir /srv/v\n  \
    sheaf dev volume --dir /srv/v --standby --nbd /tmp/w.sock     a second engine, for a handover\n  \
    sheaf dev volume handover --dir /srv/v\n\n\
    Stop it with Ctrl-C or SIGTERM. Whatever is killed, the same command goes on where it was.")]
pub(crate) struct VolumeArgs {
    /// Directory of the volume; made on first use.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Size of a new volume: bytes, or with KiB, MiB, GiB or TiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// How many copies a new volume has.
    #[arg(long, value_name = "N")]
    pub(crate) replicas: Option<usize>,
    /// Unix socket that NBD clients connect to.
    #[arg(long, value_name = "PATH")]
    pub(crate) nbd: Option<PathBuf>,
    /// Address that NBD clients connect to; the protocol has neither encryption nor passwords.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Unix socket that QEMU connects to with `vhost-user-blk`.
    #[arg(long, value_name = "PATH")]
    pub(crate) vhost: Option<PathBuf>,
    /// File with the passphrase of an encrypted volume; makes a new one encrypted.
    #[arg(long, value_name = "PATH")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Leave the volume to the engine that serves it, and take it at the first write or by
    /// `handover`; reads are served from the start.
    #[arg(long)]
    pub(crate) standby: bool,
    /// Keep the replicas in the process of the engine.
    #[arg(long)]
    pub(crate) in_process: bool,
    /// How files are read and written.
    #[arg(long, value_enum, default_value = "best", hide = true)]
    pub(crate) io: IoDriver,
    #[command(subcommand)]
    pub(crate) action: Option<VolumeAction>,
}

/// What can be asked of a volume that is served.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeAction {
    /// Show the replicas: who is in sync, who learns and how far, who is away.
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
    /// Delete a snapshot; its space comes back in the background.
    DeleteSnapshot { name: String },
    /// Make the volume what it was when a snapshot was taken. Clients should be gone.
    Revert { name: String },
    /// Grow the volume.
    Resize {
        /// The new size: bytes, or with KiB, MiB, GiB or TiB.
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Compare everything on all replicas, and repair what differs.
    Scrub,
    /// Throw a replica away and build an empty one up in its place.
    Rebuild { index: usize },
    /// Kill a replica's process, as a crash would.
    KillReplica { index: usize },
    /// Start a replica's process.
    StartReplica { index: usize },
    /// Let the engine that was started with --standby take the volume.
    Handover,
    /// Declare one replica to be the truth when those in sync are lost; nobody may serve the volume.
    ///
    /// What only the other replicas have is lost for good. They are built up anew from the one
    /// that is kept when the volume is served again.
    Salvage {
        /// The replica that is kept.
        index: usize,
        /// Give up replicas that are in sync and can be read.
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
    /// Verify a replica's directory, and explain what is found.
    ///
    /// Nothing is changed. Exits with 0 if opening and reading will work, with 1 if something is
    /// damaged, and with 3 if the directory is not one of a replica.
    Check {
        /// The directory with the replica's files; nobody may be using it.
        dir: PathBuf,
        /// Leave out the data: super block, log and maps only.
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
        /// End when no engine has been connected for so many seconds.
        #[arg(long, value_name = "SECONDS")]
        idle: Option<u64>,
        #[arg(long, value_enum, default_value = "best")]
        io: IoDriver,
    },
}

/// A number of bytes, as people write it.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "K" | "Ki" | "KiB" => 10,
        "M" | "Mi" | "MiB" => 20,
        "G" | "Gi" | "GiB" => 30,
        "T" | "Ti" | "TiB" => 40,
        _ => return Err(format!("unknown unit {unit:?}; KiB, MiB, GiB and TiB are possible")),
    };
    let number: u64 = number.parse().map_err(|_| "a number is needed, such as 10GiB".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too large; the largest volume is 15TiB".to_owned())
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
        for text in ["", "GiB", "-1", "1.5GiB", "1GB", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
