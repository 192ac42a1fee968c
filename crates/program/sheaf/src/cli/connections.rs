//! Flags that limit connections and watches.

use std::time::Duration;

use apiserver::ConnectionLimits;
use clap::Args;

use super::kube_apiserver::duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionArgs {
    /// Number of open connections, streams of consoles and port forwards included.
    #[arg(long, value_name = "COUNT", default_value_t = ConnectionLimits::default().total,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Number of these that only clients with a certificate get, such as administrators.
    #[arg(long, value_name = "COUNT", default_value_t = ConnectionLimits::default().reserved)]
    reserved_connections: u32,
    /// Number of connections of one source address (IPv6: of one /64) without a client
    /// certificate, and four times as many with one.
    #[arg(long, value_name = "COUNT", default_value_t = ConnectionLimits::default().per_source,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_connections_per_source: u32,
    /// Number of connections on which no request has been authenticated.
    #[arg(long, value_name = "COUNT", default_value_t = ConnectionLimits::default().anonymous,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_anonymous_connections: u32,
    /// Time after which a connection without requests is closed.
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = parse)]
    connection_idle_timeout: Duration,
    /// Number of open watches of one user; members of system:masters are exempt.
    #[arg(long, value_name = "COUNT", default_value_t = ConnectionLimits::default().watches_per_user,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_watches_per_user: u32,
    /// Number of open consoles, screens and port forwards of one user; members of system:masters
    /// are exempt.
    #[arg(long, value_name = "COUNT", default_value_t = gateway::DEFAULT_STREAMS_PER_USER,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_streams_per_user: u32,
}

fn parse(text: &str) -> Result<Duration, &'static str> {
    duration(text).filter(|time| !time.is_zero()).ok_or("must be a duration like 1m30s")
}

/// Limits that contradict each other.
#[derive(Debug, thiserror::Error)]
#[error(
    "--reserved-connections is {reserved}: it must be less than --max-connections, which is {total}"
)]
pub(crate) struct LimitsError {
    reserved: u32,
    total: u32,
}

impl ConnectionArgs {
    pub(crate) fn limits(&self) -> Result<ConnectionLimits, LimitsError> {
        let (total, reserved) = (self.max_connections, self.reserved_connections);
        if reserved >= total {
            return Err(LimitsError { reserved, total });
        }
        Ok(ConnectionLimits {
            total,
            reserved,
            per_source: self.max_connections_per_source,
            anonymous: self.max_anonymous_connections,
            idle_timeout: self.connection_idle_timeout,
            watches_per_user: self.max_watches_per_user,
        })
    }
}
