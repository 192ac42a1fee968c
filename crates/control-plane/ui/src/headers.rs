//! The security headers of the dashboard: which scripts may run, and which pages may embed it.

use http::HeaderMap;
use http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue};

/// On every answer.
const FIXED: &[(&str, &str)] = &[
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// On pages.
const PAGE: &[(&str, &str)] = &[
    ("cross-origin-opener-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    (
        "permissions-policy",
        "camera=(), microphone=(), geolocation=(), clipboard-read=(self), \
         clipboard-write=(self), fullscreen=(self)",
    ),
];

/// Scripts come from this server only, and nothing is loaded from elsewhere. Styles that scripts
/// add (the terminal and the editor do) carry the nonce.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-%'; \
    style-src-attr 'none'; img-src 'self' blob: data:; font-src 'self'; connect-src 'self'; \
    worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

pub(crate) fn protect(headers: &mut HeaderMap) {
    insert(headers, FIXED);
}

/// `nonce` is new for each answer.
pub(crate) fn protect_page(headers: &mut HeaderMap, nonce: &str) {
    insert(headers, PAGE);
    if let Ok(policy) = HeaderValue::from_str(&POLICY.replace('%', nonce)) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
}

fn insert(headers: &mut HeaderMap, fixed: &[(&'static str, &'static str)]) {
    for (name, value) in fixed {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}
