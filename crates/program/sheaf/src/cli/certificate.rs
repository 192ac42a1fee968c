//! `sheaf certificate`: its arguments.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::ClusterScope;
use super::value::user_name;

#[derive(Debug, Subcommand)]
pub(crate) enum CertificateCommand {
    /// List certificates and keys with the time when they end, and what was revoked.
    ///
    /// Certificates in the data directory are those of this node; client certificates are listed on
    /// the node that issued them.
    List {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Revoke a client certificate, or all that a user has.
    ///
    /// Requests with it are refused within seconds, and open connections, watches and consoles
    /// end. Certificates that are issued later are not affected. Tokens are not revoked.
    #[command(after_help = "Examples:\n  \
        sheaf certificate revoke --file jane.kubeconfig\n  \
        sheaf certificate revoke --serial 5f0c4e… --reason 'lost laptop'\n  \
        sheaf certificate revoke --user jane              all that were issued until now\n  \
        sheaf certificate revoke --user system:admin      the administrator's kubeconfigs; those in\n                                                    \
        data directories are made anew")]
    Revoke(Box<RevokeArgs>),
    /// Accept a revoked certificate again.
    Restore {
        #[command(flatten)]
        place: ClusterScope,
        #[command(flatten)]
        subject: RevokedArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    pub(crate) place: ClusterScope,
    #[command(flatten)]
    pub(crate) subject: RevokedArgs,
    /// With --user: only certificates that were issued before this time; the default is now.
    #[arg(long, value_name = "TIME", requires = "user")]
    pub(crate) issued_before: Option<Timestamp>,
    /// Why, for the list.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
}

/// The certificates to revoke.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RevokedArgs {
    /// Serial number, as `sheaf certificate list` shows it.
    #[arg(long, value_name = "HEX")]
    pub(crate) serial: Option<String>,
    /// File with the certificate: PEM or a kubeconfig.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// All certificates of this user.
    #[arg(long, value_name = "NAME", value_parser = user_name)]
    pub(crate) user: Option<String>,
}
