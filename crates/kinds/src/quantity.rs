//! Quantities as numbers, exact to a billionth, for comparing them.
//!
//! Their canonical text is made elsewhere; here they are only weighed.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::NOT_NEGATIVE;

const NANO: i128 = 1_000_000_000;

/// The quantity in billionths, rounded away from zero; none if it is not a quantity.
pub(crate) fn parse(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => parse_text(text),
        Value::Number(number) => parse_text(&number.to_string()),
        _ => None,
    }
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

fn parse_text(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end =
        unsigned.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()?;
    let (factor, exponent) = scale_of(suffix)?;
    let amount = shift(mantissa.checked_mul(factor)?, exponent - scale + 9)?;
    Some(if negative { -amount } else { amount })
}

/// What a suffix multiplies by: a power of two times a power of ten.
fn scale_of(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 0));
    let decimal = |exponent: i32| Some((1, exponent));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    }
}

/// `value * 10^exponent`, rounding up; none beyond the range of numbers.
fn shift(value: i128, exponent: i32) -> Option<i128> {
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    match power {
        Some(power) if exponent >= 0 => value.checked_mul(power),
        Some(power) => Some(value / power + i128::from(value % power != 0)),
        None if exponent < 0 => Some(i128::from(value != 0)),
        None => None,
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
        for wrong in ["", "x", "1Zi", "1.2.3", "Gi", "--1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
