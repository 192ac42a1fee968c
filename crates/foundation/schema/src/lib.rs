//! Schemas of API objects, and everything that follows from them: pruning, defaulting, validation
//! with Kubernetes' own error texts, CEL rules.
//!
//! One representation, [`Schema`], serves CustomResourceDefinitions (parsed from
//! their `openAPIV3Schema`) and built-in types (built from the table in crate
//! `types`). No I/O, no clock, not async.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

pub mod cel;
mod default;
mod field;
mod metadata;
mod node;
mod parse;
mod prune;
mod publish;
mod shape;
mod structural;
mod trail;
mod validate;

pub use cel::{Compiled, is_cel_word};
pub use default::{default, drop_nulls};
pub use field::{FieldError, Path, Reason};
pub use metadata::{Malformed, coerce_metadata};
pub use node::{
    Additional, CelRule, ListType, MapType, PatchStrategy, Schema, SchemaNode, Type, Validation,
};
pub use parse::{MAX_DEPTH, parse, unknown_fields};
pub use prune::{ObjectLevel, prune};
pub use publish::{to_openapi_v2, to_openapi_v3};
pub use shape::has_shape;
pub use structural::{check_status_root, check_structural};
pub use validate::{Pattern, PatternError, validate};

#[cfg(test)]
mod tests;
