//! `sheaf volume …`: each is also one kubectl command.

use clap::{Args, Subcommand, ValueEnum};

use super::Place;
use super::volume::parse_size;

#[derive(Debug, Clone, Args)]
pub(crate) struct Volume {
    /// Name of the volume: that of its PersistentVolumeClaim.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List volumes with their size, health, node and users.
    List {
        #[command(flatten)]
        place: Place,
        /// Of all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Make a volume, empty or from a snapshot.
    Create(NewVolume),
    /// Make a volume larger, also while a machine uses it.
    #[command(after_help = "Example:\n  sheaf volume grow data 40Gi\n\n\
        The guest sees the larger disk at once; growing its partitions and file systems is up \
        to it.\nVolumes do not shrink.")]
    Grow {
        #[command(flatten)]
        volume: Volume,
        /// New size: bytes, or with Ki, Mi, Gi or Ti.
        #[arg(value_parser = parse_size)]
        size: u64,
        /// Do not wait until it is done.
        #[arg(long)]
        no_wait: bool,
    },
    /// Take a snapshot of a volume, also while a machine uses it.
    Snapshot(Taking),
    /// Make a copy of a volume, which shares its space until one of them is written to.
    #[command(after_help = "Example:\n  sheaf volume clone data data-copy")]
    Clone {
        #[command(flatten)]
        volume: Volume,
        /// Name of the copy.
        new: String,
        /// Size of the copy; the default is that of the volume.
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        size: Option<u64>,
        /// Do not wait until it is done.
        #[arg(long)]
        no_wait: bool,
    },
    /// Delete a volume with its data.
    Delete {
        #[command(flatten)]
        volume: Volume,
        /// Do not wait until nothing is left of it.
        #[arg(long)]
        no_wait: bool,
    },
    /// Show how a volume is: its copies, its snapshots, who uses it, what happened last.
    Status {
        #[command(flatten)]
        volume: Volume,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf volume create data --size 20Gi\n  \
    sheaf volume create data --size 20Gi --class harvester-longhorn-ha\n  \
    sheaf volume create yesterday --from-snapshot data-1")]
pub(crate) struct NewVolume {
    #[command(flatten)]
    pub(crate) volume: Volume,
    /// Size: bytes, or with Ki, Mi, Gi or Ti. From a snapshot, the default is its size.
    #[arg(long, value_name = "SIZE", value_parser = parse_size,
          required_unless_present = "from_snapshot")]
    pub(crate) size: Option<u64>,
    /// Storage class; the default is the cluster's.
    #[arg(long, value_name = "NAME")]
    pub(crate) class: Option<String>,
    /// Begin with the content of this snapshot.
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) from_snapshot: Option<String>,
    /// From how many nodes it may be used; machines that move between nodes need many.
    #[arg(long, value_enum, default_value = "many")]
    pub(crate) access: Access,
    /// What it is for those who use it; to machines both are disks.
    #[arg(long, value_enum, default_value = "block")]
    pub(crate) mode: VolumeMode,
    /// Do not wait until it is made.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf volume snapshot data                   named after the volume and the time\n  \
    sheaf volume snapshot data before-upgrade\n  \
    sheaf volume create old --from-snapshot before-upgrade")]
pub(crate) struct Taking {
    #[command(flatten)]
    pub(crate) volume: Volume,
    /// Name of the snapshot.
    pub(crate) snapshot: Option<String>,
    /// Snapshot class.
    #[arg(long, value_name = "NAME", default_value = "longhorn-snapshot")]
    pub(crate) class: String,
    /// Do not wait until it can be used.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Access {
    /// One node at a time (ReadWriteOnce).
    One,
    /// Several nodes, as for a machine that moves (ReadWriteMany).
    Many,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VolumeMode {
    Block,
    Filesystem,
}
