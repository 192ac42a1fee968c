//! The writes of the store, and their errors.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::revision::Revision;
use crate::shape::{Shape, StoredVersion};

/// The largest value either engine accepts.
///
/// etcd refuses requests above 1.5 MiB, of which the key and the envelope need some.
/// The SQLite engine could take more but does not, so that a store can always be
/// moved to etcd.
pub const MAX_VALUE: usize = 1_500_000;

/// The state a key must be in for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    At(Revision),
    Any,
}

impl Expect {
    pub(crate) fn is_met_by(self, current: Option<Revision>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::At(revision) => current == Some(revision),
            Self::Any => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteChange {
    Put(Bytes),
    /// Deleting a key that is absent is a conflict whatever was expected, because
    /// there is no event to give a revision to.
    Delete,
}

/// One conditional change of one key.
#[derive(Debug, Clone)]
pub struct Write {
    /// Like `configmaps` or `kubevirt.io/virtualmachines`: not empty, no `//`, and no
    /// `/` at either end.
    pub table: Arc<str>,
    /// Like `namespace/name` or `name`: not empty.
    pub name: Arc<str>,
    pub expect: Expect,
    pub change: WriteChange,
}

impl Write {
    /// Refuses what no engine could store, before it costs anything.
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        if self.name.is_empty() {
            return Err(WriteError::Key(KeyError::EmptyName));
        }
        let table = &self.table;
        if table.is_empty()
            || table.starts_with('/')
            || table.ends_with('/')
            || table.contains("//")
        {
            return Err(WriteError::Key(KeyError::Table { table: Arc::clone(table) }));
        }
        match &self.change {
            WriteChange::Put(value) if value.len() > MAX_VALUE => {
                Err(WriteError::TooLarge { size: value.len(), limit: MAX_VALUE })
            }
            _ => Ok(()),
        }
    }
}

/// A write that is durable and visible.
pub struct Written<S: Shape> {
    pub revision: Revision,
    /// The new version after a put, the removed one after a deletion.
    pub entry: Arc<StoredVersion<S::Item>>,
}

impl<S: Shape> fmt::Debug for Written<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Written").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// A cause that every write of a failed batch shares.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Why a write was not acknowledged. Every variant but `Unknown` means that nothing
/// was changed and nothing will be.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    #[error("the key is not in the expected state")]
    Conflict { current: Option<Revision> },
    #[error("value of {size} bytes exceeds the limit of {limit} bytes")]
    TooLarge { size: usize, limit: usize },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("no space is left in the store")]
    NoSpace,
    #[error("the store is unavailable, nothing was written")]
    Unavailable { source: Cause },
    #[error("the outcome of the write is unknown")]
    Unknown { source: Cause },
    #[error("the store is closed")]
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the name of a key is empty")]
    EmptyName,
    #[error("{table:?} cannot name a table")]
    Table { table: Arc<str> },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_could_be_misread_are_refused() {
        let check = |table: &str, name: &str| {
            let (table, name) = (table.into(), name.into());
            Write { table, name, expect: Expect::Any, change: WriteChange::Delete }.check().is_ok()
        };
        for (table, name, fine) in [
            ("configmaps", "default/a", true),
            ("kubevirt.io/virtualmachines", "default/a", true),
            ("configmaps", "", false),
            ("", "a", false),
            ("/a", "a", false),
            ("a/", "a", false),
            ("a//b", "a", false),
        ] {
            assert_eq!(check(table, name), fine, "{table:?} {name:?}");
        }
    }
}
