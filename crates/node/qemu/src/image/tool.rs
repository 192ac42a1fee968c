//! Runs qemu-img as an unprivileged user, with limits and few system calls, in namespaces of its own:
//! it sees the files that it is to read and write, no network and no other process.
//!
//! Without a user there are no namespaces. Where the host refuses them, the tool runs as its user
//! only; the agent finds that out once and reports it (`isolation::probe`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Resource;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{ChildStdout, Command};

use crate::isolation::{Entrance, Isolation, RootPlan, as_first_process};
use crate::process::{Preparation, ProcessUser, converter, prepare};

/// Address space: enough for any table of an honest image and for the stacks of 64 threads.
const MEMORY: u64 = 2 << 30;
/// Seconds of processor time.
const CPU: u64 = 4 * 3600;
const LAST_WORDS: usize = 2000;

/// Why a tool did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("cannot run {}", program.display())]
    Run { program: PathBuf, source: io::Error },
    #[error("cannot make the filter of system calls")]
    Filter(#[from] seccompiler::Error),
    #[error("{} failed: {said}", program.display())]
    Failed { program: PathBuf, said: String },
    #[error("{} was ended by signal {signal}", program.display())]
    Killed { program: PathBuf, signal: i32 },
    #[error("{} was not finished within {} s", program.display(), limit.as_secs())]
    TimedOut { program: PathBuf, limit: Duration },
}

/// qemu-img, and how it is run.
#[derive(Debug, Clone)]
pub struct Tool {
    pub program: PathBuf,
    /// The user that it runs as; must be able to read and write the images.
    pub identity: Option<ProcessUser>,
    /// Whether it runs in namespaces of its own; needs a user.
    pub is_isolated: bool,
    /// For everything but conversions, which take as long as they take.
    pub limit: Duration,
}

impl Default for Tool {
    fn default() -> Self {
        Self {
            program: PathBuf::from("qemu-img"),
            identity: None,
            is_isolated: false,
            limit: Duration::from_secs(120),
        }
    }
}

impl Tool {
    /// Runs it to its end and returns what it said. It sees `files`: the images, and the directories
    /// of sockets.
    pub async fn run(&self, arguments: &[OsString], files: &[&Path]) -> Result<String, ToolError> {
        let running = self.drive(arguments, files, |mut stdout| async move {
            let mut said = Vec::new();
            let _ = stdout.read_to_end(&mut said).await;
            said
        });
        let said = tokio::time::timeout(self.limit, running).await.map_err(|_| {
            ToolError::TimedOut { program: self.program.clone(), limit: self.limit }
        })??;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// As [`Self::run`] with `-p` among the arguments; `progress` gets percents.
    pub(super) async fn run_with_progress(
        &self,
        arguments: &[OsString],
        files: &[&Path],
        mut progress: impl FnMut(f32) + Send,
    ) -> Result<(), ToolError> {
        self.drive(arguments, files, |mut stdout| async move {
            let mut line = Vec::new();
            while let Ok(byte) = stdout.read_u8().await {
                // Each report overwrites the one before.
                if byte == b'\r' || byte == b'\n' {
                    if let Some(percent) = percent(&line) {
                        progress(percent);
                    }
                    line.clear();
                } else if line.len() < 256 {
                    line.push(byte);
                }
            }
        })
        .await
    }

    /// `listen` is a plain closure: the future of an async one is not known to be `Send`.
    async fn drive<T, F: Future<Output = T>>(
        &self,
        arguments: &[OsString],
        files: &[&Path],
        listen: impl FnOnce(BufReader<ChildStdout>) -> F,
    ) -> Result<T, ToolError> {
        let failed = |source| ToolError::Run { program: self.program.clone(), source };
        let mut command = std::process::Command::new(&self.program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C")
            // Each arena takes 64 MiB of address space, and there is one for many a thread:
            // with them qemu-img now and then has no room for a thread and aborts.
            .env("MALLOC_ARENA_MAX", "2")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let entrance = self.entrance(files).map_err(failed)?;
        let is_apart = entrance.is_some();
        let preparation = Preparation {
            identity: self.identity.clone(),
            limits: vec![(Resource::As, MEMORY), (Resource::Cpu, CPU)],
            entrance,
            filter: Some(converter()?),
            ..Preparation::default()
        };
        prepare(&mut command, preparation);
        // Dropping the future ends the process.
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        let mut child = if is_apart {
            let runtime = tokio::runtime::Handle::current();
            let start = || {
                let _entered = runtime.enter();
                command.spawn()
            };
            as_first_process(start).map_err(failed)?
        } else {
            command.spawn().map_err(failed)?
        };
        let stdout = child.stdout.take().expect("it was asked for above");
        let stdout = BufReader::new(stdout);
        let stderr = child.stderr.take().expect("it was asked for above");
        let mut complaint = Vec::new();
        let complain = async {
            let mut stderr = stderr.take(64 << 10);
            let _ = stderr.read_to_end(&mut complaint).await;
        };
        let (output, ()) = tokio::join!(listen(stdout), complain);
        let status = child.wait().await.map_err(failed)?;
        let program = self.program.clone();
        match std::os::unix::process::ExitStatusExt::signal(&status) {
            Some(signal) => Err(ToolError::Killed { program, signal }),
            None if status.success() => Ok(output),
            None => {
                let end = complaint.len().min(LAST_WORDS);
                let said = String::from_utf8_lossy(&complaint[..end]).trim().to_owned();
                Err(ToolError::Failed { program, said })
            }
        }
    }
}

impl Tool {
    fn entrance(&self, files: &[&Path]) -> io::Result<Option<Entrance>> {
        if !self.is_isolated || self.identity.is_none() {
            return Ok(None);
        }
        let files: BTreeSet<PathBuf> = files.iter().map(|file| file.to_path_buf()).collect();
        let root = RootPlan::new(&self.program, Path::new("/"), &files)?;
        Ok(Some(Entrance { isolation: Isolation::default(), root }))
    }
}

/// The number in `    (12.34/100%)`.
fn percent(line: &[u8]) -> Option<f32> {
    let line = std::str::from_utf8(line).ok()?;
    line.trim().strip_prefix('(')?.strip_suffix("/100%)")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_what_qemu_img_prints() {
        assert_eq!(percent(b"    (12.34/100%)"), Some(12.34));
        assert_eq!(percent(b"(100.00/100%)"), Some(100.0));
        assert_eq!(percent(b"nonsense"), None);
    }
}
