//! Quantities as numbers, exact to a billionth, for comparing them.
//!
//! Their canonical text is made elsewhere; here they are only weighed.

use schema::{FieldError, Path};
use serde_json::Value;
use types::Quantity;

use crate::check::NOT_NEGATIVE;

const NANO: i128 = 1_000_000_000;

/// The quantity in billionths; none if it is not a quantity.
pub(crate) fn parse(value: &Value) -> Option<i128> {
    Quantity::from_json(value).ok().map(|quantity| quantity.nanos())
}

/// The quantity where it counts as absent when unreadable.
pub(crate) fn or_zero(value: Option<&Value>) -> i128 {
    value.and_then(parse).unwrap_or_default()
}

/// A whole number of units, in billionths.
pub(crate) const fn units(count: i128) -> i128 {
    count * NANO
}

/// Demands a quantity that is not negative.
pub(crate) fn not_negative(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if parse(value).is_some_and(|amount| amount < 0) {
        errors.push(FieldError::invalid(path, value.clone(), NOT_NEGATIVE));
    }
}

/// Demands a quantity above zero.
pub(crate) fn positive(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if parse(value).is_some_and(|amount| amount <= 0) {
        errors.push(FieldError::invalid(path, value.clone(), "must be greater than zero"));
    }
}

/// Demands a quantity that fits the resource: never negative, whole for countable things.
pub(crate) fn for_resource(
    resource: &str,
    value: &Value,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    not_negative(value, path, errors);
    if crate::core::resource::is_integer(resource)
        && parse(value).is_some_and(|amount| amount % NANO != 0)
    {
        errors.push(FieldError::invalid(path, value.clone(), "must be an integer"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_compare_across_suffixes() {
        let read = |text: &str| parse(&json!(text));
        assert_eq!(read("1Gi"), read("1024Mi"));
        assert_eq!(read("1500m"), read("1.5"));
        assert_eq!(read("1e3"), read("1k"));
        assert_eq!(parse(&json!(2)), read("2"));
        assert!(read("-1").unwrap() < 0);
        assert_eq!(read("1Zi"), None);
    }
}
