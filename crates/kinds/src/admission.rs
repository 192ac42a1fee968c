//! Group `admissionregistration.k8s.io`: who else has a say in a write.

pub(crate) mod binding;
pub(crate) mod policy;
pub(crate) mod webhook;
