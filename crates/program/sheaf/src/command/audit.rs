//! The configuration of the audit log, from its flags.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use apiserver::audit::{AuditBackend, AuditConfig, AuditPolicy, Batching, LogConfig};
use auth::user::{API_SERVER, CONTROLLER_USERS, GATEWAY};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use kube::Client;
use kube::client::Body;

use crate::cli::AuditArgs;
use crate::text_file;

/// Metadata of changes, of access to secrets and of connections to machines. Reads are left out,
/// and so are nodes and the parts of the platform (`USERS`), which act on what users have asked for.
/// Refused requests of all of them are logged, whatever the rules say.
const DEFAULT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [USERS]}
- {level: None, userGroups: ["system:nodes"]}
- {level: Metadata, resources: [{group: "", resources: [secrets, serviceaccounts/token]}]}
- {level: Metadata, resources: [{group: subresources.kubevirt.io}]}
- {level: None, verbs: [get, list, watch, head, options]}
- {level: None, resources: [{group: "", resources: [events]}, {group: events.k8s.io}]}
- {level: None, resources: [{group: coordination.k8s.io, resources: [leases]}]}
- {level: None, resources: [{group: authorization.k8s.io}]}
- {level: Metadata}
"#;

fn default_policy() -> Result<AuditPolicy> {
    let mut users = vec![API_SERVER, GATEWAY];
    users.extend(CONTROLLER_USERS);
    let text = DEFAULT_POLICY.replace("USERS", &format!("\"{}\"", users.join("\", \"")));
    let policy = AuditPolicy::parse(&text).context("cannot use the default audit policy")?;
    Ok(policy.with_refusals())
}

/// The audit configuration that the flags request. If there is a default log file, requests are
/// logged unless that is turned off.
pub(super) async fn config(
    args: &AuditArgs,
    default_log: Option<PathBuf>,
) -> Result<Option<AuditConfig>> {
    let wanted = args.audit_log_path.is_some() || args.audit_webhook_config_file.is_some();
    let default_log = default_log.filter(|_| !args.no_audit);
    let policy = match &args.audit_policy_file {
        Some(file) => {
            let text = text_file::read(file)
                .with_context(|| format!("cannot read the audit policy {}", file.display()))?;
            AuditPolicy::parse(&text)
                .with_context(|| format!("cannot use the audit policy {}", file.display()))?
        }
        None if default_log.is_some() => default_policy()?,
        None if wanted => {
            bail!("--audit-policy-file is missing: without a policy nothing is logged");
        }
        None => return Ok(None),
    };
    let path = match (&args.audit_log_path, default_log) {
        (Some(path), _) => Some(path.clone()),
        (None, default) if !wanted => default,
        (None, _) => None,
    };
    if path.is_none() && !wanted {
        bail!("--audit-log-path is missing (or --audit-webhook-config-file): where do events go?");
    }
    let log = path.map(|path| LogConfig {
        path,
        max_age: args.audit_log_maxage,
        max_backups: args.audit_log_maxbackup,
        max_size: u64::from(args.audit_log_maxsize) << 20,
    });
    let webhook = match &args.audit_webhook_config_file {
        None => None,
        Some(file) => {
            let client = client::from_kubeconfig(file).await?;
            let batching = Batching {
                queue: args.audit_webhook_batch_buffer_size.max(1) as usize,
                most: args.audit_webhook_batch_max_size.max(1) as usize,
                max_wait: args.audit_webhook_batch_max_wait,
                retry: args.audit_webhook_initial_backoff,
            };
            Some((Arc::new(Webhook(client)) as Arc<dyn AuditBackend>, batching))
        }
    };
    Ok(Some(AuditConfig { policy, log, webhook }))
}

/// A server that a kubeconfig names.
struct Webhook(Client);

impl AuditBackend for Webhook {
    fn deliver(
        &self,
        list: Bytes,
    ) -> BoxFuture<'_, Result<(), Box<dyn std::error::Error + Send + Sync>>> {
        Box::pin(async move {
            let request = http::Request::post("/")
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(Body::from(list.to_vec()))?;
            let answer = self.0.send(request).await?;
            if answer.status().is_success() {
                return Ok(());
            }
            Err(format!("it answered {}", answer.status()).into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_logged_unless_that_is_turned_off() {
        let place = || Some(PathBuf::from("/data/audit/audit.log"));
        let log = |config: Option<AuditConfig>| config.and_then(|config| config.log);
        let usual = AuditArgs::default();
        let found = log(config(&usual, place()).await.unwrap()).unwrap();
        assert_eq!(Some(found.path), place());
        assert!(config(&usual, None).await.unwrap().is_none(), "kube-apiserver logs on demand");
        let off = AuditArgs { no_audit: true, ..AuditArgs::default() };
        assert!(config(&off, place()).await.unwrap().is_none());
        let elsewhere = AuditArgs { audit_log_path: Some("/log".into()), ..AuditArgs::default() };
        let found = log(config(&elsewhere, place()).await.unwrap()).unwrap();
        assert_eq!(found.path, PathBuf::from("/log"));
        let refused = config(&elsewhere, None).await.unwrap_err();
        assert!(refused.to_string().contains("--audit-policy-file is missing"));
    }

    #[tokio::test]
    async fn only_the_default_policy_logs_refusals_that_no_rule_names() {
        let place = || Some(PathBuf::from("/data/audit/audit.log"));
        let usual = config(&AuditArgs::default(), place()).await.unwrap().unwrap();
        assert!(usual.policy.logs_refusals());
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n";
        std::fs::write(file.path(), text).unwrap();
        let audit_policy_file = Some(file.path().to_owned());
        let given = AuditArgs { audit_policy_file, ..AuditArgs::default() };
        let given = config(&given, place()).await.unwrap().unwrap();
        assert!(!given.policy.logs_refusals(), "Kubernetes' semantics");
    }
}
