//! `sheaf witness`: its arguments.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::{DataDir, LogFormat, ServerArgs, server_value, value};

#[derive(Debug, Clone, Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    sheaf token create --role witness              on a management node: prints the command\n  \
    sheaf witness --join https://10.0.0.1:6443 --token SHEAF1…\n  \
    sheaf witness                                  again, after a restart of the machine\n\n\
    The machine needs etcd, and the ports 2379 and 2380 between it and the management nodes.\n\
    Stop it with Ctrl-C or SIGTERM; etcd goes on running."
)]
pub(crate) struct WitnessArgs {
    /// YAML file with flags as keys; the default is /etc/sheaf/config.yaml if it exists.
    ///
    /// Keys of Harvester's installer are understood. Flags of `sheaf server` that a witness does
    /// not have are ignored.
    #[arg(long, value_name = "FILE", env = "SHEAF_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataDir,
    /// Join the cluster of the server at this URL, with --token.
    #[arg(long, value_name = "URL", value_parser = value::server_url)]
    pub(crate) join: Option<String>,
    /// Token that `sheaf token create --role witness` printed on a management node; needed once.
    #[arg(long, value_name = "TOKEN", env = "SHEAF_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Name of this node; the default is the host name.
    #[arg(long, value_name = "NAME", value_parser = value::node_name)]
    pub(crate) node_name: Option<String>,
    /// Address that the management nodes reach this machine at; the default is the one on the way
    /// to the server.
    #[arg(long, value_name = "IP", value_parser = server_value::advertised_address)]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Label that this node gets when it is created, KEY=VALUE; may be repeated.
    #[arg(long = "node-label", value_name = "KEY=VALUE", value_parser = value::node_label)]
    pub(crate) node_labels: Vec<(String, String)>,
    /// Format of log lines.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Log level: error, warn, info, debug, trace, or per module as in `info,quorum=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "SHEAF_LOG")]
    pub(crate) log_level: String,
}

/// A server that is to be a witness, as Harvester's installer files ask for it.
impl From<&ServerArgs> for WitnessArgs {
    fn from(args: &ServerArgs) -> Self {
        Self {
            config: args.config.clone(),
            data: args.data.clone(),
            join: args.join.clone(),
            token: args.token.clone(),
            node_name: args.node_name.clone(),
            advertise_address: args.advertise_address,
            node_labels: args.node_labels.clone(),
            log_format: args.log_format,
            log_level: args.log_level.clone(),
        }
    }
}
