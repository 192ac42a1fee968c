//! Streams of users whose credentials are good no more.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;

use crate::harness::block_on;
use crate::harvester_rest::subscribe::{connect, receive, say};
use crate::harvester_rest::{PASSWORD, client_of, log_in, server};

/// Several times as long as a stream may outlive its credentials.
const LIMIT: Duration = Duration::from_secs(60);

/// A browser that was left open, or a copied token: on an open stream its holder would go on
/// subscribing to everything.
#[test]
fn a_subscription_ends_when_its_user_logs_out_or_is_removed() {
    let sheaf = server();
    let admin = client_of(&sheaf, "admin", PASSWORD);
    let token = || log_in(&sheaf, "admin", PASSWORD).json()["token"].as_str().unwrap().to_owned();
    let (stays, leaves) = (token(), token());
    sheaf.run(&format!("user create jane --password {PASSWORD} --role read-only"));
    let jane = log_in(&sheaf, "jane", PASSWORD).json()["token"].as_str().unwrap().to_owned();
    block_on(async {
        let mut sockets = Vec::new();
        for token in [&leaves, &jane, &stays] {
            let bearer = format!("Bearer {token}");
            let mut socket = connect(&sheaf, &[("authorization", &bearer)]).await.unwrap();
            say(&mut socket, json!({"resourceType": "configmap"})).await;
            assert_eq!(receive(&mut socket).await["name"], "resource.start");
            sockets.push(socket);
        }
        tokio::task::block_in_place(|| {
            let out = sheaf.bearer(&leaves).post("/v3/tokens?action=logout", &json!({}));
            assert_eq!(out.status, 200, "{}", out.text());
            let user = admin.get("/v3/users").ok()["data"].as_array().unwrap().clone();
            let user = user.iter().find(|user| user["username"] == "jane").unwrap();
            let name = user["id"].as_str().unwrap();
            admin.delete(&format!("/apis/management.cattle.io/v3/users/{name}")).ok();
        });
        let mut open = sockets.pop().unwrap();
        for mut socket in sockets {
            let ended = async { while let Some(Ok(_)) = socket.next().await {} };
            tokio::time::timeout(LIMIT, ended).await.expect("the stream has ended");
        }
        // That of a session that goes on is still there.
        say(&mut open, json!({"resourceType": "unicorns"})).await;
        while receive(&mut open).await["name"] != "resource.error" {}
    });
}
