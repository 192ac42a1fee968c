//! Times and durations as upstream writes them: `Time` with seconds, `MicroTime` with
//! six digits, both in UTC, and Go's notation for durations.
//!
//! Parsing is as strict as Go's, and fails in Go's words, because clients see them.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The layouts of Go's `time` package that the two types are read with.
const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Go's zero time, 0001-01-01T00:00:00Z: "never set".
pub(crate) const ZERO: i64 = -62_135_596_800;

/// The years that can be written with four digits.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Why a text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")]
    Syntax { text: String, layout: &'static str, rest: String, element: &'static str },
    #[error("parsing time {text:?}: {element} out of range")]
    Range { text: String, element: &'static str },
    #[error("parsing time {text:?}: extra text: {rest:?}")]
    Extra { text: String, rest: String },
}

/// How finely a time is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    Seconds,
    Micros,
}

/// Seconds since 1970 and nanoseconds of a time in RFC 3339.
pub(crate) fn parse(text: &str, precision: Precision) -> Result<(i64, i32), TimeError> {
    let layout = match precision {
        Precision::Seconds => LAYOUT,
        Precision::Micros => MICRO_LAYOUT,
    };
    let mut parser = Parser { text, rest: text, layout };
    let year = parser.digits(4, "2006")?;
    parser.literal('-', "-")?;
    let month = parser.digits(2, "01")?;
    parser.literal('-', "-")?;
    let day = parser.digits(2, "02")?;
    parser.literal('T', "T")?;
    let hour = parser.digits(2, "15")?;
    parser.literal(':', ":")?;
    let minute = parser.digits(2, "04")?;
    parser.literal(':', ":")?;
    let second = parser.digits(2, "05")?;
    let nanos = parser.fraction(precision)?;
    let offset = parser.offset()?;
    if !parser.rest.is_empty() {
        return Err(TimeError::Extra { text: text.to_owned(), rest: parser.rest.to_owned() });
    }
    let range = |element| TimeError::Range { text: text.to_owned(), element };
    let whole = |digits: u32| i8::try_from(digits).unwrap_or(i8::MAX);
    for (element, digits, most) in
        [("month", month, 12), ("hour", hour, 23), ("minute", minute, 59), ("second", second, 59)]
    {
        if digits > most || (element == "month" && digits == 0) {
            return Err(range(element));
        }
    }
    let year = i16::try_from(year).map_err(|_| range("year"))?;
    let civil =
        DateTime::new(year, whole(month), whole(day), whole(hour), whole(minute), whole(second), 0)
            .map_err(|_| range("day"))?;
    let utc = TimeZone::UTC.to_timestamp(civil).map_err(|_| range("year"))?;
    Ok((utc.as_second() - offset, nanos))
}

/// The text of a time; `None` if its year has no four digits.
pub(crate) fn format(seconds: i64, nanos: i32, precision: Precision) -> Option<String> {
    if !SECONDS.contains(&seconds) {
        return None;
    }
    let whole = TimeZone::UTC.to_datetime(Timestamp::from_second(seconds).ok()?);
    let mut text = format!("{whole}");
    if precision == Precision::Micros {
        let _ = write!(text, ".{:06}", nanos.rem_euclid(1_000_000_000) / 1000);
    }
    text.push('Z');
    Some(text)
}

/// Go's notation of a duration: `1h2m3.5s`, `250ms`, `0s`.
pub(crate) fn format_duration(nanos: i64) -> String {
    let (sign, total) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let scaled = |unit: u64, name: &str| {
        let mut number = format!("{}", total / unit);
        let fraction = format!("{:0width$}", total % unit, width = unit.ilog10() as usize);
        let fraction = fraction.trim_end_matches('0');
        if unit > 1 && !fraction.is_empty() {
            let _ = write!(number, ".{fraction}");
        }
        format!("{sign}{number}{name}")
    };
    match total {
        0 => "0s".to_owned(),
        1..1_000 => scaled(1, "ns"),
        1_000..1_000_000 => scaled(1_000, "µs"),
        1_000_000..1_000_000_000 => scaled(1_000_000, "ms"),
        _ => {
            let seconds = total / 1_000_000_000;
            let fraction = format!("{:09}", total % 1_000_000_000);
            let fraction = match fraction.trim_end_matches('0') {
                "" => String::new(),
                digits => format!(".{digits}"),
            };
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let hours_text = if hours > 0 { format!("{hours}h") } else { String::new() };
            let minutes_text = if seconds >= 60 { format!("{minutes}m") } else { String::new() };
            format!("{sign}{hours_text}{minutes_text}{}{fraction}s", seconds % 60)
        }
    }
}

