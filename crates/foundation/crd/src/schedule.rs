//! Cron schedules, as custom kinds write them: five fields, `@daily` and its like, or
//! `@every DURATION`. Times are UTC.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The annotation of an object with a schedule: the run that was done last, as Kubernetes' cron jobs
/// note it in their status.
pub const LAST_RUN: &str = "sheaf.io/last-schedule-time";
/// By how much clocks of two nodes may differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
/// A Monday, from which schedules are compared: 2024-01-01, midnight.
const REFERENCE: Timestamp = Timestamp::constant(1_704_067_200, 0);
/// How many runs are compared to find the shortest time between two.
const COMPARED_RUNS: usize = 50;

/// A parsed schedule.
#[derive(Debug, Clone)]
pub struct Schedule(CronField);

#[derive(Debug, Clone)]
enum CronField {
    Cron(Box<Cron>),
    Every(SignedDuration),
}

/// Why a text is no schedule, in the words of Go's cron parser where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error("empty spec string")]
    Empty,
    #[error("expected exactly 5 fields, found {found}: [{text}]")]
    Fields { found: usize, text: String },
    #[error("failed to parse duration {text}")]
    Duration { text: String },
    #[error("{why}")]
    Field { why: String },
}

/// The runs of a schedule at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleTimes {
    /// The run that is due now: of several that were missed, the last.
    pub due: Option<Timestamp>,
    /// When the next one is due.
    pub next: Option<Timestamp>,
    /// The run that counts as the last one from now on, if that changes.
    pub mark: Option<Timestamp>,
}

