//! Logins of a browser at an OpenID Connect provider.

use http::Request;
use serde_json::{Value, json};

use super::{PASSWORD, refused};
use crate::harness::{CLIENT, CLIENT_SECRET, Http, OidcIssuer, Reply, Sheaf, assert_has};

const PATH: &str = "/v3-public/oidc";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn server(issuer: &OidcIssuer) -> Sheaf {
    let mut sheaf = Sheaf::prepared(&[]);
    let (ca, secret) = (sheaf.scratch("issuer.pem"), sheaf.scratch("secret"));
    std::fs::write(&ca, &issuer.ca).unwrap();
    std::fs::write(&secret, format!("{CLIENT_SECRET}\n")).unwrap();
    sheaf.set_arguments(vec![
        "--admin-password".to_owned(),
        PASSWORD.to_owned(),
        format!("--oidc-issuer-url={}", issuer.url),
        format!("--oidc-client-id={CLIENT}"),
        "--oidc-username-claim=email".to_owned(),
        "--oidc-username-prefix=oidc:".to_owned(),
        "--oidc-groups-claim=groups".to_owned(),
        "--oidc-groups-prefix=oidc:".to_owned(),
        "--oidc-signing-algs=ES256".to_owned(),
        format!("--oidc-ca-file={}", ca.display()),
        format!("--oidc-client-secret-file={}", secret.display()),
        "--oidc-label=Example".to_owned(),
    ]);
    sheaf.provokes("login with OpenID Connect failed");
    sheaf.begin();
    sheaf
}

fn claims(issuer: &OidcIssuer, changes: &[(&str, Value)]) -> Value {
    let mut claims = json!({"iss": issuer.url, "aud": CLIENT, "sub": "1",
        "email": "jane@example.com", "groups": ["ops"], "exp": 4_000_000_000_u64});
    for (name, value) in changes {
        claims[*name] = value.clone();
    }
    claims
}

/// The cookies of a reply, as a browser sends them back.
fn cookies(reply: &Reply) -> String {
    let all = reply.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    let pairs = all.map(|text| text.split(';').next().unwrap());
    pairs.filter(|pair| !pair.ends_with('=')).collect::<Vec<_>>().join("; ")
}

/// The page that asks for a login, and the way back with what the provider says of the user.
fn log_in(sheaf: &Sheaf, issuer: &OidcIssuer, claims: &Value) -> Reply {
    let browser = sheaf.anonymous();
    let begun = browser.get(&format!("{PATH}/login?return=/dashboard/volumes"));
    assert_eq!(begun.status, 302, "{}", begun.text());
    let query = issuer.log_in(begun.header("location"), claims);
    browser.with("cookie", &cookies(&begun)).get(&format!("{PATH}/callback?{query}"))
}

fn session(sheaf: &Sheaf, reply: &Reply) -> Http {
    assert_eq!((reply.status, reply.header("location")), (302, "/dashboard/volumes"));
    let cookies = cookies(reply);
    let csrf = cookies.split_once("CSRF=").unwrap().1.to_owned();
    sheaf.anonymous().with("cookie", &cookies).with("x-api-csrf", &csrf)
}

#[track_caller]
fn failed(reply: &Reply, code: &str) {
    let expected = format!("/dashboard/?login_error={code}");
    assert_eq!((reply.status, reply.header("location")), (302, &*expected));
    assert!(!cookies(reply).contains("R_SESS"), "{:?}", reply.headers);
}

