//! Kubernetes' quantities: `500m`, `1Gi`, `1e3`. Exact arithmetic in billionths, and the
//! canonical text that upstream prints, quirks included: a text that upstream takes for
//! canonical is kept as it is.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use serde_json::Value;

const NANO: i128 = 1_000_000_000;

/// Largest binary quantity; larger ones are reduced to it.
const MOST: i128 = i64::MAX as i128 * NANO;

/// The most digits of upstream's fast path, which is the only one that keeps texts unchanged.
const DIGITS: usize = 18;

/// Why a text is no quantity. The texts are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// An amount of something, as used for resources.
///
/// Compared and hashed by amount: `1Gi`, `1024Mi` and `1073741824` are equal.
#[derive(Debug, Clone)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    /// A text that counts as canonical.
    text: Option<Box<str>>,
}

/// Which suffixes a quantity is printed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `k`, `M`, `m`
    Decimal,
    /// `Ki`, `Mi`
    Binary,
    /// `e3`
    Exponent,
}

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, format: Format::Decimal, text: None };

    /// A whole number, printed with decimal suffixes.
    pub fn from_units(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANO, format: Format::Decimal, text: None }
    }

    /// Thousandths, as CPU time is counted.
    pub fn from_millis(millis: i64) -> Self {
        Self { nanos: i128::from(millis) * (NANO / 1000), format: Format::Decimal, text: None }
    }

    /// A number of bytes, printed with binary suffixes.
    pub fn from_bytes(bytes: i64) -> Self {
        Self { nanos: i128::from(bytes) * NANO, format: Format::Binary, text: None }
    }

    /// A JSON string or number, as upstream accepts both.
    pub fn from_json(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::String(text) => text.trim().parse(),
            Value::Number(number) => number.to_string().parse(),
            Value::Null => Ok(Self::ZERO),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(QuantityError::Format),
        }
    }

    /// The exact amount in billionths.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// The amount as a whole number, rounded up (away from zero), saturating.
    pub fn units(&self) -> i64 {
        saturate(divide_up(self.nanos, NANO))
    }

    /// The amount in thousandths, rounded up (away from zero), saturating.
    pub fn millis(&self) -> i64 {
        saturate(divide_up(self.nanos, NANO / 1000))
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        match self.nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    fn with(&self, nanos: i128, other: &Self) -> Self {
        // Like upstream: a zero takes over the format of what is added to it.
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos, format, text: None }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let (base, exponent, format) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        let has_digit =
            text.len() > parts.suffix.len() && text.contains(|c: char| c.is_ascii_digit());
        if !has_digit && !parts.is_quick(format, exponent) {
            return Err(QuantityError::Number);
        }
        let digits = format!("{}{}", parts.whole, parts.fraction);
        if digits.len() > 38 {
            return Err(QuantityError::Number);
        }
        let mantissa: i128 = digits.parse().map_err(|_| QuantityError::Number)?;
        let places = i32::try_from(parts.fraction.len()).map_err(|_| QuantityError::Number)?;
        let (scaled, power) = match base {
            Base::Ten => (Some(mantissa), exponent - places),
            Base::Two => (mantissa.checked_mul(1i128 << exponent), -places),
        };
        let nanos = scaled.and_then(|scaled| scale(scaled, power + 9));
        let mut nanos = nanos.ok_or(QuantityError::Number)?;
        let mut kept = format;
        if format == Format::Binary {
            nanos = nanos.min(MOST);
            if nanos < NANO && nanos > 0 {
                kept = Format::Decimal;
            }
        }
        let canonical = parts.is_canonical(format, exponent, &digits);
        let nanos = if parts.negative { -nanos } else { nanos };
        Ok(Self { nanos, format: kept, text: canonical.then(|| text.into()) })
    }
}

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros, but never empty.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (number, rest) = split_digits(unsigned.trim_start_matches('0'));
        let whole = if number.is_empty() { "0" } else { number };
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", rest),
        };
        let after_letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let digits = after_letters.strip_prefix(['-', '+']).unwrap_or(after_letters);
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            Ok(Self { negative, whole, fraction, suffix })
        } else {
            Err(QuantityError::Format)
        }
    }

    /// Whether upstream reads this with machine integers: a path with quirks of its own.
    fn is_quick(&self, format: Format, exponent: i32) -> bool {
        let places = self.fraction.len();
        if format == Format::Binary {
            let digits = self.whole.len() as f32 + (exponent as f32 * 3.0 / 10.0).floor();
            return places == 0 && digits <= 14.0;
        }
        let power = exponent - i32::try_from(places).unwrap_or(i32::MAX);
        self.whole.len() + places <= DIGITS && power >= -9
    }

    /// Whether upstream keeps the text instead of formatting the amount.
    fn is_canonical(&self, format: Format, exponent: i32, digits: &str) -> bool {
        if !self.is_quick(format, exponent) {
            return false;
        }
        if format == Format::Binary {
            return digits.parse::<i64>().is_ok_and(|value| value & 7 != 0);
        }
        let power = exponent - i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        power % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
    }
}

