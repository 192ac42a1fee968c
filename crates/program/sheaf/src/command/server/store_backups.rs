//! Backups of the store by time: a file every few hours, the newest of which are kept. `plan` is
//! pure; `run` writes and deletes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base::{Chain, Stop, clock};
use jiff::{SignedDuration, Timestamp};
use store::EtcdConfig;
use tracing::{error, info};

/// After a start there is other work to do.
const START_DELAY: Duration = Duration::from_secs(600);
const BEGINNING: &str = "store-";
const ENDING: &str = ".db";
const FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// Where the objects are.
#[derive(Debug, Clone)]
pub(super) enum BackupSource {
    File(PathBuf),
    Etcd(EtcdConfig),
}

/// How often backups are made, and how many are kept.
#[derive(Debug, Clone)]
pub(super) struct StoreBackups {
    pub(super) source: BackupSource,
    pub(super) directory: PathBuf,
    pub(super) interval: Duration,
    pub(super) keep: usize,
}

/// The time of a backup, by the name of its file.
fn time_of(name: &str) -> Option<Timestamp> {
    let time = name.strip_prefix(BEGINNING)?.strip_suffix(ENDING)?;
    jiff::civil::DateTime::strptime(FORMAT, time)
        .ok()?
        .to_zoned(jiff::tz::TimeZone::UTC)
        .ok()
        .map(|it| it.timestamp())
}

fn name_at(time: Timestamp) -> String {
    format!("{BEGINNING}{}{ENDING}", time.strftime(FORMAT))
}

/// How long to wait until the next backup. A time in the future means that the clock was put back:
/// it does not count.
fn wait(
    newest: Option<Timestamp>,
    started: Timestamp,
    now: Timestamp,
    interval: Duration,
) -> Duration {
    let later = |from: Timestamp, by: Duration| {
        from.saturating_add(SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX))
            .unwrap_or(Timestamp::MAX)
    };
    let first = later(started, START_DELAY.min(interval));
    let due = newest.filter(|time| *time <= now).map_or(first, |time| later(time, interval));
    Duration::try_from(due.max(first).duration_since(now)).unwrap_or_default()
}

/// The oldest files beyond those that are kept.
fn surplus(mut names: Vec<String>, keep: usize) -> Vec<String> {
    names.retain(|name| time_of(name).is_some());
    names.sort();
    let count = names.len().saturating_sub(keep);
    names.truncate(count);
    names
}

impl StoreBackups {
    pub(super) async fn run(self, mut stop: Stop) {
        let started = clock::now();
        loop {
            let newest = self.names().iter().filter_map(|name| time_of(name)).max();
            let wait = wait(newest, started, clock::now(), self.interval);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.requested() => return,
            }
            if let Err(failure) = self.back_up().await {
                error!(error = %Chain(&*failure), "cannot back up the store");
                tokio::select! {
                    () = tokio::time::sleep(START_DELAY) => {}
                    () = stop.requested() => return,
                }
            }
        }
    }

    /// Names of files in the directory.
    fn names(&self) -> Vec<String> {
        let found = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        found.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    async fn back_up(&self) -> Result<()> {
        create_private(&self.directory)?;
        let path = self.directory.join(name_at(clock::now()));
        match &self.source {
            BackupSource::File(from) => {
                let (from, to) = (from.clone(), path.clone());
                let done = tokio::task::spawn_blocking(move || store::backup(&from, &to)).await;
                done.context("the backup was interrupted")??;
            }
            BackupSource::Etcd(from) => {
                Box::pin(store::backup_etcd(from, &path)).await?;
            }
        }
        info!(file = %path.display(), "store backed up");
        for name in surplus(self.names(), self.keep) {
            let old = self.directory.join(name);
            std::fs::remove_file(&old)
                .with_context(|| format!("cannot remove the old backup {}", old.display()))?;
        }
        Ok(())
    }
}

/// Objects that are not encrypted are in it.
fn create_private(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).with_context(|| format!("cannot create {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_due_after_the_interval_and_not_at_once_after_a_start() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let hour = Duration::from_secs(3600);
        for (name, newest, now, expected) in [
            ("none yet", None, at(0), 600),
            ("none yet, later", None, at(500), 100),
            ("a fresh one", Some(at(-60)), at(0), 3540),
            ("an old one", Some(at(-86_400)), at(0), 600),
            ("it is time", Some(at(0)), at(3600), 0),
            ("overdue", Some(at(0)), at(9000), 0),
            ("the clock was put back", Some(at(5000)), at(1000), 0),
        ] {
            assert_eq!(wait(newest, at(0), now, hour), Duration::from_secs(expected), "{name}");
        }
        let second = Duration::from_secs(1);
        assert_eq!(wait(None, at(0), at(0), second), second);
    }

    #[test]
    fn the_oldest_go_and_other_files_stay() {
        let names = [
            "store-20261117T120000Z.db",
            "store-20261118T000000Z.db",
            "notes.txt",
            "store-20261116T000000Z.db",
            "store-x.db",
            "store-20261119T000000Z.db.partial",
        ];
        let names = || names.map(str::to_owned).to_vec();
        assert_eq!(surplus(names(), 2), ["store-20261116T000000Z.db"]);
        assert_eq!(surplus(names(), 5), [""; 0]);
        let time: Timestamp = "2026-11-17T12:00:00Z".parse().unwrap();
        assert_eq!(time_of(&name_at(time)), Some(time));
    }
}
