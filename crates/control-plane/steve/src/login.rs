//! Local users: logging in and out, passwords, tokens, as Rancher's paths have them.
//!
//! ```text
//!   /v3-public/localProviders/local?action=login    a token, or a session cookie
//!   /v3-public/oidc/login                            the same at another provider (`oidc`)
//!   /v1-public/login                                the same, as newer clients ask for it
//!   /v3/tokens[/NAME][?action=logout]                the caller's own tokens (`token_requests`)
//!   /v3/users?action=changepassword                  the caller's own password
//!   /v3/users/NAME?action=setpassword                another user's, if RBAC permits it
//!   /v3/settings[/NAME]                              settings of Rancher's, as RBAC permits
//! ```

mod cookie;
mod oidc;
mod password;
mod provider;
mod settings;
mod throttle;
pub(crate) mod token;
mod token_requests;
mod users;

use std::sync::Arc;
use std::time::Instant;

use client::Caller;
use http::header::SET_COOKIE;
use http::{Method, StatusCode};
use jiff::SignedDuration;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::caller::Session;
use crate::error::SteveError;
use crate::reply::{self, SteveReply, SteveResult};
use crate::request::{self, Body, RequestHead, SteveRequest};

pub(crate) use oidc::is_principal;
pub use oidc::{OidcProvider, OidcTransport, TransportError};
pub use password::{PasswordError, check as check_password};
pub(crate) use token_requests::local_user;
pub use users::{
    FIRST_USER, NewToken, NewUser, PASSWORD_NAMESPACE, TokenOrder, UserError, UserRole, Users,
};

use oidc::OidcLogins;
use password::{LONGEST, PasswordHash};
use provider::{check_provider, provider};
use throttle::{Attempt, LoginThrottle};

const PUBLIC: &str = "/v3-public";
const LOGIN: &str = "/v1-public/login";
const PRIVATE: &str = "/v3";
/// How long a login lasts, as Rancher's.
const SESSION: SignedDuration = SignedDuration::from_hours(16);
/// Passwords that are hashed at once, however many wait.
const HASHES_AT_ONCE: usize = 2;

/// Whether a path belongs to Rancher's API of users.
pub fn owns_login(path: &str) -> bool {
    is_public(path) || path == PRIVATE || path.starts_with("/v3/")
}

/// Whether a path is for those who have no credentials yet.
pub fn is_public(path: &str) -> bool {
    path == PUBLIC || path == LOGIN || path.starts_with("/v3-public/")
}

/// Answers requests about users; cheap to clone.
#[derive(Debug, Clone)]
pub struct Login {
    users: Users,
    throttle: Arc<Mutex<LoginThrottle>>,
    hashing: Arc<Semaphore>,
    oidc: Option<OidcLogins>,
}

impl Login {
    /// `client` may read and write users, tokens and secrets.
    pub fn new(client: Client) -> Self {
        Self {
            users: Users::new(client),
            throttle: Arc::default(),
            hashing: Arc::new(Semaphore::new(HASHES_AT_ONCE)),
            oidc: None,
        }
    }

    /// With logins at another provider too.
    #[must_use]
    pub fn with_oidc(mut self, provider: Option<OidcProvider>) -> Self {
        self.oidc = provider.map(OidcLogins::new);
        self
    }

    pub fn users(&self) -> &Users {
        &self.users
    }

    /// A request to one of the paths that [`owns_login`] matches. `client` may act as any user.
    pub async fn answer(&self, client: &Client, asked: SteveRequest) -> SteveReply {
        let SteveRequest { head, body } = asked;
        let outcome = if is_public(head.parts.uri.path()) {
            self.public(&head, body).await
        } else {
            Box::pin(self.private(client, &head, body)).await
        };
        outcome.unwrap_or_else(|error| reply::failure(&error))
    }

    async fn public(&self, asked: &RequestHead, body: Body) -> SteveResult {
        let path = asked.parts.uri.path().trim_end_matches('/').to_lowercase();
        let base = format!("{}{PUBLIC}", asked.origin());
        let action = asked.parameter("action");
        match (&*path, &asked.parts.method, action.as_deref()) {
            ("/v3-public/localproviders/local", &Method::POST, Some("login")) => {
                self.log_in(asked, body).await
            }
            (LOGIN, &Method::POST, _) => self.log_in(asked, body).await,
            ("/v3-public/localproviders/local", &Method::GET, _) => {
                Ok(reply::json(StatusCode::OK, &provider(&base)))
            }
            ("/v3-public/localproviders" | "/v3-public/authproviders", &Method::GET, _) => {
                let own = format!("{}{path}", asked.origin());
                let mut providers = vec![provider(&base)];
                if path.ends_with("authproviders") {
                    providers.extend(self.oidc.iter().map(|oidc| oidc.listed(&asked.origin())));
                }
                Ok(collection("authProvider", &own, providers))
            }
            (path, _, _) if path.starts_with(oidc::PATH) || path == oidc::LISTED_AT => {
                let off = "logins with OpenID Connect are off: see --oidc-issuer-url";
                let oidc = self.oidc.as_ref().ok_or_else(|| SteveError::not_found(off))?;
                oidc.answer(&self.users, &self.throttle, asked, path).await
            }
            _ => Err(SteveError::not_found(format!("path {path:?} does not exist"))),
        }
    }

