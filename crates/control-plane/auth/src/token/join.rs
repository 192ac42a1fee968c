//! Join tokens, which a person copies from the cluster to a machine that joins it. Pure.
//!
//! `SHEAF1.` and the base64url form of a JSON object: the pin of the cluster's CA, a bootstrap
//! token, URLs of the API, the role of the node, and when it expires. The cluster stores the
//! bootstrap token only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::bootstrap;

const PREFIX: &str = "SHEAF1.";
/// More URLs than this are not tried.
pub const MAX_URLS: usize = 4;

/// Everything that a machine needs to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// SHA-256 of the public key of the cluster's CA, in hexadecimal digits.
    pub ca: String,
    pub id: String,
    pub secret: String,
    pub urls: Vec<String>,
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<Timestamp>,
}

/// Why a text is no join token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinTokenError {
    #[error("the token is not a join token: those begin with SHEAF1.")]
    Foreign,
    #[error(
        "the token does not pin the CA of the cluster: use the whole text that \
         `sheaf token create` prints, which begins with SHEAF1."
    )]
    Unpinned,
    #[error("the token is damaged: copy the whole text that `sheaf token create` prints")]
    Damaged,
}

impl JoinToken {
    /// The text that is copied.
    pub fn encode(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }

    pub fn parse(text: &str) -> Result<Self, JoinTokenError> {
        let text = text.trim();
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            let is_bootstrap = bootstrap::split(text).is_some();
            return Err(if is_bootstrap || text.starts_with("K10") {
                JoinTokenError::Unpinned
            } else {
                JoinTokenError::Foreign
            });
        };
        let json = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| JoinTokenError::Damaged)?;
        let token: Self = serde_json::from_slice(&json).map_err(|_| JoinTokenError::Damaged)?;
        let is_pin = token.ca.len() == 64 && token.ca.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_whole = is_pin && bootstrap::split(&token.bearer()).is_some();
        is_whole.then_some(token).ok_or(JoinTokenError::Damaged)
    }

    /// The bearer token for the API server.
    pub fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.exp.is_some_and(|end| end <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> JoinToken {
        JoinToken {
            ca: "ab".repeat(32),
            id: "abcdef".to_owned(),
            secret: "0123456789abcdef".to_owned(),
            urls: vec!["https://10.0.0.1:6443".to_owned()],
            role: "worker".to_owned(),
            exp: Some("2026-06-01T00:00:00Z".parse().unwrap()),
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let text = token().encode();
        assert_eq!(JoinToken::parse(&format!(" {text}\n")), Ok(token()));
        assert_eq!(token().bearer(), "abcdef.0123456789abcdef");
        assert!(token().is_expired("2026-06-01T00:00:00Z".parse().unwrap()));
        assert!(!token().is_expired("2026-05-31T23:59:59Z".parse().unwrap()));
        assert!(!JoinToken { exp: None, ..token() }.is_expired(Timestamp::MAX));
    }

    #[test]
    fn other_texts_are_refused_with_what_is_wrong() {
        let text = token().encode();
        let short = JoinToken { secret: "short".to_owned(), ..token() }.encode();
        let unpinned = JoinToken { ca: String::new(), ..token() }.encode();
        for (text, expected) in [
            ("", JoinTokenError::Foreign),
            ("hunter2", JoinTokenError::Foreign),
            ("abcdef.0123456789abcdef", JoinTokenError::Unpinned),
            ("K10abc::server:x", JoinTokenError::Unpinned),
            ("SHEAF1.", JoinTokenError::Damaged),
            (&text[..text.len() - 5], JoinTokenError::Damaged),
            (&short, JoinTokenError::Damaged),
            (&unpinned, JoinTokenError::Damaged),
        ] {
            assert_eq!(JoinToken::parse(text), Err(expected), "{text}");
        }
    }
}
