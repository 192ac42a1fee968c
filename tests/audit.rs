//! Tests of the audit log.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Sheaf, poll};

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, userGroups: ["system:masters"], users: ["system:apiserver"]}
- {level: None, userGroups: ["system:sheaf-platform"]}
- {level: RequestResponse, resources: [{group: "", resources: [configmaps]}], namespaces: [default]}
- {level: Metadata, resources: [{group: "", resources: [secrets, namespaces]}]}
- {level: Metadata, nonResourceURLs: ["/version"]}
"#;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server that writes to a log of its own, and a place where the log is read.
fn audited(more: &[&str]) -> (Sheaf, std::path::PathBuf) {
    let mut server = Sheaf::prepared(&[]);
    let (policy, log) = (server.scratch("policy.yaml"), server.scratch("logs/audit.log"));
    std::fs::write(&policy, POLICY).unwrap();
    let mut arguments = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    arguments.extend(more.iter().map(|&more| more.to_owned()));
    server.set_arguments(arguments);
    server.begin();
    (server, log)
}

/// The complete lines of the log; the server may be writing the next one.
fn events(log: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let complete = text.rfind('\n').map_or(0, |end| end + 1);
    text[..complete].lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn event(log: &std::path::Path, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
    poll(what, || events(log).into_iter().find(&fits).ok_or_else(|| format!("{:#?}", events(log))))
}

#[test]
fn the_policy_says_what_is_written_down_and_how_much() {
    let (server, log) = audited(&[]);
    let http = server.http();
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let reply = http.with("audit-id", "my-request").post(MAPS, &map);
    assert_eq!((reply.status, reply.header("audit-id")), (201, "my-request"));
    http.post(
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}, "stringData": {"k": "hidden"}}),
    )
    .ok();
    let jane = http.with("impersonate-user", "jane");
    jane.get(MAPS).refused(403);
    jane.get("/api/v1/nodes").refused(403);
    http.get("/version").ok();
    http.get("/healthz");

    let made = event(&log, "the creation", |event| event["auditID"] == "my-request");
    assert_eq!(made["level"], "RequestResponse");
    assert_eq!((&made["stage"], &made["verb"]), (&json!("ResponseComplete"), &json!("create")));
    assert_eq!(made["user"]["username"], "system:admin");
    assert_eq!(
        made["objectRef"],
        json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"})
    );
    assert_eq!(made["requestObject"]["data"], json!({"k": "v"}));
    assert_eq!(made["responseObject"]["metadata"]["name"], "a");
    assert!(made["responseObject"]["metadata"].get("managedFields").is_none());
    assert_eq!(made["responseStatus"]["code"], 201);
    assert_eq!(made["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(made["annotations"]["authorization.k8s.io/decision"], "allow");

    let secret = event(&log, "the secret", |event| {
        event["objectRef"]["resource"] == "secrets" && event["objectRef"]["name"] == "s"
    });
    assert_eq!(secret["verb"], "create", "the name is known from the body");
    assert!(secret.get("requestObject").is_none() && secret.get("responseObject").is_none());
    assert!(!std::fs::read_to_string(&log).unwrap().contains("hidden"));

    let refused = event(&log, "the refusal", |event| {
        event["verb"] == "list" && event["responseStatus"]["code"] == 403
    });
    assert_eq!(refused["impersonatedUser"]["username"], "jane");
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    event(&log, "the version", |event| event["requestURI"] == "/version");
    // An administrator's policy decides alone, also for what is refused.
    let is_left_out = |event: &Value| {
        event["requestURI"] == "/healthz" || event["objectRef"]["resource"] == "nodes"
    };
    assert!(!events(&log).iter().any(is_left_out));
}

#[test]
fn a_watch_is_written_down_when_it_begins_and_when_it_ends() {
    let (server, log) = audited(&[]);
    let http = server.http();
    let watch = http.watch(&format!("{MAPS}?timeoutSeconds=1"));
    watch.rest();
    let watches = |stage: &'static str| {
        move |event: &Value| {
            event["verb"] == "watch"
                && event["stage"] == stage
                && event["user"]["username"] == "system:admin"
        }
    };
    let started = event(&log, "it begins", watches("ResponseStarted"));
    let ended = event(&log, "it ends", watches("ResponseComplete"));
    assert_eq!(started["auditID"], ended["auditID"]);
}

#[test]
fn old_logs_are_put_aside() {
    let (server, log) = audited(&["--audit-log-maxsize=1", "--audit-log-maxbackup=1"]);
    let http = server.http();
    let large = "x".repeat(300_000);
    for name in ["a", "b", "c"] {
        http.post(MAPS, &json!({"metadata": {"name": name}, "data": {"k": large}})).ok();
    }
    event(&log, "the last one", |event| event["responseObject"]["metadata"]["name"] == "c");
    let files = std::fs::read_dir(log.parent().unwrap()).unwrap().count();
    assert_eq!(files, 2, "the log and one from before");
}

