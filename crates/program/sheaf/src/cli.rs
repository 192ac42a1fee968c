//! The command line: commands, flags and their help.

mod alarm;
mod audit;
pub(crate) mod config_file;
mod connections;
mod dashboard;
mod encryption;
mod host;
mod image;
pub(crate) mod kube_apiserver;
mod network;
mod node;
mod oidc;
mod operate;
mod storage;
mod token;
mod upgrade;
mod user;
mod value;
mod vm;
mod volume;
mod volume_claim;
mod witness;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use agent::{GuestNetwork, IpNet, LinkName};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use alarm::AlarmCommand;
pub(crate) use audit::AuditArgs;
pub(crate) use connections::ConnectionArgs;
pub(crate) use dashboard::{DashboardListen, default_address as default_dashboard_address};
pub(crate) use encryption::{EncryptedStore, EncryptionArgs};
pub(crate) use host::{HostCommand, HostNetworkCommand, HostTryArgs, WatchdogArgs};
pub(crate) use image::{CloneArgs, Image, ImageCommand, ImageOptions, ImportArgs};
pub(crate) use network::{
    DestinationHost, NetworkCommand, NetworkTypeArg, NewNetworkArgs, ProtocolArg, TraceArgs,
};
pub(crate) use node::{ClusterCommand, NodeCommand};
pub(crate) use oidc::OidcArgs;
pub(crate) use operate::{LoginArgs, OperateCommand, SettingCommand, SupportBundleArgs};
pub(crate) use storage::{StorageAction, StorageArgs};
pub(crate) use token::{
    NodeRole, TokenCommand, TokenCreateArgs, TokenPrint, TokenUses, UserTokenCommand,
};
pub(crate) use upgrade::{UpgradeAction, UpgradeArgs};
pub(crate) use user::{UserCommand, UserRoleArg};
pub(crate) use vm::{ClusterScope, CreateArgs, MachineArg, MoveDiskArgs, VmCommand};
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
    /// Manage networks of machines: list, show, create, links of nodes, trace a connection.
    #[command(subcommand)]
    Network(NetworkCommand),
    /// Print the administrator's kubeconfig, or create one for another user.
    Kubeconfig(KubeconfigArgs),
    /// Manage the nodes of the cluster: list, show, label, remove.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Change the network of hosts: show, try a change, confirm it.
    #[command(subcommand)]
    Host(HostCommand),
    /// Show the state of the cluster.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show what is wrong in the cluster and needs somebody.
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
pub(crate) enum StoreKind {
    /// One file in the data directory: for a single node.
    Sqlite,
    /// An etcd cluster, named by --etcd-endpoints: for several nodes.
    Etcd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// The virtual address of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VipArg {
    Address(Ipv4Addr),
    Off,
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

#[derive(Debug, Clone, Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    sheaf server                                   single node, default data directory\n  \
    sheaf server --data-dir /srv/sheaf --listen 0.0.0.0:6443 --advertise-address 10.0.0.1\n  \
    sheaf server --join https://10.0.0.1:6443 --token SHEAF1…   a worker of that cluster\n  \
    sheaf witness --join https://10.0.0.1:6443 --token SHEAF1…  a third voter without machines\n  \
    sheaf server --config node.yaml                all flags from a file\n  \
    sheaf server --store etcd --etcd-endpoints https://a:2379,https://b:2379,https://c:2379 \\\n    \
        --etcd-cafile ca.pem --etcd-certfile client.pem --etcd-keyfile client.key\n\n\
    Stop it with Ctrl-C or SIGTERM; SIGHUP reloads the token file."
)]
pub(crate) struct ServerArgs {
    /// YAML file with flags as keys; the default is /etc/sheaf/config.yaml if it exists.
    ///
    /// Keys of Harvester's installer (server_url, token, install.role, os.hostname, os.labels,
    /// system_settings, …) are understood. Flags on the command line win.
    #[arg(long, value_name = "FILE", env = "SHEAF_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataDir,
    /// Address and port to serve HTTPS on.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6443")]
    pub(crate) listen: SocketAddr,
    /// Address and port to serve browsers on: the dashboard, without requests for client
    /// certificates. The default is port 8443 of the listen address; "off" for none.
    #[arg(long, value_name = "IP:PORT|off")]
    pub(crate) dashboard_listen: Option<DashboardListen>,
    /// Serve the dashboard's pages from this folder instead of the built-in ones.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) ui_dir: Option<PathBuf>,
    /// Address that clients and other nodes reach this server at; the default is the listen
    /// address.
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Further host names or addresses for the serving certificate.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) tls_san: Vec<String>,
    /// Virtual IPv4 address of the API, which one management node has at a time, or `off`. It is
    /// remembered, and management nodes that join get it from the cluster.
    #[arg(long, value_name = "IP|off", value_parser = value::vip)]
    pub(crate) vip: Option<VipArg>,
    /// Where objects are stored.
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(crate) store: StoreKind,
    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
    /// Address range of services.
    #[arg(long, value_name = "CIDR", default_value = "10.53.0.0/16")]
    pub(crate) service_cluster_ip_range: String,
    /// File of static tokens (CSV: token,user,uid,"group1,group2").
    ///
    /// The default is tokens.csv in the data directory, which `sheaf user token` manages.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) encryption: EncryptionArgs,
    #[command(flatten)]
    pub(crate) audit: AuditArgs,
    #[command(flatten)]
    pub(crate) connections: ConnectionArgs,
    #[command(flatten)]
    pub(crate) oidc: OidcArgs,
    /// Password of the user `admin`, which is created at the first start; at least 12 characters.
    ///
    /// Without it, a password is generated, printed, and written to admin-password in the data
    /// directory.
    #[arg(long, value_name = "PASSWORD", env = "SHEAF_ADMIN_PASSWORD", hide_env_values = true)]
    pub(crate) admin_password: Option<String>,
    /// How long events are kept, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) event_ttl: u64,
    /// Hours between two backups of the store into store-backups in the data directory; 0 for none.
    #[arg(long, value_name = "HOURS", default_value_t = 12)]
    pub(crate) store_backup_hours: u32,
    /// How many of these backups are kept.
    #[arg(long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) store_backup_keep: u32,
    /// How long a voter of etcd may be lost before a management node that stands by takes its place:
    /// a number and s, m, h or d.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = value::patience)]
    pub(crate) replace_voter_after: jiff::SignedDuration,
    /// Run the control plane alone, without the agent that runs virtual machines.
    #[arg(long)]
    pub(crate) no_agent: bool,
    /// Name of this node; the default is the host name.
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Label that this node gets when it is created, KEY=VALUE; may be repeated.
    #[arg(long = "node-label", value_name = "KEY=VALUE", value_parser = value::node_label)]
    pub(crate) node_labels: Vec<(String, String)>,
    /// Value of a Harvester setting, NAME=VALUE, for a setting that has no value yet; may be
    /// repeated.
    #[arg(long = "system-setting", value_name = "NAME=VALUE", value_parser = value::setting,
          conflicts_with = "join")]
    pub(crate) system_settings: Vec<(String, String)>,
    /// Join the cluster of the server at this URL as a node, with --token: a worker runs virtual
    /// machines and stores volumes, a management node also serves the API.
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "no_agent", "tls_san"])]
    pub(crate) join: Option<String>,
    /// Token that `sheaf token create` printed on the management node; needed once.
    #[arg(long, value_name = "TOKEN", env = "SHEAF_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Role of this node in the cluster that it joins.
    #[arg(long, value_enum)]
    pub(crate) role: Option<NodeRole>,
    /// Port at which other nodes reach this one: consoles and uploads, and machines that move.
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    pub(crate) agent_port: u16,
    /// Port at which other nodes reach the replicas of this node.
    #[arg(long, value_name = "PORT", default_value_t = 10270)]
    pub(crate) storage_port: u16,
    /// IPv4 network of the guests on this node, or `user` for QEMU's user-mode network.
    ///
    /// The bridge with NAT, DHCP and DNS needs root. Where it cannot be made, machines on it do not
    /// start; user-mode networks reach whatever the node reaches, and are used only if asked for.
    #[arg(long, value_name = "CIDR", default_value = "10.52.0.0/24")]
    pub(crate) guest_network: GuestNetwork,
    /// Name of the bridge of that network, at most 15 characters; two servers on one host need
    /// two names.
    #[arg(long, value_name = "NAME", default_value = "sheaf0")]
    pub(crate) guest_bridge: LinkName,
    /// Range of addresses that imports may connect to although it belongs to this node or the
    /// cluster, for example 127.0.0.0/8; may be repeated.
    ///
    /// Imports (URLs, registries and what they redirect to) connect to no loopback, link-local,
    /// node, guest or service address otherwise.
    #[arg(long, value_name = "CIDR")]
    pub(crate) import_allow: Vec<IpNet>,
    /// Directory of this node whose files guests may have as HostDisk volumes; may be repeated.
    ///
    /// KubeVirt's feature gate HostDisk has to be enabled, too. Users with the right to create
    /// machines can read and change all files below the directory.
    #[arg(long = "host-disk-path", value_name = "DIR")]
    pub(crate) host_disk_paths: Vec<PathBuf>,
    /// Format of log lines.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Log level: error, warn, info, debug, trace, or per module as in `info,store=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "SHEAF_LOG")]
    pub(crate) log_level: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    sheaf manifests --only definitions | kubectl apply --server-side -f -\n  \
    sheaf manifests --only objects | kubectl apply --server-side -f -\n  \
    sheaf controllers --kubeconfig ~/.kube/config\n\n\
    Several instances may run; a lease in kube-system elects the one that is active.")]
