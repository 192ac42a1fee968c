//! `sheaf alarm`: its arguments.

use clap::Subcommand;

use super::ClusterScope;
use super::value::{object_name, token_ttl};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
        sheaf alarm list                                what needs somebody now\n  \
        sheaf alarm acknowledge NAME --comment 'disk is ordered'\n  \
        sheaf alarm silence NAME --for 8h\n\n\
        An alarm ends by itself when its cause is mended.")]
pub(crate) enum AlarmCommand {
    /// List what is wrong, the most severe first, with a command that helps.
    List {
        #[command(flatten)]
        place: ClusterScope,
        /// Also those that are acknowledged or silenced.
        #[arg(long, short)]
        all: bool,
    },
    /// Tell others that somebody takes care of an alarm.
    #[command(visible_alias = "ack")]
    Acknowledge {
        #[command(flatten)]
        place: ClusterScope,
        #[arg(value_parser = object_name)]
        name: String,
        /// A note for others.
        #[arg(long)]
        comment: Option<String>,
        /// Take it back.
        #[arg(long, conflicts_with = "comment")]
        undo: bool,
    },
    /// Leave an alarm out of lists for a while.
    Silence {
        #[command(flatten)]
        place: ClusterScope,
        #[arg(value_parser = object_name)]
        name: String,
        /// How long: 30m, 8h, 7d.
        #[arg(long = "for", value_name = "TIME", default_value = "8h", value_parser = token_ttl)]
        duration: jiff::SignedDuration,
    },
}
