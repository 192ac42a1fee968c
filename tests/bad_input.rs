//! Bad input: every wrong request gets the right error, and the server keeps running.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, block_on, eventually, tls};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn post(http: &Http, media_type: &str, body: impl Into<bytes::Bytes>) -> crate::harness::Reply {
    http.send(Request::post(MAPS).header("content-type", media_type), body)
}

/// Afterwards everything works as before.
fn lives(sheaf: &mut Sheaf) {
    assert!(sheaf.is_running(), "{}", sheaf.log());
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "fine-"}});
    sheaf.http().post(MAPS, &map).ok();
}

#[test]
fn malformed_bodies() {
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}"#;
    for body in ["{", "", "[]", "null", "\"text\"", "{\"a\": \u{1}}", "nonsense: ["] {
        let reply = post(&http, "application/json", body);
        assert!(!reply.refused(400).is_empty(), "{body}");
    }
    // The URL says what it is.
    assert_has(
        post(&http, "application/json", "{}").refused(422),
        "name or generateName is required",
    );
    for body in ["a: [", "\t- x", "a: &a [*a]", "%YAML 9", "--- a\n--- b"] {
        let reply = post(&http, "application/yaml", body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.text());
    }
    for body in [&b"k8s\0"[..], b"k8s\0\xff\xff\xff\xff", b"k8s\0\x0a\x02\x0a", b"nonsense", b""] {
        let reply = post(&http, "application/vnd.kubernetes.protobuf", body);
        assert!(matches!(reply.status, 400 | 415), "{body:?}: {}", reply.text());
    }
    assert_has(post(&http, "text/plain", map).refused(415), "application/json");
    assert_has(
        post(&http, "application/json", map.replace("ConfigMap", "Secret")).refused(400),
        "ConfigMap",
    );
    assert_has(post(&http, "application/json", map.replace("v1\"", "v2\"")).refused(400), "v2");
    let elsewhere = map.replace("\"name\"", "\"namespace\":\"other\",\"name\"");
    assert_has(
        post(&http, "application/json", elsewhere).refused(400),
        "the namespace of the provided object does not match the namespace sent on the request",
    );
    let other = http.put(&format!("{MAPS}/other"), &serde_json::from_str(map).unwrap());
    assert_has(
        other.refused(400),
        "the name of the object (x) does not match the name on the URL (other)",
    );
    post(&http, "application/yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}").ok();
    lives(&mut sheaf);
}

#[test]
fn wrong_types_are_named() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
        change(&mut map);
        http.post(MAPS, &map)
    };
    assert_has(
        with(&|map| map["data"] = json!({"a": 1})).refused(400),
        "ConfigMap.data of type string",
    );
    assert_has(with(&|map| map["metadata"]["labels"] = json!([])).refused(400), "labels");
    assert_has(with(&|map| map["metadata"]["name"] = json!(1)).refused(400), "name");
    assert_has(with(&|map| map["immutable"] = json!("yes")).refused(400), "immutable");
    assert_has(with(&|map| map["binaryData"] = json!({"a": "***"})).refused(400), "base64");
    assert_has(
        with(&|map| map["metadata"]["name"] = json!("Not_Valid")).refused(422),
        "a lowercase RFC 1123 subdomain must consist of",
    );
    assert_has(
        with(&|map| map["metadata"]["name"] = json!("a".repeat(254))).refused(422),
        "must be no more than 253",
    );
    assert_has(
        with(&|map| map["data"] = json!({"a/b": "c"})).refused(422),
        "data[a/b]: Invalid value",
    );
    assert_has(
        with(&|map| map["metadata"] = json!({})).refused(422),
        "name or generateName is required",
    );
    assert_has(
        with(&|map| map["metadata"]["creationTimestamp"] = json!("yesterday")).refused(400),
        "parsing time",
    );
}

