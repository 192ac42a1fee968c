//! `sheaf login`, `sheaf setting` and `sheaf support-bundle`: their words.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ClusterScope;
use super::value::{namespace_name, object_name, user_name};

#[derive(Debug, Subcommand)]
pub(crate) enum OperateCommand {
    /// Log in to a cluster as a local user, and write a kubeconfig.
    Login(LoginArgs),
    /// Read and change settings of the cluster.
    #[command(subcommand)]
    Setting(SettingCommand),
    /// Download a support bundle: the objects of the cluster without their secrets.
    SupportBundle(SupportBundleArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    sheaf login https://10.0.0.1:6443 --certificate-authority ca.crt --username jane\n  \
    kubectl --kubeconfig sheaf.kubeconfig get vms")]
pub(crate) struct LoginArgs {
    /// URL of the server: https://HOST:PORT.
    pub(crate) url: String,
    /// Name of the user.
    #[arg(long, short, default_value = "admin", value_parser = user_name)]
    pub(crate) username: String,
    /// Password, or - to read it from standard input; asked for without this.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) password: Option<String>,
    /// CA that the certificate of the server is checked against (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Do not check the certificate of the server; passwords can be read on the way.
    #[arg(long, conflicts_with = "certificate_authority")]
    pub(crate) insecure_skip_tls_verify: bool,
    /// File to write the kubeconfig to.
    #[arg(long, short, value_name = "FILE", default_value = "sheaf.kubeconfig")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SettingCommand {
    /// Print a setting, or all of them.
    Get {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the setting.
        #[arg(value_parser = object_name)]
        name: Option<String>,
    },
    /// Change a setting; an empty value restores the default.
    #[command(after_help = "Example:\n  \
        sheaf setting set overcommit-config '{\"cpu\":400,\"memory\":100,\"storage\":200}'")]
    Set {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the setting.
        #[arg(value_parser = object_name)]
        name: String,
        /// New value.
        value: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SupportBundleArgs {
    #[command(flatten)]
    pub(crate) place: ClusterScope,
    /// Description of the incident, for the readers of the bundle.
    #[arg(long, default_value = "")]
    pub(crate) description: String,
    /// Further namespaces to collect.
    #[arg(long, value_name = "NAMESPACE,…", value_delimiter = ',',
          value_parser = namespace_name)]
    pub(crate) extra_namespaces: Vec<String>,
    /// File to write; the default is the name of the bundle, in this directory.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
