//! Facts about merging, as tables: upstream's own test cases in our form.

#![expect(clippy::unwrap_used, reason = "a table that cannot be read fails its test")]

mod form;
mod managers;
mod patch;
mod properties;
mod series;
mod strategic;
mod typed;

use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}
