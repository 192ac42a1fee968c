//! `sheaf vm …`: each is also one kubectl or virtctl command.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::DataDir;
use super::volume::parse_size;

/// Which cluster, and where in it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// Namespace to work in.
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,
    /// Kubeconfig to use; the default is that of the administrator in the data directory.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataDir,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Machine {
    /// Name of the machine.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    /// List machines with their state, address and node.
    List {
        #[command(flatten)]
        place: Place,
        /// Of all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Make a machine from an image, in one line.
    Create(Box<CreateArgs>),
    /// Start a machine.
    Start {
        #[command(flatten)]
        machine: Machine,
        /// Stop before its first instruction; `sheaf vm unpause` lets it go.
        #[arg(long)]
        paused: bool,
    },
    /// Stop a machine: ask it to shut down, and end it if it does not.
    Stop {
        #[command(flatten)]
        machine: Machine,
        /// Pull the plug instead.
        #[arg(long)]
        force: bool,
    },
    /// Stop a machine and start it again.
    Restart {
        #[command(flatten)]
        machine: Machine,
    },
    /// Freeze a machine where it is.
    Pause {
        #[command(flatten)]
        machine: Machine,
    },
    /// Let a paused machine go on.
    Unpause {
        #[command(flatten)]
        machine: Machine,
    },
    /// Delete a machine, and the volumes that were made for it.
    Delete {
        #[command(flatten)]
        machine: Machine,
    },
    /// Sit down at the serial console; Ctrl-] leaves it.
    Console {
        #[command(flatten)]
        machine: Machine,
    },
    /// Offer the machine's screen on a local port, and open a viewer if there is one.
    Vnc {
        #[command(flatten)]
        machine: Machine,
        /// Where to listen for viewers.
        #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Only listen; start no viewer.
        #[arg(long)]
        proxy_only: bool,
    },
    /// Log in by SSH, whatever network the machine is in.
    Ssh {
        #[command(flatten)]
        machine: Machine,
        /// Log in as this user.
        #[arg(long, short = 'l', value_name = "USER", default_value = "root")]
        login: String,
        /// Private key to use.
        #[arg(long, short, value_name = "FILE")]
        identity: Option<PathBuf>,
        /// What to run instead of a shell.
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Connect standard input and output to a port of the machine.
    PortForward {
        #[command(flatten)]
        machine: Machine,
        /// The port in the machine.
        port: u16,
        /// Listen here instead of using standard input and output.
        #[arg(long, value_name = "IP:PORT")]
        listen: Option<SocketAddr>,
    },
    /// Print what the machine has written to its serial console.
    Logs {
        #[command(flatten)]
        machine: Machine,
    },
    /// Say in words why a machine does not run, and what to do about it.
    Why {
        #[command(flatten)]
        machine: Machine,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf vm create web --image debian --ssh-key ~/.ssh/id_ed25519.pub\n  \
    sheaf vm create web --image debian-12.qcow2 --ssh-key ~/.ssh/id_ed25519.pub\n  \
    sheaf vm create db --image https://example.org/ubuntu.img --cpus 4 --memory 8Gi --disk 40Gi\n  \
    sheaf vm create lab --image guest.qcow2 --password secret --dry-run   print it only")]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) machine: Machine,
    /// Image to start from: one of `sheaf image list`, a file, a http(s) URL, or docker://… for a
    /// disk in a registry.
    #[arg(long, value_name = "NAME|FILE|URL")]
    pub(crate) image: String,
    /// Size of the disk; the default is that of the image, and at least 10Gi for a URL.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) disk: Option<u64>,
    /// Number of processors.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(crate) cpus: u32,
    /// Memory of the guest.
    #[arg(long, value_name = "SIZE", default_value = "1Gi", value_parser = parse_size)]
    pub(crate) memory: u64,
    /// File with the public key that may log in; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) ssh_key: Vec<PathBuf>,
    /// Password of the image's default user, by cloud-init.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) password: Option<String>,
    /// cloud-init user data to use as it is, instead of what the two above make.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh_key", "password"])]
    pub(crate) user_data: Option<PathBuf>,
    /// Storage class of the disk.
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_class: Option<String>,
    /// Boot by UEFI instead of BIOS.
    #[arg(long)]
    pub(crate) efi: bool,
    /// Make it, but do not start it.
    #[arg(long)]
    pub(crate) stopped: bool,
    /// Print the objects instead of making them.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
