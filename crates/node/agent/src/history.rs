//! A short history of what the node and its machines use, in memory: the last hour in steps of ten
//! seconds and the last day in steps of five minutes. It begins anew with the agent.

mod counters;
mod series;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Stop, clock};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::machine::Machines;
use counters::UsageCounters;
use series::UsageSeries;
pub(crate) use series::{SeriesReport, SeriesSpan};

/// Seconds from one sample to the next.
const STEP: u64 = 10;

/// A machine by the namespace and the name of its object.
type MachineName = (String, String);

/// The series of the node and of its machines; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageHistory(Arc<Mutex<KnownSeries>>);

#[derive(Debug, Default)]
struct KnownSeries {
    node: UsageSeries,
    machines: BTreeMap<MachineName, UsageSeries>,
}

impl UsageHistory {
    pub(crate) fn node(&self, span: SeriesSpan) -> SeriesReport {
        self.0.lock().node.report(span)
    }

    /// Of one machine; nothing if it has not run here in the last day.
    pub(crate) fn machine(
        &self,
        namespace: &str,
        name: &str,
        span: SeriesSpan,
    ) -> Option<SeriesReport> {
        let known = self.0.lock();
        let series = known.machines.get(&(namespace.to_owned(), name.to_owned()))?;
        Some(series.report(span))
    }

    fn record(&self, now: u64, node: UsageCounters, machines: Vec<(MachineName, UsageCounters)>) {
        let mut known = self.0.lock();
        known.node.record(now, node);
        for (name, counters) in machines {
            known.machines.entry(name).or_default().record(now, counters);
        }
        known.machines.retain(|_, series| !series.is_outdated(now));
    }
}

/// Takes samples until `stop`.
pub(crate) async fn run(history: UsageHistory, machines: Machines, mut stop: Stop) {
    loop {
        let now = seconds();
        history.record(now, counters::of_node(), sample(&machines).await);
        // Just after a multiple of the step, so that every slot has one sample.
        let wait = Duration::from_secs(STEP - seconds() % STEP);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.requested() => return,
        }
    }
}

fn seconds() -> u64 {
    u64::try_from(clock::now().as_second()).unwrap_or_default()
}

async fn sample(machines: &Machines) -> Vec<(MachineName, UsageCounters)> {
    let running = machines.running().into_iter().filter_map(|(live, object)| Some((live, object?)));
    let samples = running.map(|(live, object)| async move {
        let counters = counters::of_machine(&live).await?;
        Some(((object.namespace.clone(), object.name.clone()), counters))
    });
    join_all(samples).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_forgotten_a_day_after_their_last_sample() {
        let history = UsageHistory::default();
        let name = || ("ns".to_owned(), "vm".to_owned());
        let at = |now, machines| history.record(now, UsageCounters::default(), machines);
        at(1000, vec![(name(), UsageCounters::default())]);
        at(1010, Vec::new());
        assert!(history.machine("ns", "vm", SeriesSpan::Hour).is_some());
        assert!(history.machine("ns", "other", SeriesSpan::Hour).is_none());
        at(1000 + 25 * 3600, Vec::new());
        assert!(history.machine("ns", "vm", SeriesSpan::Hour).is_none());
        assert_eq!(history.node(SeriesSpan::Hour).start, 1000 + 24 * 3600 + 10);
    }
}
