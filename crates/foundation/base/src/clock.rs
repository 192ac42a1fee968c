//! The only place that reads the wall clock, and the two time formats of the API.

use jiff::Timestamp;

/// The current time.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Kubernetes `Time`: UTC, whole seconds, `2006-01-02T15:04:05Z`.
pub fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Kubernetes `MicroTime`: UTC, always six digits, `2006-01-02T15:04:05.000000Z`.
pub fn rfc3339_micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Now, as the API writes it.
pub fn now_rfc3339() -> String {
    rfc3339(now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_the_api() {
        let time: Timestamp = "2026-02-03T04:05:06.7Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2026-02-03T04:05:06Z");
        assert_eq!(rfc3339_micro(time), "2026-02-03T04:05:06.700000Z");
    }
}
