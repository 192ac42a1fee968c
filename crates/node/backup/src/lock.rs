//! Locks between those that use the backups of one volume, in one cluster or several.
//!
//! Backups and restores share one kind of lock; a deletion has the other, since it removes blocks
//! that a backup may just have found to exist. A lock is a file whose age is measured by the
//! target's own clock; one that is not renewed expires.

use base::clock;
use jiff::{SignedDuration, Timestamp};
use object_store::{ObjectMeta, ObjectStoreExt as _};
use serde::{Deserialize, Serialize};

use crate::layout;
use crate::store::{BackupStore, StoreError, failed};

/// A lock is renewed after this time, and expires after the other.
const RENEW_AFTER: SignedDuration = SignedDuration::from_secs(60);
const EXPIRES_AFTER: SignedDuration = SignedDuration::from_secs(150);

/// The purpose of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// Shared by all that make or read backups.
    Use = 1,
    Deletion = 2,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LockFile {
    name: String,
    r#type: u8,
    acquired: bool,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("volume {volume} is locked by {other} on the backup target")]
    Locked { volume: String, other: String },
    #[error("the lock of volume {volume} was not renewed in time")]
    Expired { volume: String },
}

/// A lock that is held until it is [released](Self::release) or expires.
#[derive(Debug)]
pub(crate) struct Lock<'a> {
    store: &'a BackupStore,
    volume: String,
    file: LockFile,
    renewed: Timestamp,
}

/// A lock as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FoundLock {
    file: LockFile,
    modified: Timestamp,
}

/// The lock that keeps `own` from being acquired.
fn obstacle<'a>(own: &FoundLock, all: &'a [FoundLock]) -> Option<&'a FoundLock> {
    let order = |lock: &FoundLock| (!lock.file.acquired, lock.modified, lock.file.name.clone());
    all.iter().find(|other| {
        let is_live = own.modified.duration_since(other.modified) < EXPIRES_AFTER;
        other.file.r#type != own.file.r#type && is_live && order(other) < order(own)
    })
}

impl BackupStore {
    pub(crate) async fn lock(&self, volume: &str, kind: LockKind) -> Result<Lock<'_>, LockError> {
        layout::check_name(volume).map_err(StoreError::from)?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let file =
            LockFile { name: format!("lock-{}", &id[..16]), r#type: kind as u8, acquired: false };
        let mut lock = Lock { store: self, volume: volume.to_owned(), file, renewed: clock::now() };
        lock.write().await?;
        tokio::time::sleep(self.lock_delay).await;
        match lock.conflict().await {
            Ok(None) => {}
            Ok(Some(other)) => {
                lock.release().await;
                return Err(LockError::Locked { volume: volume.to_owned(), other });
            }
            Err(failure) => {
                lock.release().await;
                return Err(failure.into());
            }
        }
        lock.file.acquired = true;
        lock.write().await?;
        Ok(lock)
    }
}

impl Lock<'_> {
    async fn write(&mut self) -> Result<(), StoreError> {
        let at = self.store.layout.lock(&self.volume, &self.file.name);
        let now = clock::now();
        self.store.write(&at, &self.file).await?;
        self.renewed = now;
        Ok(())
    }

    async fn conflict(&self) -> Result<Option<String>, StoreError> {
        let own = self.store.layout.lock(&self.volume, &self.file.name);
        let facts = self.store.store.head(&own).await.map_err(failed("read", &own))?;
        let own = FoundLock { file: self.file.clone(), modified: modified(&facts) };
        let at = self.store.layout.locks(&self.volume);
        let listed = self.store.store.list_with_delimiter(Some(&at)).await;
        let mut all = Vec::new();
        for object in listed.map_err(failed("list", &at))?.objects {
            if !object.location.as_ref().ends_with(".lck") {
                continue;
            }
            // One that goes meanwhile is no obstacle; one that cannot be read is not trusted.
            let Some(file) = self.store.read::<LockFile>(&object.location).await? else { continue };
            all.push(FoundLock { file, modified: modified(&object) });
        }
        Ok(obstacle(&own, &all).map(|other| other.file.name.clone()))
    }

    /// Called again and again while the lock is needed.
    pub(crate) async fn keep(&mut self) -> Result<(), LockError> {
        let age = clock::now().duration_since(self.renewed);
        if age >= EXPIRES_AFTER {
            return Err(LockError::Expired { volume: self.volume.clone() });
        }
        if age >= RENEW_AFTER {
            self.write().await?;
        }
        Ok(())
    }

    /// A lock that cannot be removed expires.
    pub(crate) async fn release(self) {
        let at = self.store.layout.lock(&self.volume, &self.file.name);
        let _ = self.store.remove(&at).await;
    }
}

/// When an object was written, by the clock of the target.
fn modified(object: &ObjectMeta) -> Timestamp {
    let millis = object.last_modified.timestamp_millis();
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_live_locks_of_the_other_kind_are_in_the_way() {
        let lock = |name: &str, kind: u8, acquired: bool, second: i64| FoundLock {
            file: LockFile { name: name.into(), r#type: kind, acquired },
            modified: Timestamp::from_second(second).unwrap(),
        };
        let own = lock("lock-5", 2, false, 1000);
        for (other, expected) in [
            (lock("lock-1", 2, true, 990), false),
            (lock("lock-1", 1, true, 990), true),
            (lock("lock-1", 1, true, 1010), true),
            (lock("lock-1", 1, false, 990), true),
            (lock("lock-9", 1, false, 1010), false),
            (lock("lock-9", 1, false, 1000), false),
            (lock("lock-1", 1, false, 1000), true),
            (lock("lock-1", 1, true, 849), false),
        ] {
            let all = [own.clone(), other.clone()];
            assert_eq!(obstacle(&own, &all).is_some(), expected, "{other:?}");
        }
    }
}
