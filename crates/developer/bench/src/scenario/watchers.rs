//! Many watchers of one collection: does any of them fall behind?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::figures::{Figures, Limit};
use crate::process::Server;

const RATE: u64 = 200;
const SECONDS: u64 = 10;
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// The combined report of all watchers.
#[derive(Default)]
struct WatchReport {
    events: AtomicUsize,
    worst_micros: AtomicU64,
}

pub(super) async fn run(server: &Server, watchers: usize, figures: &mut Figures) -> Result<()> {
    let mut writer = server.client.connect().await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "bench"}, "spec": {"holderIdentity": "0"},
    });
    let made = writer.expect(Method::POST, PATH, Bytes::from(lease.to_string())).await?;
    let made: serde_json::Value = serde_json::from_slice(&made)?;
    let revision = made["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
    let seen = Arc::new(WatchReport::default());
    let epoch = Instant::now();
    for _ in 0..watchers {
        let mut connection = server.client.connect().await?;
        let path = format!("{PATH}?watch=1&resourceVersion={revision}");
        let reply = connection.open(Method::GET, &path, Bytes::new()).await?;
        let seen = seen.clone();
        tokio::spawn(async move {
            let _connection = connection;
            let mut body = reply.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(data) = frame.into_data() {
                    note(&seen, &data, epoch);
                }
            }
        });
    }
    let before = server.cpu();
    let total = RATE * SECONDS;
    let begun = tokio::time::Instant::now();
    for number in 0..total {
        tokio::time::sleep_until(begun + Duration::from_micros(number * 1_000_000 / RATE)).await;
        let sent = epoch.elapsed().as_micros();
        let patch = json!({"spec": {"holderIdentity": format!("sent-{sent:012}")}});
        writer
            .expect(Method::PATCH, &format!("{PATH}/bench"), Bytes::from(patch.to_string()))
            .await?;
    }
    let wanted = watchers * usize::try_from(total)?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while seen.events.load(Ordering::Relaxed) < wanted && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let cpu = server.cpu().saturating_sub(before);
    let missed = wanted - seen.events.load(Ordering::Relaxed).min(wanted);
    let name = format!("{watchers} watchers × {RATE} events/s: ");
    figures.held(format!("{name}events missed"), missed as f64, "", Limit::Most(0.0));
    let worst = seen.worst_micros.load(Ordering::Relaxed) as f64 / 1e3;
    figures.held(format!("{name}worst lag"), worst, "ms", Limit::Most(1000.0));
    figures.add(format!("{name}CPU per delivery"), cpu.as_secs_f64() * 1e6 / wanted as f64, "µs");
    Ok(())
}

/// Each event carries the time at which it was sent.
fn note(seen: &WatchReport, data: &[u8], epoch: Instant) {
    let now = u64::try_from(epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
    let text = String::from_utf8_lossy(data);
    for (at, _) in text.match_indices("\"sent-") {
        let digits = text.get(at + 6..at + 18).and_then(|digits| digits.parse::<u64>().ok());
        if let Some(sent) = digits {
            seen.events.fetch_add(1, Ordering::Relaxed);
            seen.worst_micros.fetch_max(now.saturating_sub(sent), Ordering::Relaxed);
        }
    }
}
