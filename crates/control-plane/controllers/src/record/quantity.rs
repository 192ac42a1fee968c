//! Quantities in records.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use types::Quantity;

/// A quantity as it is written: a text or a number; null if there is none. Text that is
/// no quantity is kept for messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WrittenQuantity(Value);

impl WrittenQuantity {
    pub(crate) fn amount(&self) -> Option<Quantity> {
        Some(&self.0).filter(|own| !own.is_null()).and_then(|own| Quantity::from_json(own).ok())
    }

    /// The text of a quantity that is written as one; empty for others.
    pub(crate) fn text(&self) -> &str {
        self.0.as_str().unwrap_or_default()
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn written(&self) -> &Value {
        &self.0
    }
}

impl<'de> Deserialize<'de> for WrittenQuantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::read;

    #[test]
    fn quantities_are_texts_or_numbers() {
        for (written, amount, text) in [
            (json!("1Ki"), Some(1024), "1Ki"),
            (json!(5), Some(5), ""),
            (json!("x"), None, "x"),
            (json!(null), None, ""),
            (json!({}), None, ""),
        ] {
            let own: WrittenQuantity = read(&written);
            assert_eq!((own.amount().map(|own| own.units()), own.text()), (amount, text));
            assert_eq!(own.written(), &written);
        }
    }
}