#[test]
fn unknown_and_duplicate_fields() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let body = |name: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","odd":1}},"data":{{"a":"1","a":"2"}},"dta":{{}}}}"#
        )
    };
    let with = |validation: &str, name: &str| {
        let path = format!("{MAPS}?fieldValidation={validation}");
        http.send(Request::post(path).header("content-type", "application/json"), body(name))
    };
    let strict = with("Strict", "a").refused(400);
    assert_has(&strict, "strict decoding error");
    assert_has(&strict, "unknown field \"dta\"");
    assert_has(&strict, "unknown field \"metadata.odd\"");
    assert_has(&strict, "duplicate field \"data.a\"");
    let warned = with("Warn", "b");
    assert_eq!(warned.ok()["data"]["a"], "2");
    assert_eq!(warned.warnings().len(), 3, "{:?}", warned.warnings());
    let ignored = with("Ignore", "c");
    ignored.ok();
    assert!(ignored.warnings().is_empty());
    assert_has(with("Nonsense", "d").refused(422), "fieldValidation");
}

#[test]
fn bodies_that_are_too_large_or_too_deep() {
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    let map = |size: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"x": "y".repeat(size)}});
    // The server does not read it to its end, which a client may notice before the answer.
    let large = Request::post(MAPS).header("content-type", "application/json");
    let large = http.try_send(large, map(4 << 20).to_string());
    assert!(large.as_ref().is_err() || large.is_ok_and(|reply| reply.status == 413));
    assert_has(http.post(MAPS, &map(1_200_000)).refused(422), "Too long");
    http.post(MAPS, &map(900_000)).ok();
    for depth in [200, 20_000, 1_000_000] {
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x"}},"data":{deep}}}"#
        );
        let reply = post(&http, "application/json", body.clone());
        assert!((400..500).contains(&reply.status), "{depth}: {}", reply.text());
        let reply = post(&http, "application/yaml", body);
        assert!((400..500).contains(&reply.status), "{depth}: {}", reply.text());
    }
    // A small document that would be large if its aliases were followed.
    let mut bomb = "a0: &a0 x\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        bomb += &format!("a{level}: &a{level} [{}]\n", before.trim_end_matches(", "));
    }
    let reply = post(
        &http,
        "application/yaml",
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\n{bomb}"),
    );
    assert!((400..500).contains(&reply.status), "{}", reply.status);
    lives(&mut sheaf);
}

