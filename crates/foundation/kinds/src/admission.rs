//! Group `admissionregistration.k8s.io`: webhooks and policies that review writes.
//!
//! Expressions are compiled to judge them; running them is the work of the API server.

pub(crate) mod binding;
pub(crate) mod expression;
pub(crate) mod policy;
mod rule;
pub(crate) mod webhook;

/// The policies for a request that a hook or policy failed to review, sorted.
const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
/// How a rule meets other versions of what it names, sorted.
const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
/// Whether a mutation is repeated after others, sorted.
const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];
