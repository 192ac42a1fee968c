//! The certificates of a node that has joined: renewed while it runs, and used from then on by the
//! client of the API and by the node's endpoint.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use auth::kubeconfig::Credential;
use auth::pki::{NodeCertificate, NodeFiles};
use base::{Chain, Stop, clock};
use client::ServerPool;
use tokio::sync::watch;
use tracing::{info, warn};

use super::super::node_tls::NodeTls;
use super::{connection, enroll};

/// Certificates live for months; a check once an hour is enough.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// While one is missing or could not be renewed.
const RETRY_DELAY: Duration = Duration::from_secs(10);

pub(super) struct CertificateRenewal {
    pub(super) files: NodeFiles,
    pub(super) wanted: &'static [NodeCertificate],
    pub(super) node: String,
    /// Where the API is, best first; changes with the servers.
    pub(super) urls: watch::Sender<Vec<String>>,
    pub(super) pool: ServerPool,
    pub(super) tls: NodeTls,
}

impl CertificateRenewal {
    pub(super) async fn run(self: Arc<Self>, mut stop: Stop) {
        let mut is_failing = false;
        loop {
            let renewed = tokio::select! {
                renewed = self.renew() => renewed,
                () = stop.requested() => return,
            };
            let wait = match renewed {
                Ok(()) => {
                    is_failing = false;
                    CHECK_INTERVAL
                }
                Err(error) => {
                    if !is_failing {
                        warn!(error = %Chain(&*error), "cannot renew the certificates of this node");
                    }
                    is_failing = true;
                    RETRY_DELAY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.requested() => return,
            }
        }
    }

    /// Renews what is due, and takes over what the cluster trusts now.
    async fn renew(&self) -> Result<()> {
        let client = self.pool.client();
        for which in self.wanted.iter().copied() {
            if !self.files.is_due(which, clock::now())? {
                continue;
            }
            let pem = enroll::certificate(&client, &self.files, which, &self.node).await?;
            self.files.store(which, &pem)?;
            info!(?which, "certificate of this node written");
        }
        let request = http::Request::get("/cacerts").body(Vec::new());
        let bundle = client.request_text(request.context("cannot build a request")?).await;
        let bundle = bundle.context("cannot read the cluster's CA")?;
        if self.files.ca_pem()?.as_deref() != Some(bundle.as_str()) {
            self.files.store_ca(&bundle)?;
        }
        self.apply().await
    }

    /// Uses what the files have.
    pub(super) async fn apply(&self) -> Result<()> {
        let ca = self.files.ca_pem()?.context("the cluster's CA is missing")?;
        let own = self.files.identity(NodeCertificate::Client)?;
        let own = own.context("the certificate of this node is missing")?;
        let urls = self.urls.borrow().clone();
        let (first, others) =
            connection::servers(&urls, &ca, Credential::Certificate(&own)).await?;
        self.pool.replace(first, others);
        self.tls.apply(&self.files)
    }
}
