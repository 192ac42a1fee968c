//! Role-based access control as Kubernetes defines it: who may do what, who may
//! grant it, what a well-formed role is, and the roles that exist from the start.
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
