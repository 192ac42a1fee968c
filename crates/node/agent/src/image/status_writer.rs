//! Writes the state of an image on a disk into its BackingImage.

use std::pin::Pin;
use std::time::Duration;

use base::{Backoff, clock};
use client::Fault;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::files::ImageFacts;
use crate::api::{MANAGER, present};
use crate::backing_image::Image;
use crate::storage::longhorn;
use crate::volume::Gauge;

/// Between two readings of the progress of an import.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Between two attempts to write what the server did not take: the pause doubles.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Writes the status of one image on one disk.
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
        let mut reported = 0;
        loop {
            tokio::select! {
                ended = &mut work => return ended,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let now = gauge.whole_percent().unwrap_or(0).max(1);
            if now != reported {
                reported = now;
                // The work goes on while the progress is written.
                tokio::select! {
                    ended = &mut work => return ended,
                    () = self.coming(now, None) => {}
                }
            }
        }
    }

    /// Writes it until it is stored; nothing is written for a removed object.
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
        let (mut pauses, mut is_failing) = (Backoff::new(FIRST_RETRY, LAST_RETRY), false);
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
                    let error = Fault(failure);
                    if std::mem::replace(&mut is_failing, true) {
                        debug!(image = self.name, %error, "still cannot update image status");
                    } else {
                        warn!(image = self.name, %error, "cannot update image status");
                    }
                    tokio::time::sleep(pauses.delay()).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing_image::tests::read;
    use crate::retry::tests::{MOST_ATTEMPTS, refusing};

    #[tokio::test(start_paused = true)]
    async fn a_status_that_the_server_does_not_take_is_written_after_growing_pauses() {
        let (client, asked) = refusing(500);
        let mut writer = ImageStatusWriter::new(client, "one", &read("download", ""), "d");
        let written = tokio::time::timeout(Duration::from_secs(60), writer.pending("")).await;
        assert!(written.is_err(), "it is written until the server takes it");
        let asked = asked.lock();
        assert!((3..=MOST_ATTEMPTS).contains(&asked.len()), "{asked:?}");
    }
}
