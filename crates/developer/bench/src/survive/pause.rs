//! How long a guest is paused by a migration: its program sends a byte to the serial port each
//! millisecond, and QEMU appends it to a log on each side.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

const INTERVAL: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until the guest has filled its memory and sends bytes.
pub(super) async fn until_alive(log: &Path) -> Result<()> {
    let begun = Instant::now();
    let length = || log.metadata().map_or(0, |own| own.len());
    while length() < 100 {
        ensure!(begun.elapsed() < TIMEOUT, "the guest is silent: {}", log.display());
        tokio::time::sleep(INTERVAL * 20).await;
    }
    Ok(())
}

/// Follows the logs of both sides on a thread of its own.
pub(super) struct PauseMeter {
    thread: std::thread::JoinHandle<Option<Duration>>,
    stop: Arc<AtomicBool>,
}

impl PauseMeter {
    pub(super) fn start(source: PathBuf, target: PathBuf) -> Result<Self> {
        // Open before the source removes it.
        let source = File::open(&source).with_context(|| source.display().to_string())?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || follow(&source, &target, &stopped));
        Ok(Self { thread, stop })
    }

    /// The pause of a migration that has ended.
    pub(super) async fn stop(self) -> Result<Duration> {
        // The target may have resumed a moment ago.
        let begun = Instant::now();
        while !self.thread.is_finished() && begun.elapsed() < TIMEOUT {
            tokio::time::sleep(INTERVAL).await;
        }
        self.stop.store(true, Ordering::Relaxed);
        let pause = self.thread.join().ok().flatten();
        pause.context("the guest sent nothing on the target")
    }
}

/// The time from the last byte on the source to the first on the target.
fn follow(source: &File, target: &Path, stop: &AtomicBool) -> Option<Duration> {
    let length = |path: &Path| path.metadata().map_or(0, |own| own.len());
    let earlier = length(target);
    let (mut seen, mut last) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let now = source.metadata().map_or(seen, |own| own.len());
        if now != seen {
            (seen, last) = (now, Instant::now());
        }
        // A log of an earlier stay on this node is replaced by a shorter one.
        let there = length(target);
        if there > 0 && there != earlier && last.elapsed() > INTERVAL {
            return Some(last.elapsed());
        }
        std::thread::sleep(INTERVAL);
    }
    None
}
