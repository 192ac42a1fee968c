//! One write as one transaction.
//!
//! The transaction compares the key's revision, so the answer to a lost answer cannot
//! be guessed from reading the key back: equal bytes may be another writer's, and an
//! unchanged key may still be changed by the request on its way. Such a write is
//! reported as unknown, except where etcd says or the connection shows that it never
//! got in.

use std::sync::Arc;

use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use super::link::{Link, LinkError, REQUEST, revision};
use super::{Offset, cause};
use crate::mirror::Mirror;
use crate::shape::{Entry, Shape};
use crate::store::FenceError;
use crate::write::{Change, Expect, MAX_VALUE, Write, WriteError, Written};

pub(super) async fn write<S: Shape>(
    link: &Link,
    offset: Offset,
    mirror: &Mirror<S>,
    write: Write,
) -> Result<Written<S>, WriteError> {
    let txn = transaction(link, offset, &write);
    let response = link.txn(txn).await.map_err(|error| refusal(error, &write))?;
    let found = version_in(&response);
    if !response.succeeded() {
        let current = found.map(|found| offset.revision(found.mod_revision()));
        return Err(WriteError::Conflict { current });
    }
    let revision = offset.revision(revision(response.header()));
    if !mirror.reached(revision, REQUEST).await {
        let source = cause(FenceError::Behind { revision });
        return Err(WriteError::Unknown { source });
    }
    let event = mirror.event(&write.table, &write.name, revision);
    let entry = match &event {
        Some(event) => event.new.clone().or_else(|| event.old.clone()),
        // So much was written since that the event has left the history.
        None => found.map(|found| remade(mirror.shape(), offset, &write, &found)),
    };
    let entry = entry.expect("etcd returns the version a transaction made or removed");
    Ok(Written { revision, entry })
}

fn transaction(link: &Link, offset: Offset, write: &Write) -> Txn {
    let key = link.keys.value(&write.table, &write.name);
    let is = |revision| Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
    // No key has a negative revision.
    let never = -1;
    let conditions = match (write.expect, &write.change) {
        (Expect::At(expected), _) => vec![is(offset.etcd(expected).unwrap_or(never))],
        (Expect::Absent, Change::Put(_)) => vec![is(0)],
        (Expect::Absent, Change::Delete) => vec![is(never)],
        (Expect::Any, Change::Put(_)) => vec![],
        (Expect::Any, Change::Delete) => {
            vec![Compare::mod_revision(key.clone(), CompareOp::Greater, 0)]
        }
    };
    let look = || TxnOp::get(key.clone(), Some(GetOptions::new().with_keys_only()));
    let operations = match &write.change {
        Change::Put(value) => vec![TxnOp::put(key.clone(), value.to_vec(), None), look()],
        Change::Delete => {
            vec![TxnOp::delete(key.clone(), Some(DeleteOptions::new().with_prev_key()))]
        }
    };
    Txn::new().when(conditions).and_then(operations).or_else([look()])
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
    shape: &S,
    offset: Offset,
    write: &Write,
    found: &KeyValue,
) -> Arc<Entry<S::Item>> {
    let revision = offset.revision(found.mod_revision());
    let created = offset.revision(found.create_revision());
    let value = match &write.change {
        Change::Put(value) => value.clone(),
        Change::Delete => Bytes::copy_from_slice(found.value()),
    };
    let item = shape.shape(&write.table, &write.name, value, revision, created);
    Arc::new(Entry { name: Arc::clone(&write.name), revision, created, item })
}

fn refusal(error: LinkError, write: &Write) -> WriteError {
    if error.is_no_space() {
        WriteError::NoSpace
    } else if error.is_too_large() {
        let size = match &write.change {
            Change::Put(value) => value.len(),
            Change::Delete => 0,
        };
        WriteError::TooLarge { size, limit: MAX_VALUE }
    } else if error.is_unsent() {
        WriteError::Unavailable { source: cause(error) }
    } else {
        WriteError::Unknown { source: cause(error) }
    }
}
