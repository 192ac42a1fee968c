//! Conditions of any object. They are written by [`crate::condition`].

use serde_json::Value;

use crate::object::read;

fields! {
    pub(crate) struct ConditionFields<'a> {
        kind as "type": &'a str,
        status: &'a str,
        reason: &'a str,
        message: &'a str,
        last_transition_time: &'a str,
    }

    /// The status of an object of any kind.
    pub(crate) struct ConditionsStatus<'a> {
        conditions: Vec<ConditionFields<'a>>,
    }

    /// An object of any kind that has conditions.
    pub(crate) struct ConditionsObject<'a> {
        status: ConditionsStatus<'a>,
    }
}

/// The conditions in the status of an object.
pub(crate) fn conditions(object: &Value) -> Vec<ConditionFields<'_>> {
    read::<ConditionsObject<'_>>(object).status.conditions
}

/// The condition of this type in the status of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<ConditionFields<'a>> {
    conditions(object).into_iter().find(|own| own.kind == kind)
}

/// The condition of this type among others.
pub(crate) fn of_type<'s, 'a>(
    conditions: &'s [ConditionFields<'a>],
    kind: &str,
) -> Option<&'s ConditionFields<'a>> {
    conditions.iter().find(|own| own.kind == kind)
}
