//! The API servers of the cluster, as a node that joined follows them: they are noted for the next
//! start, and its client turns to another when one cannot be reached.

use std::sync::Arc;

use anyhow::Result;
use base::{Chain, Stop};
use hci::cluster::CONTROL_PLANE;
use kube::Client;
use tokio::sync::watch;
use tracing::{info, warn};

use super::membership::Membership;
use super::renewal::CertificateRenewal;
use crate::command::management::{NodeFeed, api_urls};
use crate::data_dir::Layout;

pub(super) struct ServerFollower {
    pub(super) client: Client,
    pub(super) layout: Layout,
    pub(super) membership: Membership,
    pub(super) urls: watch::Sender<Vec<String>>,
    /// Makes the clients.
    pub(super) renewal: Arc<CertificateRenewal>,
}

impl ServerFollower {
    pub(super) async fn run(mut self, mut stop: Stop) {
        let mut feed = NodeFeed::new(self.client.clone(), &format!("{CONTROL_PLANE}=true"));
        loop {
            let nodes = tokio::select! {
                nodes = feed.changed() => nodes,
                () = stop.requested() => return,
            };
            let urls = merged(&self.membership.urls, api_urls(&nodes));
            if urls == self.membership.urls {
                continue;
            }
            if let Err(failure) = self.follow(urls).await {
                warn!(error = %Chain(&*failure), "cannot follow the API servers");
            }
        }
    }

    async fn follow(&mut self, urls: Vec<String>) -> Result<()> {
        info!(?urls, "API servers of the cluster have changed");
        self.membership.urls.clone_from(&urls);
        self.membership.save(&self.layout)?;
        self.urls.send_replace(urls);
        self.renewal.apply().await
    }
}

/// The current servers. In a cluster with one server no node reports its address, and what was
/// known stays. Servers that were known keep their place, so that no client leaves one that works.
fn merged(known: &[String], now: Vec<String>) -> Vec<String> {
    if now.is_empty() {
        return known.to_vec();
    }
    let mut urls: Vec<String> = known.iter().filter(|url| now.contains(url)).cloned().collect();
    urls.extend(now.into_iter().filter(|url| !known.contains(url)));
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_known_keep_their_place() {
        let list = |urls: &[&str]| urls.iter().map(|&url| url.to_owned()).collect::<Vec<_>>();
        for (known, now, expected) in [
            (&["a"][..], &[][..], &["a"][..]),
            (&["a"], &["b", "a", "c"], &["a", "b", "c"]),
            (&["a", "b"], &["c", "b"], &["b", "c"]),
        ] {
            assert_eq!(merged(&list(known), list(now)), list(expected));
        }
    }
}
