//! Encrypted values, on both engines.

use std::sync::Arc;

use base::{Chain, Tasks};
use store::{Config, Expect, Method, Range, SealKey, SealRule, Sealing, Store};

use crate::world::{Plain, Session, World, put, remove, set};

fn key(name: &str, byte: u8) -> SealKey {
    SealKey::new(name, Method::AesGcm, &[byte; 32]).unwrap()
}

fn sealing(writes: Option<SealKey>, reads: Vec<SealKey>) -> Sealing {
    let covers = Arc::new(|table: &str| table == "secrets");
    Sealing::new(vec![SealRule { covers, writes, reads }])
}

fn with(world: &World, sealing: Sealing) -> Config {
    Config { sealing: Arc::new(sealing), ..world.config() }
}

fn value(session: &Session, name: &str) -> String {
    let entry = session.get("secrets", name).unwrap();
    String::from_utf8(entry.item.to_vec()).unwrap()
}

/// Why the store does not open. One in etcd that is read back from a little earlier may notice
/// first that it cannot follow; it says why when it is opened again.
async fn refusal(config: Config) -> String {
    let mut complaint = String::new();
    for _ in 0..5 {
        let tasks = Tasks::default();
        let Err(error) = Store::open(config.clone(), Plain, &tasks).await else {
            panic!("it opened without its key")
        };
        complaint = Chain(&error).to_string();
        if !complaint.contains("did not reach revision") {
            break;
        }
    }
    complaint
}

async fn a_value_needs_its_key(world: World) {
    let session = Session::open(with(&world, sealing(Some(key("one", 1)), vec![]))).await;
    let mut watch = session.watch("secrets", session.revision()).unwrap();
    set(&session, "secrets", "a", "first").await;
    set(&session, "secrets", "a", "second").await;
    set(&session, "plain", "a", "open").await;
    let seen = watch.next(10).await.unwrap();
    assert_eq!(seen[0].new.as_ref().unwrap().item, "first", "memory has it plain");
    session.write(put("secrets", "b", "other", Expect::Absent)).await.unwrap();
    remove(&session, "secrets", "b").await;
    drop(watch);
    session.close().await;

    let complaint = refusal(world.config()).await;
    assert!(complaint.contains("secrets a is encrypted with key \"one\" (aesgcm)"), "{complaint}");
    let complaint = refusal(with(&world, sealing(Some(key("one", 9)), vec![]))).await;
    assert!(complaint.contains("cannot be decrypted with key \"one\""), "{complaint}");

    // Another key seals from now on, and in the end nothing needs the first one.
    let both = || sealing(Some(key("two", 2)), vec![key("one", 1)]);
    let session = Session::open(with(&world, both())).await;
    assert_eq!(value(&session, "a"), "second");
    set(&session, "secrets", "c", "third").await;
    let before = session.revision();
    session.close().await;
    let mut last = 0;
    let count = store::reencrypt(with(&world, both().counting_stale()), |progress| {
        last = progress.copied;
    });
    assert_eq!((count.await.unwrap(), last), (1, 1), "the newer one was sealed well");

    let session = Session::open(with(&world, sealing(Some(key("two", 2)), vec![]))).await;
    assert_eq!((value(&session, "a"), value(&session, "c")), ("second".into(), "third".into()));
    assert!(session.revision() > before);
    let plain = session.list("plain", Range::default()).unwrap();
    assert_eq!(plain.entries[0].item, "open");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_in_a_file_needs_its_key() {
    a_value_needs_its_key(World::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_in_etcd_needs_its_key() {
    a_value_needs_its_key(World::etcd().await).await;
}
