//! The setting `ntp-servers` on this node: the time service of the host gets the servers in a file
//! of its own (`host`), and an annotation of the Node reports the servers and whether the clock
//! follows them. Without a value nothing on the host is touched.

mod host;
mod plan;

use std::path::PathBuf;
use std::time::Duration;

use base::{Chain, Stop};
use client::Fault;
use futures_util::StreamExt as _;
use hci::cluster_setting::effective;
use hci::ntp::{ANNOTATION, NtpReport, SETTING, servers};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde_json::json;
use tracing::{debug, info, warn};

use self::host::{HostCommands, NtpHost};
use crate::api::merge;

/// How often the state of the clock is read; nothing reports a change of it.
const INTERVAL: Duration = Duration::from_secs(300);
/// After a report that could not be written: the Node may not be registered yet.
const RETRY: Duration = Duration::from_secs(10);

/// Runs until `stop`. `directory` is that of the agent.
pub(crate) async fn run(client: Client, node: String, directory: PathBuf, mut stop: Stop) {
    let kind = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "Setting");
    let resource = ApiResource::from_gvk_with_plural(&kind, "settings");
    let settings: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    // Nodes may read few settings, by name.
    let config = watcher::Config::default().fields(&format!("metadata.name={SETTING}"));
    let mut events = std::pin::pin!(watcher::watcher(settings, config).default_backoff());
    let host =
        NtpHost { root: "/".into(), record: directory.join("ntp-file"), commands: HostCommands };
    let nodes = Api::<Node>::all(client);
    let mut value: Option<String> = None;
    let mut reported: Option<NtpReport> = None;
    let mut wait = INTERVAL;
    loop {
        tokio::select! {
            event = events.next() => match event {
                None => return,
                Some(Err(error)) => {
                    warn!(error = %Chain(&error), "cannot watch the setting {SETTING}");
                    continue;
                }
                Some(Ok(Event::Apply(setting) | Event::InitApply(setting))) => {
                    value = Some(effective(SETTING, Some(&setting.data)));
                }
                Some(Ok(Event::Delete(_))) => value = Some(String::new()),
                Some(Ok(Event::Init)) => continue,
                // A server without the setting leaves the host alone.
                Some(Ok(Event::InitDone)) => {}
            },
            () = tokio::time::sleep(wait) => {}
            () = stop.requested() => return,
        }
        wait = INTERVAL;
        let Some(value) = &value else { continue };
        let report = host.follow(&servers(value)).await;
        if reported.as_ref() == Some(&report) {
            continue;
        }
        let text = serde_json::to_string(&report).expect("a report is JSON");
        let patch = json!({"metadata": {"annotations": {ANNOTATION: text}}});
        match merge(&nodes, &node, &patch).await.map_err(Fault) {
            Ok(_) => {
                info!(report = text, "time service of this node");
                reported = Some(report);
            }
            Err(failure) => {
                debug!(error = %Chain(&failure), "cannot report the time service");
                wait = RETRY;
            }
        }
    }
}
