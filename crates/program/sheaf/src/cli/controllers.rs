//! `sheaf controllers` and `sheaf manifests`: controllers in a cluster that runs another API server.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::LogFormat;

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
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
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
