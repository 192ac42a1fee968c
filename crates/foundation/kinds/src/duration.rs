//! Spans of time as `kubectl get` shows them: two or three significant figures.

use jiff::Timestamp;

/// A span as people read it (`3m20s`, `5d3h`, `2y40d`); `<invalid>` when clearly negative.
pub fn human_duration(seconds: i64) -> String {
    const DAY: i64 = 24;
    const YEAR: i64 = 365;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        // Clocks of two machines may differ by a second or two.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < DAY * 8 => pair(days, "d", hours % DAY, "h"),
        _ if days < YEAR * 2 => format!("{days}d"),
        _ if days < YEAR * 8 => pair(days / YEAR, "y", days % YEAR, "d"),
        _ => format!("{}y", days / YEAR),
    }
}

/// The time since `stamp` (RFC 3339); `<unknown>` for anything that is not a time.
pub fn age(stamp: &str, now: Timestamp) -> String {
    match stamp.parse::<Timestamp>() {
        Ok(then) => human_duration(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

fn pair(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_upstream_writes_them() {
        let hour = 3600;
        let day = 24 * hour;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (599, "9m59s"),
            (600, "10m"),
            (179 * 60 + 59, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 59 * 60, "7h59m"),
            (8 * hour + 59 * 60, "8h"),
            (47 * hour, "47h"),
            (48 * hour, "2d"),
            (5 * day + 3 * hour, "5d3h"),
            (8 * day, "8d"),
            (729 * day, "729d"),
            (730 * day, "2y"),
            (731 * day, "2y1d"),
            (8 * 365 * day + day, "8y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_missing_time_is_unknown() {
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(age("", now), "<unknown>");
        assert_eq!(age("2026-01-01T00:00:00.500000Z", now), "10s");
    }
}
