//! Cron schedules, as custom kinds write them: five fields, `@daily` and its like, or
//! `@every DURATION`. Times are UTC.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// When something is done again and again.
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

    /// The last time after `since` and not after `now`: what is due, once, however many times
    /// were missed.
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
}
