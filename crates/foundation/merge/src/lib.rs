//! All the ways in which one document changes another: JSON patch, JSON merge patch, strategic
//! merge patch, and server-side apply with the tracking of field owners.
//!
//! Pure functions over JSON values and schemas: no I/O, no clock (the caller passes the time), no
//! HTTP (errors say which text and which kind of answer upstream gives, the caller builds the
//! `Status`).

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

mod go;
mod managed;
mod patch;
mod path;
mod set;
mod strategic;
mod typed;

#[cfg(test)]
#[path = "../tests/vectors/form.rs"]
mod form;

pub use managed::{
    ApplyError, Conflict, Conflicts, EntryError, MergeRequest, apply, equal_ignoring_timestamps,
    track_update, validate_managed_fields,
};
pub use patch::{MOST_OPERATIONS, OperationError, PatchError, StepError, json_patch, merge_patch};
pub use path::{Path, PathElement, PathElementError};
pub use set::{Set, SetError};
pub use strategic::{Fault, StrategicError, strategic_merge};
pub use typed::{
    Comparison, Duplicates, Faults, FieldFault, compare, extract_items, merge,
    reconcile_field_set_with_schema, remove_items, to_field_set, validate,
};
