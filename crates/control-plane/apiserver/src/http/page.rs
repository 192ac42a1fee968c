//! Continue tokens: where the next page of a list begins, in upstream's form.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::{ApiError, ApiResult};

/// A position in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The revision of the whole list; `None` goes on at whatever is current.
    pub(crate) revision: Option<u64>,
    /// Names after this one follow.
    pub(crate) after: String,
    /// When the list began, in seconds since 1970.
    pub(crate) begun: i64,
}

/// How long a list can be continued as of the revision at which it began. History may
/// well be kept for longer, but clients expect upstream's bound, and its conformance
/// suite waits for it.
const LIFETIME: i64 = 300;

impl Position {
    /// Whether the list began so long ago that it goes on only with what is current.
    pub(crate) fn is_expired(&self, now: i64) -> bool {
        self.revision.is_some() && now - self.begun > LIFETIME
    }
}

#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(rename = "v")]
    version: String,
    rv: i64,
    start: String,
    #[serde(rename = "t")]
    begun: i64,
}

const VERSION: &str = "meta.k8s.io/v1";

/// `prefix` is the part of the name that the request's path implies (`ns/`).
pub(crate) fn encode(position: &Position, prefix: &str) -> String {
    let start = position.after.strip_prefix(prefix).unwrap_or(&position.after);
    let token = Token {
        version: VERSION.to_owned(),
        rv: position.revision.and_then(|revision| revision.try_into().ok()).unwrap_or(-1),
        start: format!("{start}\u{0}"),
        begun: position.begun,
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

pub(crate) fn decode(token: &str, prefix: &str) -> ApiResult<Position> {
    let invalid = |why: &str| {
        ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
    };
    let bytes =
        URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| invalid("bad encoding"))?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|_| invalid("bad content"))?;
    if token.version != VERSION {
        return Err(invalid("server does not recognize this encoded version"));
    }
    // The start must stay below the list's own prefix.
    if token.start.is_empty() || token.start.split('/').any(|part| part == "..") {
        return Err(invalid("start is outside of the list"));
    }
    let revision = match token.rv {
        -1 => None,
        0 => {
            return Err(invalid(
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        rv => Some(u64::try_from(rv).map_err(|_| invalid("negative resourceVersion"))?),
    };
    let after = format!("{prefix}{}", token.start.trim_end_matches('\u{0}'));
    Ok(Position { revision, after, begun: token.begun })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_the_round_trip() {
        for revision in [Some(42), None] {
            let position = Position { revision, after: "ns/name".to_owned(), begun: 7 };
            assert_eq!(decode(&encode(&position, "ns/"), "ns/").unwrap(), position);
            assert_eq!(decode(&encode(&position, ""), "").unwrap(), position);
        }
    }

    #[test]
    fn only_a_list_at_a_revision_expires() {
        for (revision, now, expired) in [
            (Some(42), 1000, false),
            (Some(42), 1300, false),
            (Some(42), 1301, true),
            (None, 9999, false),
        ] {
            let position = Position { revision, after: "name".to_owned(), begun: 1000 };
            assert_eq!(position.is_expired(now), expired, "{revision:?} at {now}");
        }
    }

    #[test]
    fn foreign_tokens_are_refused() {
        for bad in ["", "!!!", "e30", "eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6ImEifQ"] {
            assert_eq!(decode(bad, "").unwrap_err().code().as_u16(), 400, "{bad}");
        }
        let escape = Position { revision: Some(1), after: "ns/../x".to_owned(), begun: 7 };
        assert!(decode(&encode(&escape, "ns/"), "ns/").is_err());
    }
}