    async fn log_in(&self, asked: &RequestHead, body: Body) -> SteveResult {
        let fields = fields(asked, body).await?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        check_provider(text("type"))?;
        let (username, password) = (text("username"), text("password"));
        if username.is_empty() || password.is_empty() {
            let message = "username and password are required";
            return Err(SteveError::invalid("MissingRequired", message));
        }
        // A name that no user can have need not be remembered.
        let username: String = username.chars().take(256).collect();
        let user = self.attempt(asked, &username, password).await?.ok_or_else(|| {
            SteveError::new(StatusCode::UNAUTHORIZED, "Unauthorized", "authentication failed")
        })?;
        let lifetime = fields.get("ttl").and_then(Value::as_i64).filter(|ttl| *ttl > 0);
        let lifetime =
            lifetime.map_or(SESSION, |ttl| SignedDuration::from_millis(ttl).min(SESSION));
        let order = TokenOrder {
            prefix: "token",
            description: text("description"),
            lifetime,
            derived: false,
            identity: None,
        };
        let issued = self.users.issue(&user, order, base::clock::now()).await.map_err(refused)?;
        if text("responseType") == "cookie" {
            let mut reply = reply::json(StatusCode::OK, &json!({"type": "token"}));
            for value in cookie::log_in(&issued.bearer, &token::random_text(32)) {
                reply.headers_mut().append(SET_COOKIE, value);
            }
            return Ok(reply);
        }
        Ok(reply::json(StatusCode::CREATED, &token_requests::issued(asked, issued)))
    }

    /// The user, if the password is theirs and they may try now.
    async fn attempt(
        &self,
        asked: &RequestHead,
        username: &str,
        password: &str,
    ) -> Result<Option<Value>, SteveError> {
        let attempt = Attempt::begin(&self.throttle, asked.source, username, Instant::now());
        let mut attempt = attempt.map_err(|wait| too_many(wait.as_secs() + 1))?;
        let user = self.check(username, password).await?;
        attempt.success = user.is_some();
        Ok(user)
    }

    /// The user, if the password is theirs. Takes as long for users who do not exist.
    async fn check(&self, username: &str, password: &str) -> Result<Option<Value>, SteveError> {
        if password.len() > LONGEST {
            return Ok(None);
        }
        let user = self.users.by_username(username).await.map_err(refused)?;
        let user = user.filter(|user| user["enabled"] != false);
        let hash = match &user {
            Some(user) => {
                let name = user["metadata"]["name"].as_str().unwrap_or_default();
                self.users.password(name).await.map_err(refused)?
            }
            None => None,
        };
        let (known, hash) = (hash.is_some(), hash.or_else(PasswordHash::placeholder));
        let matches = self.matches(hash, password.to_owned()).await;
        Ok(user.filter(|_| known && matches))
    }

    async fn matches(&self, hash: Option<PasswordHash>, password: String) -> bool {
        let Ok(_permit) = self.hashing.acquire().await else { return false };
        let work = move || hash.is_some_and(|hash| hash.matches(&password));
        tokio::task::spawn_blocking(work).await.unwrap_or(false)
    }

    async fn private(&self, client: &Client, asked: &RequestHead, body: Body) -> SteveResult {
        let caller = asked.caller.clone().filter(|caller| !caller.is_anonymous());
        let caller = caller.ok_or_else(SteveError::unauthorized)?;
        let path = asked.parts.uri.path().to_owned();
        let mut words = path.trim_start_matches(PRIVATE).split('/').filter(|word| !word.is_empty());
        let (kind, name) = (words.next().unwrap_or_default(), words.next());
        let action = asked.parameter("action");
        let method = asked.parts.method.clone();
        match (&*kind.to_lowercase(), name, &method, action.as_deref()) {
            ("tokens" | "token", _, _, action) => {
                token_requests::answer(&self.users, asked, body, &caller, (name, action)).await
            }
            ("users" | "user", None, &Method::POST, Some("changepassword")) => {
                self.change_password(asked, body, &caller).await
            }
            ("users" | "user", Some(name), &Method::POST, Some("setpassword")) => {
                let session = Session { client, caller: &caller };
                self.set_password(asked, body, &session, name).await
            }
            ("users" | "user", _, &Method::GET, None) => {
                let session = Session { client, caller: &caller };
                self.show_users(asked, &session, name).await
            }
            ("settings" | "setting", _, _, None) => {
                let session = Session { client, caller: &caller };
                settings::answer(&session, asked, body, name).await
            }
            _ => Err(SteveError::not_found(format!("path {path:?} does not exist"))),
        }
    }

