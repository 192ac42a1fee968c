//! The rules for taking a lease: pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The fields of a lease that matter for the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    pub(super) holder: String,
    pub(super) duration: Duration,
    /// Changes with every renewal.
    pub(super) version: String,
}

/// The next step of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElectionStep {
    Create,
    /// Take over from another holder, or from none.
    Take,
    Renew,
    Wait,
}

pub(super) fn read(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or(0);
    LeaseRecord {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// `idle` is for how long this candidate has seen the lease unchanged.
pub(super) fn step(lease: Option<&LeaseRecord>, identity: &str, idle: Duration) -> ElectionStep {
    match lease {
        None => ElectionStep::Create,
        Some(lease) if lease.holder == identity => ElectionStep::Renew,
        Some(lease) if lease.holder.is_empty() || idle > lease.duration => ElectionStep::Take,
        Some(_) => ElectionStep::Wait,
    }
}

/// Writes what `step` means into the lease.
pub(super) fn apply(
    step: ElectionStep,
    spec: &mut LeaseSpec,
    identity: &str,
    duration: Duration,
    now: MicroTime,
) {
    if step == ElectionStep::Wait {
        return;
    }
    if step != ElectionStep::Renew {
        spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |count| count + 1));
        spec.acquire_time = Some(now.clone());
    }
    spec.holder_identity = Some(identity.to_owned());
    spec.lease_duration_seconds = Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX));
    spec.renew_time = Some(now);
}

/// Empties the holder and shortens the lease, so that no candidate waits for it.
pub(super) fn release(spec: &mut LeaseSpec, now: MicroTime) {
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(now.clone());
    spec.renew_time = Some(now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str) -> LeaseRecord {
        LeaseRecord { holder: by.into(), duration: Duration::from_secs(15), version: "1".into() }
    }

    #[test]
    fn only_a_free_own_or_expired_lease_is_taken() {
        let cases = [
            (None, 0, ElectionStep::Create),
            (Some(held("me")), 0, ElectionStep::Renew),
            (Some(held("me")), 60, ElectionStep::Renew),
            (Some(held("")), 0, ElectionStep::Take),
            (Some(held("you")), 0, ElectionStep::Wait),
            (Some(held("you")), 15, ElectionStep::Wait),
            (Some(held("you")), 16, ElectionStep::Take),
        ];
        for (lease, idle, expected) in cases {
            let found = step(lease.as_ref(), "me", Duration::from_secs(idle));
            assert_eq!(found, expected, "{lease:?} idle {idle}");
        }
    }

    #[test]
    fn a_renewal_keeps_the_term_and_a_change_of_holder_counts() {
        let at = |text: &str| MicroTime(text.parse().unwrap());
        let (first, second) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:05Z"));
        let mut spec = LeaseSpec::default();
        let lease = Duration::from_secs(15);
        apply(ElectionStep::Create, &mut spec, "a", lease, first.clone());
        apply(ElectionStep::Renew, &mut spec, "a", lease, second.clone());
        assert_eq!((spec.lease_transitions, &spec.acquire_time), (Some(0), &Some(first)));
        assert_eq!(spec.renew_time, Some(second.clone()));
        apply(ElectionStep::Take, &mut spec, "b", lease, second.clone());
        assert_eq!((spec.lease_transitions, &spec.acquire_time), (Some(1), &Some(second)));
    }
}
