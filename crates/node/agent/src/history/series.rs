//! Series of fixed size: rows by time slot, and what was not measured is unknown. Pure.

use std::collections::VecDeque;

use serde::Serialize;

use super::counters::UsageCounters;

/// In the order of the values of a row.
const COLUMNS: [&str; 6] =
    ["cpu", "memory", "diskRead", "diskWrite", "networkReceive", "networkTransmit"];
const WIDTH: usize = COLUMNS.len();
const DAY: u64 = 24 * 3600;

/// Cores, bytes, and bytes per second; NaN where nothing was measured.
type Row = [f32; WIDTH];
const UNKNOWN: Row = [f32::NAN; WIDTH];

/// How much of the past is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesSpan {
    Hour,
    Day,
}

impl SeriesSpan {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "1h" => Some(Self::Hour),
            "24h" => Some(Self::Day),
            _ => None,
        }
    }
}

/// The values of every column, oldest first; none where nothing was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SeriesReport {
    /// When the first slot begins, in seconds since 1970.
    pub(crate) start: u64,
    /// Seconds from one slot to the next.
    pub(crate) step: u64,
    pub(crate) columns: [&'static str; WIDTH],
    pub(crate) values: Vec<Vec<Option<f32>>>,
}

/// One subject in both resolutions.
#[derive(Debug)]
pub(super) struct UsageSeries {
    last: Option<(u64, UsageCounters)>,
    hour: Tier,
    day: Tier,
}

impl Default for UsageSeries {
    fn default() -> Self {
        Self { last: None, hour: Tier::new(super::STEP, 360), day: Tier::new(300, 288) }
    }
}

impl UsageSeries {
    pub(super) fn record(&mut self, now: u64, counters: UsageCounters) {
        let before = self.last.replace((now, counters));
        let row = row(before, (now, counters));
        self.hour.record(now, row);
        self.day.record(now, row);
    }

    pub(super) fn report(&self, span: SeriesSpan) -> SeriesReport {
        match span {
            SeriesSpan::Hour => self.hour.report(),
            SeriesSpan::Day => self.day.report(),
        }
    }

    pub(super) fn is_outdated(&self, now: u64) -> bool {
        self.last.is_none_or(|(at, _)| at + DAY < now)
    }
}

/// Rates between two counts. One that went back belongs to a new process.
fn row(before: Option<(u64, UsageCounters)>, (now, after): (u64, UsageCounters)) -> Row {
    let mut row = UNKNOWN;
    row[1] = after.memory_bytes as f32;
    let Some((then, before)) = before else { return row };
    let seconds = now.saturating_sub(then);
    if seconds == 0 {
        return row;
    }
    let rate = |before: Option<u64>, after: Option<u64>| match (before, after) {
        (Some(before), Some(after)) if after >= before => (after - before) as f32 / seconds as f32,
        _ => f32::NAN,
    };
    row[0] = rate(Some(before.cpu_nanoseconds), Some(after.cpu_nanoseconds)) / 1e9;
    row[2] = rate(before.disk_read, after.disk_read);
    row[3] = rate(before.disk_written, after.disk_written);
    row[4] = rate(before.network_received, after.network_received);
    row[5] = rate(before.network_sent, after.network_sent);
    row
}

/// Rows of one step; the newest is the mean of what was recorded in its slot so far.
#[derive(Debug)]
struct Tier {
    step: u64,
    slots: usize,
    /// The number of the newest slot: seconds since 1970 by the step.
    newest: u64,
    rows: VecDeque<Row>,
    /// How many values the newest row is the mean of, by column.
    counts: [u16; WIDTH],
}

impl Tier {
    fn new(step: u64, slots: usize) -> Self {
        Self { step, slots, newest: 0, rows: VecDeque::new(), counts: [0; WIDTH] }
    }

    fn record(&mut self, now: u64, row: Row) {
        let slot = now / self.step;
        if self.rows.is_empty() || slot > self.newest {
            self.advance(slot);
        }
        // A clock that was set back adds to the newest slot.
        let Some(mean) = self.rows.back_mut() else { return };
        for ((mean, count), value) in mean.iter_mut().zip(&mut self.counts).zip(row) {
            if value.is_nan() {
                continue;
            }
            *count = count.saturating_add(1);
            *mean = if *count == 1 { value } else { *mean + (value - *mean) / f32::from(*count) };
        }
    }

    /// Opens a slot; those in between stay unknown.
    fn advance(&mut self, slot: u64) {
        let skipped = if self.rows.is_empty() { 1 } else { slot - self.newest };
        let skipped = usize::try_from(skipped).unwrap_or(self.slots).min(self.slots);
        for _ in 0..skipped {
            if self.rows.len() == self.slots {
                self.rows.pop_front();
            }
            self.rows.push_back(UNKNOWN);
        }
        self.newest = slot;
        self.counts = [0; WIDTH];
    }

    fn report(&self) -> SeriesReport {
        let before = (self.rows.len() as u64).saturating_sub(1);
        let start = self.newest.saturating_sub(before) * self.step;
        let known = |value: f32| (!value.is_nan()).then_some(value);
        let column = |at: usize| self.rows.iter().map(|row| known(row[at])).collect();
        let values = (0..WIDTH).map(column).collect();
        SeriesReport { start, step: self.step, columns: COLUMNS, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(cpu_seconds: u64, read: Option<u64>) -> UsageCounters {
        UsageCounters {
            cpu_nanoseconds: cpu_seconds * 1_000_000_000,
            memory_bytes: 1024,
            disk_read: read,
            ..UsageCounters::default()
        }
    }

    #[test]
    fn rates_are_what_was_spent_between_two_samples() {
        let mut series = UsageSeries::default();
        series.record(1000, counters(5, Some(100)));
        series.record(1010, counters(25, Some(600)));
        let report = series.report(SeriesSpan::Hour);
        assert_eq!((report.start, report.step), (1000, 10));
        assert_eq!(report.values[0], [None, Some(2.0)]);
        assert_eq!(report.values[1], [Some(1024.0); 2]);
        assert_eq!(report.values[2], [None, Some(50.0)]);
        assert_eq!(report.values[4], [None, None], "what is not counted is unknown");
        series.record(1020, counters(1, None));
        let report = series.report(SeriesSpan::Hour);
        assert_eq!(report.values[0], [None, Some(2.0), None], "a new process counts from zero");
    }

    #[test]
    fn gaps_are_unknown_and_the_size_is_fixed() {
        let mut tier = Tier::new(10, 4);
        let value = |number: f32| [number; WIDTH];
        tier.record(1000, value(1.0));
        tier.record(1021, value(2.0));
        tier.record(1025, value(4.0));
        let report = tier.report();
        assert_eq!(report.start, 1000);
        assert_eq!(report.values[0], [Some(1.0), None, Some(3.0)], "a slot has the mean");
        tier.record(1045, value(5.0));
        let report = tier.report();
        assert_eq!((report.start, report.values[0].len()), (1010, 4));
        tier.record(900, value(7.0));
        assert_eq!(tier.report().values[0], [None, Some(3.0), None, Some(6.0)]);
        tier.record(1_000_000, value(1.0));
        assert_eq!(tier.report().values[0], [None, None, None, Some(1.0)]);
    }

    #[test]
    fn a_span_is_an_hour_or_a_day() {
        for (text, span) in [
            ("", Some(SeriesSpan::Hour)),
            ("1h", Some(SeriesSpan::Hour)),
            ("24h", Some(SeriesSpan::Day)),
            ("2h", None),
        ] {
            assert_eq!(SeriesSpan::parse(text), span, "{text}");
        }
    }
}
