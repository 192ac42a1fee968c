//! Tests of the SQLite engine alone: a file, a disk that fills up, and backups.

use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Tasks};
use store::{
    BackupError, Config, Engine, Expect, RestoreError, Retention, Revision, SqliteConfig, Store,
    Unhealthy, WriteError, restore,
};

use crate::world::{Plain, Session, World, all, contents, delete, put, set, until};

async fn open_error(config: Config) -> String {
    let error = Store::open(config, Plain, &Tasks::default()).await.unwrap_err();
    Chain(&error).to_string()
}

#[tokio::test]
async fn a_damaged_or_foreign_file_is_refused_clearly() {
    let world = World::sqlite().await;
    let path = world.directory.path().join("bad.sqlite");
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let message = open_error(Config::sqlite(&path)).await;
    assert!(message.contains("is damaged"), "{message}");

    let path = world.directory.path().join("foreign.sqlite");
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
    drop(foreign);
    let message = open_error(Config::sqlite(&path)).await;
    assert!(message.contains("is not a database of this program"), "{message}");

    let missing = world.directory.path().join("no/such/directory/store.sqlite");
    assert!(open_error(Config::sqlite(missing)).await.contains("cannot lock"));
}

#[tokio::test]
async fn history_that_contradicts_the_state_is_refused() {
    let world = World::sqlite().await;
    let store = world.open().await;
    set(&store, "things", "a", "1").await;
    set(&store, "things", "a", "2").await;
    store.close().await;
    let path = world.directory.path().join("store.sqlite");
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute("UPDATE current SET rev = 1", []).unwrap();
    drop(file);
    let message = open_error(world.config()).await;
    assert!(message.contains("contradicts itself at revision 2"), "{message}");
}

#[tokio::test]
async fn a_second_process_is_kept_out() {
    let world = World::sqlite().await;
    let store = world.open().await;
    let message = open_error(world.config()).await;
    assert!(message.contains("is in use"), "{message}");
    store.close().await;
    world.open().await.close().await;
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let world = World::sqlite().await;
    let path = world.directory.path().join("store.sqlite");
    let engine = Engine::Sqlite(SqliteConfig { path, quota: Some(1 << 20) });
    // Frequent ticks.
    let retention = Retention { age: Duration::from_secs(1), ..Retention::default() };
    let store = Session::open(Config { engine, retention, sealing: Arc::default() }).await;
    let value = "v".repeat(20_000);
    let mut stored = 0;
    let error = loop {
        match store.write(put("things", &stored.to_string(), value.clone(), Expect::Any)).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WriteError::NoSpace), "{error}");
    assert!(stored > 20, "only {stored} fitted");
    let revision = store.revision();
    assert_eq!(all(&store, "things").entries.len(), stored, "reads go on");

    // Deletions work without room, and make some.
    for number in 0..5 {
        store.write(delete("things", &number.to_string(), Expect::Any)).await.unwrap();
    }
    until("a write fits again", async || {
        store.write(put("things", "again", value.clone(), Expect::Any)).await.is_ok()
    })
    .await;
    assert!(store.revision() > revision);
    store.health().unwrap();
    let expected = contents(&all(&store, "things"));
    store.close().await;
    let store = world.open().await;
    assert_eq!(contents(&all(&store, "things")), expected);
    store.close().await;
}

#[tokio::test]
async fn health_reports_a_full_disk_and_its_end() {
    let world = World::sqlite().await;
    let path = world.directory.path().join("store.sqlite");
    let engine = Engine::Sqlite(SqliteConfig { path, quota: Some(256 << 10) });
    let store =
        Session::open(Config { engine, retention: Retention::default(), sealing: Arc::default() })
            .await;
    let refused = store.write(put("things", "big", vec![b'x'; 1 << 20], Expect::Any)).await;
    assert!(matches!(refused, Err(WriteError::NoSpace)));
    assert!(matches!(store.health(), Err(Unhealthy::NoSpace)));
    set(&store, "things", "small", "1").await;
    store.health().unwrap();
    store.close().await;
}

