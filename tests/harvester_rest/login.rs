//! Local users: login, tokens, sessions, passwords.

use http::Request;
use serde_json::json;

use super::{LOGIN, PASSWORD, client_of, log_in, refused, server};
use crate::harness::{Sheaf, assert_has};

#[test]
fn the_first_start_creates_the_administrator_once() {
    let mut sheaf = Sheaf::start();
    let file = sheaf.data().join("admin-password");
    let password = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(log_in(&sheaf, "admin", &password).status, 201);
    sheaf.terminate();
    std::fs::remove_file(&file).unwrap();
    sheaf.begin();
    assert_eq!(log_in(&sheaf, "admin", &password).status, 201);
    assert!(!file.exists(), "a second start changed the password");
}

#[test]
fn a_token_is_good_everywhere_until_it_is_revoked() {
    let sheaf = server();
    let reply = log_in(&sheaf, "admin", PASSWORD);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let login = reply.json();
    let (token, id) = (login["token"].as_str().unwrap(), login["id"].as_str().unwrap());
    assert_has(token, &format!("{id}:"));
    assert!(id.starts_with("token-") && login["type"] == "token", "{login}");
    let http = sheaf.bearer(token);
    assert!(http.get("/api/v1/nodes").ok()["items"].is_array());
    assert!(http.get("/v1/harvester/nodes").ok()["data"].is_array());
    let shown = http.get(&format!("/v3/tokens/{id}")).ok();
    assert_eq!(shown.get("token"), None, "the secret is shown once");
    assert_eq!(http.get("/v3/users?me=true").ok()["data"][0]["username"], "admin");
    let other = log_in(&sheaf, "admin", PASSWORD).json();
    let other = sheaf.bearer(other["token"].as_str().unwrap());
    assert_eq!(other.delete(&format!("/v3/tokens/{id}")).status, 200);
    assert_eq!(http.get("/api/v1/nodes").status, 401);
    assert_eq!(other.post("/v3/tokens?action=logout", &json!({})).status, 200);
    assert_eq!(other.get("/api/v1/nodes").status, 401);
}

#[test]
fn wrong_passwords_are_slowed_down_for_their_user_only() {
    let sheaf = server();
    sheaf.run(&format!("user create jane --password {PASSWORD} --role read-only"));
    for _ in 0..5 {
        refused(&log_in(&sheaf, "jane", "wrong password"), 401, "Unauthorized");
    }
    let reply = log_in(&sheaf, "jane", PASSWORD);
    refused(&reply, 429, "TooManyRequests");
    assert!(!reply.header("retry-after").is_empty());
    refused(&log_in(&sheaf, "nobody", "wrong password"), 401, "Unauthorized");
    assert_eq!(log_in(&sheaf, "admin", PASSWORD).status, 201);
    refused(&sheaf.anonymous().post(LOGIN, &json!({"username": "admin"})), 422, "MissingRequired");
}

#[test]
fn a_browser_session_is_for_pages_of_this_server_only() {
    let sheaf = server();
    let anonymous = sheaf.anonymous();
    let login = json!({"username": "admin", "password": PASSWORD, "responseType": "cookie"});
    let reply = anonymous.post(LOGIN, &login);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let cookies: Vec<&str> =
        reply.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert_has(cookies[0], "HttpOnly");
    let value = |cookie: &str| cookie.split(';').next().unwrap().to_owned();
    let (session, csrf) = (value(cookies[0]), value(cookies[1]));
    let browser = anonymous.with("cookie", &format!("{session}; {csrf}"));
    assert!(browser.get("/v1/nodes").ok()["data"].is_array());
    assert_eq!(browser.with("origin", "https://evil.example").get("/v1/nodes").status, 401);
    let map = json!({"metadata": {"name": "a"}});
    assert_eq!(browser.post("/v1/configmaps/default", &map).status, 401);
    let page = browser.with("x-api-csrf", csrf.trim_start_matches("CSRF="));
    assert_eq!(page.post("/v1/configmaps/default", &map).status, 201);
}

#[test]
fn users_change_their_passwords() {
    let sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    let change = |current: &str, new: &str| {
        let body = json!({"currentPassword": current, "newPassword": new});
        http.post("/v3/users?action=changepassword", &body)
    };
    let error = refused(&change(PASSWORD, "short"), 422, "InvalidBodyContent");
    assert_has(error["message"].as_str().unwrap(), "at least 12 characters");
    refused(&change("not the password", "another password"), 422, "InvalidBodyContent");
    assert_eq!(change(PASSWORD, "another password").status, 200);
    refused(&log_in(&sheaf, "admin", PASSWORD), 401, "Unauthorized");
    assert_eq!(log_in(&sheaf, "admin", "another password").status, 201);
    sheaf.run(&format!("user passwd admin --password {PASSWORD}"));
    assert_eq!(log_in(&sheaf, "admin", PASSWORD).status, 201);
    sheaf.run(&format!("user create jane --password {PASSWORD}"));
    assert_has(sheaf.run("user list"), "jane");
    let jane = client_of(&sheaf, "jane", PASSWORD);
    sheaf.run("user delete jane");
    assert_eq!(jane.get("/api").status, 401);
    assert_eq!(log_in(&sheaf, "jane", PASSWORD).status, 401);
    let unknown = Request::post("/v3-public/other?action=login");
    assert_eq!(sheaf.anonymous().send(unknown, "{}").status, 404);
}
