//! `/v1/subscribe`: changes of objects over a WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use http::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{PASSWORD, client_of, log_in, server};
use crate::harness::{Sheaf, anonymous_tls, assert_has, block_on};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

/// A connection with these headers, and without a client certificate.
pub(crate) async fn connect(
    sheaf: &Sheaf,
    headers: &[(&str, &str)],
) -> Result<WebSocketStream<TlsStream<TcpStream>>, Error> {
    let address = sheaf.address();
    let connector = anonymous_tls(sheaf);
    let stream = TcpStream::connect(&address).await.unwrap();
    let stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
    let mut request = Request::get(format!("wss://{address}/v1/subscribe"))
        .header("host", &address)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(()).unwrap();
    tokio_tungstenite::client_async(request, stream).await.map(|(socket, _)| socket)
}

pub(crate) async fn say<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    what: Value,
) {
    socket.send(Message::text(what.to_string())).await.unwrap();
}

pub(crate) async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
) -> Value {
    loop {
        let message = socket.next().await.unwrap().unwrap();
        if let Message::Text(text) = message {
            let event: Value = serde_json::from_str(&text).unwrap();
            if event["name"] != "ping" {
                return event;
            }
        }
    }
}

#[test]
fn a_subscriber_follows_what_it_may_see() {
    let sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    let token = log_in(&sheaf, "admin", PASSWORD).json()["token"].as_str().unwrap().to_owned();
    let revision = http.get("/v1/secrets/default").ok()["revision"].clone();
    sheaf.run(&format!("user create jane --password {PASSWORD}"));
    let jane = log_in(&sheaf, "jane", PASSWORD).json()["token"].as_str().unwrap().to_owned();
    block_on(async {
        let bearer = format!("Bearer {token}");
        let mut socket = connect(&sheaf, &[("authorization", &bearer)]).await.unwrap();
        let asked =
            json!({"resourceType": "secret", "namespace": "default", "resourceVersion": revision});
        say(&mut socket, asked.clone()).await;
        let started = receive(&mut socket).await;
        assert_eq!(
            started,
            json!({"name": "resource.start", "resourceType": "secret", "namespace": "default"})
        );
        let write = |action: &dyn Fn()| tokio::task::block_in_place(action);
        write(&|| drop(http.post(SECRETS, &secret("a")).ok()));
        let created = receive(&mut socket).await;
        assert_eq!(
            (&created["name"], &created["resourceType"]),
            (&json!("resource.create"), &json!("secret"))
        );
        assert_eq!(
            (&created["data"]["id"], &created["data"]["type"]),
            (&json!("default/a"), &json!("secret"))
        );
        assert!(created["data"]["metadata"]["fields"].is_array(), "{created}");
        assert_has(created["data"]["links"]["self"].as_str().unwrap(), "/v1/secrets/default/a");
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        write(&|| drop(http.merge(&format!("{SECRETS}/a"), &label).ok()));
        assert_eq!(receive(&mut socket).await["name"], "resource.change");
        write(&|| drop(http.delete(&format!("{SECRETS}/a")).ok()));
        let removed = receive(&mut socket).await;
        assert_eq!(
            (&removed["name"], &removed["data"]["id"]),
            (&json!("resource.remove"), &json!("default/a"))
        );
        let mut stop = asked.clone();
        stop["stop"] = true.into();
        say(&mut socket, stop).await;
        assert_eq!(receive(&mut socket).await["name"], "resource.stop");

        // Errors are answered on the same connection.
        say(&mut socket, json!({"resourceType": "unicorns"})).await;
        let error = receive(&mut socket).await;
        assert_eq!(error["data"], json!({"error": "failed to find schema unicorns"}));
        assert_eq!(receive(&mut socket).await["name"], "resource.stop");
        socket.send(Message::text("{")).await.unwrap();
        assert_eq!(receive(&mut socket).await["name"], "resource.error");

        // Another user has other rights.
        let bearer = format!("Bearer {jane}");
        let mut socket = connect(&sheaf, &[("authorization", &bearer)]).await.unwrap();
        say(&mut socket, json!({"resourceType": "secret"})).await;
        let refused = receive(&mut socket).await;
        assert_has(refused["data"]["error"].as_str().unwrap(), "forbidden");

        // A page of another site cannot use the session of the browser.
        let cookie = format!("R_SESS={token}");
        let own = format!("https://{}", sheaf.address());
        assert!(connect(&sheaf, &[("cookie", &cookie), ("origin", &own)]).await.is_ok());
        for headers in [vec![("cookie", &*cookie), ("origin", "https://evil")], vec![]] {
            let Err(Error::Http(reply)) = connect(&sheaf, &headers).await else {
                panic!("the connection was made")
            };
            assert_eq!(reply.status(), 401);
        }
    });
}
