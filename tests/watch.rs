//! Watches: the events that a client receives, in which order, from which revision, and over which
//! transport.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::harness::{Http, Sheaf, assert_has, block_on, eventually, tls};

/// Secrets, because no controller makes one behind a test's back.
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn secret(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}})
}

fn create(http: &Http, name: &str) -> String {
    version(&http.post(SECRETS, &secret(name, json!({}))).ok())
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// `ADDED a`, and so on.
fn brief(event: &Value) -> String {
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
    format!("{} {name}", event["type"].as_str().unwrap())
}

#[test]
fn every_change_comes_once_and_in_order() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let start = version(&http.get(SECRETS).ok());
    let mut events = http.watch(&format!("{SECRETS}?resourceVersion={start}"));
    create(&http, "a");
    http.merge(&format!("{SECRETS}/a"), &json!({"data": {"x": "eQ=="}})).ok();
    // A change that changes nothing is none.
    http.merge(&format!("{SECRETS}/a"), &json!({"data": {"x": "eQ=="}})).ok();
    create(&http, "b");
    http.delete(&format!("{SECRETS}/a")).ok();
    let seen: Vec<Value> = (0..4).map(|_| events.next()).collect();
    let briefly: Vec<String> = seen.iter().map(brief).collect();
    assert_eq!(briefly, ["ADDED a", "MODIFIED a", "ADDED b", "DELETED a"]);
    let versions: Vec<u64> =
        seen.iter().map(|event| version(&event["object"]).parse().unwrap()).collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    assert!(seen.iter().all(|event| event["object"]["kind"] == "Secret"));
    // The same again, from the beginning, as history.
    let mut again = http.watch(&format!("{SECRETS}?resourceVersion={start}"));
    let replayed: Vec<Value> = (0..4).map(|_| again.next()).collect();
    assert_eq!(replayed, seen);
}

#[test]
fn without_a_version_it_begins_with_what_exists() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    create(&http, "a");
    let mut events = http.watch(&format!("{SECRETS}?fieldSelector=metadata.name=a"));
    assert_eq!(brief(&events.next()), "ADDED a");
    let mut zero =
        http.watch(&format!("{SECRETS}?resourceVersion=0&fieldSelector=metadata.name=a"));
    assert_eq!(brief(&zero.next()), "ADDED a");
}

#[test]
fn initial_events_end_with_a_bookmark() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    for name in ["a", "b", "c"] {
        http.post(SECRETS, &secret(name, json!({"mine": "yes"}))).ok();
    }
    let path = format!(
        "{SECRETS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=mine"
    );
    let mut events = http.watch(&path);
    let first: Vec<String> = (0..3).map(|_| brief(&events.next())).collect();
    assert_eq!(first, ["ADDED a", "ADDED b", "ADDED c"]);
    let bookmark = events.next();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "Secret");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let at = version(&bookmark["object"]);
    http.post(SECRETS, &secret("d", json!({"mine": "yes"}))).ok();
    assert_eq!(brief(&events.change()), "ADDED d");
    let mut resumed = http.watch(&format!("{SECRETS}?resourceVersion={at}&labelSelector=mine"));
    assert_eq!(brief(&resumed.next()), "ADDED d");
}

#[test]
fn initial_events_must_be_asked_for_correctly() {
    let sheaf = Sheaf::start();
    let refused = sheaf.http().get(&format!("{SECRETS}?watch=true&sendInitialEvents=true"));
    assert_has(refused.refused(422), "resourceVersionMatch");
    let refused = sheaf.http().get(&format!("{SECRETS}?sendInitialEvents=true"));
    assert_has(refused.refused(422), "sendInitialEvents");
}

#[test]
fn bookmarks_come_without_changes() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let start = version(&http.get(SECRETS).ok());
    let path =
        format!("{SECRETS}?resourceVersion={start}&allowWatchBookmarks=true&timeoutSeconds=10");
    let events = http.watch(&path).rest();
    let last = events.last().expect("a bookmark before the end");
    assert_eq!(last["type"], "BOOKMARK");
    assert!(last["object"]["metadata"].get("annotations").is_none());
    assert!(last["object"].get("data").is_none());
}

