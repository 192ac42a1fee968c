//! Numbers: bounds, multiples, and the ranges of `int32`, `int64` and `float`.

use serde_json::{Number, Value};

use super::{ValidationOutcome, ValueSite};
use crate::node::{Type, Validation};

/// The largest integer that a double represents together with its neighbours.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// Whether a JSON number is an integer, `3.0` included.
pub(super) fn is_integer(number: &Number) -> bool {
    match (number.as_i64(), number.as_f64()) {
        (Some(_), _) => true,
        (None, Some(float)) => is_integral(float),
        (None, None) => false,
    }
}

/// With the tolerance for rounding that upstream has.
fn is_integral(float: f64) -> bool {
    if !float.is_finite() || float.abs() > MAX_SAFE {
        return false;
    }
    let off = (float - float.trunc()).abs();
    off == 0.0 || (float != 0.0 && off / float.abs() < 1e-9)
}

pub(super) fn check(
    number: &Number,
    ty: Type,
    validation: &Validation,
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    outcome.score += 2;
    let check = Check { ty, format: validation.format.as_deref(), site };
    let number = match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => Operand::Integer(integer),
        (None, float) => Operand::Float(float.unwrap_or(f64::INFINITY)),
    };
    check.range(number, "Checked", outcome);
    if let Some(factor) = validation.multiple_of {
        check.range(Operand::Float(factor), "MultipleOf", outcome);
        check.multiple(number, factor, outcome);
    }
    if let Some(least) = validation.minimum {
        check.range(Operand::Float(least), "Minimum boundary", outcome);
        let exclusive = validation.exclusive_minimum;
        let text = if exclusive { "greater than" } else { "greater than or equal to" };
        let fails = match number {
            Operand::Integer(value) => value < least as i64 || exclusive && value == least as i64,
            Operand::Float(value) => value < least || exclusive && value == least,
        };
        if fails {
            outcome.add(check.out_of_bounds(number, text, least));
        }
    }
    if let Some(most) = validation.maximum {
        check.range(Operand::Float(most), "Maximum boundary", outcome);
        let exclusive = validation.exclusive_maximum;
        let text = if exclusive { "less than" } else { "less than or equal to" };
        let fails = match number {
            Operand::Integer(value) => value > most as i64 || exclusive && value == most as i64,
            Operand::Float(value) => value > most || exclusive && value == most,
        };
        if fails {
            outcome.add(check.out_of_bounds(number, text, most));
        }
    }
}

#[derive(Clone, Copy)]
enum Operand {
    Integer(i64),
    Float(f64),
}

impl Operand {
    fn value(self) -> Value {
        match self {
            Self::Integer(integer) => integer.into(),
            // Printed without the fraction that JSON would show.
            Self::Float(float) if float == float.trunc() && float.abs() <= MAX_SAFE => {
                (float as i64).into()
            }
            Self::Float(float) => float.into(),
        }
    }
}

struct Check<'a> {
    ty: Type,
    format: Option<&'a str>,
    site: &'a ValueSite<'a>,
}

impl Check<'_> {
    /// Bounds of an integer field are held against the same range as its values.
    fn range(&self, number: Operand, what: &str, outcome: &mut ValidationOutcome) {
        let fits = match (self.ty, self.format, number) {
            (Type::Integer, Some("int32"), Operand::Integer(value)) => i32::try_from(value).is_ok(),
            (Type::Integer, Some("int32"), Operand::Float(value)) => {
                value == value.trunc() && value.abs() <= 2_147_483_648.0 && value != 2_147_483_648.0
            }
            (Type::Integer, _, Operand::Float(value)) => {
                value == value.trunc() && value.abs() < 9.3e18
            }
            (Type::Number, Some("float"), Operand::Float(value)) => {
                value.abs() <= f64::from(f32::MAX)
            }
            _ => true,
        };
        if fits {
            return;
        }
        let ty = super::type_name(self.ty);
        let format = match self.format {
            Some(format) => format!("with format {format}"),
            None => "(default format)".to_owned(),
        };
        outcome.add(
            self.site
                .general(format!("{what} value must be of type {ty} {format} in {}", self.site.at)),
        );
    }

    fn multiple(&self, number: Operand, factor: f64, outcome: &mut ValidationOutcome) {
        let whole = factor as i64;
        let fits = match number {
            Operand::Integer(_) if whole <= 0 => None,
            Operand::Float(_) if factor <= 0.0 => None,
            Operand::Integer(value) => Some(value % whole == 0),
            Operand::Float(value) if factor < 1.0 => Some(is_integral(1.0 / factor * value)),
            Operand::Float(value) => Some(is_integral(value / factor)),
        };
        let factor = go_float(factor);
        match fits {
            Some(true) => {}
            Some(false) => outcome.add(
                self.site.invalid(number.value(), format_args!("should be a multiple of {factor}")),
            ),
            None => {
                let at = self.site.at;
                outcome.add(crate::FieldError::invalid(
                    super::name(at),
                    number.value(),
                    format!("factor MultipleOf declared for {at} must be positive: {factor}"),
                ));
            }
        }
    }

    fn out_of_bounds(&self, number: Operand, text: &str, bound: f64) -> crate::FieldError {
        let bound = match number {
            Operand::Integer(_) => (bound as i64).to_string(),
            Operand::Float(_) => go_float(bound),
        };
        self.site.invalid(number.value(), format_args!("should be {text} {bound}"))
    }
}

/// A double as Go prints it with `%v`.
fn go_float(float: f64) -> String {
    if float != 0.0 && !(1e-4..1e21).contains(&float.abs()) {
        let text = format!("{float:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) => {
                let (sign, digits) = match exponent.strip_prefix('-') {
                    Some(digits) => ('-', digits),
                    None => ('+', exponent),
                };
                format!("{mantissa}e{sign}{digits:0>2}")
            }
            None => text,
        };
    }
    format!("{float}")
}
