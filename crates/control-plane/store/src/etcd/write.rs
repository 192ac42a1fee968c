//! One write as one transaction.
//!
//! If the answer to a transaction is lost, the key is read back, and a version with
//! the tag of this write proves that it was done. The opposite cannot be proved: a
//! request may still be on its way, or its version already be replaced. Such a write
//! is reported as unknown, except where etcd says or the connection shows that it
//! never got in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use super::link::{EtcdLink, LinkError, REQUEST, revision};
use super::value::{Tag, opened, sealed};
use super::{Offset, cause};
use crate::mirror::Mirror;
use crate::shape::{Shape, StoredVersion};
use crate::store::FenceError;
use crate::write::{Expect, MAX_VALUE, Write, WriteChange, WriteError, Written};

/// How long to search for a write of which the answer was lost.
const READ_BACK: Duration = Duration::from_secs(2);

pub(super) async fn write<S: Shape>(
    link: &EtcdLink,
    offset: Offset,
    mirror: &Mirror<S>,
    write: Write,
) -> Result<Written<S>, WriteError> {
    let tag = Tag::new_v4();
    let done = match link.txn(transaction(link, offset, &write, tag)).await {
        Ok(response) if response.succeeded() => CommittedWrite::by(&response),
        Ok(response) => {
            let current = version_in(&response).map(|found| offset.revision(found.mod_revision()));
            return Err(WriteError::Conflict { current });
        }
        Err(error) => {
            let refusal = refusal(error, &write);
            match read_back(link, &write, tag, &refusal).await {
                Some(done) => done,
                None => return Err(refusal),
            }
        }
    };
    let revision = offset.revision(done.at);
    if !mirror.reached(revision, REQUEST).await {
        let source = cause(FenceError::Behind { revision });
        return Err(WriteError::Unknown { source });
    }
    let event = mirror.event(&write.table, &write.name, revision);
    let entry = match &event {
        Some(event) => event.new.clone().or_else(|| event.old.clone()),
        // So much was written since that the event has left the history.
        None => done.version.map(|found| remade(link, mirror.shape(), offset, &write, &found)),
    };
    let entry = entry.expect("etcd returns the version a transaction made or removed");
    Ok(Written { revision, entry })
}

fn transaction(link: &EtcdLink, offset: Offset, write: &Write, tag: Tag) -> Txn {
    let key = link.keys.value(&write.table, &write.name);
    let is = |revision| Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
    // No key has a negative revision.
    let never = -1;
    let conditions = match (write.expect, &write.change) {
        (Expect::At(expected), _) => vec![is(offset.etcd(expected).unwrap_or(never))],
        (Expect::Absent, WriteChange::Put(_)) => vec![is(0)],
        (Expect::Absent, WriteChange::Delete) => vec![is(never)],
        (Expect::Any, WriteChange::Put(_)) => vec![],
        (Expect::Any, WriteChange::Delete) => {
            vec![Compare::mod_revision(key.clone(), CompareOp::Greater, 0)]
        }
    };
    let read = || TxnOp::get(key.clone(), Some(GetOptions::new().with_keys_only()));
    let operations = match &write.change {
        WriteChange::Put(value) => {
            let value = link.sealing.seal(&write.table, &write.name, value);
            vec![TxnOp::put(key.clone(), sealed(&value, tag), None), read()]
        }
        WriteChange::Delete => {
            vec![TxnOp::delete(key.clone(), Some(DeleteOptions::new().with_prev_key()))]
        }
    };
    Txn::new().when(conditions).and_then(operations).or_else([read()])
}

/// A transaction that was carried out.
struct CommittedWrite {
    at: i64,
    /// The version that it created or removed.
    version: Option<KeyValue>,
}

impl CommittedWrite {
    fn by(response: &TxnResponse) -> Self {
        Self { at: revision(response.header()), version: version_in(response) }
    }
}

/// Checks whether a write of which the answer was lost is there. The removal of a key
/// leaves no tag to find.
async fn read_back(
    link: &EtcdLink,
    write: &Write,
    tag: Tag,
    refusal: &WriteError,
) -> Option<CommittedWrite> {
    let (WriteError::Unknown { .. }, WriteChange::Put(_)) = (refusal, &write.change) else {
        return None;
    };
    let key = link.keys.value(&write.table, &write.name);
    let reading = tokio::time::timeout(READ_BACK, link.get(key, GetOptions::new()));
    let version = reading.await.ok()?.ok()?.take_kvs().pop()?;
    let (_, found) = opened(version.value());
    (found == Some(tag))
        .then(|| CommittedWrite { at: version.mod_revision(), version: Some(version) })
}

/// The version a transaction made, removed or was refused for.
fn version_in(response: &TxnResponse) -> Option<KeyValue> {
    response.op_responses().into_iter().find_map(|answer| match answer {
        TxnOpResponse::Get(mut answer) => answer.take_kvs().pop(),
        TxnOpResponse::Delete(mut answer) => answer.take_prev_kvs().pop(),
        _ => None,
    })
}

fn remade<S: Shape>(
    link: &EtcdLink,
    shape: &S,
    offset: Offset,
    write: &Write,
    found: &KeyValue,
) -> Arc<StoredVersion<S::Item>> {
    let revision = offset.revision(found.mod_revision());
    let created = offset.revision(found.create_revision());
    let value = match &write.change {
        WriteChange::Put(value) => value.clone(),
        // The removed version was in the mirror, so it could be decrypted.
        WriteChange::Delete => {
            let stored = Bytes::copy_from_slice(opened(found.value()).0);
            link.sealing.open(&write.table, &write.name, stored).unwrap_or_default()
        }
    };
    let item = shape.shape(&write.table, &write.name, value, revision, created);
    Arc::new(StoredVersion { name: Arc::clone(&write.name), revision, created, item })
}

fn refusal(error: LinkError, write: &Write) -> WriteError {
    if error.is_no_space() {
        WriteError::NoSpace
    } else if error.is_too_large() {
        let size = match &write.change {
            WriteChange::Put(value) => value.len(),
            WriteChange::Delete => 0,
        };
        WriteError::TooLarge { size, limit: MAX_VALUE }
    } else if error.is_unsent() {
        WriteError::Unavailable { source: cause(error) }
    } else {
        WriteError::Unknown { source: cause(error) }
    }
}
