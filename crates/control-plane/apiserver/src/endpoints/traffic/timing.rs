//! How long the parts of an answer take: admission as a whole, each webhook, each write to
//! the store; under the names by which upstream's dashboards ask for them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use super::{MOST_SERIES, MetricsPage, RequestSeries, histogram};

/// The operation that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Timed {
    /// All that is done before an object is stored; labels are operation, rejected and type.
    Admission,
    /// One webhook; labels are name, operation, rejected and type.
    Webhook,
    /// One request to the store; labels are operation and type.
    Store,
}

impl Timed {
    const ALL: [Self; 3] = [Self::Admission, Self::Webhook, Self::Store];

    fn name(self) -> &'static str {
        match self {
            Self::Admission => "apiserver_admission_step_admission_duration_seconds",
            Self::Webhook => "apiserver_admission_webhook_admission_duration_seconds",
            Self::Store => "etcd_request_duration_seconds",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::Admission => "How long admission took, by its step.",
            Self::Webhook => "How long webhooks took.",
            Self::Store => "How long requests to the store took, whichever it is.",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Timings(RwLock<HashMap<u64, (Timed, Arc<RequestSeries>)>>);

impl Timings {
    /// Something took this long; labels are in the order of their names.
    pub(crate) fn note(&self, what: Timed, labels: &[(&'static str, &str)], took: Duration) {
        let mut hash = DefaultHasher::new();
        (what, labels).hash(&mut hash);
        let key = hash.finish();
        let known = self.0.read().get(&key).map(|(_, series)| Arc::clone(series));
        let Some(series) = known.or_else(|| self.make(key, what, labels)) else { return };
        series.note(took, Duration::ZERO);
    }

    /// Nothing if there are too many already: names of webhooks are of clients' making.
    fn make(
        &self,
        key: u64,
        what: Timed,
        labels: &[(&'static str, &str)],
    ) -> Option<Arc<RequestSeries>> {
        let mut all = self.0.write();
        if all.len() >= MOST_SERIES {
            return None;
        }
        let label = |(name, value): &(&str, &str)| {
            format!("{name}=\"{}\"", value.replace(['"', '\\', '\n'], "_"))
        };
        let text = labels.iter().map(label).collect::<Vec<_>>().join(",");
        let made = || (what, Arc::new(RequestSeries::new(text, 0)));
        Some(Arc::clone(&all.entry(key).or_insert_with(made).1))
    }

    pub(super) fn render(&self, page: &mut MetricsPage) {
        let mut all: Vec<(Timed, Arc<RequestSeries>)> = self.0.read().values().cloned().collect();
        all.sort_by(|a, b| (a.0, &a.1.labels).cmp(&(b.0, &b.1.labels)));
        for what in Timed::ALL {
            page.head(what.name(), "histogram", what.help());
            for (_, series) in all.iter().filter(|(of, _)| *of == what) {
                let alike = std::slice::from_ref(series);
                histogram(page, what.name(), alike, |series| &series.took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_requests_are_timed_together() {
        let timings = Timings::default();
        let labels = [("operation", "create"), ("type", "pods")];
        timings.note(Timed::Store, &labels, Duration::from_millis(1));
        timings.note(Timed::Store, &labels, Duration::from_millis(30));
        let mut page = MetricsPage::default();
        timings.render(&mut page);
        let name = "etcd_request_duration_seconds";
        for line in [
            format!("{name}_bucket{{operation=\"create\",type=\"pods\",le=\"0.005\"}} 1"),
            format!("{name}_count{{operation=\"create\",type=\"pods\"}} 2"),
        ] {
            assert!(page.0.lines().any(|found| found == line), "{line}\nin\n{}", page.0);
        }
    }
}
