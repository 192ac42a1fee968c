//! When a certificate is to be replaced. Pure: the time is an argument.

use jiff::{SignedDuration, Timestamp};

/// Whether a leaf certificate should be renewed at `now`.
///
/// True in the last third of its life and after it, and also before its beginning:
/// then the clock was set back, and peers with the same clock would refuse it.
pub fn due(not_before: Timestamp, not_after: Timestamp, now: Timestamp) -> bool {
    now < not_before || left(not_before, not_after, now) < Share::THIRD
}

/// The action for a CA at `now`.
///
/// ```text
///   Keep ──1/3 left──► Prepare ──1/6 left──► Switch ──► Keep
/// ```
/// Between *Prepare* and *Switch* both CAs are trusted while only the old one signs,
/// so that every client has time to learn of the new one. After the switch the old
/// one stays trusted until it expires. A clock that was set back changes nothing:
/// trust must not hang on a moment's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityStep {
    Keep,
    Prepare,
    Switch,
}

/// How a CA is to proceed, given whether its successor exists already.
pub fn authority_step(
    not_before: Timestamp,
    not_after: Timestamp,
    has_successor: bool,
    now: Timestamp,
) -> AuthorityStep {
    let left = left(not_before, not_after, now);
    match has_successor {
        true if left < Share::SIXTH => AuthorityStep::Switch,
        false if left < Share::THIRD => AuthorityStep::Prepare,
        _ => AuthorityStep::Keep,
    }
}

/// A part of a lifetime, in parts of six.
#[derive(PartialEq, PartialOrd)]
struct Share(f64);

impl Share {
    const THIRD: Self = Self(2.0);
    const SIXTH: Self = Self(1.0);
}

fn left(not_before: Timestamp, not_after: Timestamp, now: Timestamp) -> Share {
    let life = not_after.duration_since(not_before);
    if life <= SignedDuration::ZERO {
        return Share(0.0);
    }
    Share(6.0 * not_after.duration_since(now).as_secs_f64() / life.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(day * 86_400).unwrap()
    }

    #[test]
    fn a_leaf_is_renewed_in_its_last_third_and_when_the_clock_went_back() {
        for (now, expected) in [
            (100, false),
            (299, false),
            (300, false),
            (301, true),
            (399, true),
            (400, true),
            (4000, true),
            (99, true),
            (0, true),
        ] {
            assert_eq!(due(at(100), at(400), at(now)), expected, "day {now}");
        }
    }

    #[test]
    fn a_life_of_no_length_is_over() {
        assert!(due(at(100), at(100), at(100)));
        assert!(due(at(100), at(50), at(100)));
    }

    #[test]
    fn a_new_authority_is_prepared_long_before_it_signs() {
        use AuthorityStep::{Keep, Prepare, Switch};
        for (now, has_successor, expected) in [
            (0, false, Keep),
            (100, false, Keep),
            (500, false, Keep),
            (501, false, Prepare),
            (501, true, Keep),
            (600, true, Keep),
            (601, true, Switch),
            // Switched off for years: first prepare, then switch.
            (2000, false, Prepare),
            (2000, true, Switch),
        ] {
            let step = authority_step(at(100), at(700), has_successor, at(now));
            assert_eq!(step, expected, "day {now}");
        }
    }
}
