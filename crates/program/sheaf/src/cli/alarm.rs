//! `sheaf alarm`: its arguments.

use clap::{Subcommand, ValueEnum};

use super::ClusterScope;
use super::value::{object_name, token_ttl};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
        sheaf alarm list                                alarms that are active now\n  \
        sheaf alarm acknowledge NAME --comment 'disk is ordered'\n  \
        sheaf alarm silence NAME --for 8h\n  \
        sheaf alarm receiver add phone --url https://ntfy.example/sheaf --format ntfy\n\n\
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
    /// Acknowledge an alarm: show others that it is being handled.
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
    /// Webhooks that alarms are sent to.
    #[command(subcommand)]
    Receiver(AlarmReceiverCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlarmReceiverCommand {
    /// List the receivers, and whether the last message was delivered.
    List {
        #[command(flatten)]
        place: ClusterScope,
    },
    /// Add a receiver.
    Add {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the receiver.
        #[arg(value_parser = object_name)]
        name: String,
        /// Address that messages are posted to.
        #[arg(long, value_name = "URL", required_unless_present = "url_secret")]
        url: Option<String>,
        /// Secret of kube-system with the address at the key `url`, if the address contains a token.
        #[arg(long, value_name = "NAME", conflicts_with = "url", value_parser = object_name)]
        url_secret: Option<String>,
        /// Format of the messages.
        #[arg(long, value_enum, default_value_t = AlarmFormat::Alertmanager)]
        format: AlarmFormat,
        /// Send critical alarms only.
        #[arg(long)]
        critical_only: bool,
        /// Send nothing when an alarm ends.
        #[arg(long)]
        no_resolved: bool,
    },
    /// Send a test message, and wait until it is delivered.
    Test {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the receiver.
        #[arg(value_parser = object_name)]
        name: String,
    },
    /// Remove a receiver.
    Remove {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the receiver.
        #[arg(value_parser = object_name)]
        name: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum AlarmFormat {
    /// The webhook of Prometheus' Alertmanager, version 4.
    Alertmanager,
    /// A JSON object with a text: Slack, Mattermost, Rocket.Chat.
    Slack,
    /// Plain text with a title and a priority.
    Ntfy,
}

impl AlarmFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alertmanager => "alertmanager",
            Self::Slack => "slack",
            Self::Ntfy => "ntfy",
        }
    }
}
