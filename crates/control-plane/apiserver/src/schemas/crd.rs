//! CustomResourceDefinitions: their content, whether their names are free, and the kinds that they
//! add to the catalog.

mod conditions;
mod document;
mod validate;

pub(crate) use conditions::{Accepted, conditions};
pub(crate) use document::{CrdVersion, Document, Scale};
pub(crate) use validate::{unknown_keywords, validate};

/// Instances are deleted before their definition goes.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Where definitions are stored.
pub(crate) const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";