#[test]
fn a_version_that_is_too_old_is_gone() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let mut events = http.watch("/api/v1/namespaces?resourceVersion=1");
    // Revision 1 is older than anything a fresh server remembers, or it is remembered: then
    // the whole history comes. Both are right; a silent gap is not.
    let first = events.next();
    match first["type"].as_str() {
        Some("ERROR") => {
            assert_eq!(first["object"]["code"], 410);
            assert_eq!(first["object"]["reason"], "Expired");
        }
        Some("ADDED") => {}
        _ => panic!("{first}"),
    }
}

#[test]
fn a_watcher_that_falls_behind_gets_an_error() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let first = create(&http, "big");
    let from = format!("{SECRETS}?resourceVersion={first}");
    // The kernel may keep tens of megabytes for a client, unless it has asked for little.
    let connector = tls(&sheaf, &[]);
    let mut slow = block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let tcp = socket.connect(sheaf.address().parse().unwrap()).await.unwrap();
        let mut slow = connector.connect("127.0.0.1".try_into().unwrap(), tcp).await.unwrap();
        let request = format!("GET {from}&watch=true HTTP/1.1\r\nhost: sheaf\r\n\r\n");
        slow.write_all(request.as_bytes()).await.unwrap();
        slow
    });
    // More than a collection's history may hold, and more than lies on the way to a client.
    let filler = "x".repeat(200_000);
    let versions: Vec<String> = (0..180)
        .map(|number| {
            let patch = json!({"stringData": {"x": format!("{number} {filler}")}});
            let written = http.merge(&format!("{SECRETS}/big"), &patch).ok();
            written["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
        })
        .collect();
    // Buffers hold some twenty events for the watcher: one that is further on is forgotten.
    let past = format!("{SECRETS}?resourceVersion={}&resourceVersionMatch=Exact", versions[60]);
    eventually("what the watcher has not seen is forgotten", || http.get(&past).status == 410);
    let end = block_on(async {
        let (mut buffer, mut end) = (vec![0; 64 << 10], String::new());
        loop {
            let read = tokio::time::timeout(Duration::from_secs(300), slow.read(&mut buffer));
            let count = read.await.expect("the watch says nothing").unwrap();
            assert!(count > 0, "the watch ended without a word: {end}");
            end.push_str(&String::from_utf8_lossy(&buffer[..count]));
            let Some(at) = end.find("{\"type\":\"ERROR\"") else {
                let keep = end.len().saturating_sub(100);
                end.drain(..keep);
                continue;
            };
            if end[at..].contains('\n') {
                return end[at..].to_owned();
            }
        }
    });
    assert_has(&end, "\"code\":410");
    assert_has(&end, "\"reason\":\"Expired\"");
    let late = http.watch(&from).next();
    assert_eq!(late["object"]["code"], 410, "{late}");
}

#[test]
fn a_version_from_the_future_is_refused_or_waited_for() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let reply = http.get(&format!("{SECRETS}?resourceVersion=999999999&timeoutSeconds=1"));
    assert_has(reply.refused(504), "Too large resource version");
}

#[test]
fn an_object_that_leaves_the_selection_is_deleted_for_the_watcher() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let start = version(&http.get(SECRETS).ok());
    let mut events =
        http.watch(&format!("{SECRETS}?resourceVersion={start}&labelSelector=colour=red"));
    http.post(SECRETS, &secret("a", json!({"colour": "red"}))).ok();
    let gone =
        http.merge(&format!("{SECRETS}/a"), &json!({"metadata": {"labels": {"colour": "blue"}}}));
    http.merge(&format!("{SECRETS}/a"), &json!({"metadata": {"labels": {"more": "1"}}})).ok();
    http.merge(&format!("{SECRETS}/a"), &json!({"metadata": {"labels": {"colour": "red"}}})).ok();
    assert_eq!(brief(&events.next()), "ADDED a");
    let left = events.next();
    assert_eq!(brief(&left), "DELETED a");
    assert_eq!(version(&left["object"]), version(&gone.ok()), "the revision of the change");
    assert_eq!(left["object"]["metadata"]["labels"]["colour"], "red", "as it last was");
    assert_eq!(brief(&events.next()), "ADDED a");
}

#[test]
fn a_watch_resumes_after_a_restart() {
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    let start = version(&http.get(SECRETS).ok());
    let mut events = http.watch(&format!("{SECRETS}?resourceVersion={start}"));
    create(&http, "before");
    let last = version(&events.next()["object"]);
    create(&http, "missed");
    sheaf.kill();
    sheaf.begin();
    let http = sheaf.http();
    let mut events = http.watch(&format!("{SECRETS}?resourceVersion={last}"));
    assert_eq!(brief(&events.change()), "ADDED missed");
    create(&http, "after");
    assert_eq!(brief(&events.change()), "ADDED after");
}

