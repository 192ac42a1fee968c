//! One login at a provider, from the redirect to it until the browser comes back: what the browser
//! keeps in a cookie meanwhile. Pure, but for randomness.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use http::HeaderMap;
use http::header::HeaderValue;
use sha2::{Digest as _, Sha256};

use super::{DASHBOARD, PATH};
use crate::login::{cookie, token};

const NAME: &str = "OIDC_LOGIN";
/// Seconds that a user has to log in at the provider.
const LONGEST: u32 = 600;
/// PKCE wants 43 to 128 characters.
const SECRET_LENGTH: usize = 54;
/// A longer page is not returned to.
const LONGEST_PAGE: usize = 2048;

/// Secrets of one login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoginAttempt {
    /// Comes back with the browser: another site cannot finish a login that it began itself.
    pub(super) state: String,
    /// Shown with the code: a code that was intercepted is useless.
    pub(super) verifier: String,
    /// Comes back in the ID token: one of another login is refused.
    pub(super) nonce: String,
    /// The page to return to.
    pub(super) page: String,
}

impl LoginAttempt {
    pub(super) fn new(page: &str) -> Self {
        let random = || token::random_text(SECRET_LENGTH);
        Self { state: random(), verifier: random(), nonce: random(), page: own_page(page) }
    }

    /// The hash of the verifier, as PKCE's method S256 sends it.
    pub(super) fn challenge(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }

    /// The provider sends the browser here from another site: the cookie is not a strict one.
    pub(super) fn cookie(&self) -> HeaderValue {
        let Self { state, verifier, nonce, page } = self;
        let page = BASE64_URL_SAFE_NO_PAD.encode(page);
        set_cookie(&format!("{state}.{verifier}.{nonce}.{page}"), LONGEST)
    }

    pub(super) fn of_request(headers: &HeaderMap) -> Option<Self> {
        let mut parts = cookie::find(headers, NAME)?.split('.');
        let mut secret = || parts.next().filter(|part| part.len() == SECRET_LENGTH);
        let (state, verifier, nonce) = (secret()?, secret()?, secret()?);
        let page = BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
        Some(Self {
            state: state.to_owned(),
            verifier: verifier.to_owned(),
            nonce: nonce.to_owned(),
            page: own_page(&String::from_utf8(page).ok()?),
        })
    }
}

/// The cookie of an attempt that has ended.
pub(super) fn clear() -> HeaderValue {
    set_cookie("", 0)
}

fn set_cookie(value: &str, seconds: u32) -> HeaderValue {
    let text =
        format!("{NAME}={value}; Path={PATH}; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax");
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A page of the dashboard, whatever was asked for: a link must not lead to another site.
fn own_page(page: &str) -> String {
    let is_plain = page.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_own = page.starts_with(DASHBOARD) && is_plain && page.len() <= LONGEST_PAGE;
    if is_own { page.to_owned() } else { DASHBOARD.to_owned() }
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;

    use super::*;

    fn sent_back(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        let text = format!("a=b; {pair}; R_SESS=token-a:b");
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&text).unwrap())])
    }

    #[test]
    fn an_attempt_comes_back_with_the_browser() {
        let attempt = LoginAttempt::new("/dashboard/machines?filter=a");
        let cookie = attempt.cookie();
        assert_eq!(LoginAttempt::of_request(&sent_back(&cookie)), Some(attempt.clone()));
        let text = cookie.to_str().unwrap();
        assert!(text.ends_with("Max-Age=600; Secure; HttpOnly; SameSite=Lax"), "{text}");
        assert_ne!(attempt.state, LoginAttempt::new("").state);
        assert_eq!(LoginAttempt::of_request(&sent_back(&clear())), None);
        assert_eq!(LoginAttempt::of_request(&HeaderMap::new()), None);
    }

    #[test]
    fn the_browser_returns_to_the_dashboard_only() {
        for (page, expected) in [
            ("/dashboard/machines/a", "/dashboard/machines/a"),
            ("", "/dashboard/"),
            ("https://evil.example", "/dashboard/"),
            ("//evil.example", "/dashboard/"),
            ("/dashboard/\r\nset-cookie: a=b", "/dashboard/"),
            ("/dashboard/\\evil.example", "/dashboard/"),
            ("/v3/tokens", "/dashboard/"),
        ] {
            assert_eq!(LoginAttempt::new(page).page, expected, "{page:?}");
        }
    }

    #[test]
    fn the_challenge_is_the_one_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let attempt = LoginAttempt { verifier, ..LoginAttempt::new("") };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
