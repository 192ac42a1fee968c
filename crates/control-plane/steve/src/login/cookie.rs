//! Session cookies: made at the login of a browser, read at its logout. Which requests may use
//! one is decided where requests are authenticated.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderValue};

/// The name under which browsers keep the token, as Rancher's.
const SESSION: &str = "R_SESS";
/// The name of the value that scripts of our own pages repeat in the header `X-API-CSRF`.
const CSRF: &str = "CSRF";

/// The cookies of a login. Scripts cannot read the first; other sites send neither along.
pub(super) fn log_in(bearer: &str, csrf: &str) -> Vec<HeaderValue> {
    let session = format!("{SESSION}={bearer}; Path=/; Secure; HttpOnly; SameSite=Lax");
    let csrf = format!("{CSRF}={csrf}; Path=/; Secure; SameSite=Strict");
    [session, csrf].iter().filter_map(|text| HeaderValue::from_str(text).ok()).collect()
}

pub(super) fn log_out() -> Vec<HeaderValue> {
    let gone = |name: &str| format!("{name}=; Path=/; Secure; HttpOnly; Max-Age=0");
    [SESSION, CSRF].iter().filter_map(|name| HeaderValue::from_str(&gone(name)).ok()).collect()
}

/// The token of a request, from either place.
pub(super) fn bearer(headers: &HeaderMap) -> Option<String> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(text) = authorization {
        let (scheme, token) = text.trim().split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
    }
    find(headers, SESSION).map(str::to_owned)
}

/// The value of a cookie.
pub(super) fn find<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';'));
    pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == wanted).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_other_sites_do_not_get_the_session() {
        let cookies = log_in("token-a:b", "x");
        assert_eq!(cookies[0], "R_SESS=token-a:b; Path=/; Secure; HttpOnly; SameSite=Lax");
        assert_eq!(cookies[1], "CSRF=x; Path=/; Secure; SameSite=Strict");
        assert!(log_out()[0].to_str().unwrap().contains("Max-Age=0"));
    }

    #[test]
    fn the_token_is_found_in_either_place() {
        let headers = |name: http::HeaderName, value: &'static str| {
            HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
        };
        let found = |name, value| bearer(&headers(name, value));
        assert_eq!(found(AUTHORIZATION, "Bearer token-a:b").as_deref(), Some("token-a:b"));
        assert_eq!(found(COOKIE, "a=1; R_SESS=token-a:b").as_deref(), Some("token-a:b"));
        assert_eq!(found(COOKIE, "a=1"), None);
        assert_eq!(found(AUTHORIZATION, "Basic x"), None);
    }
}
