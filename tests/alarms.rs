//! Alarms are delivered to receivers, each once when it begins and once when it ends.

use serde_json::{Value, json};

use crate::harness::{Hook, Said, Sheaf, assert_has, eventually, poll};

const RECEIVERS: &str = "/apis/sheaf.io/v1/alarmreceivers";

/// The alerts of a message that concern a node.
fn alerts_of(hook: &Hook, node: &str) -> Vec<(String, String)> {
    let messages = hook.asked().into_iter().map(|asked| asked.body);
    let alerts = messages.flat_map(|body| body["alerts"].as_array().cloned().unwrap_or_default());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    alerts
        .filter(|alert| alert["labels"]["name"] == node)
        .map(|alert| (text(&alert["labels"]["alertname"]), text(&alert["status"])))
        .collect()
}

#[test]
fn an_alarm_is_delivered_when_it_begins_and_when_it_ends() {
    let mut sheaf = Sheaf::start();
    sheaf.provokes("cannot deliver alarms");
    let hook = Hook::start(|asked| match asked.path.as_str() {
        "/ok" => Said::Json(json!({})),
        _ => Said::Raw(404, Vec::new()),
    });
    let http = sheaf.http();
    let failed = sheaf.refused("alarm receiver test ops");
    assert_has(&failed, "there is no alarm receiver ops");
    sheaf.run(&format!("alarm receiver add ops --url {}", hook.url("/ok")));
    // Its certificate is of an authority that is unknown yet.
    let failed = sheaf.refused("alarm receiver test ops");
    assert_has(&failed, "the receiver did not answer");
    assert!(hook.asked().is_empty());

    let pem = String::from_utf8(decoded(hook.bundle())).unwrap();
    let setting = "/apis/harvesterhci.io/v1beta1/settings/additional-ca";
    http.merge(setting, &json!({"value": pem})).ok();
    poll("the authority is known", || {
        let output = sheaf.command("alarm receiver test ops");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if text.contains("the message was delivered to ops") { Ok(()) } else { Err(text) }
    });
    sheaf.run(&format!("alarm receiver add wrong --url {}", hook.url("/wrong")));
    assert_has(sheaf.refused("alarm receiver test wrong"), "the receiver answered 404 Not Found");
    assert_has(sheaf.run("alarm receiver list"), "404 Not Found");

    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost"}});
    http.post("/api/v1/nodes", &node).ok();
    let unready =
        json!([{"type": "Ready", "status": "False", "reason": "Test", "message": "away"}]);
    http.merge("/api/v1/nodes/ghost/status", &json!({"status": {"conditions": unready}})).ok();
    let alert = |status: &str| ("HostNotReady".to_owned(), status.to_owned());
    let firing = |hook: &Hook| {
        let alerts = alerts_of(hook, "ghost");
        alerts.iter().filter(|own| **own == alert("firing")).count()
    };
    eventually("the receiver that refuses is tried", || firing(&hook) >= 2);
    let announced = || http.get(&format!("{RECEIVERS}/ops")).json()["status"]["announced"].clone();
    eventually("the receiver is known to have it", || {
        announced().as_array().is_some_and(|all| all.len() == 1)
    });
    sheaf.run("alarm receiver remove wrong");
    http.delete("/api/v1/nodes/ghost").ok();
    eventually("the end is delivered", || alerts_of(&hook, "ghost").contains(&alert("resolved")));
    eventually("nothing is announced", || announced().as_array().is_none_or(Vec::is_empty));
    let to_ok = hook.asked().into_iter().filter(|asked| asked.path == "/ok");
    let sent = to_ok.filter(|asked| asked.body["alerts"][0]["labels"]["name"] == "ghost").count();
    assert_eq!(sent, 2, "one message at the beginning and one at the end");
}

fn decoded(base64: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(base64).unwrap()
}

#[test]
fn a_receiver_that_cannot_work_is_refused_with_the_reason() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let with = |spec: Value| {
        let object = json!({"apiVersion": "sheaf.io/v1", "kind": "AlarmReceiver",
            "metadata": {"name": "wrong"}, "spec": spec});
        http.post(RECEIVERS, &object).refused(422)
    };
    for (spec, text) in [
        (json!({}), "exactly one of url and urlSecret is required"),
        (json!({"url": "mail:me"}), "spec.url"),
        (json!({"url": "http://x", "format": "mail"}), "spec.format"),
        (json!({"url": "http://x", "minimumSeverity": "low"}), "spec.minimumSeverity"),
    ] {
        assert_has(with(spec), text);
    }
    sheaf.run("alarm receiver add hidden --url-secret hook");
    assert_has(sheaf.refused("alarm receiver test hidden"), "there is no Secret kube-system/hook");
}
