//! Talking to the cluster: connecting, bounded waiting, and reading its refusals.

use std::error::Error;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, GetResponse, Identity,
    KvClient, TlsOptions, Txn, TxnOp, TxnResponse, WatchClient, WatchOptions, WatchStream,
};

use tokio::time::Instant;

use super::OpenError;
use super::key::Keys;
use crate::config::{EtcdConfig, EtcdTls};
use crate::seal::{SealError, Sealing};

/// How long any single request may take.
pub(super) const REQUEST: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(2);
/// The least time for an attempt. One that is cut off leaves its outcome unknown, although
/// the attempt before it is known to have failed.
const ATTEMPT: Duration = Duration::from_secs(1);
/// A connection without a sign of life for both of these together is given up. etcd
/// turns away clients that ask for one more often than every five seconds.
const PING: Duration = Duration::from_secs(7);
const PONG: Duration = Duration::from_secs(3);
/// A page of a load or a burst of events may be far above the usual 4 MiB.
const MESSAGE: usize = 1 << 30;

/// A connection to the cluster that repairs itself; clones share it.
#[derive(Clone)]
pub(super) struct EtcdLink {
    kv: KvClient,
    watch: WatchClient,
    pub(super) keys: Keys,
    pub(super) sealing: Arc<Sealing>,
}

/// Why a request to etcd failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("etcd did not answer in time")]
    Timeout,
    #[error("a request to etcd failed")]
    Failed { source: etcd_client::Error },
    #[error("etcd has forgotten revisions it had acknowledged")]
    WentBack,
    #[error(transparent)]
    Sealed(#[from] SealError),
}

/// A single key and the revision of the store when it was read.
pub(super) struct Stored {
    pub(super) value: Option<Vec<u8>>,
    pub(super) version: i64,
    pub(super) now: i64,
}

impl EtcdLink {
    pub(super) async fn connect(
        config: &EtcdConfig,
        sealing: Arc<Sealing>,
    ) -> Result<Self, OpenError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(PING, PONG)
            .with_keep_alive_while_idle(true)
            // A member cut off from its peers ends its watches instead of going quiet.
            .with_require_leader(true);
        if let Some(tls) = &config.tls {
            options = options.with_tls(tls_options(tls)?);
        }
        let client = Client::connect(&config.endpoints, Some(options))
            .await
            .map_err(|source| OpenError::Endpoints { source })?;
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(MESSAGE),
            watch: client.watch_client().max_decoding_message_size(MESSAGE),
            keys: Keys::new(&config.prefix),
            sealing,
        })
    }

    pub(super) async fn get(
        &self,
        key: impl Into<Vec<u8>>,
        options: GetOptions,
    ) -> Result<GetResponse, LinkError> {
        let key = key.into();
        retried(RetryRule::Harmless, || {
            let (mut kv, key, options) = (self.kv.clone(), key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        })
        .await
    }

    /// Reads one key as of now, whichever member answers.
    pub(super) async fn read(&self, key: String) -> Result<Stored, LinkError> {
        let response = self.get(key, GetOptions::new()).await?;
        let now = revision(response.header());
        let found = response.kvs().first();
        Ok(Stored {
            value: found.map(|found| found.value().to_vec()),
            version: found.map_or(0, etcd_client::KeyValue::version),
            now,
        })
    }

    pub(super) async fn txn(&self, txn: Txn) -> Result<TxnResponse, LinkError> {
        retried(RetryRule::IfUnsent, || {
            let (mut kv, txn) = (self.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        })
        .await
    }

    /// Writes a key without condition, and says as which revision.
    pub(super) async fn put(&self, key: String, value: &str) -> Result<i64, LinkError> {
        let response = retried(RetryRule::Harmless, || {
            let (mut kv, key) = (self.kv.clone(), key.clone());
            async move { kv.put(key, value, None).await }
        });
        Ok(revision(response.await?.header()))
    }

    pub(super) async fn delete(&self, key: String) -> Result<(), LinkError> {
        let response = retried(RetryRule::Harmless, || {
            let (mut kv, key) = (self.kv.clone(), key.clone());
            async move { kv.delete(key, None).await }
        });
        response.await.map(drop)
    }

    /// Writes a key if it is absent. Says whether it was.
    pub(super) async fn create(&self, key: String, value: &str) -> Result<bool, LinkError> {
        let absent = Compare::mod_revision(key.clone(), CompareOp::Equal, 0);
        let txn = Txn::new().when([absent]).and_then([TxnOp::put(key, value, None)]);
        Ok(self.txn(txn).await?.succeeded())
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), LinkError> {
        let response = retried(RetryRule::IfUnsent, || {
            let mut kv = self.kv.clone();
            async move { kv.compact(revision, None).await }
        });
        response.await.map(drop)
    }

    /// Watches all keys from `start` on.
    pub(super) async fn watch(&self, start: i64) -> Result<WatchStream, LinkError> {
        let options = WatchOptions::new().with_prefix().with_start_revision(start);
        retried(RetryRule::Harmless, || {
            let (mut watch, options) = (self.watch.clone(), options.clone());
            let root = self.keys.root();
            async move { watch.watch(root, Some(options)).await }
        })
        .await
    }
}

pub(super) fn revision(header: Option<&etcd_client::ResponseHeader>) -> i64 {
    header.map_or(0, etcd_client::ResponseHeader::revision)
}

/// When a failed request may be made again.
#[derive(Clone, Copy)]
enum RetryRule {
    /// Doing it twice is the same as doing it once.
    Harmless,
    IfUnsent,
}

/// Makes a request until it succeeds, cannot be repeated, or has taken too long. Some
/// members may be down; every attempt may go to another.
async fn retried<T, F>(repeat: RetryRule, request: impl Fn() -> F) -> Result<T, LinkError>
where
    F: Future<Output = Result<T, etcd_client::Error>>,
{
    let deadline = Instant::now() + REQUEST;
    let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));
    loop {
        let error = match tokio::time::timeout_at(deadline, request()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(source)) => LinkError::Failed { source },
            Err(_) => return Err(LinkError::Timeout),
        };
        let repeatable = match repeat {
            RetryRule::Harmless => error.is_unsent() || error.is_transport(),
            RetryRule::IfUnsent => error.is_unsent(),
        };
        let delay = backoff.delay();
        if !repeatable || Instant::now() + delay + ATTEMPT >= deadline {
            return Err(error);
        }
        tokio::time::sleep(delay).await;
    }
}

