//! Writes the state of an image on a disk into its BackingImage.

use std::pin::Pin;
use std::time::Duration;

use base::clock;
use client::Fault;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tracing::warn;

use super::files::ImageFacts;
use super::object::Image;
use crate::api::{MANAGER, present};
use crate::storage::longhorn;
use crate::volume::Gauge;

/// Between two looks at how far an import is.
const LOOK: Duration = Duration::from_millis(500);
/// After a word that could not be said.
const RETRY: Duration = Duration::from_secs(1);

/// Tells of one image on one disk.
pub(super) struct ImageStatusWriter {
    client: Client,
    node: String,
    name: String,
    uid: String,
    disk: String,
    state: &'static str,
    since: String,
    /// The object as it was written last.
    pub(super) last: Option<DynamicObject>,
}

impl ImageStatusWriter {
    pub(super) fn new(client: Client, node: &str, image: &Image, disk: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
            name: image.name.clone(),
            uid: image.uid.clone(),
            disk: disk.to_owned(),
            state: "",
            since: String::new(),
            last: None,
        }
    }

    pub(super) async fn pending(&mut self, message: &str) {
        self.write("pending", 0, message, json!({})).await;
    }

    /// `size` is that of what is fetched, if its server has said it.
    pub(super) async fn coming(&mut self, progress: u32, size: Option<u64>) {
        let more = size.map_or_else(|| json!({}), |size| json!({"size": size}));
        self.write("in-progress", progress, "", more).await;
    }

    pub(super) async fn ready(&mut self, facts: &ImageFacts) {
        let more = json!({
            "size": facts.size, "virtualSize": facts.virtual_size, "realSize": facts.real_size,
            "checksum": facts.checksum,
        });
        self.write("ready", 100, "", more).await;
    }

    /// `message` says what is damaged; nothing if it is whole.
    pub(super) async fn checked(&mut self, message: &str) {
        self.write("ready", 100, message, json!({})).await;
    }

    pub(super) async fn failed(&mut self, progress: u32, message: &str) {
        self.write("failed", progress, message, json!({})).await;
    }

    /// Says how far some work is until it has ended.
    pub(super) async fn follow<T>(
        &mut self,
        gauge: &Gauge,
        mut work: Pin<&mut (impl Future<Output = T> + Send)>,
    ) -> T {
        let mut told = 0;
        loop {
            tokio::select! {
                ended = &mut work => return ended,
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = gauge.whole_percent().unwrap_or(0).max(1);
            if now != told {
                told = now;
                // The work goes on while it is told.
                tokio::select! {
                    ended = &mut work => return ended,
                    () = self.coming(now, None) => {}
                }
            }
        }
    }

    /// Says it until it is heard; nothing is to be said of what is gone.
    async fn write(&mut self, state: &'static str, progress: u32, message: &str, more: Value) {
        if self.state != state {
            self.state = state;
            self.since = clock::now_rfc3339();
        }
        let mut status = json!({
            "ownerID": self.node, "uuid": self.uid,
            "diskFileStatusMap": {&self.disk: {
                "state": state, "progress": progress, "message": message,
                "lastStateTransitionTime": self.since, "dataEngine": "v1",
            }},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            status[key] = value.clone();
        }
        let patch = json!({"metadata": {"uid": self.uid}, "status": status});
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let api = longhorn(&self.client, "BackingImage", "backingimages");
        loop {
            let written = api.patch_status(&self.name, &params, &Patch::Merge(&patch)).await;
            match present(written) {
                Ok(written) => {
                    self.last = written;
                    return;
                }
                // Another of this name.
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
                    warn!(image = self.name, error = %status, "cannot update image status");
                    return;
                }
                Err(failure) => {
                    warn!(image = self.name, error = %Fault(failure), "cannot update image status");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}
