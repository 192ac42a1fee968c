//! `sheaf kubeconfig`.

use clap::Args;

use super::{DataDir, value};

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
    #[arg(long, value_name = "URL", value_parser = value::server_url)]
    pub(crate) server: Option<String>,
    /// Issue a client certificate for this user instead of printing the administrator's.
    #[arg(long, value_name = "NAME", value_parser = value::user_name)]
    pub(crate) user: Option<String>,
    /// Groups of the user; may be repeated.
    #[arg(long, value_name = "GROUP", requires = "user", value_parser = value::group_name)]
    pub(crate) group: Vec<String>,
    /// Validity of the certificate in days.
    #[arg(long, value_name = "DAYS", default_value_t = 365, requires = "user",
          value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
    /// Print the path of the administrator's kubeconfig instead of its content.
    #[arg(long, conflicts_with_all = ["user", "server"])]
    pub(crate) path: bool,
}