enum Base {
    Two,
    Ten,
}

fn suffix(text: &str) -> Option<(Base, i32, Format)> {
    Some(match text {
        "n" => (Base::Ten, -9, Format::Decimal),
        "u" => (Base::Ten, -6, Format::Decimal),
        "m" => (Base::Ten, -3, Format::Decimal),
        "" => (Base::Ten, 0, Format::Decimal),
        "k" => (Base::Ten, 3, Format::Decimal),
        "M" => (Base::Ten, 6, Format::Decimal),
        "G" => (Base::Ten, 9, Format::Decimal),
        "T" => (Base::Ten, 12, Format::Decimal),
        "P" => (Base::Ten, 15, Format::Decimal),
        "E" => (Base::Ten, 18, Format::Decimal),
        "Ki" => (Base::Two, 10, Format::Binary),
        "Mi" => (Base::Two, 20, Format::Binary),
        "Gi" => (Base::Two, 30, Format::Binary),
        "Ti" => (Base::Two, 40, Format::Binary),
        "Pi" => (Base::Two, 50, Format::Binary),
        "Ei" => (Base::Two, 60, Format::Binary),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?.parse().ok()?;
            // With a larger exponent, only zero is in the range of `nanos`.
            (Base::Ten, i32::clamp(exponent, -100, 100), Format::Exponent)
        }
    })
}

/// `value` × 10^`power`, rounded away from zero; `None` if it cannot be held.
fn scale(value: i128, power: i32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    match 10i128.checked_pow(power.unsigned_abs()) {
        Some(factor) if power >= 0 => value.checked_mul(factor),
        Some(factor) => Some(divide_up(value, factor)),
        None if power >= 0 => None,
        None => Some(value.signum()),
    }
}

fn divide_up(value: i128, by: i128) -> i128 {
    value / by + if value % by == 0 { 0 } else { value.signum() }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return out.write_str(text);
        }
        if self.nanos == 0 {
            return out.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANO;
        if self.format == Format::Binary && !small && self.nanos % NANO == 0 {
            return write_binary(self.nanos / NANO, out);
        }
        let (mut amount, mut exponent) = (self.nanos, -9);
        while amount % 10 == 0 && (self.format == Format::Exponent || exponent < 20) {
            amount /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 || (self.format != Format::Exponent && exponent > 18) {
            amount *= 10;
            exponent -= 1;
        }
        if self.format == Format::Exponent {
            return if exponent == 0 {
                write!(out, "{amount}")
            } else {
                write!(out, "{amount}e{exponent}")
            };
        }
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let at = usize::try_from(exponent / 3 + 3).unwrap_or(0);
        write!(out, "{amount}{}", SUFFIXES[at])
    }
}

fn write_binary(mut amount: i128, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut times = 0;
    while amount % 1024 == 0 && times + 1 < SUFFIXES.len() {
        amount /= 1024;
        times += 1;
    }
    write!(out, "{amount}{}", SUFFIXES[times])
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add<&Self> for Quantity {
    type Output = Self;

    fn add(self, other: &Self) -> Self {
        self.with(self.nanos.saturating_add(other.nanos), other)
    }
}

impl Sub<&Self> for Quantity {
    type Output = Self;

    fn sub(self, other: &Self) -> Self {
        self.with(self.nanos.saturating_sub(other.nanos), other)
    }
}

impl AddAssign<&Self> for Quantity {
    fn add_assign(&mut self, other: &Self) {
        *self = self.with(self.nanos.saturating_add(other.nanos), other);
    }
}

impl SubAssign<&Self> for Quantity {
    fn sub_assign(&mut self, other: &Self) {
        *self = self.with(self.nanos.saturating_sub(other.nanos), other);
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: self.nanos.saturating_neg(), format: self.format, text: None }
    }
}

#[cfg(test)]
mod tests;
