//! `sheaf vm …`: each is also one kubectl or virtctl command.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser as _};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use super::DataDir;
use super::value::{guest_user, memory_size, namespace_name, object_name, volume_size};
use super::volume::Output;

/// The cluster and the namespace to work in.
///
/// A data directory that the command line names wins over a kubeconfig that only the environment
/// names: the command is for that cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterScope {
    pub(crate) namespace: String,
    kubeconfig: Option<PathBuf>,
    pub(crate) data: DataDir,
}

/// The flags of a [`ClusterScope`].
#[derive(Debug, Args)]
struct ScopeFlags {
    /// Namespace to work in.
    #[arg(long, short, value_name = "NAME", default_value = "default",
          value_parser = namespace_name)]
    namespace: String,
    /// Kubeconfig to use; the default is that of the administrator in the data directory.
    ///
    /// A --data-dir on the command line wins over a kubeconfig of the environment. Several files,
    /// separated by colons, are merged.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG",
          value_parser = OsStringValueParser::new().map(PathBuf::from))]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    data: DataDir,
}

impl FromArgMatches for ClusterScope {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |flag| matches.value_source(flag) == Some(ValueSource::CommandLine);
        let is_elsewhere = is_given("data_dir") && !is_given("kubeconfig");
        let ScopeFlags { namespace, kubeconfig, data } = ScopeFlags::from_arg_matches_mut(matches)?;
        Ok(Self { namespace, kubeconfig: kubeconfig.filter(|_| !is_elsewhere), data })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ClusterScope {
    fn augment_args(command: clap::Command) -> clap::Command {
        ScopeFlags::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        ScopeFlags::augment_args_for_update(command)
    }
}

impl ClusterScope {
    /// The kubeconfig that was named; an empty name is none, as for kubectl.
    pub(crate) fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty())
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct MachineArg {
    /// Name of the machine.
    #[arg(value_parser = object_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: ClusterScope,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    /// List machines with their state, address and node.
    List {
        #[command(flatten)]
        place: ClusterScope,
        /// List all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Create a machine from an image.
    Create(Box<CreateArgs>),
    /// Start a machine.
    Start {
        #[command(flatten)]
        machine: MachineArg,
        /// Start it paused, before its first instruction; `sheaf vm unpause` continues.
        #[arg(long)]
        paused: bool,
    },
    /// Shut a machine down, and kill it if it does not stop within its grace period.
    Stop {
        #[command(flatten)]
        machine: MachineArg,
        /// Kill it at once, without a shutdown.
        #[arg(long)]
        force: bool,
    },
    /// Restart a machine.
    Restart {
        #[command(flatten)]
        machine: MachineArg,
    },
    /// Pause a running machine.
    Pause {
        #[command(flatten)]
        machine: MachineArg,
    },
    /// Resume a paused machine.
    Unpause {
        #[command(flatten)]
        machine: MachineArg,
    },
    /// Move a running machine to another node without a reboot.
    Migrate(MigrateArgs),
    /// Move a disk of a running machine to another storage class.
    MoveDisk(MoveDiskArgs),
    /// Delete a machine and the volumes that were created with it.
    Delete {
        #[command(flatten)]
        machine: MachineArg,
    },
    /// Connect to the serial console; Ctrl-] disconnects.
    Console {
        #[command(flatten)]
        machine: MachineArg,
    },
    /// Forward the VNC display to a local port, and open a viewer if one is installed.
    Vnc {
        #[command(flatten)]
        machine: MachineArg,
        /// Local address to listen on for viewers.
        #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Only listen, without starting a viewer.
        #[arg(long)]
        proxy_only: bool,
    },
    /// Log in with SSH through the API, without network access to the machine.
    ///
    /// Host keys are kept in ~/.ssh/sheaf_known_hosts. The key of a new machine is accepted, a
    /// changed key is refused. Without a terminal nothing is asked for.
    Ssh {
        #[command(flatten)]
        machine: MachineArg,
        /// Log in as this user.
        #[arg(long, short = 'l', value_name = "USER", default_value = "root",
              value_parser = guest_user)]
        login: String,
        /// Private key to use.
        #[arg(long, short, value_name = "FILE")]
        identity: Option<PathBuf>,
        /// Command to run instead of a shell.
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Connect standard input and output to a port of the machine.
    PortForward {
        #[command(flatten)]
        machine: MachineArg,
        /// TCP port of the machine.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
        /// Listen on this local address instead of using standard input and output.
        #[arg(long, value_name = "IP:PORT")]
        listen: Option<SocketAddr>,
    },
    /// Print the log of the serial console.
    Logs {
        #[command(flatten)]
        machine: MachineArg,
    },
    /// Explain why a machine is not running or not ready, with commands that help.
    Why {
        #[command(flatten)]
        machine: MachineArg,
        /// Print JSON.
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArg,
    /// Node to move to; the default is the one that the scheduler chooses.
    #[arg(long, value_name = "NODE", value_parser = object_name, conflicts_with = "cancel")]
    pub(crate) to: Option<String>,
    /// Cancel a migration that is under way.
    #[arg(long, conflicts_with = "no_wait")]
    pub(crate) cancel: bool,
    /// Return without waiting for the result.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sheaf vm move-disk web --class harvester-longhorn\n\n\
    The guest keeps running: its disk is copied to a new volume, and the guest is switched to it.\n\
    The old volume is kept.")]
pub(crate) struct MoveDiskArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArg,
    /// Disk to move; needed if the machine has several.
    #[arg(long, value_name = "DISK", value_parser = object_name)]
    pub(crate) disk: Option<String>,
    /// Storage class to move it to.
    #[arg(long, value_name = "CLASS", value_parser = object_name, required_unless_present = "cancel")]
    pub(crate) class: Option<String>,
    /// Name of the new volume; the default is the old one with a suffix.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) claim: Option<String>,
    /// Cancel moves that are under way: the guest stays on its old volumes.
    #[arg(long, conflicts_with_all = ["disk", "class", "claim", "no_wait"])]
    pub(crate) cancel: bool,
    /// Return without waiting for the result.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf vm create web --image debian --ssh-key ~/.ssh/id_ed25519.pub\n  \
    sheaf vm create web --image debian-12.qcow2 --ssh-key ~/.ssh/id_ed25519.pub\n  \
    sheaf vm create db --image https://example.org/ubuntu.img --cpus 4 --memory 8Gi --disk 40Gi\n  \
    sheaf vm create lab --image guest.qcow2 --password secret --dry-run   print it only")]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArg,
    /// Image to start from: one of `sheaf image list`, a file, a http(s) URL, or docker://… for a
    /// disk in a registry.
    #[arg(long, value_name = "NAME|FILE|URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) image: String,
    /// Size of the disk, for example 20Gi; the default is the size of the image, or 10Gi for a URL.
    #[arg(long, value_name = "SIZE", value_parser = volume_size)]
    pub(crate) disk: Option<u64>,
    /// Number of processors.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(crate) cpus: u32,
    /// Memory of the guest, for example 512Mi or 4Gi.
    #[arg(long, value_name = "SIZE", default_value = "1Gi", value_parser = memory_size)]
    pub(crate) memory: u64,
    /// File with an SSH public key to authorize through cloud-init; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) ssh_key: Vec<PathBuf>,
    /// Password of the default user of the image, set through cloud-init.
    #[arg(long, value_name = "PASSWORD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) password: Option<String>,
    /// File with cloud-init user data, used as it is.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh_key", "password"])]
    pub(crate) user_data: Option<PathBuf>,
    /// Storage class of the disk.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) storage_class: Option<String>,
    /// Boot with UEFI instead of BIOS.
    #[arg(long)]
    pub(crate) efi: bool,
    /// Create the machine without starting it.
    #[arg(long)]
    pub(crate) stopped: bool,
    /// Print the objects instead of creating them.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Scope {
        #[command(flatten)]
        place: ClusterScope,
    }

    #[test]
    fn an_empty_kubeconfig_is_none() {
        for (given, expected) in [("", None), ("a/b", Some(Path::new("a/b")))] {
            let scope = Scope::try_parse_from(["x", "--kubeconfig", given]).unwrap();
            assert_eq!(scope.place.kubeconfig(), expected);
        }
    }
}
