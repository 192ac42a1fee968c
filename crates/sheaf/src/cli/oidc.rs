//! Flags that say whose tokens are believed.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Login with OpenID Connect")]
pub(crate) struct OidcArgs {
    /// URL of the issuer whose tokens are believed; https only.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub(crate) oidc_issuer_url: Option<String>,
    /// The audience that tokens must be for.
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub(crate) oidc_client_id: Option<String>,
    /// The claim that names the user; the default is sub.
    #[arg(long, value_name = "CLAIM")]
    pub(crate) oidc_username_claim: Option<String>,
    /// What is put in front of user names; - is nothing, the default is the issuer and a #.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) oidc_username_prefix: Option<String>,
    /// The claim that lists the user's groups.
    #[arg(long, value_name = "CLAIM")]
    pub(crate) oidc_groups_claim: Option<String>,
    /// What is put in front of groups.
    #[arg(long, value_name = "TEXT")]
    pub(crate) oidc_groups_prefix: Option<String>,
    /// A claim that a token must have, as NAME=VALUE; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) oidc_required_claim: Vec<String>,
    /// Algorithms that tokens may be signed with; the default is RS256.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) oidc_signing_algs: Vec<String>,
    /// CA that the issuer's certificate is checked against (PEM); the default is the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) oidc_ca_file: Option<PathBuf>,
}
