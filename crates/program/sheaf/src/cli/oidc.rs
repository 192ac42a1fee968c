//! Flags that say whose tokens are believed.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Login with OpenID Connect")]
pub(crate) struct OidcArgs {
    /// URL of the OpenID Connect issuer; https only.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub(crate) oidc_issuer_url: Option<String>,
    /// Audience that tokens must have.
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url",
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) oidc_client_id: Option<String>,
    /// Claim with the user name; the default is sub.
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer_url")]
    pub(crate) oidc_username_claim: Option<String>,
    /// Prefix of user names; - is none, the default is the issuer followed by #.
    #[arg(long, value_name = "TEXT", requires = "oidc_issuer_url", allow_hyphen_values = true)]
    pub(crate) oidc_username_prefix: Option<String>,
    /// Claim with the groups of the user.
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer_url")]
    pub(crate) oidc_groups_claim: Option<String>,
    /// Prefix of groups.
    #[arg(long, value_name = "TEXT", requires = "oidc_issuer_url")]
    pub(crate) oidc_groups_prefix: Option<String>,
    /// Claim that tokens must have, as NAME=VALUE; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", requires = "oidc_issuer_url")]
    pub(crate) oidc_required_claim: Vec<String>,
    /// Signature algorithms that are accepted; the default is RS256.
    #[arg(long, value_name = "NAME,…", requires = "oidc_issuer_url", value_delimiter = ',')]
    pub(crate) oidc_signing_algs: Vec<String>,
    /// CA certificates for the issuer (PEM); the default is those of the system.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    pub(crate) oidc_ca_file: Option<PathBuf>,
}

/// Flags of the dashboard's login, beside those that say which tokens are accepted.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Login with OpenID Connect")]
pub(crate) struct OidcLoginArgs {
    /// File with the client secret, for logging in to the dashboard; a public client has none.
    #[arg(long, value_name = "FILE", requires = "oidc_client_id")]
    pub(crate) oidc_client_secret_file: Option<PathBuf>,
    /// Scopes that a login to the dashboard requests, besides openid; some providers need one for groups.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "profile,email")]
    pub(crate) oidc_scopes: Vec<String>,
    /// Name of the provider on the login page.
    #[arg(long, value_name = "TEXT", default_value = "OpenID Connect")]
    pub(crate) oidc_label: String,
}
