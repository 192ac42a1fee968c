//! The time service of a host that is a directory.

use std::sync::Mutex;

use super::*;

const DROP_IN: &str = "etc/systemd/timesyncd.conf.d/90-sheaf.conf";

/// Answers as systemd does, and records what was asked.
#[derive(Default)]
struct FakeCommands {
    states: &'static str,
    refuses: bool,
    log: Mutex<Vec<String>>,
}

impl RunCommand for FakeCommands {
    async fn run(&self, command: &[&str]) -> Result<String, CommandError> {
        self.log.lock().unwrap().push(command.join(" "));
        match command {
            ["systemctl", "is-active", ..] => Ok(self.states.into()),
            ["timedatectl", ..] => Ok("yes\n".into()),
            _ if self.refuses => Err(CommandError::Refused {
                command: command.join(" "),
                said: "it does not start".into(),
            }),
            _ => Ok(String::new()),
        }
    }
}

struct Fixture {
    directory: tempfile::TempDir,
    host: NtpHost<FakeCommands>,
}

fn fixture(commands: FakeCommands) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    fs::create_dir_all(root.join("run/systemd/system")).unwrap();
    let record = root.join("agent/ntp-file");
    Fixture { directory, host: NtpHost { root, record, commands } }
}

impl Fixture {
    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.directory.path().join(path)).ok()
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// How often the service was restarted or reloaded.
    fn reloads(&self) -> usize {
        let log = self.host.commands.log.lock().unwrap();
        log.iter().filter(|own| own.contains("restart") || own.contains("reload")).count()
    }

    async fn follow(&self, servers: &[&str]) -> NtpReport {
        let servers: Vec<String> = servers.iter().map(|own| (*own).to_owned()).collect();
        self.host.follow(&servers).await
    }
}

const TIMESYNCD: &str = "active\ninactive\ninactive\n";

#[tokio::test]
async fn the_file_is_there_as_long_as_the_setting_has_servers() {
    let fixture = fixture(FakeCommands { states: TIMESYNCD, ..FakeCommands::default() });
    fixture.put("etc/systemd/timesyncd.conf", "[Time]\nNTP=own.example\n");
    let report = fixture.follow(&[]).await;
    assert_eq!((fixture.text(DROP_IN), fixture.reloads()), (None, 0), "nothing is touched");
    assert_eq!(report.ntp_sync_status, NtpSyncStatus::Synced);
    let report = fixture.follow(&["a.example", "b.example"]).await;
    assert_eq!((&*report.current_ntp_servers, &*report.message), ("a.example b.example", ""));
    assert!(fixture.text(DROP_IN).unwrap().ends_with("NTP=\nNTP=a.example b.example\n"));
    fixture.follow(&["a.example", "b.example"]).await;
    assert_eq!(fixture.reloads(), 1, "nothing changed");
    fixture.follow(&["c.example"]).await;
    assert!(fixture.text(DROP_IN).unwrap().ends_with("NTP=c.example\n"));
    let report = fixture.follow(&[]).await;
    assert_eq!((fixture.text(DROP_IN), fixture.reloads()), (None, 3));
    assert_eq!((&*report.current_ntp_servers, &*report.message), ("", ""));
    assert_eq!(fixture.text("etc/systemd/timesyncd.conf").unwrap(), "[Time]\nNTP=own.example\n");
}

#[tokio::test]
async fn files_of_others_stay() {
    let fixture = fixture(FakeCommands { states: TIMESYNCD, ..FakeCommands::default() });
    fixture.put(DROP_IN, "[Time]\nNTP=other\n");
    let report = fixture.follow(&["a.example"]).await;
    assert!(report.message.contains("was not written by this node"), "{}", report.message);
    fixture.follow(&[]).await;
    assert_eq!(fixture.text(DROP_IN).unwrap(), "[Time]\nNTP=other\n");
    assert_eq!(fixture.reloads(), 0);
}

#[tokio::test]
async fn a_file_that_the_service_refuses_is_removed() {
    let commands = FakeCommands { states: TIMESYNCD, refuses: true, ..FakeCommands::default() };
    let fixture = fixture(commands);
    let report = fixture.follow(&["a.example"]).await;
    assert!(report.message.contains("it does not start"), "{}", report.message);
    assert_eq!((fixture.text(DROP_IN), &*report.current_ntp_servers), (None, ""));
}

#[tokio::test]
async fn a_host_without_a_time_service_says_so() {
    let idle = fixture(FakeCommands::default());
    let report = idle.follow(&["a.example"]).await;
    assert_eq!(report.ntp_sync_status, NtpSyncStatus::Disabled);
    assert!(report.message.starts_with("no time service is active"), "{}", report.message);
    let bare = fixture(FakeCommands { states: TIMESYNCD, ..FakeCommands::default() });
    fs::remove_dir(bare.directory.path().join("run/systemd/system")).unwrap();
    assert_eq!(bare.follow(&[]).await.ntp_sync_status, NtpSyncStatus::Disabled);
    assert!(bare.host.commands.log.lock().unwrap().is_empty(), "there is no service to ask");
}

#[tokio::test]
async fn chrony_gets_a_file_of_sources() {
    let states = "inactive\nactive\ninactive\n";
    let fixture = fixture(FakeCommands { states, ..FakeCommands::default() });
    fixture.put("etc/chrony/chrony.conf", "pool x\nsourcedir /etc/chrony/sources.d\n");
    fixture.follow(&["a.example"]).await;
    let path = "etc/chrony/sources.d/sheaf.sources";
    assert!(fixture.text(path).unwrap().ends_with("server a.example iburst\n"));
    let log = fixture.host.commands.log.lock().unwrap().clone();
    assert!(log.contains(&"chronyc reload sources".to_owned()), "{log:?}");
    fixture.follow(&[]).await;
    assert_eq!(fixture.text(path), None);
}