#[test]
fn a_browser_logs_in_at_a_provider_with_the_groups_there() {
    let issuer = OidcIssuer::start();
    let sheaf = server(&issuer);
    let listed = sheaf.anonymous().get("/v3-public/authProviders").ok();
    assert_eq!(listed["data"][1]["name"], "Example");
    assert_has(listed["data"][1]["redirectUrl"].as_str().unwrap(), "/v3-public/oidc/login");

    let jane = session(&sheaf, &log_in(&sheaf, &issuer, &claims(&issuer, &[])));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let user = jane.post(REVIEWS, &review).ok()["status"]["userInfo"].clone();
    // As kubectl with a token of the provider.
    assert_eq!(user["username"], "oidc:jane@example.com");
    assert_eq!(user["groups"], json!(["oidc:ops", "system:authenticated"]));
    assert_eq!(jane.get("/api/v1/nodes").status, 403);
    sheaf.kubectl().run("create clusterrolebinding ops --clusterrole=view --group=oidc:ops");
    assert!(jane.get("/apis/kubevirt.io/v1/virtualmachines").ok()["items"].is_array());

    let own = jane.get("/v3/users?me=true").ok()["data"][0].clone();
    assert_eq!(own["username"], "oidc:jane@example.com");
    assert_has(sheaf.run("user list"), "oidc:jane@example.com");
    // A second login is of the same user.
    let again = session(&sheaf, &log_in(&sheaf, &issuer, &claims(&issuer, &[])));
    assert_eq!(again.get("/v3/users?me=true").ok()["data"][0]["id"], own["id"]);
    let tokens = again.get("/v3/tokens").ok();
    assert_eq!(tokens["data"].as_array().unwrap().len(), 2, "{tokens}");
    assert_eq!(tokens["data"][0]["authProvider"], "oidc");

    // Groups may change at the provider, so that no token without end is made from a session.
    refused(&jane.post("/v3/tokens", &json!({})), 422, "InvalidState");
    let path = "/v1/management.cattle.io.clusters/local?action=generateKubeconfig";
    let config = jane.post(path, &json!({})).ok()["config"].as_str().unwrap().to_owned();
    assert_has(&config, "oidc-login");
    assert_has(&config, &format!("--oidc-issuer-url={}", issuer.url));
    assert!(!config.contains("token-"), "{config}");

    assert_eq!(jane.post("/v3/tokens?action=logout", &json!({})).status, 200);
    assert_eq!(jane.get("/v3/users?me=true").status, 401);
    let disable = json!({"enabled": false});
    let path = format!("/apis/management.cattle.io/v3/users/{}", own["id"].as_str().unwrap());
    sheaf.http().merge(&path, &disable).ok();
    assert_eq!(again.get("/v3/users?me=true").status, 401);
    failed(&log_in(&sheaf, &issuer, &claims(&issuer, &[])), "disabled");
}

#[test]
fn logins_that_the_provider_did_not_make_are_refused() {
    let issuer = OidcIssuer::start();
    let sheaf = server(&issuer);
    for (changes, code) in [
        (("nonce", json!("of another login")), "token"),
        (("aud", json!("another client")), "token"),
        (("exp", json!(1)), "token"),
    ] {
        failed(&log_in(&sheaf, &issuer, &claims(&issuer, &[changes])), code);
    }
    let browser = sheaf.anonymous();
    let begun = browser.get(&format!("{PATH}/login"));
    let query = issuer.log_in(begun.header("location"), &claims(&issuer, &[]));
    let callback = format!("{PATH}/callback?{query}");
    // Another browser, which was led here with a code of the attacker.
    failed(&browser.get(&callback), "attempt");
    let own = browser.with("cookie", &cookies(&begun));
    assert_eq!(own.get(&callback).header("location"), "/dashboard/");
    // A code is good once.
    failed(&own.get(&callback), "refused");
    let users = sheaf.run("user list");
    assert_eq!(users.matches("oidc:jane@example.com").count(), 1, "{users}");
    let name = users.lines().find(|line| line.contains("oidc:jane")).unwrap();
    let name = name.split_whitespace().next().unwrap();
    let refusal = sheaf.refused(&format!("user passwd {name} --password {PASSWORD}"));
    assert_has(refusal, "logs in with OpenID Connect, and has no password here");
    let post = Request::post(format!("{PATH}/login"));
    assert_eq!(sheaf.anonymous().send(post, "{}").status, 405);
}

#[test]
fn without_a_provider_there_is_only_the_login_by_password() {
    let sheaf = super::server();
    let listed = sheaf.anonymous().get("/v3-public/authProviders").ok();
    assert_eq!(listed["count"], 1, "{listed}");
    let reply = sheaf.anonymous().get(&format!("{PATH}/login"));
    assert_has(refused(&reply, 404, "NotFound")["message"].as_str().unwrap(), "--oidc-issuer-url");
}
