//! Harvester's REST API, as its own clients use it.

mod actions;
mod bundle;
mod clients;
mod fuzz;
mod guest;
mod login;
mod objects;
mod oidc;
mod rights;
pub(crate) mod subscribe;

use serde_json::{Value, json};

use crate::harness::{Http, Reply, Sheaf};

pub(crate) const PASSWORD: &str = "password1234";
const LOGIN: &str = "/v3-public/localProviders/local?action=login";

/// A server whose user `admin` has a known password.
pub(crate) fn server() -> Sheaf {
    Sheaf::with(&["--admin-password", PASSWORD])
}

pub(crate) fn log_in(sheaf: &Sheaf, username: &str, password: &str) -> Reply {
    sheaf.anonymous().post(LOGIN, &json!({"username": username, "password": password}))
}

/// Requests with the token of a login.
pub(crate) fn client_of(sheaf: &Sheaf, username: &str, password: &str) -> Http {
    let reply = log_in(sheaf, username, password);
    assert_eq!(reply.status, 201, "{}", reply.text());
    sheaf.bearer(reply.json()["token"].as_str().unwrap())
}

/// The refusal must be an error of Steve with this code.
#[track_caller]
fn refused(reply: &Reply, status: u16, code: &str) -> Value {
    assert_eq!(reply.status, status, "{}", reply.text());
    let error = reply.json();
    assert_eq!(error["type"], "error", "{error}");
    assert_eq!((&error["status"], &error["code"]), (&json!(status), &json!(code)), "{error}");
    error
}
