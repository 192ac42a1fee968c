//! The built-in kinds: names, defaults, validation, printer columns; no I/O.
//!
//! To add a kind, add its module and its row in [`builtin`].

mod resource;

pub use resource::{
    ALL_VERBS, CREATE_ONLY, Column, NameRule, Printer, Resource, Scope, Strategy, Subresource,
};
