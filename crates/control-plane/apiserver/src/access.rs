//! Identity and authorization: which user sends a request, and whether the user may do it.

pub(crate) mod authorize;
pub(crate) mod identity;
pub mod oidc;
pub(crate) mod review;
pub(crate) mod rights;
pub(crate) mod session;
