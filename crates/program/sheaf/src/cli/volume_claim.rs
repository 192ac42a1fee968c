//! `sheaf volume …`: each is also one kubectl command.

use clap::{Args, Subcommand, ValueEnum};

use super::ClusterScope;
use super::value::{object_name, volume_size};

#[derive(Debug, Clone, Args)]
pub(crate) struct VolumeClaim {
    /// Name of the volume: the name of its PersistentVolumeClaim.
    #[arg(value_parser = object_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: ClusterScope,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List volumes with their size, health, node and users.
    List {
        #[command(flatten)]
        place: ClusterScope,
        /// List all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Create a volume, empty or from a snapshot.
    Create(NewVolume),
    /// Grow a volume, also while a machine uses it.
    #[command(after_help = "Example:\n  sheaf volume grow data 40Gi\n\n\
        A running guest sees the new size at once; its partitions and file systems have to be \
        grown in the guest.\nVolumes cannot shrink.")]
    Grow {
        #[command(flatten)]
        volume: VolumeClaim,
        /// New size, for example 40Gi.
        #[arg(value_parser = volume_size)]
        size: u64,
        /// Return without waiting for the result.
        #[arg(long)]
        no_wait: bool,
    },
    /// Take a snapshot of a volume, also while a machine uses it.
    Snapshot(SnapshotArgs),
    /// Clone a volume; the clone shares space with it until either is written to.
    #[command(after_help = "Example:\n  sheaf volume clone data data-copy")]
    Clone {
        #[command(flatten)]
        volume: VolumeClaim,
        /// Name of the copy.
        #[arg(value_parser = object_name)]
        new: String,
        /// Size of the copy; the default is that of the volume.
        #[arg(long, value_name = "SIZE", value_parser = volume_size)]
        size: Option<u64>,
        /// Return without waiting for the result.
        #[arg(long)]
        no_wait: bool,
    },
    /// Delete a volume with its data.
    Delete {
        #[command(flatten)]
        volume: VolumeClaim,
        /// Return without waiting until its data is removed.
        #[arg(long)]
        no_wait: bool,
    },
    /// Show the replicas, snapshots, users and latest events of a volume.
    Status {
        #[command(flatten)]
        volume: VolumeClaim,
    },
    /// Accept the loss of writes in a volume whose in-sync replicas are lost or stale.
    #[command(after_help = "Examples:\n  \
        sheaf volume salvage data             show what would be lost\n  \
        sheaf volume salvage data --yes       accept it\n\n\
        A volume is not attached when every in-sync replica is older than writes that were \
        acknowledged,\nfor example because the disk of the only one was restored from a backup. \
        Restore the newest copy\nif there is one; otherwise choose a replica to go on with.")]
    Salvage {
        #[command(flatten)]
        volume: VolumeClaim,
        /// Name of the replica to keep; needed if several are in sync.
        #[arg(long, value_name = "NAME", value_parser = object_name)]
        replica: Option<String>,
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf volume create data --size 20Gi\n  \
    sheaf volume create data --size 20Gi --class harvester-longhorn-ha\n  \
    sheaf volume create yesterday --from-snapshot data-1")]
pub(crate) struct NewVolume {
    #[command(flatten)]
    pub(crate) volume: VolumeClaim,
    /// Size, for example 20Gi; from a snapshot, the default is the size of the snapshot.
    #[arg(long, value_name = "SIZE", value_parser = volume_size,
          required_unless_present = "from_snapshot")]
    pub(crate) size: Option<u64>,
    /// Storage class; the default is the cluster's.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) class: Option<String>,
    /// Create the volume from this snapshot.
    #[arg(long, value_name = "SNAPSHOT", value_parser = object_name)]
    pub(crate) from_snapshot: Option<String>,
    /// From how many nodes it may be used; machines that move between nodes need many.
    #[arg(long, value_enum, default_value = "many")]
    pub(crate) access: Access,
    /// Volume mode; machines use both as disks.
    #[arg(long, value_enum, default_value = "block")]
    pub(crate) mode: VolumeMode,
    /// Return without waiting until it is created.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf volume snapshot data                   named after the volume and the time\n  \
    sheaf volume snapshot data before-upgrade\n  \
    sheaf volume create old --from-snapshot before-upgrade")]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeClaim,
    /// Name of the snapshot.
    #[arg(value_parser = object_name)]
    pub(crate) snapshot: Option<String>,
    /// Snapshot class.
    #[arg(long, value_name = "NAME", default_value = "longhorn-snapshot",
          value_parser = object_name)]
    pub(crate) class: String,
    /// Return without waiting until it can be used.
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
