//! The list of revoked client certificates, as the API server of this process follows it.
//!
//! The list is a ConfigMap, so it reaches every management node and is in backups. It is read before
//! the first request is answered. Entries about certificates that have all ended are removed.

use std::collections::BTreeMap;
use std::time::Duration;

use apiserver::Api;
use auth::revocation::{NAME, NAMESPACE, RevocationList};
use base::{Chain, Tasks, clock};
use kube::Client;
use serde_json::Value;
use tracing::{info, warn};

use super::map_feed::{MapFeed, MapName};

/// Removing old entries is not urgent.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
const MAP: MapName = MapName { namespace: NAMESPACE, name: NAME };

/// Takes the list over and follows it for as long as the server runs. `client` may write it.
pub(super) fn follow(api: &Api, client: Client, tasks: &Tasks) {
    let follower = RevocationFollower { api: api.clone(), client };
    follower.apply(&MAP.stored(api));
    let mut stop = tasks.stop_signal();
    tasks.spawn("revocations", async move {
        tokio::select! {
            () = stop.requested() => {}
            () = follower.run() => {}
        }
    });
}

struct RevocationFollower {
    api: Api,
    client: Client,
}

impl RevocationFollower {
    async fn run(&self) {
        let mut feed = MapFeed::new(&self.client, MAP);
        let mut prune = tokio::time::interval(PRUNE_INTERVAL);
        loop {
            tokio::select! {
                data = feed.changed() => self.apply(&data),
                _ = prune.tick() => self.prune().await,
            }
        }
    }

    fn apply(&self, data: &BTreeMap<String, String>) {
        let list = RevocationList::read(data.iter().map(|(key, value)| (&**key, &**value)));
        let authenticator = self.api.authenticator();
        if **authenticator.revoked().borrow() != list {
            info!(entries = list.len(), "list of revoked certificates changed");
            authenticator.set_revoked(list);
        }
    }

    async fn prune(&self) {
        let ended = self.api.authenticator().revoked().borrow().ended(clock::now());
        if ended.is_empty() {
            return;
        }
        let count = ended.len();
        let data = ended.into_iter().map(|key| (key, Value::Null)).collect();
        match MAP.merge(&self.client, data).await {
            Ok(()) => info!(entries = count, "revocations of certificates that have ended removed"),
            Err(error) => warn!(error = %Chain(&error), "cannot remove old revocations"),
        }
    }
}
