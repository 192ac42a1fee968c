//! Bearer tokens: those of service accounts, which this server signs, and static
//! ones from a file.
//!
//! A service-account token that verifies says what was true when it was issued. That
//! the account and the object it is bound to still exist, with the same uid, only
//! the caller can check.

mod claims;
pub mod key;
mod request;
mod service_account;
mod static_file;

pub use claims::{Audiences, BoundClaims, Kubernetes, LegacyClaims, ObjectRef, Verified};
pub use request::{BoundObject, TokenRequestSpec, default_token_request, validate_token_request};
pub use service_account::{Issued, ServiceAccountTokens, TokenError, TokenGrant};
pub use static_file::{StaticTokens, StaticTokensError};