impl Schedule {
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ScheduleError::Empty);
        }
        if let Some(duration) = text.strip_prefix("@every ") {
            let wrong = || ScheduleError::Duration { text: text.to_owned() };
            let every: SignedDuration = duration.trim().parse().map_err(|_| wrong())?;
            return match every.as_secs() {
                1.. => Ok(Self(CronField::Every(SignedDuration::from_secs(every.as_secs())))),
                _ => Err(wrong()),
            };
        }
        let found = text.split_whitespace().count();
        if !text.starts_with('@') && found != 5 {
            return Err(ScheduleError::Fields { found, text: text.to_owned() });
        }
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(text);
        let cron = cron.map_err(|failure| ScheduleError::Field { why: failure.to_string() })?;
        Ok(Self(CronField::Cron(Box::new(cron))))
    }

    /// The first time after `time`; nothing if there is none.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            CronField::Every(every) => time.checked_add(*every).ok(),
            CronField::Cron(cron) => {
                let from = time.to_zoned(TimeZone::UTC);
                let next = cron.find_next_occurrence(&from, false).ok()?;
                Some(next.timestamp())
            }
        }
    }

    /// The last time after `since` and not after `now`: it is due once, however many times were
    /// missed.
    pub fn due(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let last = match &self.0 {
            CronField::Every(every) => {
                let passed = now.duration_since(since).as_secs() / every.as_secs();
                let passed = every.checked_mul(i32::try_from(passed).ok()?)?;
                since.checked_add(passed).ok()?
            }
            CronField::Cron(cron) => {
                let until = now.to_zoned(TimeZone::UTC);
                cron.find_previous_occurrence(&until, true).ok()?.timestamp()
            }
        };
        (last > since && last <= now).then_some(last)
    }

    /// The times of the schedule after the run `last`, or since the schedule exists.
    ///
    /// A last run in the future was recorded by a clock that has been set back since. The schedule
    /// starts again at `now` then, instead of waiting until that time.
    pub fn times(&self, last: Timestamp, now: Timestamp) -> ScheduleTimes {
        if last.duration_since(now) > SKEW {
            return ScheduleTimes { due: None, next: self.next_after(now), mark: Some(now) };
        }
        let due = self.due(last, now);
        let next = self.next_after(due.unwrap_or(last)).filter(|next| *next > now);
        ScheduleTimes { due, next: next.or_else(|| self.next_after(now)), mark: due }
    }

    /// The shortest time between two runs; `None` if there are fewer than two.
    pub fn granularity(&self) -> Option<Duration> {
        let mut last = self.next_after(REFERENCE)?;
        let mut shortest = None;
        for _ in 1..COMPARED_RUNS {
            let Some(next) = self.next_after(last) else { break };
            let pause = Duration::try_from(next.duration_since(last)).unwrap_or_default();
            shortest = Some(shortest.map_or(pause, |least: Duration| least.min(pause)));
            last = next;
        }
        shortest
    }

    /// The time between the runs of two schedules that are repeated after the same `period`.
    pub fn offset(&self, other: &Self, period: Duration) -> Option<Duration> {
        let (own, other) = (self.next_after(REFERENCE)?, other.next_after(REFERENCE)?);
        let apart = own.duration_since(other).unsigned_abs().as_secs();
        let apart = apart.checked_rem(period.as_secs())?;
        Some(Duration::from_secs(apart.min(period.as_secs() - apart)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn schedules_are_parsed_or_refused_with_a_reason() {
        for good in ["* * * * *", "0 0 */7 * *", "30 2 * * MON-FRI", "@daily", "@every 1h30m"] {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        for (bad, expected) in [
            ("", "empty spec string"),
            ("not a cron", "expected exactly 5 fields, found 3: [not a cron]"),
            ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
            ("@every soon", "failed to parse duration @every soon"),
            ("@every 0s", "failed to parse duration @every 0s"),
        ] {
            assert_eq!(Schedule::parse(bad).unwrap_err().to_string(), expected);
        }
        for bad in ["60 * * * *", "* * * * x", "@sometimes", "a b c d e"] {
            assert!(Schedule::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_missed_run_is_due_once() {
        let hourly = Schedule::parse("0 * * * *").unwrap();
        let since = at("2026-11-16T07:00:00Z");
        assert_eq!(hourly.next_after(since), Some(at("2026-11-16T08:00:00Z")));
        assert_eq!(hourly.due(since, at("2026-11-16T07:59:59Z")), None);
        assert_eq!(hourly.due(since, at("2026-11-16T08:00:00Z")), Some(at("2026-11-16T08:00:00Z")));
        let late = at("2026-11-17T11:20:00Z");
        let last = at("2026-11-17T11:00:00Z");
        assert_eq!(hourly.due(since, late), Some(last));
        assert_eq!(hourly.due(last, late), None);
        let every = Schedule::parse("@every 10m").unwrap();
        assert_eq!(every.next_after(since), Some(at("2026-11-16T07:10:00Z")));
        assert_eq!(every.due(since, at("2026-11-16T07:09:00Z")), None);
        assert_eq!(every.due(since, at("2026-11-16T07:25:00Z")), Some(at("2026-11-16T07:20:00Z")));
        assert_eq!(every.due(late, since), None, "a clock that went back");
    }

    #[test]
    fn a_schedule_goes_on_whatever_the_clock_did() {
        let hourly = Schedule::parse("0 * * * *").unwrap();
        let (eight, nine) = (at("2026-11-16T08:00:00Z"), at("2026-11-16T09:00:00Z"));
        for (last, now, due, next, mark) in [
            ("2026-11-16T07:00:00Z", "2026-11-16T07:30:00Z", None, eight, None),
            ("2026-11-16T07:00:00Z", "2026-11-16T08:00:07Z", Some(eight), nine, Some(eight)),
            ("2026-11-10T07:00:00Z", "2026-11-16T08:20:00Z", Some(eight), nine, Some(eight)),
            ("2026-11-16T08:00:00Z", "2026-11-16T08:20:00Z", None, nine, None),
            // Another node's clock is a few seconds behind: the run is not repeated.
            ("2026-11-16T08:00:00Z", "2026-11-16T07:59:50Z", None, nine, None),
            // The clock was a year ahead.
            (
                "2027-11-16T08:00:00Z",
                "2026-11-16T07:10:00Z",
                None,
                eight,
                Some(at("2026-11-16T07:10:00Z")),
            ),
        ] {
            let expected = ScheduleTimes { due, next: Some(next), mark };
            assert_eq!(hourly.times(at(last), at(now)), expected, "{last} {now}");
        }
        // Times are UTC, in which no hour is left out or repeated.
        let daily = Schedule::parse("30 2 * * *").unwrap();
        let run = daily.times(at("2026-03-28T02:30:00Z"), at("2026-03-29T02:30:00Z"));
        assert_eq!(run.due, Some(at("2026-03-29T02:30:00Z")));
    }

    #[test]
    fn schedules_are_compared_by_how_often_and_when_they_run() {
        let parse = |text: &str| Schedule::parse(text).unwrap();
        for (text, minutes) in [
            ("* * * * *", 1),
            ("*/20 * * * *", 20),
            ("0,5 3 * * *", 5),
            ("0 * * * *", 60),
            ("0 2 * * *", 24 * 60),
            ("@every 90m", 90),
        ] {
            let expected = Some(Duration::from_secs(minutes * 60));
            assert_eq!(parse(text).granularity(), expected, "{text}");
        }
        assert_eq!(parse("0 0 30 2 *").granularity(), None);
        let day = Duration::from_secs(24 * 3600);
        for (own, other, minutes) in [
            ("0 2 * * *", "5 2 * * *", 5),
            ("58 23 * * *", "2 0 * * *", 4),
            ("0 2 * * *", "0 14 * * *", 12 * 60),
        ] {
            let expected = Some(Duration::from_secs(minutes * 60));
            assert_eq!(parse(own).offset(&parse(other), day), expected, "{own} {other}");
        }
    }
}
