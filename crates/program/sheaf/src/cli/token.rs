//! `sheaf token`: join tokens, with which machines become nodes of the cluster.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::value::{group_name, node_name, server_url, token_ttl, token_uses, user_name};
use super::{ClusterScope, DataDir};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a join token and print the command to run on the new node.
    #[command(after_help = "Examples:\n  \
        sheaf token create                        one worker, within 24 hours\n  \
        sheaf token create --node n2              only for the node n2\n  \
        sheaf token create --role management      a further management node\n  \
        sheaf token create --role witness         the third voter beside two management nodes\n  \
        sheaf token create --uses unlimited --ttl 7d --print token\n\n\
        Tokens of users are created with `sheaf user token create`.")]
    Create(Box<TokenCreateArgs>),
    /// List join tokens; their secrets are not shown.
    List {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Revoke a join token. Nodes that have joined with it stay.
    Revoke {
        #[command(flatten)]
        place: ClusterScope,
        /// ID of the token, as `sheaf token list` shows it.
        #[arg(required_unless_present = "user", value_parser = NonEmptyStringValueParser::new())]
        id: Option<String>,
        /// Former spelling of `sheaf user token revoke`.
        #[arg(long, value_name = "NAME", hide = true, value_parser = user_name,
              conflicts_with = "id")]
        user: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    #[command(flatten)]
    pub(crate) place: ClusterScope,
    /// Role of the node.
    #[arg(long, value_enum, default_value = "worker")]
    pub(crate) role: NodeRole,
    /// Let only the node with this name join.
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    pub(crate) node: Option<String>,
    /// How long the token can be used: a number and s, m, h or d.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = token_ttl)]
    pub(crate) ttl: jiff::SignedDuration,
    /// How many nodes may join with the token: a number, or `unlimited`.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = token_uses)]
    pub(crate) uses: TokenUses,
    /// URL at which the new node reaches this server; may be repeated. The default is the
    /// address that the server advertises.
    #[arg(long = "server", value_name = "URL", value_parser = server_url)]
    pub(crate) urls: Vec<String>,
    /// Output to print.
    #[arg(long, value_enum, default_value = "command")]
    pub(crate) print: TokenPrint,
    /// Former spelling of `sheaf user token create`.
    #[arg(long, value_name = "NAME", hide = true, value_parser = user_name)]
    pub(crate) user: Option<String>,
    #[arg(long, value_name = "GROUP", hide = true, requires = "user",
          value_parser = group_name)]
    pub(crate) group: Vec<String>,
}

/// How often a token can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenUses {
    Limited(u32),
    Unlimited,
}

/// The role of a node in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodeRole {
    /// Runs machines and stores volumes.
    Worker,
    /// Also serves the API, and votes in etcd as soon as there are three such nodes, or two and a
    /// witness.
    Management,
    /// Votes in etcd and does nothing else; a cluster has one at most.
    Witness,
}

impl NodeRole {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Management => "management",
            Self::Witness => "witness",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenPrint {
    /// The command to run on the new node.
    Command,
    /// The token alone.
    Token,
}

/// `sheaf user token`: static bearer tokens of users.
#[derive(Debug, Subcommand)]
pub(crate) enum UserTokenCommand {
    /// Create a token and print it; a running server accepts it at once.
    Create {
        #[command(flatten)]
        data: DataDir,
        /// User of the token.
        #[arg(long, value_name = "NAME", value_parser = user_name)]
        user: String,
        /// Group of the user; may be repeated.
        #[arg(long, value_name = "GROUP", value_parser = group_name)]
        group: Vec<String>,
    },
    /// List users that have tokens; the tokens themselves are not shown.
    List {
        #[command(flatten)]
        data: DataDir,
    },
    /// Revoke all tokens of a user.
    Revoke {
        #[command(flatten)]
        data: DataDir,
        /// User whose tokens are revoked.
        #[arg(long, value_name = "NAME", value_parser = user_name)]
        user: String,
    },
}
