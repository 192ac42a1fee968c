//! Certificates that renew themselves, and the administrator's kubeconfig with them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::Api;
use auth::kubeconfig::{Credential, kubeconfig, write_kubeconfig as write};
use auth::pki::tls::Tls;
use auth::pki::{Pki, ServingNames};
use base::{Chain, Tasks, clock};
use tracing::{error, info};

use crate::data_dir::Layout;

/// Certificates live for months; looking once an hour is plenty.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

pub(super) fn write_kubeconfig(layout: &Layout, pki: &Pki, url: &str) -> Result<()> {
    let path = layout.admin_kubeconfig();
    let text =
        kubeconfig(url, &pki.ca_pem(), "system:admin", Credential::Certificate(&pki.admin()));
    write(&path, &text).with_context(|| format!("cannot write {}", path.display()))
}

/// Tells the server who it is to those that it passes requests on to.
pub(super) fn identify(api: &Api, pki: &Pki) {
    let proxy = pki.front_proxy();
    api.identify(&proxy.cert_pem, &proxy.key_pem);
}

/// Renews what is due, for as long as the server runs.
pub(super) fn keep_fresh(
    mut pki: Pki,
    names: ServingNames,
    tls: Tls,
    layout: Layout,
    url: String,
    api: Api,
    tasks: &Tasks,
) {
    let mut stop = tasks.stop_signal();
    tasks.spawn("certificates", async move {
        loop {
            tokio::select! {
                () = stop.requested() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            match pki.renew_if_due(&names, clock::now()) {
                Ok(changes) if changes.is_empty() => continue,
                Ok(changes) => {
                    for change in &changes {
                        info!(file = change.file, reason = ?change.reason, "certificate written");
                    }
                }
                Err(error) => {
                    error!(error = %Chain(&error), "cannot renew certificates");
                    continue;
                }
            }
            if let Err(error) = tls.reload(&pki) {
                error!(error = %Chain(&error), "cannot use renewed certificates");
            }
            identify(&api, &pki);
            if let Err(error) = write_kubeconfig(&layout, &pki, &url) {
                error!(error = %Chain(&*error), "cannot write the administrator's kubeconfig");
            }
        }
    });
}
