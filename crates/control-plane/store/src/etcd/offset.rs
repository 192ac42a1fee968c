//! The difference between our revisions and etcd's, and its change after a loss of data.

use std::sync::Arc;

use super::link::EtcdLink;
use super::{OpenError, established_offset};
use crate::config::EtcdConfig;
use crate::revision::Revision;

/// The difference between our revisions and etcd's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset(u64);

impl Offset {
    pub(crate) fn new(offset: u64) -> Self {
        Self(offset)
    }

    /// Of a new etcd that goes on from a store whose last revision is this one.
    pub(crate) fn after(last: Revision) -> Self {
        Self(last.get())
    }

    pub(crate) fn revision(self, etcd: i64) -> Revision {
        Revision::new(etcd.cast_unsigned() + self.0)
    }

    /// The number that etcd knows a revision by; none for one from before the copy.
    pub(crate) fn etcd(self, revision: Revision) -> Option<i64> {
        let etcd = revision.get().checked_sub(self.0)?;
        i64::try_from(etcd).ok().filter(|etcd| *etcd > 0)
    }

    /// The offset of an etcd that lost an unknown number of writes and is at revision `etcd` now:
    /// no revision that clients may have seen is given again, or taken for another.
    pub(crate) fn leapt(self, etcd: i64, unix_seconds: i64) -> Self {
        Self::after(self.revision(etcd).leapt(unix_seconds))
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

/// Raises the revisions of a store in etcd above all that clients may have seen, after members with
/// newer writes were lost. No server may have the store open: its revisions would differ from
/// those of others.
pub async fn raise_revisions(config: &EtcdConfig) -> Result<(), OpenError> {
    let link = EtcdLink::connect(config, Arc::default()).await?;
    let offset = established_offset(&link).await?;
    let unreachable = |source| OpenError::Unreachable { source };
    let stored = link.read(link.keys.offset()).await.map_err(unreachable)?;
    let leapt = offset.leapt(stored.now, base::clock::now().as_second());
    let written = link.put(link.keys.offset(), &leapt.get().to_string()).await;
    written.map(drop).map_err(unreachable)
}
