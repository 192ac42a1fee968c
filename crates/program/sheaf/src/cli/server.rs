//! The flags of `sheaf server`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use agent::{GuestNetwork, IpNet, LinkName};
use clap::Args;

use super::{
    AuditArgs, ConnectionArgs, DashboardListen, DataDir, EncryptionArgs, EtcdArgs, LogFormat,
    NodeRole, OidcArgs, OidcLoginArgs, StoreKind,
};
use super::{server_value, value};

/// The virtual address of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VipArg {
    Address(Ipv4Addr),
    Off,
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
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6443",
          value_parser = server_value::listen_address)]
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
    #[arg(long, value_name = "IP", value_parser = server_value::advertised_address)]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Further host names or addresses for the serving certificate.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',',
          value_parser = server_value::certificate_name)]
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
    #[arg(long, value_name = "CIDR", default_value = "10.53.0.0/16",
          value_parser = server_value::service_range)]
    pub(crate) service_cluster_ip_range: String,
    /// File of static tokens (CSV: token,user,uid,"group1,group2"), which has to exist.
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
    #[command(flatten)]
    pub(crate) oidc_login: OidcLoginArgs,
    /// Password of the user `admin`, which is created at the first start; at least 12 characters.
    ///
    /// Without it, a password is generated, printed, and written to admin-password in the data
    /// directory.
    #[arg(long, value_name = "PASSWORD", env = "SHEAF_ADMIN_PASSWORD", hide_env_values = true)]
    pub(crate) admin_password: Option<String>,
    /// How long events are kept, in seconds; at most a year.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600,
        value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) event_ttl: u64,
    /// Hours between two backups of the store into store-backups in the data directory; 0 for none.
    #[arg(long, value_name = "HOURS", default_value_t = 12,
        value_parser = clap::value_parser!(u32).range(0..=8760))]
    pub(crate) store_backup_hours: u32,
    /// How many of these backups are kept.
    #[arg(long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) store_backup_keep: u32,
    /// How long a voter of etcd may be lost before a management node on standby takes its place:
    /// a number and s, m, h or d.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = value::positive_duration)]
    pub(crate) replace_voter_after: jiff::SignedDuration,
    /// How long a key signs tokens of service accounts before another one does: a number and s, m, h
    /// or d; 0s for ever. Tokens of the old key stay valid.
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = value::duration)]
    pub(crate) token_key_lifetime: jiff::SignedDuration,
    /// Run the control plane alone, without the agent that runs virtual machines.
    #[arg(long)]
    pub(crate) no_agent: bool,
    /// Name of this node; the default is the host name.
    #[arg(long, value_name = "NAME", value_parser = value::node_name)]
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
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "no_agent", "tls_san"],
          value_parser = value::server_url)]
    pub(crate) join: Option<String>,
    /// Token that `sheaf token create` printed on the management node; needed once.
    #[arg(long, value_name = "TOKEN", env = "SHEAF_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Role of this node in the cluster that it joins.
    #[arg(long, value_enum)]
    pub(crate) role: Option<NodeRole>,
    /// Port at which other nodes reach this one: consoles and uploads, and machines that move.
    #[arg(long, value_name = "PORT", default_value_t = 10250,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) agent_port: u16,
    /// Port at which other nodes reach the replicas of this node.
    #[arg(long, value_name = "PORT", default_value_t = 10270,
        value_parser = clap::value_parser!(u16).range(1..))]
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
    #[arg(long, value_name = "CIDR", value_parser = server_value::network)]
    pub(crate) import_allow: Vec<IpNet>,
    /// Directory of this node whose files guests may have as HostDisk volumes; may be repeated. It has
    /// to exist when the server starts.
    ///
    /// KubeVirt's feature gate HostDisk has to be enabled, too. Users with the right to create
    /// machines can read and change all files below the directory.
    #[arg(long = "host-disk-path", value_name = "DIR",
          value_parser = server_value::host_directory)]
    pub(crate) host_disk_paths: Vec<PathBuf>,
    /// Largest image that this node downloads or takes as an upload, as it comes and as a disk.
    #[arg(long, value_name = "SIZE", default_value = "2Ti", value_parser = value::volume_size)]
    pub(crate) max_image_size: u64,
    /// Format of log lines.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Log level: error, warn, info, debug, trace, or per module as in `info,store=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "SHEAF_LOG")]
    pub(crate) log_level: String,
}
