//! The steps of a login that need no API server.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::StatusCode;
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use serde_json::json;

use super::{OidcLoginError, OidcLogins, OidcProvider, OidcTransport, TransportError};
use crate::request::RequestHead;

pub(super) const ISSUER: &str = "https://id.example";

struct Documents;

impl OidcTransport for Documents {
    fn get<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>> {
        let document = json!({
            "issuer": ISSUER, "authorization_endpoint": "https://id.example/auth",
            "token_endpoint": "https://id.example/token",
        });
        Box::pin(async move { Ok(Bytes::from(document.to_string())) })
    }

    fn post<'a>(
        &'a self,
        _: &'a str,
        _: Option<String>,
        _: String,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), TransportError>> {
        let answer = Bytes::from_static(br#"{"error":"invalid_grant"}"#);
        Box::pin(async move { Ok((StatusCode::BAD_REQUEST, answer)) })
    }
}

pub(super) fn provider(secret: Option<&str>) -> OidcProvider {
    OidcProvider {
        issuer: ISSUER.to_owned(),
        client_id: "sheaf".to_owned(),
        client_secret: secret.map(str::to_owned),
        scopes: vec!["openid".to_owned(), "email".to_owned()],
        label: "Example".to_owned(),
        transport: Arc::new(Documents),
    }
}

fn request(path: &str, cookie: &str) -> RequestHead {
    let request = http::Request::get(path).header("host", "sheaf:8443").header(COOKIE, cookie);
    let (parts, ()) = request.body(()).unwrap().into_parts();
    RequestHead { caller: None, source: None, parts, upgrade: None }
}

#[tokio::test]
async fn a_login_leads_to_the_provider_and_back_to_this_server() {
    let logins = OidcLogins::new(provider(None));
    let reply = logins.begin(&request("/v3-public/oidc/login?return=/dashboard/a", "")).await;
    let reply = reply.unwrap();
    assert_eq!(reply.status(), StatusCode::FOUND);
    let location = reply.headers()[LOCATION].to_str().unwrap();
    assert!(location.starts_with("https://id.example/auth?response_type=code&"), "{location}");
    let callback = "redirect_uri=https%3A%2F%2Fsheaf%3A8443%2Fv3-public%2Foidc%2Fcallback";
    assert!(location.contains(callback), "{location}");
    assert_eq!(reply.headers().get_all(SET_COOKIE).iter().count(), 1);
    let listed = logins.listed("https://sheaf:8443");
    assert_eq!(listed["redirectUrl"], "https://sheaf:8443/v3-public/oidc/login");
    assert_eq!(listed["name"], "Example");
}

#[tokio::test]
async fn a_callback_needs_the_cookie_and_the_state_of_its_login() {
    let logins = OidcLogins::new(provider(None));
    let client = kube::Client::new(
        tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("not asked"))
        }),
        "default",
    );
    let users = crate::login::Users::new(client);
    let begun = logins.begin(&request("/v3-public/oidc/login", "")).await.unwrap();
    let cookie = begun.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap();
    let location = begun.headers()[LOCATION].to_str().unwrap();
    let query = location.split_once('?').unwrap().1;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let state = pairs.find(|(name, _)| name == "state").unwrap().1.into_owned();
    let path = |query: &str| format!("/v3-public/oidc/callback?{query}");
    for (query, cookie, code) in [
        (format!("code=c&state={state}"), "", "attempt"),
        (format!("code=c&state={state}x"), cookie, "attempt"),
        ("code=c".to_owned(), cookie, "attempt"),
        ("error=access_denied".to_owned(), cookie, "refused"),
        // The provider refuses the code.
        (format!("code=c&state={state}"), cookie, "refused"),
    ] {
        let outcome = logins.finish(&users, &request(&path(&query), cookie)).await;
        let found = outcome.as_ref().err().map(OidcLoginError::code);
        assert_eq!(found, Some(code), "{query} {cookie}");
    }
}
