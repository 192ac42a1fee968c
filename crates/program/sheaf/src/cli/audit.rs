//! Flags of the audit log.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::kube_apiserver::duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditArgs {
    /// Do not log requests.
    #[arg(long, conflicts_with_all = ["audit_policy_file", "audit_log_path"])]
    pub(crate) no_audit: bool,
    /// Audit policy (audit.k8s.io/v1): which requests are logged, and in which detail.
    ///
    /// The default logs the metadata of all changes, of access to secrets and of consoles and
    /// other connections to machines, but not what the parts of the platform do.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_policy_file: Option<PathBuf>,
    /// Audit log file, one JSON object per line; - is standard output. The default is
    /// audit/audit.log in the data directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log_path: Option<PathBuf>,
    /// Days to keep rotated audit logs; 0 keeps them forever.
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    pub(crate) audit_log_maxage: u32,
    /// Number of rotated audit logs to keep; 0 keeps all.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) audit_log_maxbackup: u32,
    /// Size in megabytes at which the audit log is rotated; 0 is never.
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub(crate) audit_log_maxsize: u32,
    /// Kubeconfig of an audit webhook.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_webhook_config_file: Option<PathBuf>,
    /// Number of audit events to buffer for the webhook; further events are dropped.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) audit_webhook_batch_buffer_size: u32,
    /// Maximum number of audit events per batch.
    #[arg(long, value_name = "COUNT", default_value_t = 400,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) audit_webhook_batch_max_size: u32,
    /// Maximum time to wait before a batch of audit events is sent.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse)]
    pub(crate) audit_webhook_batch_max_wait: Duration,
    /// Delay before a failed batch of audit events is sent again.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse)]
    pub(crate) audit_webhook_initial_backoff: Duration,
}

fn parse(text: &str) -> Result<Duration, &'static str> {
    duration(text).ok_or("must be a duration like 1m30s")
}

impl Default for AuditArgs {
    fn default() -> Self {
        Self {
            no_audit: false,
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
