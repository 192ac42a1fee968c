//! Login with OpenID Connect in a browser: the authorization code flow with PKCE.
//!
//! ```text
//!   GET /v3-public/oidc/login?return=/dashboard/…     to the provider, with a cookie of this attempt
//!   GET /v3-public/oidc/callback?code=…&state=…       back to the dashboard, with a session cookie
//! ```
//!
//! The API server verifies the ID token (a TokenReview), so that a session has the same user name
//! and groups as `kubectl` with a token of the provider. Nothing is kept between the two requests
//! but the cookie: any management node can answer the second.

mod attempt;
mod endpoints;
mod identity;

use std::sync::Arc;
use std::time::Instant;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CACHE_CONTROL, HeaderValue, LOCATION, SET_COOKIE};
use http::{Method, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::throttle::{Attempt, LoginThrottle};
use super::{PUBLIC, SESSION, TokenOrder, UserError, Users, cookie, token};
use crate::error::SteveError;
use crate::reply::{self, SteveReply, SteveResult};
use crate::request::RequestHead;
use attempt::LoginAttempt;
use endpoints::EndpointCache;
pub(super) use identity::{OidcIdentity, has_provider, is_of_provider, user_name};
pub(crate) use identity::{is_principal, principal};

pub(super) const PATH: &str = "/v3-public/oidc/";
/// Where Rancher describes the provider, in small letters.
pub(super) const LISTED_AT: &str = "/v3-public/genericoidcproviders/genericoidc";
const DASHBOARD: &str = "/dashboard/";
/// Attempts are limited by address under this name, which no user can have.
const THROTTLED_AS: &str = "OpenID Connect";

/// Why a document of the provider cannot be read.
pub type TransportError = Box<dyn std::error::Error + Send + Sync>;

/// Requests to the provider.
pub trait OidcTransport: Send + Sync {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>>;

    /// Sends a form; `authorization` is the header of that name. The answer may be a refusal.
    fn post<'a>(
        &'a self,
        url: &'a str,
        authorization: Option<String>,
        form: String,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), TransportError>>;
}

/// The provider that users log in at.
#[derive(Clone)]
pub struct OidcProvider {
    pub issuer: String,
    pub client_id: String,
    /// None for a public client, which PKCE alone protects.
    pub client_secret: Option<String>,
    pub scopes: Vec<String>,
    /// Its name on the login page.
    pub label: String,
    pub transport: Arc<dyn OidcTransport>,
}

impl std::fmt::Debug for OidcProvider {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("OidcProvider").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Why a login failed. The page knows the codes; texts of the provider are only logged, since
/// anyone can put a text into a link.
#[derive(Debug, thiserror::Error)]
pub(super) enum OidcLoginError {
    #[error("the login was begun in another browser or too long ago")]
    Attempt,
    #[error("the provider refused the login: {0}")]
    Refused(String),
    #[error("cannot reach the provider")]
    Unreachable(#[source] TransportError),
    #[error("the provider's answer is invalid: {0}")]
    Answer(String),
    #[error("the ID token is not accepted: {0}")]
    Token(String),
    #[error("user {0:?} is disabled")]
    Disabled(String),
    #[error("cannot record the login")]
    User(#[source] UserError),
    #[error("too many attempts at once")]
    TooMany,
}

impl OidcLoginError {
    fn code(&self) -> &'static str {
        match self {
            Self::Attempt => "attempt",
            Self::Refused(_) => "refused",
            Self::Unreachable(_) | Self::Answer(_) => "provider",
            Self::Token(_) => "token",
            Self::Disabled(_) => "disabled",
            Self::User(_) => "server",
            Self::TooMany => "busy",
        }
    }
}

/// Answers the requests of logins at one provider; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct OidcLogins {
    provider: Arc<OidcProvider>,
    endpoints: Arc<EndpointCache>,
}

impl OidcLogins {
    pub(super) fn new(provider: OidcProvider) -> Self {
        Self { provider: Arc::new(provider), endpoints: Arc::default() }
    }

    /// As Rancher lists providers whose login is a page of their own.
    pub(super) fn listed(&self, origin: &str) -> Value {
        let own = format!("{origin}{PUBLIC}/genericOIDCProviders/genericoidc");
        json!({
            "id": "genericoidc", "type": "genericOIDCProvider", "baseType": "authProvider",
            "name": self.provider.label, "links": {"self": own}, "actions": {},
            "redirectUrl": format!("{origin}{PATH}login"),
        })
    }