#[test]
fn changes_and_access_to_secrets_are_logged_by_default() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut server = Sheaf::start();
    let log = server.data().join("audit/audit.log");
    let jane = server.http().with("impersonate-user", "jane");
    assert_eq!(jane.get("/api/v1/namespaces/default/secrets/x").status, 403);
    let refused = event(&log, "the refused access", |event| {
        event["impersonatedUser"]["username"] == "jane" && event["verb"] == "get"
    });
    assert_eq!(refused["level"], "Metadata");
    assert_eq!(refused["responseStatus"]["code"], 403);
    server.http().get(MAPS).ok();
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    server.http().post(MAPS, &map).ok();
    let made =
        event(&log, "the new object", |event| event["objectRef"]["resource"] == "configmaps");
    assert_eq!((&made["verb"], &made["requestObject"]), (&json!("create"), &Value::Null));
    let noise = |event: &Value| {
        let user = event["user"]["username"].as_str().unwrap_or_default();
        user.starts_with("system:sheaf-controller")
    };
    assert!(!events(&log).iter().any(noise), "the platform itself is left out");
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    server.terminate();
    std::fs::remove_dir_all(log.parent().unwrap()).unwrap();
    server.set_arguments(vec!["--no-audit".to_owned()]);
    server.begin();
    server.http().delete(&format!("{MAPS}/a")).ok();
    assert!(!log.exists());
}

#[test]
fn refused_reads_are_logged_by_default_and_those_without_credentials_are_not() {
    let mut server = Sheaf::start();
    server.provokes("too many refused requests");
    let log = server.data().join("audit/audit.log");
    server.anonymous().get(MAPS).refused(403);
    server.bearer("wrong").get(MAPS).refused(401);
    let as_user = |name: &str, group: &str| {
        server.http().with("impersonate-user", name).with("impersonate-group", group)
    };
    as_user("system:node:two", "system:nodes").get("/api/v1/secrets").refused(403);
    let jane = as_user("jane", "tenants");
    for _ in 0..200 {
        jane.get(MAPS).refused(403);
    }
    let of =
        |name: &'static str| move |event: &Value| event["impersonatedUser"]["username"] == name;
    for (name, resource) in [("jane", "configmaps"), ("system:node:two", "secrets")] {
        let refused = event(&log, name, of(name));
        assert_eq!((&refused["level"], &refused["verb"]), (&json!("Metadata"), &json!("list")));
        assert_eq!(refused["stage"], "ResponseComplete");
        assert_eq!(refused["responseStatus"]["code"], 403);
        assert_eq!(refused["objectRef"]["resource"], resource);
        assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    }
    let wrong = event(&log, "the wrong token", |event| event["responseStatus"]["code"] == 401);
    assert_eq!((&wrong["user"], &wrong["sourceIPs"]), (&json!({}), &json!(["127.0.0.1"])));
    as_user("last", "tenants").get(MAPS).refused(403);
    event(&log, "the last one", of("last"));
    let of_jane = events(&log).iter().filter(|event| of("jane")(event)).count();
    // A minute has room for 60 lines, and the requests may be of two.
    assert!((60..=120).contains(&of_jane), "{of_jane} lines");
    let anonymous = |event: &Value| event["user"]["username"] == "system:anonymous";
    assert!(!events(&log).iter().any(anonymous), "anybody can send these");
}

/// Takes one POST at a time and passes its body on.
fn receiver() -> (u16, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (port, received)
}

#[test]
fn a_webhook_gets_events_in_batches() {
    let (port, received) = receiver();
    let scratch = tempfile::tempdir().unwrap();
    let config = scratch.path().join("webhook.yaml");
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: w, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
         contexts: [{{name: w, context: {{cluster: w, user: w}}}}]\ncurrent-context: w\nusers: [{{name: w, user: {{}}}}]\n"
    );
    std::fs::write(&config, text).unwrap();
    let file = format!("--audit-webhook-config-file={}", config.display());
    let (server, _) = audited(&[&file, "--audit-webhook-batch-max-wait=200ms"]);
    server.http().with("audit-id", "seen-outside").get(MAPS).ok();
    let list = loop {
        let list = received.recv_timeout(Duration::from_secs(300)).unwrap();
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&json!("EventList"), &json!("audit.k8s.io/v1"))
        );
        let items = list["items"].as_array().unwrap();
        if items.iter().any(|event| event["auditID"] == "seen-outside") {
            break list;
        }
    };
    assert!(!list["items"].as_array().unwrap().is_empty());
}
