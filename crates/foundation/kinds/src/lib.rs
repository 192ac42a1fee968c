//! The built-in kinds: names, defaults, validation, printer columns; no I/O.
//!
//! To add a kind, add its module and its row in [`builtin`].

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

mod admission;
mod apps;
mod autoscaling;
mod batch;
mod builtin;
mod certificates;
mod check;
mod claim_data;
mod coordination;
mod core;
mod custom;
mod devices;
mod discovery;
mod duration;
mod events;
mod extension;
mod flowcontrol;
mod intstr;
mod json;
mod jsonpath;
pub mod labels;
mod metadata;
mod networking;
mod node;
mod podspec;
mod policy;
mod print;
mod quantity;
pub mod quota;
mod rbac;
mod resource;
mod review;
#[cfg(test)]
mod rows;
mod scheduling;
mod status;
mod storage;
pub mod syntax;
mod webhook;

pub use admission::expression::{Params, admission_names, params_of, typed_admission_names};
pub use apps::NO_RUNTIME;
pub use builtin::{builtin, find};
pub use certificates::{prepare_approval, validate_approval};
pub use check::IMMUTABLE;
pub use claim_data::{DataPlace, data_refusal, may_read_data};
pub use custom::CustomColumn;
pub use duration::{age, human_duration};
pub use jsonpath::{EvalError, JsonPath, ParseError};
pub use metadata::{validate_metadata_create, validate_metadata_update};
pub use networking::network_policy::validate as validate_network_policy;
pub use resource::{
    ALL_VERBS, CREATE_ONLY, Column, Conversion, DefaultPropagation, NameRule, Printer, Resource,
    Scope, SelectableField, Strategy, Subresource,
};
pub use scheduling::system_priority_classes;
