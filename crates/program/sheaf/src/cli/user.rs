//! `sheaf user`: its arguments.

use clap::{Subcommand, ValueEnum};

use super::value::login_name;
use super::{ClusterScope, UserTokenCommand};

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List local users.
    List {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Create a user who logs in with a password.
    #[command(after_help = "Examples:\n  \
        sheaf user create jane --role read-only          asks for the password\n  \
        pass show jane | sheaf user create jane --password -\n\n\
        Further rights: kubectl create rolebinding … --user=jane")]
    Create {
        #[command(flatten)]
        place: ClusterScope,
        /// Name to log in with: lower-case letters, digits and hyphens.
        #[arg(value_parser = login_name)]
        name: String,
        /// Rights of the user in the whole cluster.
        #[arg(long, value_enum, default_value = "none")]
        role: UserRoleArg,
        /// Password, or - to read it from standard input; asked for without this.
        #[arg(long, value_name = "PASSWORD")]
        password: Option<String>,
    },
    /// Change the password of a user.
    Passwd {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the user.
        #[arg(value_parser = login_name)]
        name: String,
        /// Password, or - to read it from standard input; asked for without this.
        #[arg(long, value_name = "PASSWORD")]
        password: Option<String>,
    },
    /// Delete a user; their tokens stop working at once.
    Delete {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the user.
        #[arg(value_parser = login_name)]
        name: String,
    },
    /// Manage static bearer tokens, which can be revoked.
    #[command(subcommand)]
    Token(UserTokenCommand),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UserRoleArg {
    Administrator,
    ReadOnly,
    /// Only what role bindings say.
    None,
}
