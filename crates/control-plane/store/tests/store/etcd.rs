//! Tests of the etcd engine alone: a cluster that becomes unavailable, other writers, and
//! compaction by others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::Client;
use store::{
    Config, CopyError, CopyProgress, EtcdConfig, Expect, Retention, Revision, Store, Unhealthy,
    WatchError, WriteError, backup_etcd, copy,
};

use crate::etcd_server::EtcdServer;
use crate::proxy::Proxy;
use crate::world::{
    LIMIT, Plain, Plainly, Session, World, all, contents, delete, events, put, remove, set, until,
};

async fn client(world: &World) -> Client {
    Client::connect([world.etcd.as_ref().unwrap().endpoint()], None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_see_each_others_writes() {
    let world = World::etcd().await;
    let (one, two) = (world.open().await, world.open().await);
    let mut watcher = two.watch("things", two.revision()).unwrap();
    let first = set(&one, "things", "a", "1").await;
    assert!(two.fence().await.unwrap() >= first);
    assert_eq!(contents(&all(&two, "things")), ["a=1"]);
    let second = two.write(put("things", "a", "2", Expect::At(first))).await.unwrap().revision;
    one.fence().await.unwrap();
    assert_eq!(contents(&all(&one, "things")), ["a=2"]);
    let refused = one.write(put("things", "a", "3", Expect::At(first))).await.unwrap_err();
    assert!(matches!(refused, WriteError::Conflict { current } if current == Some(second)));
    let expected = [format!("{first} a ->1"), format!("{second} a 1>2")];
    assert_eq!(events(&mut watcher, 2).await, expected);
    one.close().await;
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_others_do_not_hold_up_a_fence() {
    let world = World::etcd().await;
    let store = world.open().await;
    let mut client = client(&world).await;
    client.put("/foreign", "x", None).await.unwrap();
    let response = client.put("/registry/pods/default/foreign", "x", None).await.unwrap();
    client.put("/foreign", "y", None).await.unwrap();
    let foreign = response.header().unwrap().revision();
    let reached = tokio::time::timeout(LIMIT, store.fence()).await.unwrap().unwrap();
    assert!(reached > Revision::new(foreign.cast_unsigned()));
    assert!(store.tables().is_empty(), "keys of others are not ours: {:?}", store.tables());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_cluster_refuses_writes_and_comes_back() {
    let mut world = World::etcd().await;
    let store = world.open().await;
    set(&store, "things", "a", "1").await;
    world.etcd.as_mut().unwrap().kill();
    until("health to report it", async || {
        matches!(store.health(), Err(Unhealthy::Unavailable { .. }))
    })
    .await;
    let refused = tokio::time::timeout(LIMIT, store.write(put("things", "a", "2", Expect::Any)));
    let refused = refused.await.expect("a bounded wait").unwrap_err();
    assert!(matches!(refused, WriteError::Unavailable { .. }), "{}", base::Chain(&refused));
    assert!(store.fence().await.is_err());
    assert_eq!(contents(&all(&store, "things")), ["a=1"], "reads go on");

    world.etcd.as_mut().unwrap().restart().await;
    until("health to recover", async || store.health().is_ok()).await;
    set(&store, "things", "a", "3").await;
    assert_eq!(contents(&all(&store, "things")), ["a=3"]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_killed_under_load_loses_and_repeats_nothing() {
    const WRITERS: usize = 4;
    let mut world = World::etcd().await;
    let store = world.open().await;
    let start = store.revision();
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write_until(store.store.clone(), writer, Arc::clone(&done))))
        .collect();
    for _ in 0..2 {
        let target = Revision::new(store.revision().get() + 50);
        assert!(store.reached(target, LIMIT).await, "no progress");
        world.etcd.as_mut().unwrap().kill();
        until("health to report it", async || store.health().is_err()).await;
        world.etcd.as_mut().unwrap().restart().await;
        until("health to recover", async || store.health().is_ok()).await;
    }
    let target = Revision::new(store.revision().get() + 50);
    assert!(store.reached(target, LIMIT).await, "no progress after the restart");
    done.store(true, Ordering::Relaxed);

    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let end = store.fence().await.unwrap();
    let seen = history(&store, start, end).await;
    for (revision, value) in &acknowledged {
        assert_eq!(seen.get(revision), Some(value), "write {revision} was acknowledged");
    }
    // A second store agrees on the outcome.
    let other = world.open().await;
    assert_eq!(contents(&all(&other, "things")), contents(&all(&store, "things")));
    other.close().await;
    store.close().await;
}

/// The values written after `start`, each of which must come once and in order.
async fn history(store: &Plainly, start: Revision, end: Revision) -> BTreeMap<Revision, String> {
    let mut seen = BTreeMap::new();
    let mut watcher = store.watch("things", start).unwrap();
    let mut last = start;
    while watcher.seen() < end {
        for event in watcher.next(64).await.unwrap() {
            assert!(event.revision > last, "events are ordered and come once");
            last = event.revision;
            let new = event.new.as_ref().unwrap();
            seen.insert(event.revision, String::from_utf8_lossy(&new.item).into_owned());
        }
    }
    seen
}

async fn write_until(
    store: Plainly,
    writer: usize,
    done: Arc<AtomicBool>,
) -> BTreeMap<Revision, String> {
    let mut acknowledged = BTreeMap::new();
    for step in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let (name, value) = (format!("{writer}-{}", step % 7), format!("{writer}.{step}"));
        match store.write(put("things", &name, value.clone(), Expect::Any)).await {
            Ok(written) => assert_eq!(acknowledged.insert(written.revision, value), None),
            Err(WriteError::Unavailable { .. } | WriteError::Unknown { .. }) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_of_three_may_die() {
    let directory = tempfile::TempDir::new().unwrap();
    let mut members = EtcdServer::start_three(directory.path()).await;
    let endpoints: Vec<String> = members.iter().map(EtcdServer::endpoint).collect();
    let store = Session::open(Config::etcd(EtcdConfig::new(endpoints))).await;
    let start = store.revision();
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| tokio::spawn(write_until(store.store.clone(), writer, Arc::clone(&done))))
        .collect();
    for member in &mut members {
        let target = Revision::new(store.revision().get() + 30);
        assert!(store.reached(target, LIMIT).await, "no progress with all members");
        member.kill();
        let target = Revision::new(store.revision().get() + 30);
        assert!(store.reached(target, LIMIT).await, "no progress without one member");
        member.restart().await;
    }
    done.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let end = store.fence().await.unwrap();
    let seen = history(&store, start, end).await;
    for (revision, value) in &acknowledged {
        assert_eq!(seen.get(revision), Some(value), "write {revision} was acknowledged");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_of_which_the_answer_was_lost_is_found_again() {
    let world = World::etcd().await;
    let proxy = Proxy::start(&world.etcd.as_ref().unwrap().endpoint()).await;
    let store = Session::open(Config::etcd(EtcdConfig::new(vec![proxy.endpoint()]))).await;
    let first = set(&store, "things", "a", "1").await;
    let mut watcher = store.watch("things", first).unwrap();
    proxy.mute();
    let writing = tokio::spawn({
        let store = store.store.clone();
        async move { store.write(put("things", "a", "2", Expect::At(first))).await }
    });
    let mut direct = client(&world).await;
    until("the write to arrive", async || {
        let found = direct.get("/registry/things//a", None).await.unwrap();
        found.kvs()[0].value().starts_with(b"2")
    })
    .await;
    proxy.cut();
    let written = writing.await.unwrap().unwrap();
    assert_eq!(events(&mut watcher, 1).await, [format!("{} a 1>2", written.revision)]);
    assert_eq!(store.get("things", "a").unwrap().revision, written.revision);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_of_which_the_answer_was_lost_is_unknown() {
    let world = World::etcd().await;
    let proxy = Proxy::start(&world.etcd.as_ref().unwrap().endpoint()).await;
    let store = Session::open(Config::etcd(EtcdConfig::new(vec![proxy.endpoint()]))).await;
    set(&store, "things", "a", "1").await;
    proxy.mute();
    let deleting = tokio::spawn({
        let store = store.store.clone();
        async move { store.write(delete("things", "a", Expect::Any)).await }
    });
    let mut direct = client(&world).await;
    until("the deletion to arrive", async || {
        direct.get("/registry/things//a", None).await.unwrap().kvs().is_empty()
    })
    .await;
    proxy.cut();
    let outcome = deleting.await.unwrap();
    assert!(matches!(outcome, Err(WriteError::Unknown { .. })), "{outcome:?}");
    store.fence().await.unwrap();
    assert!(store.get("things", "a").is_none());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_lost_while_disconnected_ends_watches() {
    let mut world = World::etcd().await;
    let store = world.open().await;
    set(&store, "things", "kept", "1").await;
    set(&store, "things", "changed", "1").await;
    set(&store, "things", "gone", "1").await;
    let mut watcher = store.watch("things", store.revision()).unwrap();
    // Out of reach for our store only: the cluster comes back on another port and is
    // changed and compacted there before it returns.
    let server = world.etcd.as_mut().unwrap();
    server.kill();
    until("health to report it", async || store.health().is_err()).await;
    server.swap_port();
    server.restart().await;
    let other = world.open().await;
    set(&other, "things", "changed", "2").await;
    remove(&other, "things", "gone").await;
    let last = set(&other, "others", "new", "1").await;
    let mut client = client(&world).await;
    client.compact(last.get().cast_signed(), None).await.unwrap();
    other.close().await;
    let server = world.etcd.as_mut().unwrap();
    server.kill();
    server.swap_port();
    server.restart().await;

    until("health to recover", async || store.health().is_ok()).await;
    assert!(store.fence().await.unwrap() >= last);
    assert_eq!(contents(&all(&store, "things")), ["changed=2", "kept=1"]);
    assert_eq!(contents(&all(&store, "others")), ["new=1"]);
    let lagged = tokio::time::timeout(LIMIT, watcher.next(1)).await.unwrap();
    assert!(matches!(lagged, Err(WatchError::Lagged { oldest }) if oldest >= last));
    let page = all(&store, "things");
    let mut watcher = store.watch("things", page.revision).unwrap();
    let next = set(&store, "things", "kept", "2").await;
    assert_eq!(events(&mut watcher, 1).await, [format!("{next} kept 1>2")]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_compacted_by_one_of_the_stores() {
    let world = World::etcd().await;
    let retention = Retention { age: Duration::from_millis(300), ..Retention::default() };
    let (one, two) = (world.open_keeping(retention).await, world.open_keeping(retention).await);
    let first = set(&one, "things", "a", "0").await;
    let mut client = client(&world).await;
    let mut step = 0;
    until("etcd to drop the first revision", async || {
        step += 1;
        set(&one, "things", "a", &step.to_string()).await;
        let past = etcd_client::GetOptions::new().with_revision(first.get().cast_signed());
        client.get("/registry/things//a", Some(past)).await.is_err()
    })
    .await;
    let value = contents(&all(&one, "things"));
    one.close().await;
    two.close().await;
    // A store opened now starts with the history that is left.
    let store = world.open().await;
    assert_eq!(contents(&all(&store, "things")), value);
    assert!(store.oldest("things") > first);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_from_its_file_to_etcd() {
    let file = World::sqlite().await;
    let session = file.open().await;
    for number in 0..250 {
        set(&session, "things", &format!("ns/{number}"), &"v".repeat(10_000)).await;
    }
    set(&session, "group.io/others", "x", "1").await;
    remove(&session, "things", "ns/7").await;
    let (last, expected) = (session.revision(), contents(&all(&session, "things")));
    let world = World::etcd().await;
    let path = file.directory.path().join("store.sqlite");
    let store::Engine::Etcd(etcd) = world.config().engine else { panic!() };
    let in_use = copy(&path, &etcd, |_| {}).await;
    assert!(matches!(in_use, Err(CopyError::Open { .. })));
    session.close().await;

    let mut reports = Vec::new();
    copy(&path, &etcd, |progress| reports.push(progress)).await.unwrap();
    assert_eq!(reports.last(), Some(&CopyProgress { copied: 250, total: 250 }));
    assert!(reports.len() > 3);
    let again = copy(&path, &etcd, |_| {}).await;
    assert!(matches!(again, Err(CopyError::NotEmpty { .. })));

    let store = world.open().await;
    assert_eq!(contents(&all(&store, "things")), expected);
    assert_eq!(contents(&all(&store, "group.io/others")), ["x=1"]);
    assert!(all(&store, "things").entries.iter().all(|entry| entry.revision > last));
    assert!(store.watch("things", last).is_err(), "revisions of the file are too old");
    let old = store.write(put("things", "ns/1", "x", Expect::At(last))).await;
    assert!(matches!(old, Err(WriteError::Conflict { .. })));
    let current = store.get("things", "ns/1").unwrap().revision;
    store.write(put("things", "ns/1", "x", Expect::At(current))).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_etcd_is_restored_into_a_file() {
    let world = World::etcd().await;
    let session = world.open().await;
    for number in 0..1200 {
        set(&session, "things", &format!("ns/{number}"), &format!("v{number}")).await;
    }
    set(&session, "group.io/others", "x", "1").await;
    set(&session, "group.io/others", "x", "2").await;
    remove(&session, "things", "ns/7").await;
    let (last, expected) = (session.revision(), contents(&all(&session, "things")));
    let store::Engine::Etcd(etcd) = world.config().engine else { panic!() };
    let file = World::sqlite().await;
    let backup = file.directory.path().join("backup.db");
    // The store is in use meanwhile.
    assert_eq!(backup_etcd(&etcd, &backup).await.unwrap(), 1200);
    set(&session, "things", "later", "1").await;
    session.close().await;
    let again = backup_etcd(&etcd, &backup).await.unwrap_err();
    assert!(again.to_string().contains("exists already"), "{again}");

    store::restore(&backup, &file.directory.path().join("store.sqlite")).unwrap();
    let store = file.open().await;
    assert_eq!(contents(&all(&store, "things")), expected);
    assert_eq!(contents(&all(&store, "group.io/others")), ["x=2"]);
    assert!(store.revision() > last);
    assert!(store.watch("things", last).is_err(), "the revision of clients is too old");
    let current = store.get("things", "ns/1").unwrap().revision;
    store.write(put("things", "ns/1", "x", Expect::At(current))).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_returns_from_etcd_to_its_file() {
    let world = World::etcd().await;
    let session = world.open().await;
    let early = set(&session, "things", "ns/1", "v1").await;
    set(&session, "things", "ns/2", "v2").await;
    remove(&session, "things", "ns/2").await;
    let last = set(&session, "group.io/others", "x", "1").await;
    session.close().await;

    let store::Engine::Etcd(etcd) = world.config().engine else { panic!() };
    let file = World::sqlite().await;
    let path = file.directory.path().join("store.sqlite");
    assert_eq!(backup_etcd(&etcd, &path).await.unwrap(), 2);
    let store = file.open().await;
    assert_eq!(contents(&all(&store, "things")), ["ns/1=v1"]);
    assert_eq!(contents(&all(&store, "group.io/others")), ["x=1"]);
    // Objects keep their revisions, and no revision is given again.
    assert_eq!(store.get("things", "ns/1").unwrap().revision, early);
    assert!(store.revision() >= last);
    assert!(store.watch("things", early).is_err(), "there is no history to continue from");
    let mut watcher = store.watch("things", store.revision()).unwrap();
    let next = store.write(put("things", "ns/1", "v3", Expect::At(early))).await.unwrap().revision;
    assert!(next > last);
    assert_eq!(events(&mut watcher, 1).await, [format!("{next} ns/1 v1>v3")]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_copy_is_not_opened() {
    let world = World::etcd().await;
    client(&world).await.put("/registry///copy", "", None).await.unwrap();
    let error = Store::open(world.config(), Plain, &base::Tasks::default()).await.unwrap_err();
    assert!(base::Chain(&error).to_string().contains("unfinished copy"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_tls_is_reached_with_certificates() {
    let world = World::etcd_with_tls().await;
    let session = Session::open(world.config()).await;
    set(&session, "things", "a", "1").await;
    assert_eq!(contents(&all(&session, "things")), ["a=1"]);
    session.close().await;

    let store::Engine::Etcd(mut etcd) = world.config().engine else { panic!() };
    if let Some(tls) = &mut etcd.tls {
        (tls.cert, tls.key) = (None, None);
    }
    let tasks = base::Tasks::default();
    let stranger = Store::open(Config::etcd(etcd), Plain, &tasks).await;
    assert!(stranger.is_err(), "the cluster asks for a certificate");
}
