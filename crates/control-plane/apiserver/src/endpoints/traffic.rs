//! Counters of requests and answers, as metrics with upstream's names.

mod process;
pub(crate) mod timing;
mod work;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::api::Api;
use crate::http::route::RouteTarget;
use timing::Timings;

/// Upper bounds in seconds; longer requests are in the last bucket, which has none.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Names come from clients; beyond this many they are counted together.
const MOST_SERIES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Traffic {
    series: RwLock<HashMap<u64, Arc<RequestSeries>>>,
    watches: Arc<AtomicU64>,
    watch_events: AtomicU64,
    pub(crate) timings: Timings,
}

/// Requests that are alike.
#[derive(Debug)]
struct RequestSeries {
    /// As in `group="apps",resource="deployments"`, without the code.
    labels: String,
    code: u16,
    count: AtomicU64,
    /// From the first byte to the answer.
    took: DurationSums,
    /// The same without waiting for a seat, which is what upstream's objectives measure.
    served: DurationSums,
}

/// How long things took.
#[derive(Debug, Default)]
struct DurationSums {
    micros: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len()],
}

impl DurationSums {
    fn note(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        if let Some(at) = BUCKETS.iter().position(|end| seconds <= *end) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RequestSeries {
    fn new(labels: String, code: u16) -> Self {
        let (took, served) = Default::default();
        Self { labels, code, count: AtomicU64::new(0), took, served }
    }

    fn note(&self, took: Duration, waited: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.took.note(took);
        self.served.note(took.saturating_sub(waited));
    }
}

/// A watch that is open.
#[derive(Debug)]
pub(crate) struct OpenWatch(Arc<AtomicU64>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Traffic {
    /// A request was answered, having `waited` for a seat for a part of the time.
    pub(crate) fn note(
        &self,
        verb: &str,
        target: &RouteTarget<'_>,
        code: u16,
        (took, waited): (Duration, Duration),
    ) {
        let mut hash = DefaultHasher::new();
        let parts = parts(target);
        (verb, code, parts).hash(&mut hash);
        let key = hash.finish();
        let known = self.series.read().get(&key).cloned();
        let series = known.unwrap_or_else(|| self.make(key, verb, parts, code));
        series.note(took, waited);
    }

    fn make(&self, key: u64, verb: &str, parts: [&str; 5], code: u16) -> Arc<RequestSeries> {
        let mut all = self.series.write();
        let (key, verb, parts) = if all.len() < MOST_SERIES && code != 404 {
            (key, verb, parts)
        } else {
            (u64::from(code), "", [""; 5])
        };
        let series = all.entry(key).or_insert_with(|| {
            let [group, version, resource, subresource, scope] = parts;
            let labels = format!(
                    "component=\"apiserver\",dry_run=\"\",group=\"{group}\",resource=\"{resource}\",\
                     scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{}\",version=\"{version}\"",
                    verb_label(verb)
            );
            Arc::new(RequestSeries::new(labels, code))
        });
        Arc::clone(series)
    }

    /// A watch is open until what is returned is dropped.
    pub(crate) fn watching(&self) -> OpenWatch {
        self.watches.fetch_add(1, Ordering::Relaxed);
        OpenWatch(Arc::clone(&self.watches))
    }

    pub(crate) fn sent_events(&self, count: usize) {
        self.watch_events.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn render(&self, api: &Api) -> String {
        let mut page = MetricsPage::default();
        self.requests(&mut page);
        self.timings.render(&mut page);
        let loads = |atomic: &AtomicU64| atomic.load(Ordering::Relaxed) as f64;
        page.head("apiserver_current_inflight_requests", "gauge", "Requests being served.");
        for (kind, count) in api.fairness.in_flight() {
            let labels = format!("request_kind=\"{kind}\"");
            page.line("apiserver_current_inflight_requests", &labels, f64::from(count));
        }
        page.head("apiserver_longrunning_requests", "gauge", "Watches that are open.");
        page.line("apiserver_longrunning_requests", "verb=\"WATCH\"", loads(&self.watches));
        page.head("apiserver_watch_events_total", "counter", "Events sent to watchers.");
        page.line("apiserver_watch_events_total", "", loads(&self.watch_events));
        let (open, refused) = api.connections.figures();
        page.head("sheaf_connections", "gauge", "Connections that are open.");
        page.line("sheaf_connections", "", f64::from(open));
        page.head("sheaf_connections_refused_total", "counter", "Connections beyond the limits.");
        page.line("sheaf_connections_refused_total", "", refused as f64);
        flow_control(api, &mut page);
        page.head("apiserver_storage_objects", "gauge", "Objects that are stored.");
        for table in api.store.tables() {
            let labels = format!("resource=\"{}\"", resource_name(&table));
            page.line("apiserver_storage_objects", &labels, api.store.count(&table) as f64);
        }
        if let Some(audit) = &api.audit {
            page.head("apiserver_audit_error_total", "counter", "Audit events that were lost.");
            page.line("apiserver_audit_error_total", "", audit.lost() as f64);
        }
        work::render(&api.extensions.loads, &mut page);
        process::render(&mut page);
        build(api, &mut page);
        page.head("sheaf_store_revision", "gauge", "Newest revision.");
        page.line("sheaf_store_revision", "", api.store.revision().get() as f64);
        page.head("sheaf_served_kinds", "gauge", "Kinds served.");
        page.line("sheaf_served_kinds", "", api.catalog.load().all().len() as f64);
        page.0
    }

    fn requests(&self, page: &mut MetricsPage) {
        let mut all: Vec<Arc<RequestSeries>> = self.series.read().values().cloned().collect();
        all.sort_by(|a, b| (&a.labels, a.code).cmp(&(&b.labels, b.code)));
        let name = "apiserver_request_total";
        page.head(name, "counter", "Requests that were answered.");
        for series in &all {
            let labels = format!("code=\"{}\",{}", series.code, series.labels);
            page.line(name, &labels, series.count.load(Ordering::Relaxed) as f64);
        }
        // Codes are not distinguished here.
        let alike = || {
            let alike = all.chunk_by(|a, b| a.labels == b.labels);
            alike.filter(|alike| !alike[0].labels.contains("verb=\"WATCH\""))
        };
        let name = "apiserver_request_duration_seconds";
        page.head(name, "histogram", "How long answers took, except those of watches.");
        alike().for_each(|alike| histogram(page, name, alike, |series| &series.took));
        let name = "apiserver_request_sli_duration_seconds";
        page.head(name, "histogram", "How long answers took without the time in queues.");
        alike().for_each(|alike| histogram(page, name, alike, |series| &series.served));
    }
}

fn histogram(
    page: &mut MetricsPage,
    name: &str,
    alike: &[Arc<RequestSeries>],
    of: fn(&RequestSeries) -> &DurationSums,
) {
    let Some(labels) = alike.first().map(|series| &series.labels) else { return };
    let sum = |read: &dyn Fn(&RequestSeries) -> &AtomicU64| -> u64 {
        alike.iter().map(|series| read(series).load(Ordering::Relaxed)).sum()
    };
    let mut below = 0;
    for (at, end) in BUCKETS.iter().enumerate() {
        below += sum(&|series| &of(series).buckets[at]);
        page.line(&format!("{name}_bucket"), &format!("{labels},le=\"{end}\""), below as f64);
    }
    let count = sum(&|series| &series.count);
    page.line(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), count as f64);
    page.line(&format!("{name}_sum"), labels, sum(&|series| &of(series).micros) as f64 / 1e6);
    page.line(&format!("{name}_count"), labels, count as f64);
}

fn flow_control(api: &Api, page: &mut MetricsPage) {
    let levels = api.fairness.levels();
    for (name, help, value) in [
        (
            "apiserver_flowcontrol_current_executing_seats",
            "Seats in use.",
            (|(_, running, _, _)| f64::from(*running)) as fn(&(String, u32, u32, usize)) -> f64,
        ),
        ("apiserver_flowcontrol_nominal_limit_seats", "Seats a level may have.", |level| {
            f64::from(level.2)
        }),
        ("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait.", |level| {
            level.3 as f64
        }),
    ] {
        page.head(name, "gauge", help);
        for level in &levels {
            page.line(name, &format!("priority_level=\"{}\"", level.0), value(level));
        }
    }
    let name = "apiserver_flowcontrol_rejected_requests_total";
    page.head(name, "counter", "Requests that found no seat.");
    page.line(name, "", api.fairness.refused() as f64);
}

/// Which version this is, in the words of upstream's.
fn build(api: &Api, page: &mut MetricsPage) {
    let version = api.settings.version.to_value();
    let labels: Vec<String> = [
        ("git_version", "gitVersion"),
        ("major", "major"),
        ("minor", "minor"),
        ("platform", "platform"),
    ]
    .iter()
    .map(|(label, field)| format!("{label}=\"{}\"", version[field].as_str().unwrap_or("")))
    .collect();
    page.head("kubernetes_build_info", "gauge", "The version that is served.");
    page.line("kubernetes_build_info", &labels.join(","), 1.0);
}

/// Group, version, resource, subresource and scope.
fn parts<'a>(target: &RouteTarget<'a>) -> [&'a str; 5] {
    match target {
        RouteTarget::Resource(path) => {
            let scope = match (path.name, path.namespace) {
                ("", "") => "cluster",
                ("", _) => "namespace",
                _ => "resource",
            };
            [path.group, path.version, path.resource, path.subresource, scope]
        }
        // Paths are of clients' making, so they are not distinguished.
        RouteTarget::Discovery(_) | RouteTarget::Other(_) => ["", "", "", "", ""],
    }
}

fn verb_label(verb: &str) -> String {
    match verb {
        "create" => "POST".to_owned(),
        "update" => "PUT".to_owned(),
        other => other.to_ascii_uppercase().replace(['"', '\\', '\n'], "_"),
    }
}

/// `group/plural` as upstream writes it, `plural.group`.
fn resource_name(table: &str) -> String {
    match table.split_once('/') {
        Some((group, plural)) => format!("{plural}.{group}"),
        None => table.to_owned(),
    }
}

/// Text in Prometheus' format.
#[derive(Debug, Default)]
struct MetricsPage(String);

impl MetricsPage {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_what_they_are() {
        let traffic = Traffic::default();
        let list = crate::http::route::parse("/apis/apps/v1/namespaces/n/deployments");
        traffic.note("list", &list, 200, (Duration::from_millis(3), Duration::ZERO));
        traffic.note("list", &list, 200, (Duration::from_millis(30), Duration::from_millis(28)));
        traffic.note("list", &list, 500, (Duration::from_secs(90), Duration::ZERO));
        let mut page = MetricsPage::default();
        traffic.requests(&mut page);
        let labels = "component=\"apiserver\",dry_run=\"\",group=\"apps\",resource=\"deployments\",\
                      scope=\"namespace\",subresource=\"\",verb=\"LIST\",version=\"v1\"";
        for line in [
            format!("apiserver_request_total{{code=\"200\",{labels}}} 2"),
            format!("apiserver_request_total{{code=\"500\",{labels}}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.005\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"60\"}} 2"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 3"),
            format!("apiserver_request_duration_seconds_count{{{labels}}} 3"),
            // Without the 28 ms for which the second waited.
            format!("apiserver_request_sli_duration_seconds_bucket{{{labels},le=\"0.005\"}} 2"),
        ] {
            assert!(page.0.lines().any(|found| found == line), "{line}\nin\n{}", page.0);
        }
    }

    #[test]
    fn names_of_clients_making_are_counted_together() {
        let traffic = Traffic::default();
        for name in 0..10 {
            let path = format!("/api/v1/nonsense{name}");
            traffic.note("list", &crate::http::route::parse(&path), 404, Default::default());
        }
        assert_eq!(traffic.series.read().len(), 1);
        let open = traffic.watching();
        assert_eq!(traffic.watches.load(Ordering::Relaxed), 1);
        drop(open);
        assert_eq!(traffic.watches.load(Ordering::Relaxed), 0);
    }
}
