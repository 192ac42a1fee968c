//! Certificates that renew themselves, and the administrator's kubeconfig with them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::Api;
use auth::kubeconfig::{Credential, kubeconfig, write_kubeconfig as write};
use auth::pki::overview::own_certificates;
use auth::pki::tls::Tls;
use auth::pki::{NodeFiles, Pki, ServingNames};
use base::{Chain, Stop, clock};
use tracing::{error, info, warn};

use super::extensions::RootCa;
use super::nodes::GatewayTls;
use crate::command::node_tls::NodeTls;
use crate::data_dir::Layout;

/// Certificates live for months; a check once an hour is enough.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);

pub(super) fn write_kubeconfig(layout: &Layout, pki: &Pki, url: &str) -> Result<()> {
    let path = layout.admin_kubeconfig();
    let text =
        kubeconfig(url, &pki.ca_pem(), "system:admin", Credential::Certificate(&pki.admin()));
    write(&path, &text).with_context(|| format!("cannot write {}", path.display()))
}

/// Gives the server the certificate with which it passes requests on to other servers.
pub(super) fn identify(api: &Api, pki: &Pki) {
    let proxy = pki.front_proxy();
    api.identify(&proxy.cert_pem, &proxy.key_pem);
}

/// Everything that is renewed while the server runs.
pub(super) struct CertificateRenewal {
    pub(super) pki: Pki,
    pub(super) names: ServingNames,
    pub(super) tls: Tls,
    pub(super) layout: Layout,
    pub(super) url: String,
    pub(super) api: Api,
    pub(super) root_ca: RootCa,
    pub(super) gateway_tls: GatewayTls,
    pub(super) agent_tls: NodeTls,
    /// The node of this server and its files, if it has an agent.
    pub(super) node: Option<(String, NodeFiles)>,
}

impl CertificateRenewal {
    /// Renews what is due until `stop`.
    pub(super) async fn run(mut self, mut stop: Stop) {
        let mut revoked = self.api.authenticator().revoked();
        loop {
            // At once: a certificate may have been revoked while no server ran.
            if let Err(error) = self.renew() {
                error!(error = %Chain(&*error), "cannot renew certificates");
            }
            self.warn();
            tokio::select! {
                () = stop.requested() => return,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                // The sender lives in the server that this task holds.
                _ = revoked.changed() => {}
            }
        }
    }

    /// Logs certificates that end and have not been renewed.
    fn warn(&self) {
        for own in own_certificates(&self.layout.pki()).unwrap_or_default() {
            if own.ends_soon(clock::now()) {
                let ends = clock::rfc3339(own.expires);
                warn!(
                    file = own.file,
                    name = own.name,
                    ends,
                    "a certificate of this node expires soon"
                );
            }
        }
    }

    fn renew(&mut self) -> Result<()> {
        let mut changes = self.pki.renew_if_due(&self.names, clock::now())?;
        let revoked = self.api.authenticator().revoked().borrow().clone();
        changes.extend(self.pki.renew_revoked(&revoked, clock::now())?);
        for change in &changes {
            info!(file = change.file, reason = ?change.reason, "certificate written");
        }
        self.gateway_tls.renew(&self.pki)?;
        if let Some((node, files)) = &self.node {
            self.pki.issue_node(files, node, clock::now())?;
            self.agent_tls.apply(files)?;
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.tls.reload(&self.pki).context("cannot use renewed certificates")?;
        self.root_ca.set(self.pki.ca_pem());
        identify(&self.api, &self.pki);
        write_kubeconfig(&self.layout, &self.pki, &self.url)
    }
}
