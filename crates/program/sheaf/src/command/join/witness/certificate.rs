//! The certificate of etcd of a witness. The witness keeps its key, and a management node signs it:
//! the key of etcd's CA stays on management nodes.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use auth::pki::{EtcdCertificate, EtcdFiles};
use base::{Backoff, Chain, clock};
use http::Request;
use kube::Client;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::data_dir::Layout;

pub(in crate::command) const CERTIFICATE_PATH: &str = "/sheaf/v1/etcd/witness-certificate";
/// Certificates live for months.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// The body of a request for a certificate.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::command) struct MemberRequest {
    /// PEM of a certificate request; only its key counts.
    pub(in crate::command) request: String,
    /// Where the member will be.
    pub(in crate::command) address: IpAddr,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::command) struct SignedMember {
    pub(in crate::command) ca: String,
    pub(in crate::command) certificate: String,
}

pub(super) struct WitnessCertificate {
    pub(super) client: Client,
    pub(super) layout: Layout,
    pub(super) address: IpAddr,
}

impl WitnessCertificate {
    /// Resolves when there is a certificate that is good.
    pub(super) async fn until_good(&self) {
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        let mut is_reported = false;
        while let Err(failure) = self.renew().await {
            if !is_reported {
                warn!(error = %Chain(&*failure), "cannot get a certificate of etcd yet");
            }
            is_reported = true;
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// Renews the certificate whenever it is due; etcd reads a new one by itself. Never resolves.
    pub(super) async fn keep_good(&self) {
        loop {
            self.until_good().await;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    async fn renew(&self) -> Result<()> {
        let pki = self.layout.pki();
        if EtcdFiles::find(&pki, self.address, clock::now())?.is_some() {
            return Ok(());
        }
        let request = EtcdFiles::request(&pki).context("cannot make a certificate request")?;
        let body = serde_json::to_vec(&MemberRequest { request, address: self.address });
        let asked = Request::post(CERTIFICATE_PATH)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.context("cannot encode the request")?)
            .context("cannot build a request")?;
        let signed: SignedMember =
            self.client.request(asked).await.context("the cluster signs no certificate of etcd")?;
        let SignedMember { ca, certificate } = signed;
        EtcdFiles::store(&pki, &EtcdCertificate { ca, certificate })
            .context("cannot store the certificate of etcd")?;
        info!(address = %self.address, "certificate of etcd written");
        Ok(())
    }
}