#[test]
fn a_stopping_server_ends_its_watches_cleanly() {
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    let mut events = http.watch(&format!("{SECRETS}?fieldSelector=metadata.name=none"));
    let took = sheaf.terminate();
    // Two seconds is what the server takes; a busy machine adds to it. A server that waits for its
    // watches would take minutes.
    assert!(took < Duration::from_secs(120), "it took {took:?}");
    assert_eq!(events.next_within(Duration::from_secs(60)), None);
}

#[test]
fn a_watch_ends_after_its_time() {
    let sheaf = Sheaf::start();
    let events =
        sheaf.http().watch(&format!("{SECRETS}?timeoutSeconds=1&fieldSelector=metadata.name=x"));
    assert!(events.rest().is_empty());
}

#[test]
fn tables_and_metadata_can_be_watched() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let start = version(&http.get(SECRETS).ok());
    let path = format!("{SECRETS}?resourceVersion={start}");
    let accept =
        |form: &str| http.with("accept", &format!("application/json;as={form};g=meta.k8s.io;v=v1"));
    let mut tables = accept("Table").watch(&path);
    let mut metadata = accept("PartialObjectMetadata").watch(&path);
    create(&http, "a");
    create(&http, "b");
    let first = tables.next();
    assert_eq!(first["object"]["kind"], "Table");
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    assert!(first["object"]["columnDefinitions"].is_array());
    assert_eq!(tables.next()["object"]["rows"][0]["cells"][0], "b");
    let partial = metadata.next()["object"].clone();
    assert_eq!(partial["kind"], "PartialObjectMetadata");
    assert!(partial.get("data").is_none());
}

#[test]
fn the_old_watch_paths_work() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    create(&http, "a");
    let mut events = http.watch("/api/v1/watch/namespaces/default/secrets/a");
    assert_eq!(brief(&events.next()), "ADDED a");
}

#[test]
fn one_http2_connection_carries_many_watches() {
    let sheaf = Sheaf::start();
    let address = sheaf.address();
    let connector = tls(&sheaf, &[b"h2"]);
    block_on(async {
        let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let name = "127.0.0.1".try_into().unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) = hyper::client::conn::http2::handshake(
            hyper_util::rt::TokioExecutor::new(),
            hyper_util::rt::TokioIo::new(stream),
        )
        .await
        .unwrap();
        let connection = tokio::spawn(connection);
        let get = |path: String| {
            Request::get(format!("https://{address}{path}")).body(Empty::<Bytes>::new()).unwrap()
        };
        let mut watches = Vec::new();
        for number in 0..50 {
            let path = format!("{SECRETS}?watch=true&fieldSelector=metadata.name=n{}", number % 2);
            watches.push(sender.clone().send_request(get(path)).await.unwrap().into_body());
        }
        // All are open; now something happens, and an ordinary request goes through as well.
        let list = sender.clone().send_request(get(SECRETS.to_owned())).await.unwrap();
        assert_eq!(list.status(), 200);
        tokio::task::block_in_place(|| ["n0", "n1"].map(|name| create(&sheaf.http(), name)));
        for (number, watch) in watches.iter_mut().enumerate() {
            let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
            let event: Value = serde_json::from_slice(&frame).unwrap();
            assert_eq!(brief(&event), format!("ADDED n{}", number % 2));
        }
        connection.abort();
    });
}

#[test]
fn a_websocket_carries_one_event_per_message() {
    let sheaf = Sheaf::start();
    let address = sheaf.address();
    let connector = tls(&sheaf, &[]);
    create(&sheaf.http(), "a");
    block_on(async {
        let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
        let url = format!("wss://{address}{SECRETS}?watch=1&fieldSelector=metadata.name=a");
        let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        let message = socket.next().await.unwrap().unwrap().into_text().unwrap();
        assert_eq!(brief(&serde_json::from_str(&message).unwrap()), "ADDED a");
        tokio::task::block_in_place(|| sheaf.http().delete(&format!("{SECRETS}/a")).ok());
        let message = socket.next().await.unwrap().unwrap().into_text().unwrap();
        assert_eq!(brief(&serde_json::from_str(&message).unwrap()), "DELETED a");
    });
}
