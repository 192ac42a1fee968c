//! Reading everything as of one revision, page by page.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use etcd_client::{GetOptions, KeyValue};

use super::Offset;
use super::link::{EtcdLink, LinkError, revision};
use super::value::opened;
use crate::mirror::Loaded;
use crate::revision::Revision;
use crate::seal::SealError;
use crate::shape::{Shape, StoredVersion};

/// Keys per page: some megabytes of usual values.
const PAGE: i64 = 500;

pub(super) struct LoadedRange<S: Shape> {
    pub(super) tables: BTreeMap<Arc<str>, Loaded<S>>,
    pub(super) revision: Revision,
}

/// Versions the caller has in memory already, which need not be shaped again.
pub(super) type CachedVersions<'a, S> =
    &'a (dyn Fn(&str, &str, Revision) -> Option<Arc<StoredVersion<<S as Shape>::Item>>> + Sync);

/// Loads the state at revision `at` of etcd, or the present.
pub(super) async fn load<S: Shape>(
    link: &EtcdLink,
    offset: Offset,
    shape: &S,
    at: Option<i64>,
    known: CachedVersions<'_, S>,
) -> Result<LoadedRange<S>, LinkError> {
    let root = link.keys.root();
    let end = end_of_prefix(&root);
    let page = |start: Vec<u8>, at: i64| {
        let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_revision(at);
        link.get(start, options)
    };
    let mut loading = Loading { link, offset, shape, known, tables: BTreeMap::new() };
    let mut here = page(root.into_bytes(), at.unwrap_or_default()).await?;
    // All further pages are of the same moment as the first.
    let at = at.unwrap_or_else(|| revision(here.header()));
    loop {
        // etcd gathers the next page while this one is taken in.
        let next = async {
            match here.kvs().last() {
                Some(last) if here.more() => page(after(last), at).await.map(Some),
                _ => Ok(None),
            }
        };
        let take = async { here.kvs().iter().try_for_each(|kv| loading.take(kv)) };
        let (next, taken) = tokio::join!(next, take);
        taken?;
        match next? {
            Some(next) => here = next,
            None => break,
        }
    }
    let revision = offset.revision(at);
    let mut tables = loading.tables;
    tables.values_mut().for_each(|table| table.oldest = revision);
    Ok(LoadedRange { tables, revision })
}

struct Loading<'a, S: Shape> {
    link: &'a EtcdLink,
    offset: Offset,
    shape: &'a S,
    known: CachedVersions<'a, S>,
    tables: BTreeMap<Arc<str>, Loaded<S>>,
}

impl<S: Shape> Loading<'_, S> {
    fn take(&mut self, kv: &KeyValue) -> Result<(), SealError> {
        let Some((table, name)) = self.link.keys.parse(kv.key()) else { return Ok(()) };
        let revision = self.offset.revision(kv.mod_revision());
        let entry = match (self.known)(table, name, revision) {
            Some(entry) => entry,
            None => {
                let created = self.offset.revision(kv.create_revision());
                let stored = Bytes::copy_from_slice(opened(kv.value()).0);
                let value = self.link.sealing.open(table, name, stored)?;
                let item = self.shape.shape(table, name, value, revision, created);
                Arc::new(StoredVersion { name: name.into(), revision, created, item })
            }
        };
        if !self.tables.contains_key(table) {
            self.tables.insert(table.into(), Loaded::empty(Revision::ZERO));
        }
        if let Some(table) = self.tables.get_mut(table) {
            table.entries.insert(Arc::clone(&entry.name), entry);
        }
        Ok(())
    }
}

/// The first key that may follow another.
pub(super) fn after(kv: &KeyValue) -> Vec<u8> {
    let mut key = kv.key().to_vec();
    key.push(0);
    key
}

/// The first key that does not begin with `prefix`, which ends in a slash.
pub(super) fn end_of_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
