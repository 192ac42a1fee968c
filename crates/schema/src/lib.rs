//! What an API object may look like, and everything that follows from it:
//! pruning, defaulting, validation with Kubernetes' own error texts, CEL rules.
//!
//! One representation, [`Schema`], serves CustomResourceDefinitions (parsed from
//! their `openAPIV3Schema`) and built-in types (built from the table in crate
//! `types`). No I/O, no clock, not async.

mod field;
mod node;

pub use field::{FieldError, Path, Reason};
pub use node::{
    Additional, ListType, MapType, Node, PatchStrategy, Rule, Schema, Type, Validation,
};
