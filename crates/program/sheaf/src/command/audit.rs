//! From flags to what is written down of requests.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use apiserver::audit::{AuditBackend, AuditConfig, AuditPolicy, Batching, LogConfig};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use kube::Client;
use kube::client::Body;

use crate::cli::AuditArgs;

pub(super) async fn config(args: &AuditArgs) -> Result<Option<AuditConfig>> {
    let wanted = args.audit_log_path.is_some() || args.audit_webhook_config_file.is_some();
    let Some(file) = &args.audit_policy_file else {
        if wanted {
            bail!("--audit-policy-file is missing: without a policy nothing is logged");
        }
        return Ok(None);
    };
    if !wanted {
        bail!("--audit-log-path is missing (or --audit-webhook-config-file): where do events go?");
    }
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the audit policy {}", file.display()))?;
    let policy = AuditPolicy::parse(&text)
        .with_context(|| format!("cannot use the audit policy {}", file.display()))?;
    let log = args.audit_log_path.clone().map(|path| LogConfig {
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
                patience: args.audit_webhook_batch_max_wait,
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
