//! A ConfigMap in which the API servers of a cluster notify each other, one entry per key,
//! so that writers do not disturb each other.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use apiserver::Api;
use apiserver::extension::Lookup as _;
use base::Chain;
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use serde_json::{Map, Value, json};
use tracing::warn;

/// After a failure of the watch.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Where the ConfigMap is.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapName {
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
}

impl MapName {
    /// The data as this server has it, without waiting for anything.
    pub(super) fn stored(self, api: &Api) -> BTreeMap<String, String> {
        let stored = api.get("", "configmaps", self.namespace, self.name);
        let data = stored.as_ref().and_then(|stored| stored["data"].as_object());
        let texts = data.into_iter().flatten();
        texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    /// Changes some entries; null removes one.
    pub(super) async fn merge(
        self,
        client: &Client,
        data: Map<String, Value>,
    ) -> Result<(), kube::Error> {
        let maps = self.maps(client);
        let patch = Patch::Merge(json!({"data": data}));
        let params = PatchParams::default();
        let patched = || maps.patch(self.name, &params, &patch);
        match patched().await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            patched => return patched.map(drop),
        }
        let mut map = ConfigMap::default();
        map.metadata.name = Some(self.name.to_owned());
        let texts = data.iter().filter_map(|(key, value)| Some((key, value.as_str()?)));
        map.data = Some(texts.map(|(key, text)| (key.clone(), text.to_owned())).collect());
        match maps.create(&PostParams::default(), &map).await {
            // Another server was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => patched().await.map(drop),
            created => created.map(drop),
        }
    }

    fn maps(self, client: &Client) -> kube::Api<ConfigMap> {
        kube::Api::namespaced(client.clone(), self.namespace)
    }
}

/// Its data, whenever it changes.
pub(super) struct MapFeed {
    name: &'static str,
    events: Pin<Box<dyn Stream<Item = watcher::Result<Event<ConfigMap>>> + Send>>,
    listed: Option<ConfigMap>,
}

impl MapFeed {
    pub(super) fn new(client: &Client, map: MapName) -> Self {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", map.name));
        let events = Box::pin(watcher::watcher(map.maps(client), config));
        Self { name: map.name, events, listed: None }
    }

    /// The data after the next change; empty if the ConfigMap does not exist. The first answer is the
    /// present data. Cancel-safe.
    pub(super) async fn changed(&mut self) -> BTreeMap<String, String> {
        let data = |map: Option<ConfigMap>| map.and_then(|map| map.data).unwrap_or_default();
        loop {
            match self.events.next().await {
                Some(Ok(Event::Apply(map))) => return data(Some(map)),
                Some(Ok(Event::Delete(_))) => return data(None),
                Some(Ok(Event::Init)) => self.listed = None,
                Some(Ok(Event::InitApply(map))) => self.listed = Some(map),
                Some(Ok(Event::InitDone)) => return data(self.listed.take()),
                Some(Err(error)) => {
                    warn!(name = self.name, error = %Chain(&error), "cannot watch a config map");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                // A watcher has no end.
                None => std::future::pending().await,
            }
        }
    }
}
