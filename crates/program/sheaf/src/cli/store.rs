//! Where the objects of the API are stored, and the commands `sheaf store …`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{DataDir, EncryptionArgs};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    /// One file in the data directory: for a single node.
    Sqlite,
    /// An etcd cluster, named by --etcd-endpoints: for several nodes.
    Etcd,
}

/// How to reach etcd.
#[derive(Debug, Clone, Args)]
pub(crate) struct EtcdArgs {
    /// URLs of the etcd members, separated by commas.
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    pub(crate) etcd_endpoints: Vec<String>,
    /// CA that etcd's certificates are checked against (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for etcd (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd.
    #[arg(long, value_name = "PATH", default_value = "/registry")]
    pub(crate) etcd_prefix: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Write a consistent copy of all objects, also while the server runs: of the embedded store, or
    /// of the etcd that this management node is a member of.
    Backup {
        #[command(flatten)]
        data: DataDir,
        /// File to write; it must not exist.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Create the store of a new data directory from a backup. The server must not run.
    ///
    /// Resource versions continue far above those of the backup, so that clients that saw later
    /// ones list everything again. An existing store is never overwritten.
    Restore {
        #[command(flatten)]
        data: DataDir,
        /// Backup to read.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
    },
    /// Rewrite all objects that are not encrypted with the current configuration.
    ///
    /// Needed after encryption was turned on or off, or a key was added. An embedded store must
    /// not be in use; etcd may be.
    #[command(after_help = "Examples:\n  \
        sheaf store reencrypt                           encrypt existing secrets\n  \
        sheaf store reencrypt --new-key                 with a new key; the old one is removed\n  \
        sheaf store reencrypt --encrypt-secrets=false   store everything unencrypted")]
    Reencrypt {
        #[command(flatten)]
        data: DataDir,
        #[command(flatten)]
        encryption: EncryptionArgs,
        /// Generate a new key first, and remove older keys when they are not needed any more.
        #[arg(long, conflicts_with = "encryption_provider_config")]
        new_key: bool,
        #[command(flatten)]
        etcd: EtcdArgs,
    },
    /// Copy the embedded store into an empty etcd, to turn a single node into a cluster.
    ///
    /// The server must not run. Start it afterwards with --store etcd.
    Copy {
        #[command(flatten)]
        data: DataDir,
        #[command(flatten)]
        etcd: EtcdArgs,
    },
}