impl LinkError {
    pub(super) fn is_compacted(&self) -> bool {
        self.says("required revision has been compacted")
    }

    pub(super) fn is_no_space(&self) -> bool {
        self.says("database space exceeded")
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.says("request is too large") || self.says("message larger than max")
    }

    /// Whether the request certainly never reached the store: etcd turned it away at
    /// the door, or there was no connection to send it over.
    pub(super) fn is_unsent(&self) -> bool {
        self.says("etcdserver: no leader")
            || self.says("etcdserver: too many requests")
            || self.is_unconnected()
    }

    /// Whether it came from the way to etcd, or from a cluster without a leader, and
    /// not from what was asked.
    fn is_transport(&self) -> bool {
        const UNAVAILABLE: i32 = 14;
        match self {
            Self::Failed { source: etcd_client::Error::GRpcStatus(status) } => {
                status.code() as i32 == UNAVAILABLE || status.source().is_some()
            }
            Self::Failed { source: etcd_client::Error::TransportError(_) } => true,
            _ => false,
        }
    }

    /// etcd has no other names for its refusals than their texts.
    fn says(&self, text: &str) -> bool {
        match self {
            Self::Failed { source: etcd_client::Error::GRpcStatus(status) } => {
                status.message().contains(text)
            }
            _ => false,
        }
    }

    fn is_unconnected(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        let Self::Failed { source: etcd_client::Error::GRpcStatus(status) } = self else {
            return false;
        };
        let causes = std::iter::successors(status.source(), |error| (*error).source());
        let mut kinds = causes.filter_map(|error| Some(error.downcast_ref::<io::Error>()?.kind()));
        kinds.any(|kind| matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable))
    }
}

fn tls_options(tls: &EtcdTls) -> Result<TlsOptions, OpenError> {
    let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(pem(&tls.ca)?));
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        options = options.identity(Identity::from_pem(pem(cert)?, pem(key)?));
    }
    Ok(options)
}

fn pem(path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(|source| OpenError::Tls { path: path.to_owned(), source })
}
