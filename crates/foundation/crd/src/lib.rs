//! Custom kinds written in Rust: a type that is its own schema ([`record!`]), and the
//! definition that is made of it. Knows no kind; no I/O, no clock.

// The macro names this crate by its name, inside of it as well.
extern crate self as crd;

pub mod atom;
pub mod definition;
mod embed;
pub mod lookup;
pub mod record;
pub mod schedule;