/// Nanoseconds of a duration in Go's notation.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0.0f64;
    let mut exact = 0i128;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        match number.parse::<u64>() {
            Ok(whole) => exact += i128::from(whole) * unit,
            Err(_) => total += number.parse::<f64>().ok()? * unit as f64,
        }
        rest = after;
    }
    let total = exact + total as i128;
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A cursor that fails as Go's parser does: naming what is left and what was expected.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Parser<'_> {
    fn fail(&self, element: &'static str) -> TimeError {
        TimeError::Syntax {
            text: self.text.to_owned(),
            layout: self.layout,
            rest: self.rest.to_owned(),
            element,
        }
    }

    fn digits(&mut self, count: usize, element: &'static str) -> Result<u32, TimeError> {
        match self.rest.split_at_checked(count) {
            Some((digits, rest)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.rest = rest;
                digits.parse().map_err(|_| self.fail(element))
            }
            _ => Err(self.fail(element)),
        }
    }

    fn literal(&mut self, expected: char, element: &'static str) -> Result<(), TimeError> {
        self.rest = self.rest.strip_prefix(expected).ok_or_else(|| self.fail(element))?;
        Ok(())
    }

    /// Nanoseconds. Go accepts a fraction of any length where the layout has none, and
    /// exactly six digits where it has six.
    fn fraction(&mut self, precision: Precision) -> Result<i32, TimeError> {
        let digits = match self.rest.strip_prefix(['.', ',']) {
            Some(after) => &after[..after.bytes().take_while(u8::is_ascii_digit).count()],
            None => "",
        };
        let digits = match (precision, digits.get(..6)) {
            (Precision::Micros, Some(six)) => six,
            (Precision::Micros, None) => return Err(self.fail(".000000")),
            (Precision::Seconds, _) => digits,
        };
        if digits.is_empty() {
            return Ok(0);
        }
        self.rest = &self.rest[1 + digits.len()..];
        let nine = format!("{digits:0<9}");
        Ok(nine[..9].parse().unwrap_or(0))
    }

    /// Seconds east of UTC.
    fn offset(&mut self) -> Result<i64, TimeError> {
        const ELEMENT: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let whole = self.fail(ELEMENT);
        let sign = match self.rest.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(whole),
        };
        self.rest = &self.rest[1..];
        let (Ok(hours), Ok(()), Ok(minutes)) =
            (self.digits(2, ELEMENT), self.literal(':', ELEMENT), self.digits(2, ELEMENT))
        else {
            return Err(whole);
        };
        if hours > 24 || minutes > 60 {
            return Err(TimeError::Range {
                text: self.text.to_owned(),
                element: "time zone offset",
            });
        }
        Ok(sign * i64::from(hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_out_in_utc_with_their_precision() {
        let check = |text, precision, expected: &str| {
            let (seconds, nanos) = parse(text, precision).unwrap();
            assert_eq!(format(seconds, nanos, precision).unwrap(), expected);
        };
        check("2008-01-01T01:01:01Z", Precision::Seconds, "2008-01-01T01:01:01Z");
        check("2008-01-01T01:01:01.987Z", Precision::Seconds, "2008-01-01T01:01:01Z");
        check("2008-01-01T01:01:01+02:30", Precision::Seconds, "2007-12-31T22:31:01Z");
        check("2008-01-01T01:01:01.123456Z", Precision::Micros, "2008-01-01T01:01:01.123456Z");
        check("1969-12-31T23:59:59.500000Z", Precision::Micros, "1969-12-31T23:59:59.500000Z");
    }

    #[test]
    fn bad_times_fail_in_go_s_words() {
        let check = |text, precision, expected: &str| {
            assert_eq!(parse(text, precision).unwrap_err().to_string(), expected);
        };
        check(
            "yesterday",
            Precision::Seconds,
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
        );
        check(
            "2008-01-01",
            Precision::Seconds,
            r#"parsing time "2008-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
        );
        check(
            "2008-01-01T01:01:01Z",
            Precision::Micros,
            r#"parsing time "2008-01-01T01:01:01Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
        );
        check(
            "2008-01-01T01:01:01.1234567Z",
            Precision::Micros,
            r#"parsing time "2008-01-01T01:01:01.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#,
        );
        check(
            "2008-13-01T01:01:01Z",
            Precision::Seconds,
            r#"parsing time "2008-13-01T01:01:01Z": month out of range"#,
        );
        check(
            "2008-02-31T01:01:01Z",
            Precision::Seconds,
            r#"parsing time "2008-02-31T01:01:01Z": day out of range"#,
        );
        check(
            "2008-01-01T01:01:01Zulu",
            Precision::Seconds,
            r#"parsing time "2008-01-01T01:01:01Zulu": extra text: "ulu""#,
        );
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (250_000_000, "250ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (3_723_000_000_000, "1h2m3s"),
            (-5_000_000_000, "-5s"),
        ] {
            assert_eq!(format_duration(nanos), text);
            assert_eq!(parse_duration(text), Some(nanos), "{text}");
        }
        for text in ["", "5", "s", "5x", "-"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