pub(crate) struct ControllersArgs {
    /// Kubeconfig of the cluster.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: PathBuf,
    /// Name of this process in the lease; the default is the host name and the process ID.
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// Format of log lines.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Log level: error, warn, info, debug, trace, or per module as in `info,client=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "SHEAF_LOG")]
    pub(crate) log_level: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    sheaf manifests --only definitions | kubectl apply --server-side -f -\n  \
    sheaf manifests --only objects | kubectl apply --server-side -f -")]
pub(crate) struct ManifestsArgs {
    /// Print only this part; definitions have to be installed before objects.
    #[arg(long, value_enum)]
    pub(crate) only: Option<ManifestPart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManifestPart {
    /// CustomResourceDefinitions.
    Definitions,
    /// Namespaces, roles, storage classes and the configuration.
    Objects,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf kubeconfig > ~/.kube/config              copy the administrator's kubeconfig\n  \
    export KUBECONFIG=$(sheaf kubeconfig --path)   use it without a copy\n  \
    sheaf kubeconfig --user jane --group dev       a new certificate for jane; grant her\n                                                 \
    rights with kubectl create rolebinding")]
pub(crate) struct KubeconfigArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    /// URL of the server; the default is the one in the administrator's kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Issue a client certificate for this user instead of printing the administrator's.
    #[arg(long, value_name = "NAME", value_parser = value::user_name)]
    pub(crate) user: Option<String>,
    /// Groups of the user; may be repeated.
    #[arg(long, value_name = "GROUP", requires = "user")]
    pub(crate) group: Vec<String>,
    /// Validity of the certificate in days.
    #[arg(long, value_name = "DAYS", default_value_t = 365, requires = "user",
          value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
    /// Print the path of the administrator's kubeconfig instead of its content.
    #[arg(long, conflicts_with_all = ["user", "server"])]
    pub(crate) path: bool,
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

#[derive(Debug, Args)]
pub(crate) struct TrialArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    /// Arguments of the server.
    #[arg(last = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PreflightArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    /// Level of the cluster's data, which the program must be able to read.
    #[arg(long, value_name = "LEVEL", default_value_t = hci::upgrade::LEVEL)]
    pub(crate) cluster_level: u32,
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
