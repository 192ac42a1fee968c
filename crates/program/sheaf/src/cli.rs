//! The command line: commands, flags and their help.

mod alarm;
mod audit;
mod certificate;
pub(crate) mod config_file;
mod connections;
mod controllers;
mod dashboard;
mod encryption;
mod host;
mod image;
pub(crate) mod kube_apiserver;
mod kubeconfig;
mod network;
mod node;
mod oidc;
mod operate;
mod program;
mod server;
mod server_value;
mod storage;
mod store;
mod token;
mod upgrade;
mod user;
mod value;
mod vm;
mod volume;
mod volume_claim;
mod witness;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use alarm::{AlarmCommand, AlarmReceiverCommand};
pub(crate) use audit::AuditArgs;
pub(crate) use certificate::{CertificateCommand, RevokeArgs, RevokedArgs};
pub(crate) use connections::ConnectionArgs;
pub(crate) use controllers::{ControllersArgs, ManifestPart, ManifestsArgs};
pub(crate) use dashboard::{DashboardListen, default_address as default_dashboard_address};
pub(crate) use encryption::{EncryptedStore, EncryptionArgs};
pub(crate) use host::{HostCommand, HostNetworkCommand, HostTryArgs, WatchdogArgs};
pub(crate) use image::{CloneArgs, Image, ImageCommand, ImageOptions, ImportArgs};
pub(crate) use kubeconfig::KubeconfigArgs;
pub(crate) use network::{
    DestinationHost, ForwardCommand, ForwardPort, NetworkCommand, NetworkTypeArg, NewForwardArgs,
    NewNetworkArgs, ProtocolArg, TraceArgs,
};
pub(crate) use node::{ClusterCommand, NodeCommand};
pub(crate) use oidc::{OidcArgs, OidcLoginArgs};
pub(crate) use operate::{LoginArgs, OperateCommand, SettingCommand, SupportBundleArgs};
pub(crate) use program::{PreflightArgs, TrialArgs};
pub(crate) use server::{ServerArgs, VipArg};
pub(crate) use storage::{StorageAction, StorageArgs};
pub(crate) use store::{EtcdArgs, StoreCommand, StoreKind};
pub(crate) use token::{
    NodeRole, TokenCommand, TokenCreateArgs, TokenPrint, TokenUses, UserTokenCommand,
};
pub(crate) use upgrade::{UpgradeAction, UpgradeArgs};
pub(crate) use user::{UserCommand, UserRoleArg};
pub(crate) use value::node_name;
pub(crate) use vm::{ClusterScope, CreateArgs, MachineArg, MigrateArgs, MoveDiskArgs, VmCommand};
pub(crate) use volume::{DevCommand, IoDriver, Output, ReplicaCommand, VolumeAction, VolumeArgs};
pub(crate) use volume_claim::{
    Access, NewVolume, SnapshotArgs, VolumeClaim, VolumeCommand, VolumeMode,
};
pub(crate) use witness::WitnessArgs;

/// Virtual machines, replicated storage and networks behind the Kubernetes API, in one binary.
#[derive(Debug, Parser)]
#[command(
    name = "sheaf",
    version,
    about,
    arg_required_else_help = true,
    after_help = "First steps:\n  \
        sheaf server                          start a single node with the default data directory\n  \
        export KUBECONFIG=$(sheaf kubeconfig --path)\n  \
        kubectl get namespaces                any Kubernetes client works\n\n\
        Run any command with --help for its options."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The words of the command line. A link to this program with the name kube-apiserver behaves
