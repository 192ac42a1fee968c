//! When what a quota counts as used may be lowered.
//!
//! Admission charges a quota first and stores the object after. A count in between finds a charge
//! without an object, and giving it back would let the next request exceed the quota. So a lower
//! count is accepted only once the quota has been unchanged for longer than a write takes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::object;
use crate::record::metadata::metadata;

/// Longer than the store takes for one write, shorter than clients wait.
pub(crate) const SETTLE: Duration = Duration::from_millis(500);

/// Which quotas are to be lowered: their version, and since when it is known.
#[derive(Debug, Default)]
pub(crate) struct PendingQuotas(BTreeMap<String, (String, Instant)>);

impl PendingQuotas {
    /// Whether `quota`, which counts too much, has not changed for long enough.
    pub(crate) fn is_over(&mut self, quota: &Value, now: Instant) -> bool {
        let (uid, version) = (object::uid(quota), metadata(quota).resource_version);
        match self.0.get(uid) {
            Some((known, since)) if known == version => {
                let over = now.duration_since(*since) >= SETTLE;
                if over {
                    self.0.remove(uid);
                }
                over
            }
            _ => {
                self.0.insert(uid.to_owned(), (version.to_owned(), now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_is_lowered_when_it_has_stood_still() {
        let quota = |version: &str| json!({"metadata": {"uid": "u", "resourceVersion": version}});
        let start = Instant::now();
        let mut settling = PendingQuotas::default();
        for (version, after, over) in [
            ("1", 0, false),
            ("1", 100, false),
            // Charged meanwhile: the wait begins anew.
            ("2", 600, false),
            ("2", 1000, false),
            ("2", 1100, true),
            ("2", 1200, false),
        ] {
            let now = start + Duration::from_millis(after);
            assert_eq!(settling.is_over(&quota(version), now), over, "{version} at {after}");
        }
    }
}
