//! Bearer tokens: those of service accounts, which this server signs, static ones from a
//! file, those with which machines join, and those of an external issuer.
//!
//! A service-account token that verifies says what was true when it was issued. That
//! the account and the object it is bound to still exist, with the same uid, only
//! the caller can check.

pub mod bootstrap;
mod claims;
pub mod join;
pub mod key;
pub mod oidc;
mod request;
pub mod rotation;
mod service_account;
mod static_file;

pub use claims::{Audiences, BoundClaims, Kubernetes, LegacyClaims, ObjectRef, Verified};
pub use request::{BoundObject, TokenRequestSpec, default_token_request, validate_token_request};
pub use service_account::{Issued, ServiceAccountTokens, TokenError, TokenGrant};
pub use static_file::{StaticTokens, StaticTokensError};
