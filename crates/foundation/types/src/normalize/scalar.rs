//! Scalars with a canonical text, and what Go makes of them.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use base64::{DecodeError as Base64, alphabet};
use serde_json::Value;

use super::NormalizeError;
use super::place::FieldPosition;
use crate::Quantity;
use crate::table::Ty;
use crate::time::{self, Precision};

/// Brings a scalar of a special type into its canonical form.
pub(super) fn canonical(
    value: &mut Value,
    ty: Ty,
    place: &FieldPosition<'_>,
) -> Result<(), NormalizeError> {
    match (ty, &*value) {
        (Ty::Quantity, _) => *value = Quantity::from_json(value)?.to_string().into(),
        (Ty::Time | Ty::MicroTime, Value::String(text)) => {
            let precision =
                if matches!(ty, Ty::Time) { Precision::Seconds } else { Precision::Micros };
            let (seconds, nanos) = time::parse(text, precision)?;
            *value = match time::format(seconds, nanos, precision) {
                Some(text) if (seconds, nanos) != (time::ZERO, 0) => text.into(),
                _ => Value::Null,
            };
        }
        (Ty::Duration, Value::String(text)) => {
            let nanos = time::parse_duration(text)
                .ok_or_else(|| NormalizeError::Duration { text: text.clone() })?;
            *value = time::format_duration(nanos).into();
        }
        (Ty::IntOrString, Value::String(_)) => {}
        (Ty::IntOrString, Value::Number(number)) => match number.as_i64() {
            Some(integer) if fits(integer, Ty::Int32) => {}
            _ => return Err(place.error(format!("number {number}"), "int32")),
        },
        (Ty::IntOrString, other) => return Err(place.mismatch(other, "int32")),
        (_, other) => return Err(place.mismatch(other, "string")),
    }
    Ok(())
}

pub(super) fn fits(integer: i64, ty: Ty) -> bool {
    !matches!(ty, Ty::Int32) || i32::try_from(integer).is_ok()
}

/// Go ignores line breaks and stray bits at the end, and writes neither.
pub(super) fn canonical_base64(text: &mut String) -> Result<(), NormalizeError> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    text.retain(|c| c != '\n' && c != '\r');
    let bytes = LENIENT.decode(text.as_bytes()).map_err(|error| NormalizeError::Base64 {
        at: match error {
            Base64::InvalidByte(at, _) | Base64::InvalidLastSymbol(at, _) => at,
            // Go points at the group of four that is not complete.
            Base64::InvalidLength(_) | Base64::InvalidPadding => text.len() / 4 * 4,
        },
    })?;
    *text = STANDARD.encode(bytes);
    Ok(())
}

/// Go also takes a list of small numbers for bytes; the error is the first item that is
/// no byte.
pub(super) fn bytes_of(items: &[Value]) -> Result<String, &Value> {
    let byte = |item| match item {
        &Value::Null => Ok(0),
        _ => item.as_u64().and_then(|number| u8::try_from(number).ok()).ok_or(item),
    };
    let bytes: Result<Vec<u8>, &Value> = items.iter().map(byte).collect();
    bytes.map(|bytes| STANDARD.encode(bytes))
}
