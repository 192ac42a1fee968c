//! A private directory or etcd for the store of one test, and short functions for its use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use bytes::Bytes;
use store::{
    Config, EtcdConfig, EtcdTls, Expect, Page, Range, Retention, Revision, Shape, Store, Watcher,
    Write, WriteChange, WriteError,
};
use tempfile::TempDir;

use crate::etcd_server::EtcdServer;

/// Long enough for anything that is going to happen, on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Keeps values as they are.
pub(crate) struct Plain;

impl Shape for Plain {
    type Item = Bytes;
    type Frame = ();

    fn shape(&self, _: &str, _: &str, value: Bytes, _: Revision, _: Revision) -> Bytes {
        value
    }

    fn weight(&self, item: &Bytes) -> usize {
        item.len()
    }
}

pub(crate) type Plainly = Store<Plain>;

pub(crate) struct World {
    pub(crate) directory: TempDir,
    pub(crate) etcd: Option<EtcdServer>,
    tls: Option<EtcdTls>,
}

impl World {
    pub(crate) async fn sqlite() -> Self {
        Self { directory: TempDir::new().unwrap(), etcd: None, tls: None }
    }

    pub(crate) async fn etcd() -> Self {
        let directory = TempDir::new().unwrap();
        let etcd = Some(EtcdServer::start(directory.path(), &[]).await);
        Self { directory, etcd, tls: None }
    }

    /// An etcd that requires client certificates.
    pub(crate) async fn etcd_with_tls() -> Self {
        let directory = TempDir::new().unwrap();
        let [ca, cert, key] = certificates(directory.path());
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let options = [
            option("cert-file", &cert),
            option("key-file", &key),
            option("trusted-ca-file", &ca),
            "--client-cert-auth".to_owned(),
        ];
        let etcd = Some(EtcdServer::start(directory.path(), &options).await);
        let tls = Some(EtcdTls { ca, cert: Some(cert), key: Some(key) });
        Self { directory, etcd, tls }
    }

    pub(crate) fn config(&self) -> Config {
        match &self.etcd {
            None => Config::sqlite(self.directory.path().join("store.sqlite")),
            Some(server) => Config::etcd(EtcdConfig {
                tls: self.tls.clone(),
                ..EtcdConfig::new(vec![server.endpoint()])
            }),
        }
    }

    pub(crate) async fn open(&self) -> Session {
        Session::open(self.config()).await
    }

    pub(crate) async fn open_keeping(&self, retention: Retention) -> Session {
        Session::open(Config { retention, ..self.config() }).await
    }
}

/// A CA and one certificate that is valid for servers and clients.
fn certificates(directory: &Path) -> [PathBuf; 3] {
    let [ca_key, key] = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
    let mut ca = rcgen::CertificateParams::new(vec![]).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let leaf = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let cert = leaf.signed_by(&key, &issuer).unwrap();
    let file = |name: &str, content: String| {
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    [
        file("ca.pem", ca_cert.pem()),
        file("cert.pem", cert.pem()),
        file("key.pem", key.serialize_pem()),
    ]
}

/// An open store and its tasks.
pub(crate) struct Session {
    pub(crate) store: Plainly,
    tasks: Tasks,
}

impl Session {
    pub(crate) async fn open(config: Config) -> Self {
        let tasks = Tasks::default();
        let store = Store::open(config, Plain, &tasks).await.unwrap();
        Self { store, tasks }
    }

    /// Closes the store and waits until it is.
    pub(crate) async fn close(self) {
        drop(self.store);
        self.tasks.stop(LIMIT).await;
    }
}

impl std::ops::Deref for Session {
    type Target = Plainly;

    fn deref(&self) -> &Plainly {
        &self.store
    }
}

pub(crate) fn put(table: &str, name: &str, value: impl Into<Bytes>, expect: Expect) -> Write {
    Write { table: table.into(), name: name.into(), expect, change: WriteChange::Put(value.into()) }
}

pub(crate) fn delete(table: &str, name: &str, expect: Expect) -> Write {
    Write { table: table.into(), name: name.into(), expect, change: WriteChange::Delete }
}

/// Writes without an expectation, and returns the revision.
pub(crate) async fn set(store: &Plainly, table: &str, name: &str, value: &str) -> Revision {
    store.write(put(table, name, value.to_owned(), Expect::Any)).await.unwrap().revision
}

pub(crate) async fn remove(store: &Plainly, table: &str, name: &str) -> Revision {
    store.write(delete(table, name, Expect::Any)).await.unwrap().revision
}

pub(crate) fn all(store: &Plainly, table: &str) -> Page<Plain> {
    store.list(table, Range::default()).unwrap()
}

/// `name=value` for each entry.
pub(crate) fn contents(page: &Page<Plain>) -> Vec<String> {
    let show = |entry: &Arc<store::StoredVersion<Bytes>>| {
        format!("{}={}", entry.name, String::from_utf8_lossy(&entry.item))
    };
    page.entries.iter().map(show).collect()
}

/// The next `count` events, each as `revision name old>new`.
pub(crate) async fn events(watcher: &mut Watcher<Plain>, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let next = tokio::time::timeout(LIMIT, watcher.next(64)).await.expect("no event in time");
        seen.extend(next.unwrap().iter().map(|event| describe(event)));
    }
    assert_eq!(seen.len(), count, "more events than expected");
    seen
}

pub(crate) fn describe(event: &store::Event<Plain>) -> String {
    let text = |entry: &Option<Arc<store::StoredVersion<Bytes>>>| {
        entry.as_ref().map_or("-".to_owned(), |e| String::from_utf8_lossy(&e.item).into_owned())
    };
    format!("{} {} {}>{}", event.revision, event.name, text(&event.old), text(&event.new))
}

pub(crate) fn conflict(error: &WriteError) -> Option<Revision> {
    match error {
        WriteError::Conflict { current } => *current,
        other => panic!("expected a conflict, got {other}"),
    }
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
