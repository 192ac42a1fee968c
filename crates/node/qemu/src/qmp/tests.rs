//! The client against a peer that we play ourselves, with manners and without.

use super::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines as TextLines};

const SOON: Duration = Duration::from_secs(300);
const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"major": 7}}, "capabilities": []}}"#;

/// The monitor's side of a connection.
struct Peer {
    commands: TextLines<BufReader<tokio::net::unix::OwnedReadHalf>>,
    socket: OwnedWriteHalf,
    /// The connection ends with the family of its tasks.
    tasks: Tasks,
}

impl Peer {
    async fn say(&mut self, line: &str) {
        self.socket.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = self.commands.next_line().await.unwrap().expect("a command");
        serde_json::from_str(&line).unwrap()
    }
}

async fn pair() -> (Qmp, Peer) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (read, socket) = theirs.into_split();
    let tasks = Tasks::default();
    let commands = BufReader::new(read).lines();
    let mut peer = Peer { commands, socket, tasks: tasks.clone() };
    let greet = async {
        peer.say(GREETING).await;
        let command = peer.receive().await;
        assert_eq!(command["execute"], "qmp_capabilities");
        peer.say(&json!({ "return": {}, "id": command["id"] }).to_string()).await;
    };
    let (qmp, ()) = tokio::join!(Qmp::connect(ours, &tasks, SOON), greet);
    (qmp.unwrap(), peer)
}

#[tokio::test]
async fn answers_find_their_questions_in_any_order() {
    let (qmp, mut peer) = pair().await;
    let (one, two) = (qmp.clone(), qmp.clone());
    let answer = async {
        let (first, second) = (peer.receive().await, peer.receive().await);
        peer.say(&json!({ "return": second["execute"], "id": second["id"] }).to_string()).await;
        peer.say(&json!({ "return": first["execute"], "id": first["id"] }).to_string()).await;
    };
    let (one, two, ()) = tokio::join!(
        one.execute::<String>("one", json!({})),
        two.execute::<String>("two", json!({ "a": 1 })),
        answer
    );
    assert_eq!((one.unwrap().as_str(), two.unwrap().as_str()), ("one", "two"));
}

#[tokio::test]
async fn an_unknown_event_is_passed_on_and_harms_nothing() {
    let (qmp, mut peer) = pair().await;
    let mut events = qmp.events();
    let stamp = json!({ "seconds": 2, "microseconds": 5 });
    peer.say(
        &json!({ "event": "FROM_THE_FUTURE", "data": { "x": [1] }, "timestamp": stamp })
            .to_string(),
    )
    .await;
    let event = events.recv().await.unwrap();
    assert_eq!((event.name.as_str(), event.micros), ("FROM_THE_FUTURE", 2_000_005));
    let answer = async {
        let command = peer.receive().await;
        peer.say(&json!({ "return": { "status": "weird" }, "id": command["id"] }).to_string())
            .await;
    };
    let (state, ()) = tokio::join!(qmp.run_state(), answer);
    assert_eq!(state.unwrap(), RunState::Other("weird".to_owned()));
}

#[tokio::test]
async fn a_refusal_carries_qemus_words() {
    let (qmp, mut peer) = pair().await;
    let answer = async {
        let command = peer.receive().await;
        let error = json!({ "class": "DeviceNotFound", "desc": "Device 'x' not found" });
        peer.say(&json!({ "error": error, "id": command["id"] }).to_string()).await;
    };
    let (result, ()) = tokio::join!(qmp.run("device_del", json!({ "id": "x" })), answer);
    let error = result.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "cannot device_del: Device 'x' not found");
}

#[tokio::test]
async fn garbage_ends_the_connection_for_everyone_who_waits() {
    let long = format!("\"{}\"", "x".repeat(codec::LONGEST_LINE + 1));
    for garbage in ["not json", "{}", "[1,2", "\u{0}\u{1}", long.as_str()] {
        let (qmp, mut peer) = pair().await;
        let ask = qmp.run("query-status", json!({}));
        let answer = async {
            peer.receive().await;
            // The other end may close the connection before the whole of it is sent.
            let _ = peer.socket.write_all(garbage.as_bytes()).await;
            let _ = peer.socket.write_all(b"\n").await;
        };
        let (result, ()) = tokio::join!(ask, answer);
        assert!(matches!(result, Err(QmpError::Closed { source: Some(_), .. })), "{result:?}");
        qmp.closed().await;
        let later = qmp.run("query-status", json!({})).await;
        assert!(matches!(later, Err(QmpError::Closed { .. })), "{later:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_monitor_that_is_silent_is_a_timeout_and_stays_usable() {
    let (qmp, mut peer) = pair().await;
    let first = qmp.run("stop", json!({})).await;
    assert!(matches!(first, Err(QmpError::TimedOut { .. })), "{first:?}");
    assert!(lock(&qmp.waiting).is_empty(), "no caller waits any longer");
    let late = peer.receive().await;
    peer.say(&json!({ "return": {}, "id": late["id"] }).to_string()).await;
    let answer = async {
        let command = peer.receive().await;
        peer.say(&json!({ "return": {}, "id": command["id"] }).to_string()).await;
    };
    let (second, ()) = tokio::join!(qmp.run("cont", json!({})), answer);
    second.unwrap();
}

#[tokio::test]
async fn a_connection_ends_with_its_tasks() {
    let (qmp, peer) = pair().await;
    peer.tasks.stop(SOON).await;
    qmp.closed().await;
}

#[tokio::test]
async fn a_peer_without_a_greeting_is_no_monitor() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"{\"return\": {}}\n").await.unwrap();
    let result = Qmp::connect(ours, &Tasks::default(), SOON).await;
    assert!(matches!(result, Err(QmpError::NoGreeting)), "{result:?}");
}