#[test]
fn patches_that_make_no_sense() {
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    http.post(MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}}))
        .ok();
    let path = format!("{MAPS}/p");
    let patch = |media_type: &str, body: &str| http.patch(&path, media_type, body.to_owned());
    assert_eq!(patch("application/json", "{}").status, 415);
    assert_eq!(patch("application/json-patch+json", "{}").status, 400);
    assert_eq!(patch("application/json-patch+json", r#"[{"op":"fly","path":"/a"}]"#).status, 422);
    assert_eq!(
        patch("application/json-patch+json", r#"[{"op":"remove","path":"/nowhere"}]"#).status,
        422
    );
    assert_eq!(patch("application/merge-patch+json", "[").status, 400);
    assert_has(
        patch("application/merge-patch+json", r#"{"metadata":{"uid":"x"}}"#).refused(422),
        "metadata.uid: Invalid value: \"x\": field is immutable",
    );
    assert_has(
        patch("application/merge-patch+json", r#"{"metadata":{"name":"q"}}"#).refused(400),
        "does not match the name on the URL",
    );
    assert_has(
        patch("application/apply-patch+yaml", "{}").refused(422),
        "fieldManager: Required value",
    );
    let many = vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001];
    assert_eq!(patch("application/json-patch+json", &json!(many).to_string()).status, 413);
    // Copies that double what they copy.
    let doubling: Vec<Value> = (0..40)
        .map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/k{n}")}))
        .collect();
    let reply = patch("application/json-patch+json", &json!(doubling).to_string());
    assert!((400..500).contains(&reply.status), "{}", reply.text());
    let missing = http.merge(&format!("{MAPS}/missing"), &json!({})).refused(404);
    assert_has(missing, "configmaps \"missing\" not found");
    lives(&mut sheaf);
}

#[test]
fn queries_and_paths_that_make_no_sense() {
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    for (path, code) in [
        ("/nonsense", 404),
        ("/api/v2", 404),
        ("/apis/nonsense.example.com/v1/things", 404),
        ("/api/v1/nonsense", 404),
        ("/api/v1/configmaps/x", 404),
        ("/api/v1/namespaces/default/nodes", 404),
        ("/api/v1/namespaces/default/configmaps/x/y/z", 404),
        ("/api/v1/namespaces/default/configmaps/%00", 400),
        ("/api/v1/namespaces/default/configmaps?labelSelector=%21%21", 400),
        ("/api/v1/namespaces/default/configmaps?timeout=soon", 400),
        ("/api/v1/namespaces/default/configmaps?limit=-1", 400),
        ("/api/v1/namespaces/default/configmaps?watch=perhaps&timeoutSeconds=1", 200),
    ] {
        let reply = http.get(path);
        assert!(
            reply.status == code || code == 400 && matches!(reply.status, 200 | 422),
            "{path}: {} {}",
            reply.status,
            reply.text()
        );
        assert!(reply.status != 500, "{path}");
    }
    let huge: Vec<String> = (0..2000).map(|n| format!("key{n}=value{n}")).collect();
    let reply = http.get(&format!("{MAPS}?labelSelector={}", huge.join("%2C")));
    assert!(reply.status < 500, "{}", reply.status);
    let longest = "a".repeat(60_000);
    let reply = http.try_send(Request::get(format!("{MAPS}?labelSelector={longest}")), "");
    assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status < 500));
    assert_eq!(http.send(Request::delete("/api/v1/namespaces/default"), "{not json").status, 400);
    assert_eq!(http.send(Request::builder().method("BREW").uri(MAPS), "").status, 405);
    assert_eq!(http.send(Request::put(MAPS), "{}").status, 405);
    lives(&mut sheaf);
}

#[test]
fn strangers_on_the_port() {
    let mut sheaf = Sheaf::start();
    let connect = || {
        let stream = TcpStream::connect(sheaf.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        stream
    };
    for garbage in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xff; 4096], b"\x16\x03\x01\xff\xff", b"\0"]
    {
        let mut stream = connect();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        // The connection is closed, politely or not; it does not hang.
        let _ = stream.read_to_end(&mut answer);
    }
    // Many that connect and say nothing do not keep others out.
    let silent: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    sheaf.http().get("/readyz").text();
    drop(silent);
    // Garbage inside TLS.
    let connector = tls(&sheaf, &[]);
    block_on(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let stream = tokio::net::TcpStream::connect(sheaf.address()).await.unwrap();
        let mut stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
        stream.write_all(b"\0\xff nonsense\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let reading =
            tokio::time::timeout(Duration::from_secs(300), stream.read_to_end(&mut answer));
        reading.await.expect("the connection is closed").ok();
    });
    lives(&mut sheaf);
}

#[test]
fn a_client_that_stops_in_the_middle_is_dropped() {
    let mut sheaf = Sheaf::start();
    let connector = tls(&sheaf, &[]);
    block_on(async {
        use tokio::io::AsyncWriteExt as _;
        let mut halves = Vec::new();
        for _ in 0..20 {
            let stream = tokio::net::TcpStream::connect(sheaf.address()).await.unwrap();
            let mut stream =
                connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
            let head = format!(
                "POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            halves.push(stream);
        }
        tokio::task::block_in_place(|| lives(&mut sheaf));
        drop(halves);
    });
    let list = sheaf.http().get(MAPS).ok();
    assert!(!list["items"].as_array().unwrap().is_empty());
    lives(&mut sheaf);
}

#[test]
fn a_watcher_that_does_not_read_costs_little() {
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    let _lazy: Vec<_> = (0..20).map(|_| http.watch(MAPS)).collect();
    let map = |n: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("n{n}")}, "data": {"x": "y".repeat(100_000)}});
    for number in 0..60 {
        http.post(MAPS, &map(number)).ok();
    }
    eventually("memory stays bounded", || resident(&sheaf) < 400);
    lives(&mut sheaf);
}

/// Megabytes of memory that the server has.
fn resident(sheaf: &Sheaf) -> u64 {
    let path = format!("/proc/{}/status", sheaf.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
