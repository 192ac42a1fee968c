//! The caller's own tokens: `/v3/tokens`, as Rancher has it.
//!
//! ```text
//!   GET /v3/tokens, /v3/tokens/NAME      listed without their secrets
//!   POST /v3/tokens                      a new one, whose secret is shown once
//!   DELETE /v3/tokens/NAME               revoked
//!   POST /v3/tokens?action=logout        the token of this request is revoked
//! ```

use client::Caller;
use http::header::SET_COOKIE;
use http::{Method, StatusCode};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::oidc::principal;
use super::{NewToken, PRIVATE, TokenOrder, Users, collection, cookie, fields, refused, token};
use crate::error::SteveError;
use crate::reply::{self, SteveResult};
use crate::request::{Body, RequestHead};

/// As the setting `kubeconfig-default-token-ttl-minutes`: 100 years.
const LONGEST: SignedDuration = SignedDuration::from_mins(52_560_000);

pub(super) async fn answer(
    users: &Users,
    asked: &RequestHead,
    body: Body,
    caller: &Caller,
    (name, action): (Option<&str>, Option<&str>),
) -> SteveResult {
    match (name, asked.parts.method.clone(), action) {
        (None, Method::POST, Some("logout")) => log_out(users, asked, caller).await,
        (None, Method::POST, None) => create(users, asked, body, caller).await,
        (None, Method::GET, None) => list(users, asked, caller).await,
        (Some(name), Method::GET | Method::DELETE, None) => one(users, asked, caller, name).await,
        (_, Method::POST, Some(action)) => {
            Err(SteveError::invalid("InvalidAction", format!("Invalid action: {action}")))
        }
        (_, method, _) => Err(SteveError::method_not_allowed(&method)),
    }
}

/// The local user who sent a request. A user of the same name from elsewhere, by a certificate or
/// OIDC, is another one: only a token of the local user brings the uid along.
pub(crate) async fn local_user(users: &Users, caller: &Caller) -> Result<Value, SteveError> {
    let user = users.get(&caller.name).await.map_err(refused)?;
    user.filter(|user| user["metadata"]["uid"] == *caller.uid).ok_or_else(|| {
        let message = format!("user {:?} is not a local user, and gets no token", caller.name);
        SteveError::invalid("InvalidState", message)
    })
}

async fn own_tokens(users: &Users, caller: &Caller) -> Result<Vec<Value>, SteveError> {
    match users.of_session(caller).await.map_err(refused)? {
        Some(user) => {
            let name = user["metadata"]["name"].as_str().unwrap_or_default();
            users.tokens(name).await.map_err(refused)
        }
        None => Ok(Vec::new()),
    }
}

/// The caller may have been authenticated by a certificate, and the token may be another
/// user's or none at all: only the caller's own is removed.
async fn log_out(users: &Users, asked: &RequestHead, caller: &Caller) -> SteveResult {
    let bearer = cookie::bearer(&asked.parts.headers);
    if let Some((name, _)) = bearer.as_deref().and_then(token::split) {
        let own = own_tokens(users, caller).await?;
        if own.iter().any(|token| token["metadata"]["name"] == name) {
            users.remove_token(name).await.map_err(refused)?;
        }
    }
    let mut reply = reply::empty(StatusCode::OK);
    for value in cookie::log_out() {
        reply.headers_mut().append(SET_COOKIE, value);
    }
    Ok(reply)
}

async fn list(users: &Users, asked: &RequestHead, caller: &Caller) -> SteveResult {
    let base = format!("{}{PRIVATE}", asked.origin());
    let tokens = own_tokens(users, caller).await?;
    let shown = tokens.iter().map(|token| shown(token, asked)).collect();
    Ok(collection("token", &format!("{base}/tokens"), shown))
}

async fn one(users: &Users, asked: &RequestHead, caller: &Caller, name: &str) -> SteveResult {
    let tokens = own_tokens(users, caller).await?;
    let found = tokens.iter().find(|token| token["metadata"]["name"] == name);
    let found = found.ok_or_else(|| SteveError::not_found(format!("tokens {name:?} not found")))?;
    if asked.parts.method == Method::DELETE {
        users.remove_token(name).await.map_err(refused)?;
    }
    Ok(reply::json(StatusCode::OK, &shown(found, asked)))
}

