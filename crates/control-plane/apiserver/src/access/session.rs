//! Session cookies of browsers: which requests may use one. Pure.
//!
//! A browser sends cookies along with requests that other sites' pages make. So a request that
//! changes something has to repeat the value of another cookie in a header, which only pages of
//! this server can read, and a request that names its origin has to come from this server.

use http::header::{COOKIE, HOST, ORIGIN, UPGRADE};
use http::{HeaderMap, Method, request};

/// The names that Rancher's pages use.
const SESSION: &str = "R_SESS";
const CSRF_COOKIE: &str = "CSRF";
const CSRF_HEADER: &str = "x-api-csrf";

/// The session in the cookies of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionCookie<'a> {
    Absent,
    /// A token that the request may use.
    Token(&'a str),
    /// The request may come from a page of another site.
    CrossSite,
}

pub(crate) fn of_request(parts: &request::Parts) -> SessionCookie<'_> {
    let Some(token) = cookie(&parts.headers, SESSION).filter(|token| !token.is_empty()) else {
        return SessionCookie::Absent;
    };
    let reads = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_stream = parts.headers.contains_key(UPGRADE);
    let own_page = is_same_origin(parts);
    let allowed = match (reads, is_stream) {
        // A websocket has no header for the second value, but always an origin.
        (_, true) => own_page == Some(true),
        (true, false) => own_page != Some(false),
        (false, false) => own_page != Some(false) && repeats_csrf(&parts.headers),
    };
    if allowed { SessionCookie::Token(token) } else { SessionCookie::CrossSite }
}

/// Whether the page that sent the request is one of this server; nothing if it does not say.
fn is_same_origin(parts: &request::Parts) -> Option<bool> {
    let origin = parts.headers.get(ORIGIN)?;
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or(parts.uri.authority().map(http::uri::Authority::as_str));
    Some(matches!((origin, host), (Some((_, origin)), Some(host)) if origin == host))
}

fn repeats_csrf(headers: &HeaderMap) -> bool {
    let sent = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
    let expected = cookie(headers, CSRF_COOKIE);
    matches!((sent, expected), (Some(sent), Some(expected)) if !sent.is_empty() && sent == expected)
}

fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == wanted).then_some(value)
    });
    pairs.next()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn only_requests_of_our_own_pages_use_the_session() {
        const COOKIES: &str = "R_SESS=token-a:b; CSRF=c";
        let own = ("origin", "https://here:6443");
        let other = ("origin", "https://evil");
        let csrf = ("x-api-csrf", "c");
        let upgrade = ("upgrade", "websocket");
        type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], bool);
        let cases: &[Case<'_>] = &[
            ("GET", COOKIES, &[], true),
            ("GET", COOKIES, &[own], true),
            ("GET", COOKIES, &[other], false),
            ("GET", COOKIES, &[upgrade], false),
            ("GET", COOKIES, &[upgrade, own], true),
            ("GET", COOKIES, &[upgrade, other], false),
            ("POST", COOKIES, &[], false),
            ("POST", COOKIES, &[own], false),
            ("POST", COOKIES, &[csrf], true),
            ("POST", COOKIES, &[csrf, own], true),
            ("DELETE", COOKIES, &[csrf, other], false),
            ("PUT", COOKIES, &[("x-api-csrf", "d")], false),
            ("PUT", "R_SESS=token-a:b", &[("x-api-csrf", "")], false),
        ];
        for (method, cookies, headers, allowed) in cases {
            let mut request = Request::builder().method(*method).uri("/v1/nodes");
            request = request.header("cookie", *cookies).header("host", "here:6443");
            for (name, value) in *headers {
                request = request.header(*name, *value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let expected =
                if *allowed { SessionCookie::Token("token-a:b") } else { SessionCookie::CrossSite };
            assert_eq!(of_request(&parts), expected, "{method} {headers:?}");
        }
    }

    #[test]
    fn no_session_is_no_session() {
        for cookies in ["", "CSRF=c", "R_SESS=", "X_R_SESS=a"] {
            let request = Request::get("/").header("cookie", cookies).body(()).unwrap();
            let (parts, ()) = request.into_parts();
            assert_eq!(of_request(&parts), SessionCookie::Absent, "{cookies}");
        }
    }
}