    pub(super) async fn answer(
        &self,
        users: &Users,
        throttle: &Arc<parking_lot::Mutex<LoginThrottle>>,
        asked: &RequestHead,
        path: &str,
    ) -> SteveResult {
        let step = path.strip_prefix(PATH).unwrap_or_default();
        if asked.parts.method != Method::GET {
            return Err(SteveError::method_not_allowed(&asked.parts.method));
        }
        if path == LISTED_AT {
            return Ok(reply::json(StatusCode::OK, &self.listed(&asked.origin())));
        }
        let attempt = Attempt::begin(throttle, asked.source, THROTTLED_AS, Instant::now());
        let outcome = match (step, attempt) {
            ("login" | "callback", Err(_)) => Err(OidcLoginError::TooMany),
            // Only those at once are limited: nothing can be guessed here, and a page of another site
            // could make a browser fail as often as it likes.
            ("login", Ok(mut attempt)) => {
                attempt.success = true;
                self.begin(asked).await
            }
            ("callback", Ok(mut attempt)) => {
                attempt.success = true;
                self.finish(users, asked).await
            }
            _ => return Err(SteveError::not_found(format!("path {path:?} does not exist"))),
        };
        Ok(outcome.unwrap_or_else(|error| {
            let issuer = &self.provider.issuer;
            warn!(issuer, error = %base::Chain(&error), "login with OpenID Connect failed");
            redirect(&format!("{DASHBOARD}?login_error={}", error.code()), [attempt::clear()])
        }))
    }

    async fn begin(&self, asked: &RequestHead) -> Result<SteveReply, OidcLoginError> {
        let endpoints = self.endpoints.get(&self.provider).await?;
        let page = asked.parameter("return").unwrap_or_default();
        let attempt = LoginAttempt::new(&page);
        let url = endpoints.authorization(&self.provider, &callback(asked), &attempt);
        Ok(redirect(&url, [attempt.cookie()]))
    }

    async fn finish(
        &self,
        users: &Users,
        asked: &RequestHead,
    ) -> Result<SteveReply, OidcLoginError> {
        if let Some(error) = asked.parameter("error") {
            let text = asked.parameter("error_description").unwrap_or_default();
            return Err(OidcLoginError::Refused(format!("{error} {text}")));
        }
        let attempt = LoginAttempt::of_request(&asked.parts.headers);
        let attempt = attempt.ok_or(OidcLoginError::Attempt)?;
        if asked.parameter("state").as_deref() != Some(&attempt.state) {
            return Err(OidcLoginError::Attempt);
        }
        let code = asked.parameter("code").unwrap_or_default();
        let endpoints = self.endpoints.get(&self.provider).await?;
        let token =
            endpoints.exchange(&self.provider, &code, &callback(asked), &attempt.verifier).await?;
        let identity = self.verified(users.client(), &token, &attempt.nonce).await?;
        let user = users.of_identity(&identity).await.map_err(OidcLoginError::User)?;
        if user["enabled"] == false {
            return Err(OidcLoginError::Disabled(identity.name));
        }
        let order = TokenOrder {
            prefix: "token",
            description: "dashboard",
            lifetime: SESSION,
            derived: false,
            identity: Some(&identity),
        };
        let issued = users.issue(&user, order, base::clock::now()).await;
        let issued = issued.map_err(OidcLoginError::User)?;
        info!(user = identity.name, "logged in with OpenID Connect");
        let cookies = cookie::log_in(&issued.bearer, &token::random_text(32));
        Ok(redirect(&attempt.page, cookies.into_iter().chain([attempt::clear()])))
    }

    /// The identity of an ID token, once the API server has verified it.
    async fn verified(
        &self,
        client: &Client,
        token: &str,
        nonce: &str,
    ) -> Result<OidcIdentity, OidcLoginError> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token},
        });
        let request = http::Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&review).unwrap_or_default())
            .map_err(kube::Error::HttpError);
        let answer = match request {
            Ok(request) => client.request::<Value>(request).await,
            Err(error) => Err(error),
        };
        let answer = answer.map_err(|error| OidcLoginError::User(error.into()))?;
        let status = &answer["status"];
        if status["authenticated"] != true {
            let why = status["error"].as_str().unwrap_or("unknown token");
            return Err(OidcLoginError::Token(why.to_owned()));
        }
        // The signature is verified: what the token says is what the provider said.
        let claims = claims(token).unwrap_or_default();
        if claims["iss"] != *self.provider.issuer || claims["nonce"] != *nonce {
            return Err(OidcLoginError::Token("it belongs to another login".to_owned()));
        }
        OidcIdentity::of_review(&status["user"])
            .ok_or_else(|| OidcLoginError::Token("it names no user".to_owned()))
    }
}

fn callback(asked: &RequestHead) -> String {
    format!("{}{PATH}callback", asked.origin())
}

fn claims(token: &str) -> Option<Value> {
    let payload = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&payload).ok()
}

fn redirect(location: &str, cookies: impl IntoIterator<Item = HeaderValue>) -> SteveReply {
    let mut reply = reply::empty(StatusCode::FOUND);
    let headers = reply.headers_mut();
    if let Ok(location) = HeaderValue::from_str(location) {
        headers.insert(LOCATION, location);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
    reply
}

#[cfg(test)]
mod tests;
