//! Leases.

use serde_json::Value;

use crate::object::read;

fields! {
    pub(crate) struct LeaseFields<'a> {
        spec: LeaseSpec<'a>,
    }

    pub(crate) struct LeaseSpec<'a> {
        holder_identity: &'a str,
        renew_time: &'a str,
        lease_duration_seconds: Option<u64>,
        lease_transitions: i64,
    }
}

pub(crate) fn lease(object: &Value) -> LeaseSpec<'_> {
    read::<LeaseFields<'_>>(object).spec
}