    async fn change_password(
        &self,
        asked: &RequestHead,
        body: Body,
        caller: &Caller,
    ) -> SteveResult {
        let fields = fields(asked, body).await?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let (current, new) = (text("currentPassword"), text("newPassword"));
        let name = &caller.name;
        if self.attempt(asked, name, current).await?.is_none() {
            let message = "invalid current password";
            return Err(SteveError::invalid("InvalidBodyContent", message));
        }
        if current == new {
            return Err(refused(PasswordError::Same.into()));
        }
        self.users.set_password(name, new).await.map_err(refused)?;
        if name == "admin" {
            self.users.write_setting("first-login", "false").await.map_err(refused)?;
        }
        Ok(reply::empty(StatusCode::OK))
    }

    /// For those who may change users: the API server is asked in the caller's name.
    async fn set_password(
        &self,
        asked: &RequestHead,
        body: Body,
        session: &Session<'_>,
        name: &str,
    ) -> SteveResult {
        let base = format!("{}{PRIVATE}", asked.origin());
        let fields = fields(asked, body).await?;
        let new = fields.get("newPassword").and_then(Value::as_str).unwrap_or_default();
        if name.contains(['/', '?', '%', '#']) {
            return Err(SteveError::not_found(format!("users {name:?} not found")));
        }
        let path = format!("/apis/management.cattle.io/v3/users/{name}");
        let user = session.merge(&path, &json!({"mustChangePassword": false})).await?;
        self.users.set_password(name, new).await.map_err(refused)?;
        Ok(reply::json(StatusCode::OK, &shown_user(&user, &base, name == session.caller.name)))
    }

    async fn show_users(
        &self,
        asked: &RequestHead,
        session: &Session<'_>,
        name: Option<&str>,
    ) -> SteveResult {
        let base = format!("{}{PRIVATE}", asked.origin());
        let me = &session.caller.name;
        let show = |user: &Value| shown_user(user, &base, user["metadata"]["name"] == **me);
        if asked.parameter("me").is_some_and(|me| me == "true") {
            let mut own = self.users.of_session(session.caller).await.map_err(refused)?;
            if own.is_none() {
                own = self.users.get(me).await.map_err(refused)?;
            }
            let data = own.iter().map(|user| shown_user(user, &base, true)).collect();
            return Ok(collection("user", &format!("{base}/users"), data));
        }
        let path = "/apis/management.cattle.io/v3/users";
        if let Some(name) = name.filter(|name| !name.contains(['?', '%', '#'])) {
            let user = session.get(&format!("{path}/{name}")).await?;
            return Ok(reply::json(StatusCode::OK, &show(&user)));
        }
        let list = session.get(path).await?;
        let data = list["items"].as_array().into_iter().flatten().map(show).collect();
        Ok(collection("user", &format!("{base}/users"), data))
    }
}

async fn fields(asked: &RequestHead, body: Body) -> Result<Map<String, Value>, SteveError> {
    let bytes = request::read(body).await?;
    request::parse(&asked.parts, &bytes)
}

fn too_many(seconds: u64) -> SteveError {
    let message = format!("too many attempts: try again in {seconds} s");
    let error = SteveError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
    SteveError { retry_after: seconds, ..error }
}

/// A failure of ours in the terms of the API.
pub(crate) fn refused(error: UserError) -> SteveError {
    match &error {
        UserError::Password(_) | UserError::Name(_) | UserError::NoPassword(_) => {
            SteveError::invalid("InvalidBodyContent", error.to_string())
        }
        UserError::Absent(_) => SteveError::not_found(error.to_string()),
        UserError::Exists(_) => {
            SteveError::new(StatusCode::CONFLICT, "AlreadyExists", error.to_string())
        }
        UserError::Api(source) => SteveError::unavailable(source),
    }
}

fn collection(kind: &str, own: &str, data: Vec<Value>) -> SteveReply {
    let collection = json!({
        "type": "collection", "resourceType": kind, "links": {"self": own}, "actions": {},
        "count": data.len(), "data": data,
    });
    reply::json(StatusCode::OK, &collection)
}

fn shown_user(user: &Value, base: &str, me: bool) -> Value {
    let name = &user["metadata"]["name"];
    let own = format!("{base}/users/{}", name.as_str().unwrap_or_default());
    json!({
        "id": name, "name": user["displayName"], "type": "user", "baseType": "user",
        "links": {"self": own}, "actions": {"setpassword": format!("{own}?action=setpassword")},
        "created": user["metadata"]["creationTimestamp"], "uuid": user["metadata"]["uid"],
        "username": user["username"], "enabled": user["enabled"] != false, "me": me,
        "mustChangePassword": user["mustChangePassword"] == true,
        "principalIds": user["principalIds"],
    })
}
