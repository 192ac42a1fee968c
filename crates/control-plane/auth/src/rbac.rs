//! Role-based access control as Kubernetes defines it: the authorizer, the check against privilege
//! escalation, the validation of roles, and the default roles.
//!
//! Everything here is a pure function of the objects it is given. Reading and
//! writing them is the caller's work.

pub mod aggregate;
pub mod bootstrap;
pub mod escalation;
pub mod policy;
pub mod reconcile;
pub mod rule;
pub mod validate;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
