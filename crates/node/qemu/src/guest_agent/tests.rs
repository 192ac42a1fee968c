//! The client against an agent that we play ourselves, with manners and without.

use super::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

const SOON: Duration = Duration::from_secs(300);

struct Guest {
    _folder: tempfile::TempDir,
    listener: UnixListener,
    agent: GuestAgent,
    _tasks: Tasks,
}

fn guest() -> Guest {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join(AGENT)).unwrap();
    let tasks = Tasks::default();
    let agent = GuestAgent::open(RunDir::new(folder.path()), &tasks);
    Guest { _folder: folder, listener, agent, _tasks: tasks }
}

/// Answers questions on one connection: the synchronising ones properly, the others by `reply`.
async fn play(listener: &UnixListener, greeting: &[u8], reply: impl Fn(&Value) -> Option<String>) {
    let (stream, _) = listener.accept().await.unwrap();
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).split(b'\n');
    write.write_all(greeting).await.unwrap();
    while let Ok(Some(line)) = lines.next_segment().await {
        let line: Vec<u8> = line.into_iter().filter(|byte| *byte != 0xff).collect();
        let question: Value = serde_json::from_slice(&line).unwrap();
        let answer = if question["execute"] == "guest-sync-delimited" {
            let mut answer = vec![0xff];
            answer.extend(json!({ "return": question["arguments"]["id"] }).to_string().bytes());
            Some(answer)
        } else {
            reply(&question).map(String::into_bytes)
        };
        if let Some(mut answer) = answer {
            answer.push(b'\n');
            let _ = write.write_all(&answer).await;
        }
    }
}

#[tokio::test]
async fn leftovers_of_earlier_talk_are_not_taken_for_answers() {
    let guest = guest();
    let leftovers = b"{\"return\": \"old\"}\n{\"torn\": \xff{\"return\": 999}\n";
    let played = play(&guest.listener, leftovers, |_| {
        Some(json!({ "return": { "pretty-name": "Debian", "id": "debian" } }).to_string())
    });
    tokio::select! {
        info = guest.agent.os_info() => assert_eq!(info.unwrap().pretty_name, "Debian"),
        () = played => panic!("the channel closed"),
    }
}

#[tokio::test]
async fn a_refusal_is_distinguished_from_a_missing_command() {
    let guest = guest();
    let played = play(&guest.listener, b"", |question| {
        let class = if question["execute"] == "guest-get-users" {
            "CommandNotFound"
        } else {
            "GenericError"
        };
        Some(json!({ "error": { "class": class, "desc": "no" } }).to_string())
    });
    let ask = async {
        assert!(guest.agent.users().await.unwrap_err().is_unsupported());
        let error = guest.agent.freeze().await.unwrap_err();
        assert!(!error.is_unsupported());
        assert_eq!(error.to_string(), "the guest agent refused guest-fsfreeze-freeze: no");
    };
    tokio::select! {
        () = ask => {}
        () = played => panic!("the channel closed"),
    }
}

#[tokio::test]
async fn a_silent_agent_is_a_timeout_and_the_next_question_starts_afresh() {
    let guest = guest();
    let silent = guest.agent.ping(Duration::from_millis(50)).await;
    assert!(matches!(silent, Err(AgentError::NoAnswer { .. })), "{silent:?}");
    let served = async {
        // The abandoned connection, and the new one.
        drop(guest.listener.accept().await.unwrap());
        play(&guest.listener, b"", |_| Some(json!({ "return": {} }).to_string())).await;
    };
    tokio::select! {
        pong = guest.agent.ping(SOON) => pong.unwrap(),
        () = served => panic!("the channel closed"),
    }
}

#[tokio::test]
async fn a_program_is_followed_to_its_end() {
    let guest = guest();
    let asked = std::sync::atomic::AtomicU32::new(0);
    let played = play(&guest.listener, b"", |question| {
        if question["execute"] == "guest-exec" {
            return Some(json!({ "return": { "pid": 7 } }).to_string());
        }
        assert_eq!(question["arguments"]["pid"], 7);
        let times = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let status = if times == 0 {
            json!({ "exited": false })
        } else {
            json!({ "exited": true, "exitcode": 3, "out-data": "aGVsbG8=" })
        };
        Some(json!({ "return": status }).to_string())
    });
    tokio::select! {
        result = guest.agent.run("/bin/true", &[], SOON) => {
            let result = result.unwrap();
            assert_eq!((result.status, result.stdout.as_slice()), (Some(3), &b"hello"[..]));
        }
        () = played => panic!("the channel closed"),
    }
}

#[tokio::test]
async fn a_machine_that_ends_with_its_reboot_has_done_what_was_asked() {
    let guest = guest();
    let close = async {
        let (stream, _) = guest.listener.accept().await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            let line: Vec<u8> = line.into_iter().filter(|byte| *byte != 0xff).collect();
            let question: Value = serde_json::from_slice(&line).unwrap();
            if question["execute"] == "guest-shutdown" {
                assert_eq!(question["arguments"]["mode"], "reboot");
                return;
            }
            let mut answer = vec![0xff];
            answer.extend(json!({ "return": question["arguments"]["id"] }).to_string().bytes());
            answer.push(b'\n');
            write.write_all(&answer).await.unwrap();
        }
    };
    let (answer, ()) = tokio::join!(guest.agent.shutdown(Shutdown::Reboot), close);
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test]
async fn the_clock_is_set_in_nanoseconds() {
    let guest = guest();
    let played = play(&guest.listener, b"", |question| {
        assert_eq!(question["execute"], "guest-set-time");
        assert_eq!(question["arguments"], json!({ "time": 1_700_000_000_000_000_000_i64 }));
        Some(json!({ "return": {} }).to_string())
    });
    let now = Duration::from_secs(1_700_000_000);
    tokio::select! {
        answer = guest.agent.set_time(now) => answer.unwrap(),
        () = played => panic!("the channel closed"),
    }
}
