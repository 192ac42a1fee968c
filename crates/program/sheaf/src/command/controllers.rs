//! `sheaf controllers`: our controllers in another Kubernetes cluster, which they reach by a
//! kubeconfig.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use base::{Tasks, Workloads};
use controllers::{ControllerSet, Leadership};
use kube::Client;
use tracing::info;

use super::alarm_webhook::AlarmWebhooks;
use super::server;
use crate::cli::ControllersArgs;
use crate::logging;

pub(super) fn run(args: &ControllersArgs) -> Result<()> {
    logging::start(args.log_format, &args.log_level)?;
    server::in_runtime(work(args))
}

async fn work(args: &ControllersArgs) -> Result<()> {
    let client = client::from_kubeconfig(&args.kubeconfig).await?;
    let version = client.apiserver_version().await.context("cannot reach the cluster")?;
    require_definitions(&client).await?;
    let identity = args.identity.clone().unwrap_or_else(server::names::guest_identity);
    info!(cluster = version.git_version, identity, "working as a guest");
    let tasks = Tasks::default();
    let config = controllers::Config {
        leadership: Leadership::Lease { identity },
        duties: ControllerSet::Machines,
        // Only who runs the gateway knows how clients reach it.
        uploads: None,
        alarm_sender: Some(Arc::new(AlarmWebhooks::new(client.clone()))),
        loads: Workloads::default(),
    };
    controllers::start(client, config, &tasks);
    server::StopSignals::listen()?.received().await;
    info!("stopping");
    tasks.stop(server::CONTROLLERS_TIMEOUT).await;
    Ok(())
}

/// Without the definitions there is nothing to do, and no error would ever say why.
async fn require_definitions(client: &Client) -> Result<()> {
    let catalog = client::discover(client).await.context("cannot read what the cluster serves")?;
    if catalog.resource("kubevirt.io", "virtualmachines").is_none() {
        bail!(
            "the cluster does not know virtual machines; install their definitions first:\n  \
             sheaf manifests --only definitions | kubectl apply --server-side -f -\n  \
             sheaf manifests --only objects | kubectl apply --server-side -f -"
        );
    }
    Ok(())
}
