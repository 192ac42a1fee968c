//! Facts about merging, as tables: upstream's own test cases in our form.

#![expect(clippy::unwrap_used, reason = "a table that cannot be read fails its test")]

mod form;
mod managers;
mod patch;
mod series;
mod strategic;
mod typed;