async fn create(users: &Users, asked: &RequestHead, body: Body, caller: &Caller) -> SteveResult {
    let fields = fields(asked, body).await?;
    let user = local_user(users, caller).await?;
    let order = TokenOrder {
        prefix: "token",
        description: fields.get("description").and_then(Value::as_str).unwrap_or_default(),
        lifetime: lifetime(&fields)?,
        derived: true,
        identity: None,
    };
    let made = users.issue(&user, order, base::clock::now()).await.map_err(refused)?;
    Ok(reply::json(StatusCode::CREATED, &issued(asked, made)))
}

/// `ttl` in milliseconds; zero is without end.
fn lifetime(fields: &Map<String, Value>) -> Result<SignedDuration, SteveError> {
    let wrong = || {
        let message = "ttl has to be a number of milliseconds, 0 for a token without end";
        SteveError::invalid("InvalidBodyContent", message)
    };
    let milliseconds = match fields.get("ttl") {
        None | Some(Value::Null) => 0,
        Some(ttl) => ttl.as_i64().filter(|ttl| *ttl >= 0).ok_or_else(wrong)?,
    };
    Ok(SignedDuration::from_millis(milliseconds).min(LONGEST))
}

/// A new token, with the secret.
pub(super) fn issued(asked: &RequestHead, made: NewToken) -> Value {
    let mut shown = shown(&made.object, asked);
    shown["token"] = made.bearer.into();
    shown
}

/// A token as Rancher shows it: never its secret.
fn shown(stored: &Value, asked: &RequestHead) -> Value {
    let bearer = cookie::bearer(&asked.parts.headers);
    let session = bearer.as_deref().and_then(token::split).map(|(name, _)| name);
    let name = stored["metadata"]["name"].as_str().unwrap_or_default();
    let user = stored["userId"].as_str().unwrap_or_default();
    let own = format!("{}{PRIVATE}/tokens/{name}", asked.origin());
    let own_principal = match stored["userPrincipal"]["loginName"].as_str() {
        Some(login) => principal(login),
        None => format!("local://{user}"),
    };
    json!({
        "id": name, "name": name, "type": "token", "baseType": "token",
        "links": {"self": own, "remove": own}, "actions": {},
        "created": stored["metadata"]["creationTimestamp"], "uuid": stored["metadata"]["uid"],
        "userId": user, "userPrincipal": own_principal,
        "authProvider": stored["authProvider"].as_str().unwrap_or("local"), "ttl": stored["ttl"], "expiresAt": stored["expiresAt"],
        "expired": token::is_expired(stored, base::clock::now()),
        "isDerived": stored["isDerived"] == true, "description": stored["description"],
        "enabled": stored["enabled"] != false, "current": session == Some(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_milliseconds() {
        let read = |ttl: Value| {
            let fields = Map::from_iter([("ttl".to_owned(), ttl)]);
            lifetime(&fields).ok().map(|found| found.as_secs())
        };
        assert_eq!(read(json!(60_000)), Some(60));
        assert_eq!(read(json!(0)), Some(0));
        assert_eq!(read(Value::Null), Some(0));
        assert_eq!(read(json!(i64::MAX)), Some(LONGEST.as_secs()));
        assert_eq!(read(json!(-1)), None);
        assert_eq!(read(json!("x")), None);
        assert_eq!(lifetime(&Map::new()).unwrap(), SignedDuration::ZERO);
    }

    #[test]
    fn the_token_of_the_request_is_the_current_one() {
        let request = http::Request::get("/v3/tokens").header("authorization", "Bearer token-a:s");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let asked = RequestHead { caller: None, source: None, parts, upgrade: None };
        let stored = |name: &str| {
            json!({"metadata": {"name": name}, "userId": "admin", "ttl": 5, "token": "sha256:x",
                "expiresAt": "2026-01-02T00:00:00Z", "enabled": true})
        };
        let own = shown(&stored("token-a"), &asked);
        assert_eq!(
            (&own["current"], &own["expiresAt"]),
            (&json!(true), &json!("2026-01-02T00:00:00Z"))
        );
        assert_eq!((&own["ttl"], own.get("token")), (&json!(5), None));
        assert_eq!(shown(&stored("token-b"), &asked)["current"], false);
    }
}
