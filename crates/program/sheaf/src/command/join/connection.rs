//! How a node that joins, or has joined, reaches the API: by the CA that it trusts, under the name
//! that every server of a cluster has, whatever address leads there.

use std::time::Duration;

use anyhow::{Context as _, Result};
use auth::kubeconfig::{Credential, kubeconfig};
use client::{PoolServer, ServerPool};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// In the serving certificate of each server.
const SERVER_NAME: &str = "kubernetes.default.svc.cluster.local";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(in crate::command) async fn client(
    url: &str,
    ca_pem: &str,
    who: Credential<'_>,
) -> Result<Client> {
    let config = config(url, ca_pem, who).await?;
    Client::try_from(config).with_context(|| format!("cannot make a client for {url}"))
}

async fn config(url: &str, ca_pem: &str, who: Credential<'_>) -> Result<Config> {
    let text = kubeconfig(url, ca_pem, "node", who);
    let file = Kubeconfig::from_yaml(&text).with_context(|| format!("cannot use the URL {url}"))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(|| format!("cannot use the URL {url}"))?;
    config.tls_server_name = Some(SERVER_NAME.to_owned());
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.proxy_url = None;
    Ok(config)
}

/// One for each URL.
pub(super) async fn servers(
    urls: &[String],
    ca_pem: &str,
    who: Credential<'_>,
) -> Result<(PoolServer, Vec<PoolServer>)> {
    let mut all = Vec::new();
    for url in urls {
        let server = PoolServer::new(config(url, ca_pem, who).await?);
        all.push(server.with_context(|| format!("cannot make a client for {url}"))?);
    }
    let mut all = all.into_iter();
    let first = all.next().context("the URL of the API server is not known; use --join")?;
    Ok((first, all.collect()))
}

pub(super) async fn pool(urls: &[String], ca_pem: &str, who: Credential<'_>) -> Result<ServerPool> {
    let (first, others) = servers(urls, ca_pem, who).await?;
    Ok(ServerPool::new(first, others))
}
