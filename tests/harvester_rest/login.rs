//! Local users: login, tokens, sessions, passwords.

use http::Request;
use serde_json::{Value, json};

use super::{LOGIN, PASSWORD, client_of, log_in, refused, server};
use crate::harness::{Sheaf, assert_has, poll};

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
fn an_api_token_is_made_used_and_revoked() {
    let sheaf = server();
    let login = log_in(&sheaf, "admin", PASSWORD).json();
    let session = sheaf.bearer(login["token"].as_str().unwrap());
    let asked = json!({"type": "token", "description": "backup script", "ttl": 3_600_000});
    let reply = session.post("/v3/tokens", &asked);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let made = reply.json();
    assert_eq!((&made["ttl"], &made["isDerived"]), (&json!(3_600_000), &json!(true)));
    let end: jiff::Timestamp = made["expiresAt"].as_str().unwrap().parse().unwrap();
    let begin: jiff::Timestamp = made["created"].as_str().unwrap().parse().unwrap();
    assert!((3_590..3_610).contains(&end.duration_since(begin).as_secs()), "{made}");
    let script = sheaf.bearer(made["token"].as_str().unwrap());
    assert!(script.get("/v1/harvester/nodes").ok()["data"].is_array());

    let list = session.get("/v3/tokens").ok();
    let shown = |id: &Value| {
        let tokens = list["data"].as_array().unwrap();
        tokens.iter().find(|token| token["id"] == *id).cloned().unwrap()
    };
    assert_eq!(shown(&login["id"])["current"], true);
    let other = shown(&made["id"]);
    assert_eq!(
        (&other["current"], &other["description"]),
        (&json!(false), &json!("backup script"))
    );
    assert_eq!(other.get("token"), None, "the secret is shown once");
    assert_eq!(session.delete(&format!("/v3/tokens/{}", made["id"].as_str().unwrap())).status, 200);
    assert_eq!(script.get("/v1/harvester/nodes").status, 401);

    let endless = session.post("/v3/tokens", &json!({"type": "token"})).ok();
    assert_eq!((&endless["ttl"], &endless["expiresAt"]), (&json!(0), &json!("")));
    refused(&session.post("/v3/tokens", &json!({"ttl": -1})), 422, "InvalidBodyContent");
    // The certificate of the administrator belongs to no local user.
    refused(&sheaf.http().post("/v3/tokens", &json!({})), 422, "InvalidState");
    assert_eq!(sheaf.http().get("/v3/tokens").ok()["data"], json!([]));
}

#[test]
fn the_first_password_must_be_changed_and_restricts_nothing() {
    for given in [None, Some(PASSWORD)] {
        let sheaf = match given {
            Some(_) => server(),
            None => Sheaf::start(),
        };
        let file = sheaf.data().join("admin-password");
        let first = std::fs::read_to_string(file).unwrap().trim().to_owned();
        assert!(given.is_none_or(|given| given == first));
        let http = client_of(&sheaf, "admin", &first);
        let must_change = || {
            let own = http.get("/v3/users?me=true").ok();
            own["data"][0]["mustChangePassword"].as_bool().unwrap()
        };
        assert!(must_change());
        assert_has(sheaf.run("user list"), "must be changed");
        // Harvester's clients work with the first password.
        let map = json!({"metadata": {"name": "a"}});
        assert_eq!(http.post("/v1/configmaps/default", &map).status, 201);
        let change = json!({"currentPassword": first, "newPassword": "another-password"});
        assert_eq!(http.post("/v3/users?action=changepassword", &change).status, 200);
        assert!(!must_change());
        assert!(!sheaf.run("user list").contains("must be changed"));
        assert_eq!(log_in(&sheaf, "admin", "another-password").status, 201);
    }
}

#[test]
fn wrong_passwords_are_slowed_down_for_their_user_only() {
    let sheaf = server();
    sheaf.run(&format!("user create jane --password {PASSWORD} --role read-only"));
    for _ in 0..5 {
        refused(&log_in(&sheaf, "jane", "wrong password"), 401, "Unauthorized");
    }
    // The wait doubles with each failure. The first ones may be over before a busy machine asks.
    poll("the user has to wait for some seconds", || {
        let reply = log_in(&sheaf, "jane", "wrong password");
        let seconds: u64 = reply.header("retry-after").parse().unwrap_or(0);
        if reply.status == 429 && seconds > 5 { Ok(()) } else { Err(reply.text()) }
    });
    let reply = log_in(&sheaf, "jane", PASSWORD);
    refused(&reply, 429, "TooManyRequests");
    assert!(!reply.header("retry-after").is_empty());
    refused(&log_in(&sheaf, "absent", "wrong password"), 401, "Unauthorized");
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