/// like `sheaf kube-apiserver`.
pub(crate) fn words(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.into_iter().collect();
    let name = words.first().and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == "kube-apiserver") {
        words.insert(1, "kube-apiserver".into());
    }
    words
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a Sheaf node: the API server, its controllers and the agent.
    Server(Box<ServerArgs>),
    /// Run a witness: a small machine that votes in etcd as the third, and does nothing else.
    ///
    /// Two management nodes and a witness outlive the loss of any one of the three. A witness runs
    /// no machines, stores no volumes and serves no API; a cluster has one at most.
    Witness(Box<WitnessArgs>),
    /// Run the API server alone, with the flags of kube-apiserver.
    #[command(name = "kube-apiserver", disable_help_flag = true)]
    KubeApiserver {
        /// Flags of kube-apiserver; --help lists those that have an effect.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },
    /// Run the controllers of virtual machines in an existing Kubernetes cluster.
    Controllers(ControllersArgs),
    /// Print the manifests that an existing cluster needs: definitions, roles, storage classes.
    Manifests(ManifestsArgs),
    /// Manage virtual machines: list, create, start, stop, console, ssh, diagnose.
    #[command(subcommand)]
    Vm(VmCommand),
    /// Manage disk images: list, import, upload, export, delete.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Manage volumes: list, create, grow, snapshot, clone, delete, status.
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Manage networks of machines: list, show, create, addresses, port forwards, links, trace.
    #[command(subcommand)]
    Network(NetworkCommand),
    /// Print the administrator's kubeconfig, or create one for another user.
    Kubeconfig(KubeconfigArgs),
    /// Show when certificates end, and revoke those of clients.
    #[command(subcommand)]
    Certificate(CertificateCommand),
    /// Manage the nodes of the cluster: list, show, label, remove.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Change the network of hosts: show, try a change, confirm it.
    #[command(subcommand)]
    Host(HostCommand),
    /// Show the state of the cluster.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show the alarms: what is wrong in the cluster and needs an administrator.
    #[command(subcommand)]
    Alarm(AlarmCommand),
    /// Manage join tokens: create the command that adds a node, list, revoke.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Manage local users, who log in with a password, and static bearer tokens.
    #[command(subcommand)]
    User(UserCommand),
    #[command(flatten)]
    Operate(OperateCommand),
    /// Upgrade the program on all nodes, one after the other, while machines run.
    Upgrade(Box<UpgradeArgs>),
    /// Back up, restore, re-encrypt or copy the data of the API server.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Verify the directory of a replica.
    #[command(subcommand)]
    Replica(ReplicaCommand),
    /// Run or inspect the storage process of a node.
    Storage(StorageArgs),
    /// For developers: volumes without a cluster.
    #[command(subcommand)]
    Dev(DevCommand),
    /// Run a new program until it has proved itself; started by a server that is upgraded.
    #[command(hide = true)]
    UpgradeTrial(TrialArgs),
    /// Roll a change of the host's network back at its deadline; started by a server.
    #[command(hide = true)]
    NetworkWatchdog(WatchdogArgs),
    /// Check whether this program can take over the data directory of another one.
    ///
    /// An upgrade runs it on every node before anything is changed. Makes a backup of the embedded
    /// store, `store-backups/before-upgrade.db`, and changes nothing else.
    Preflight(PreflightArgs),
    /// Print the versions of Sheaf and of its Kubernetes API.
    Version(VersionArgs),
    /// Print a completion script for your shell.
    #[command(after_help = "Example:\n  sheaf completion bash > /etc/bash_completion.d/sheaf")]
    Completion {
        /// Shell to generate the script for.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory.
    Man {
        /// Directory to write sheaf.1 and one page per command to.
        dir: PathBuf,
    },
}

/// Where a node keeps its data.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataDir {
    /// Data directory; created on first use.
    ///
    /// The default is /var/lib/sheaf for root and ~/.local/share/sheaf for other users.
    #[arg(long, value_name = "DIR", env = "SHEAF_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text")]
    pub(crate) output: VersionOutput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VersionOutput {
    Text,
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_link_under_the_name_of_kube_apiserver_behaves_like_it() {
        let line = |text: &str| words(text.split(' ').map(OsString::from));
        let cli = Cli::try_parse_from(line("/bin/kube-apiserver --help --etcd-servers=a")).unwrap();
        let Command::KubeApiserver { flags } = cli.command else { panic!() };
        assert_eq!(flags, ["--help", "--etcd-servers=a"]);
        assert_eq!(line("/bin/sheaf version").len(), 2);
    }

    #[test]
    fn the_contract_of_server_holds() {
        let line = "sheaf server --data-dir /d --listen 127.0.0.1:7443 --store etcd \
                    --etcd-endpoints http://a:1,http://b:2 --etcd-cafile c --etcd-certfile d \
                    --etcd-keyfile e --no-agent --log-format json";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Server(args) = cli.command else { panic!() };
        assert_eq!(args.etcd.etcd_endpoints.len(), 2);
        assert!(args.no_agent && args.store == StoreKind::Etcd);
    }
}
