//! Authentication and authorization.
//!
//! Users and the credentials that prove them ([`identity`], [`token`]), the rights
//! they hold ([`rbac`]), and the keys and certificates of the cluster ([`pki`]).
//! It knows neither HTTP nor the store. Only [`pki`] touches files; nothing reads
//! the clock.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

pub mod identity;
pub mod kubeconfig;
pub mod pki;
pub mod rbac;
pub mod revocation;
pub mod subject;
pub mod token;
pub mod user;

pub use rbac::policy::{
    AccessTarget, Attributes, Decision, RbacPolicy, ResourceRequest, forbidden_message,
};
pub use rbac::rule::PolicyRule;
pub use user::User;
