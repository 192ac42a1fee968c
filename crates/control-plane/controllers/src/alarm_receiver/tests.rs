use hci::alarm::{Alarm, AlarmReceiverSpec, AnnouncedAlarm};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::message::{AlarmReport, message, test_alarm};
use super::plan::{Delivery, delivery};

fn alarm(uid: &str, severity: &str, spec: Value) -> Alarm {
    serde_json::from_value(json!({
        "metadata": {"name": uid, "uid": uid}, "spec": spec,
        "status": {"rule": "DiskFull", "severity": severity, "since": "2026-01-02T03:04:05Z",
            "summary": format!("{uid} is full"), "remedy": "sheaf node show n1",
            "object": {"apiVersion": "v1", "kind": "Node", "name": "n1"}},
    }))
    .unwrap()
}

fn now() -> Timestamp {
    "2026-01-02T04:00:00Z".parse().unwrap()
}

fn announced(alarms: &[Alarm]) -> Vec<AnnouncedAlarm> {
    delivery(&AlarmReceiverSpec::default(), &[], alarms, now()).announced
}

fn uids(alarms: &[AnnouncedAlarm]) -> Vec<&str> {
    alarms.iter().map(|alarm| alarm.uid.as_str()).collect()
}

#[test]
fn each_alarm_is_sent_once_when_it_begins_and_once_when_it_ends() {
    let (a, b) = (alarm("a", "warning", json!({})), alarm("b", "critical", json!({})));
    let spec = AlarmReceiverSpec::default();
    let first = delivery(&spec, &[], &[a.clone(), b.clone()], now());
    assert_eq!(uids(&first.firing), ["a", "b"]);
    let second = delivery(&spec, &first.announced, &[a.clone(), b.clone()], now());
    assert!(!second.has_message(), "{second:?}");
    let third = delivery(&spec, &second.announced, &[b], now());
    assert_eq!((uids(&third.resolved), uids(&third.announced)), (vec!["a"], vec!["b"]));
    assert!(
        !delivery(&spec, &third.announced, &[alarm("b", "critical", json!({}))], now())
            .has_message()
    );
}

/// A name, the changes of the receiver's spec, the alarms that it knows, the alarm that is there, and
/// the names of those that are sent as firing and as resolved.
type ReceiverCase<'a> = (&'a str, Value, &'a [AnnouncedAlarm], Alarm, &'a [&'a str], &'a [&'a str]);

#[test]
fn the_receiver_chooses_what_is_sent() {
    let known = announced(&[alarm("old", "warning", json!({}))]);
    let cases: [ReceiverCase<'_>; 6] = [
        (
            "severity",
            json!({"minimumSeverity": "critical"}),
            &[],
            alarm("a", "warning", json!({})),
            &[],
            &[],
        ),
        (
            "severity",
            json!({"minimumSeverity": "critical"}),
            &[],
            alarm("a", "critical", json!({})),
            &["a"],
            &[],
        ),
        (
            "acknowledged",
            json!({}),
            &[],
            alarm("a", "critical", json!({"acknowledged": true})),
            &[],
            &[],
        ),
        (
            "no end",
            json!({"sendResolved": false}),
            &known,
            alarm("a", "warning", json!({})),
            &["a"],
            &[],
        ),
        ("end", json!({}), &known, alarm("a", "warning", json!({})), &["a"], &["old"]),
        ("became critical", json!({}), &known, alarm("old", "critical", json!({})), &["old"], &[]),
    ];
    for (what, spec, known, one, firing, resolved) in cases {
        let spec: AlarmReceiverSpec = serde_json::from_value(spec).unwrap();
        let found = delivery(&spec, known, &[one], now());
        assert_eq!(
            (uids(&found.firing), uids(&found.resolved)),
            (firing.to_vec(), resolved.to_vec()),
            "{what}"
        );
    }
}

#[test]
fn a_silenced_alarm_is_sent_when_the_silence_ends_and_a_paused_receiver_forgets_nothing() {
    let quiet = alarm("a", "critical", json!({"silencedUntil": "2026-01-02T05:00:00Z"}));
    let found = delivery(&AlarmReceiverSpec::default(), &[], std::slice::from_ref(&quiet), now());
    assert!(!found.has_message());
    assert_eq!(found.recheck, Some(std::time::Duration::from_secs(3600)));
    let known = announced(&[alarm("a", "warning", json!({}))]);
    let paused = AlarmReceiverSpec { paused: Some(true), ..AlarmReceiverSpec::default() };
    let found = delivery(&paused, &known, &[], now());
    assert_eq!(found, Delivery { announced: known, ..Delivery::default() });
}

#[test]
fn messages_have_the_format_of_their_receiver() {
    let firing = announced(&[alarm("<a&b>", "critical", json!({}))]);
    let resolved = announced(&[alarm("c", "warning", json!({}))]);
    let report = AlarmReport {
        receiver: "ops",
        firing: &firing,
        resolved: &resolved,
        now: "2026-01-02T04:00:00Z",
    };
    let post = |format: &str| message(format, "http://x/".into(), &report);

    let body: Value = serde_json::from_str(&post("alertmanager").body).unwrap();
    assert_eq!((&body["version"], &body["status"]), (&json!("4"), &json!("firing")));
    assert_eq!(
        body["alerts"][0]["labels"],
        json!({"alertname": "DiskFull", "severity": "critical",
        "alarm": "<a&b>", "kind": "Node", "name": "n1"})
    );
    assert_eq!(body["alerts"][0]["endsAt"], "0001-01-01T00:00:00Z");
    assert_eq!(body["alerts"][1]["status"], "resolved");
    assert_eq!(body["alerts"][1]["endsAt"], "2026-01-02T04:00:00Z");

    let slack: Value = serde_json::from_str(&post("slack").body).unwrap();
    assert_eq!(
        slack["text"],
        "[critical] &lt;a&amp;b&gt; is full\n  sheaf node show n1\n[ended] c is full"
    );

    let ntfy = post("ntfy");
    assert_eq!(ntfy.body, "[critical] <a&b> is full\n  sheaf node show n1\n[ended] c is full");
    assert!(ntfy.headers.contains(&("priority", "urgent".into())), "{ntfy:?}");
    assert!(ntfy.headers.contains(&("title", "Sheaf: alarm".into())), "{ntfy:?}");
}

#[test]
fn a_long_list_is_cut_and_counted() {
    let many: Vec<Alarm> = (0..30).map(|n| alarm(&format!("a{n}"), "warning", json!({}))).collect();
    let firing = announced(&many);
    let report = AlarmReport { receiver: "ops", firing: &firing, resolved: &[], now: "" };
    let body = message("ntfy", String::new(), &report).body;
    assert!(body.ends_with("and 10 more: sheaf alarm list"), "{body}");
    assert_eq!(body.lines().filter(|line| line.starts_with("[warning]")).count(), 20);
}

#[test]
fn a_test_message_says_that_nothing_is_wrong() {
    let test = [test_alarm("ops", "2026-01-02T04:00:00Z")];
    let report = AlarmReport { receiver: "ops", firing: &test, resolved: &[], now: "" };
    assert!(message("slack", String::new(), &report).body.contains("nothing is wrong"));
}
