//! Flags that say what is written down of requests.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::kube_apiserver::duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditArgs {
    /// Which requests are written down, and how much of them (a Policy of audit.k8s.io/v1).
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_policy_file: Option<PathBuf>,
    /// File of audit events, one JSON object per line; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log_path: Option<PathBuf>,
    /// Days that old audit logs are kept; 0 is for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    pub(crate) audit_log_maxage: u32,
    /// Old audit logs that are kept; 0 is all.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) audit_log_maxbackup: u32,
    /// Megabytes after which a new audit log is begun; 0 is never.
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub(crate) audit_log_maxsize: u32,
    /// Kubeconfig of a server that takes audit events.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_webhook_config_file: Option<PathBuf>,
    /// Audit events that may wait for that server; those beyond are lost.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) audit_webhook_batch_buffer_size: u32,
    /// Audit events sent at once.
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    pub(crate) audit_webhook_batch_max_size: u32,
    /// How long to gather audit events before they are sent.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse)]
    pub(crate) audit_webhook_batch_max_wait: Duration,
    /// The pause before audit events that were refused are sent again.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse)]
    pub(crate) audit_webhook_initial_backoff: Duration,
}

fn parse(text: &str) -> Result<Duration, &'static str> {
    duration(text).ok_or("must be a duration like 1m30s")
}

impl Default for AuditArgs {
    fn default() -> Self {
        Self {
            audit_policy_file: None,
            audit_log_path: None,
            audit_log_maxage: 0,
            audit_log_maxbackup: 0,
            audit_log_maxsize: 100,
            audit_webhook_config_file: None,
            audit_webhook_batch_buffer_size: 10_000,
            audit_webhook_batch_max_size: 400,
            audit_webhook_batch_max_wait: Duration::from_secs(30),
            audit_webhook_initial_backoff: Duration::from_secs(10),
        }
    }
}
