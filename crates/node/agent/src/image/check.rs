//! Complete images are compared with their checksums now and then.
//!
//!   backing.sums   the checksums; by them replicas notice damage, too, when they read (`block`)
//!   checked.json   when the image was compared last
//!
//! Damage is repaired from another disk of this node that has the image, and what is left is
//! reported. Nothing here reads from other nodes.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{Chain, clock};
use block::store::{SumsError, check_image, record_sums, repair_image, sums_path};
use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::cancel::CancelGuard;
use super::files::Folder;
use super::import::Job;
use crate::backing_image::complete;

const CHECKED: &str = "checked.json";
/// The files that are made here, and removed with the image.
pub(super) const FILES: [&str; 3] = ["backing.sums", "backing.sums-new", CHECKED];
/// Seconds between two comparisons.
const INTERVAL: i64 = 7 * 24 * 3600;
/// After each MiB: others want to read, too.
const PAUSE: Duration = Duration::from_millis(5);

/// When an image was compared last.
#[derive(Debug, Serialize, Deserialize)]
struct CheckRecord {
    /// Seconds since 1970.
    at: i64,
}

/// Whether it is time to compare an image again. One without checksums gets them first.
pub(super) fn is_due(checked: Option<i64>, now: i64) -> bool {
    // A clock that was set back makes no image wait for ever.
    checked.is_some_and(|at| now.saturating_sub(at) >= INTERVAL || at > now)
}

/// The message about damage in an object; empty if there is none.
pub(super) fn complaint(image: &Path, damaged: &[Range<u64>]) -> String {
    let Some(first) = damaged.first() else { return String::new() };
    let bytes = total(damaged);
    format!(
        "the image is damaged: {bytes} bytes of {} differ from their checksums, the first {} at \
         offset {}; replicas with another copy repair what they read; copy the file from another \
         node that has the image, or import the image again under another name and move its volumes",
        image.display(),
        first.end - first.start,
        first.start
    )
}

fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|it| it.end - it.start).sum()
}

impl Folder {
    pub(super) fn has_sums(&self) -> bool {
        sums_path(&complete(&self.0)).exists()
    }

    /// Sums a complete image. Its current content is the expected one from then on.
    pub(super) fn record_sums(&self, goes_on: impl Fn() -> bool) -> io::Result<()> {
        record_sums(&complete(&self.0), goes_on).map_err(io::Error::other)?;
        self.share()?;
        self.note_check()
    }

    pub(super) fn checked_at(&self) -> Option<i64> {
        let text = std::fs::read(self.0.join(CHECKED)).ok()?;
        serde_json::from_slice::<CheckRecord>(&text).ok().map(|it| it.at)
    }

    fn note_check(&self) -> io::Result<()> {
        let record = CheckRecord { at: clock::now().as_second() };
        self.replace(CHECKED, &serde_json::to_vec(&record)?)
    }

    /// Compares the image with its checksums, repairs it from other copies, and gives what is left.
    fn check(
        &self,
        copies: &[PathBuf],
        goes_on: impl Fn() -> bool,
    ) -> Result<Vec<Range<u64>>, SumsError> {
        let image = complete(&self.0);
        let mut damaged = check_image(&image, goes_on)?;
        for copy in copies.iter().filter(|copy| **copy != image) {
            if damaged.is_empty() {
                break;
            }
            let before = total(&damaged);
            damaged = repair_image(&image, copy, &damaged)?;
            let bytes = before - total(&damaged);
            info!(image = %image.display(), from = %copy.display(), bytes, "image repaired");
        }
        Ok(damaged)
    }
}

impl Job {
    /// Compares a complete image with its checksums, and reports what is damaged.
    pub(super) async fn check(self, copies: Vec<PathBuf>) -> Option<DynamicObject> {
        let _turn = self.sums.acquire().await;
        let halt = CancelGuard::default();
        let goes_on = halt.asked();
        let paced = move || {
            std::thread::sleep(PAUSE);
            goes_on()
        };
        let folder = self.folder();
        let work = move || {
            let found = folder.check(&copies, paced);
            if !matches!(found, Err(SumsError::Stopped))
                && let Err(error) = folder.note_check()
            {
                warn!(%error, "cannot note that an image was checked");
            }
            found
        };
        let found = tokio::task::spawn_blocking(work).await.ok()?;
        let path = complete(&self.folder().0);
        let message = match found {
            Ok(damaged) => complaint(&path, &damaged),
            Err(SumsError::Stopped) => return None,
            Err(error @ (SumsError::Damaged { .. } | SumsError::Other { .. })) => {
                warn!(image = self.image.name, error = %Chain(&error), "image is summed again");
                let again = |folder: Folder| folder.record_sums(|| true);
                if let Err(error) = self.blocking(again, "sum the image").await {
                    warn!(image = self.image.name, error = %Chain(&error), "cannot sum image");
                }
                String::new()
            }
            Err(error) => format!("the image is damaged: {}", Chain(&error)),
        };
        let file = &self.image.status["diskFileStatusMap"][&self.at.disk];
        if file["message"].as_str().unwrap_or_default() == message {
            return None;
        }
        if !message.is_empty() {
            warn!(
                image = self.image.name,
                disk = self.at.disk,
                error = message,
                "image is damaged"
            );
        }
        let mut writer = self.status_writer();
        writer.checked(&message).await;
        writer.last
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn images_are_compared_once_a_week() {
        for (checked, now, expected) in [
            (None, 10 * INTERVAL, false),
            (Some(0), INTERVAL - 1, false),
            (Some(0), INTERVAL, true),
            (Some(100), 99, true),
        ] {
            assert_eq!(is_due(checked, now), expected, "{checked:?} {now}");
        }
    }

    #[test]
    fn damage_is_repaired_from_another_disk_and_the_rest_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ["one", "two"].map(|disk| Folder(dir.path().join(disk).join("i-1")));
        for folder in &folders {
            folder.open().unwrap();
            fs::write(complete(&folder.0), vec![3; 64 << 10]).unwrap();
        }
        let [one, two] = &folders;
        assert!(!one.has_sums());
        assert_eq!(one.checked_at(), None);
        one.record_sums(|| true).unwrap();
        assert!(one.has_sums() && one.checked_at().is_some());
        let path = complete(&one.0);
        let copies = [path.clone(), complete(&two.0)];
        assert!(one.check(&copies, || true).unwrap().is_empty());
        assert_eq!(complaint(&path, &[]), "");

        let damage = |path: &Path, from: usize| {
            let mut content = fs::read(path).unwrap();
            content[from..from + 10].fill(9);
            fs::write(path, content).unwrap();
        };
        damage(&path, 5000);
        damage(&path, 20_000);
        damage(&copies[1], 20_000);
        let left = one.check(&copies, || true).unwrap();
        let block = 16384..20480;
        assert_eq!(left, [block]);
        let text = complaint(&path, &left);
        assert!(text.contains("4096 bytes") && text.contains("at offset 16384"), "{text}");
        assert!(text.contains(path.to_str().unwrap()) && text.contains("import"), "{text}");
        fs::write(&copies[1], vec![3; 64 << 10]).unwrap();
        assert!(one.check(&copies, || true).unwrap().is_empty());
        assert!(fs::read(&path).unwrap() == vec![3; 64 << 10]);
        one.remove().unwrap();
        assert!(!one.0.exists(), "all of it goes with the image");
    }
}