#[tokio::test]
async fn history_in_the_file_is_dropped_with_age() {
    let world = World::sqlite().await;
    let retention =
        Retention { age: Duration::from_millis(100), events: 2, ..Retention::default() };
    let store = world.open_keeping(retention).await;
    for step in 0..1200 {
        let (name, value) = (format!("{}", step % 10), step.to_string());
        if step % 100 == 99 {
            set(&store, "things", &name, &value).await;
        } else {
            let store = store.store.clone();
            tokio::spawn(async move { set(&store, "things", &name, &value).await });
        }
    }
    until("all to be written", async || store.revision() == Revision::new(1200)).await;
    let reader = rusqlite::Connection::open(world.directory.path().join("store.sqlite")).unwrap();
    let rows = || -> i64 {
        reader.query_row("SELECT count(*) FROM history", [], |row| row.get(0)).unwrap()
    };
    until("the history to be dropped", async || rows() == 0).await;
    drop(reader);
    store.close().await;

    let store = world.open().await;
    assert_eq!(store.revision(), Revision::new(1200));
    assert_eq!(store.oldest("things"), Revision::new(1200));
    assert_eq!(all(&store, "things").entries.len(), 10);
    assert_eq!(set(&store, "things", "a", "1").await, Revision::new(1201));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_under_load_restores_to_a_later_store() {
    let world = World::sqlite().await;
    let store = world.open().await;
    for number in 0..300 {
        set(&store, "things", &number.to_string(), &"v".repeat(2000)).await;
    }
    let load = tokio::spawn({
        let store = store.store.clone();
        async move {
            for number in 0..200 {
                set(&store, "things", &number.to_string(), "later").await;
            }
        }
    });
    let copy = world.directory.path().join("copy.sqlite");
    store.backup(&copy).await.unwrap();
    load.await.unwrap();
    assert!(matches!(store.backup(&copy).await, Err(BackupError::Exists { .. })));
    let last = store.revision();
    store.close().await;

    let original = world.directory.path().join("store.sqlite");
    assert!(matches!(restore(&copy, &original), Err(RestoreError::Exists { .. })));
    let target = world.directory.path().join("restored.sqlite");
    restore(&copy, &target).unwrap();
    let store = Session::open(Config::sqlite(&target)).await;
    assert_eq!(all(&store, "things").entries.len(), 300);
    assert!(store.revision().get() > last.get() + 900_000_000);
    assert!(store.watch("things", last).is_err(), "old revisions are too old now");
    let revision = store.revision();
    assert_eq!(set(&store, "things", "new", "1").await.get(), revision.get() + 1);
    store.close().await;
}

#[tokio::test]
async fn a_damaged_backup_is_not_restored() {
    let world = World::sqlite().await;
    let store = world.open().await;
    for number in 0..200 {
        set(&store, "things", &number.to_string(), &"v".repeat(500)).await;
    }
    let copy = world.directory.path().join("copy.sqlite");
    store.backup(&copy).await.unwrap();
    store.close().await;
    let mut bytes = std::fs::read(&copy).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xff);
    std::fs::write(&copy, bytes).unwrap();
    let target = world.directory.path().join("restored.sqlite");
    assert!(restore(&copy, &target).is_err());
    assert!(!target.exists());
    assert!(!world.directory.path().join("restored.sqlite.partial").exists());
}

/// Runs `a_disk_that_fails` as a process of its own, because the failure it provokes
/// would hit every other test in this one. The shell makes it survive the signal that
/// comes with it.
#[test]
fn a_failing_disk_refuses_writes_and_leaves_no_doubt_behind() {
    let output = std::process::Command::new("/bin/sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["sqlite::a_disk_that_fails", "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by another test as a process of its own"]
async fn a_disk_that_fails() {
    let world = World::sqlite().await;
    let retention = Retention { age: Duration::from_secs(1), ..Retention::default() };
    for round in 0..10 {
        let store = world.open_keeping(retention).await;
        let before = set(&store, "things", "a", &format!("before {round}")).await;
        limit_files(Some(0));
        let refused = store.write(put("things", "a", "during", Expect::At(before))).await;
        let refused = refused.unwrap_err();
        let failed = matches!(refused, WriteError::Unavailable { .. } | WriteError::Unknown { .. });
        assert!(failed, "{refused}");
        assert!(matches!(store.health(), Err(Unhealthy::Unavailable { .. })));
        let again = store.write(put("things", "b", "during", Expect::Any)).await.unwrap_err();
        assert!(matches!(again, WriteError::Unavailable { .. }), "{again}");
        assert_eq!(all(&store, "things").entries.len(), 1 + usize::from(round > 0));

        limit_files(None);
        until("health to recover by itself", async || store.health().is_ok()).await;
        let now = store.get("things", "a").unwrap();
        if matches!(refused, WriteError::Unavailable { .. }) {
            assert_eq!(now.revision, before);
        }
        set(&store, "things", "b", &format!("after {round}")).await;
        let (revision, expected) = (store.revision(), contents(&all(&store, "things")));
        store.close().await;
        let store = world.open().await;
        assert_eq!((store.revision(), contents(&all(&store, "things"))), (revision, expected));
        store.close().await;
    }
}

/// Makes writes beyond this size of a file fail.
fn limit_files(size: Option<u64>) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: size.or(maximum), maximum }).unwrap();
}
