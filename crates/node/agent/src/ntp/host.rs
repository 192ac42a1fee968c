//! The file for the time service of the host: written and removed here, and nothing else.
//!
//! A record in the directory of the agent names the file that this node wrote. Other files are left
//! alone, also those of another node on the same host. A file that the service does not accept is
//! removed again.

use std::fs;
use std::future::Future;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base::Chain;
use hci::ntp::{NtpReport, NtpSyncStatus};
use tokio::process::Command;

use super::plan::{self, CHRONY_FILES, DropIn, NtpError, TimeService, UNITS};

/// A command that takes longer is given up.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a command of the host failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("no command")]
    Empty,
    #[error("{program}")]
    Start { program: String, source: io::Error },
    #[error("{program} takes too long")]
    TimedOut { program: String },
    #[error("{command}: {said}")]
    Refused { command: String, said: String },
}

/// Runs a command of the host, and returns its output.
pub(super) trait RunCommand {
    fn run(&self, command: &[&str]) -> impl Future<Output = Result<String, CommandError>> + Send;
}

/// The commands of this host.
pub(super) struct HostCommands;

impl RunCommand for HostCommands {
    async fn run(&self, command: &[&str]) -> Result<String, CommandError> {
        let [program, arguments @ ..] = command else { return Err(CommandError::Empty) };
        let mut child = Command::new(program);
        child.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND_TIMEOUT, child.output());
        let program = || (*program).to_owned();
        let late = |_| CommandError::TimedOut { program: program() };
        let failed = |source| CommandError::Start { program: program(), source };
        let output = output.await.map_err(late)?.map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // `is-active` fails if one unit is inactive, and answers all the same.
        if output.status.success() || arguments.first() == Some(&"is-active") {
            return Ok(text);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(CommandError::Refused { command: command.join(" "), said })
    }
}

/// The host whose time service follows the setting.
pub(super) struct NtpHost<C> {
    /// `/`, or a directory of a test.
    pub(super) root: PathBuf,
    /// Names the file that this node wrote.
    pub(super) record: PathBuf,
    pub(super) commands: C,
}

impl<C: RunCommand> NtpHost<C> {
    /// Makes the time service use these servers, or its own if there are none; the report says how
    /// far that went.
    pub(super) async fn follow(&self, servers: &[String]) -> NtpReport {
        let service = self.service().await;
        let outcome = self.apply(service, servers).await;
        let ntp_sync_status = match service {
            None => NtpSyncStatus::Disabled,
            Some(_) => self.sync_status().await,
        };
        let (current_ntp_servers, message) = match outcome {
            Ok(()) => (servers.join(" "), String::new()),
            Err(error) => (String::new(), Chain(&error).to_string()),
        };
        NtpReport { ntp_sync_status, current_ntp_servers, message }
    }

    async fn service(&self) -> Option<TimeService> {
        // As sd_booted(3): without systemd there is no service to ask.
        if !self.at(Path::new("/run/systemd/system")).is_dir() {
            return None;
        }
        let mut command = vec!["systemctl", "is-active"];
        command.extend(UNITS);
        plan::active(&self.commands.run(&command).await.ok()?)
    }

    async fn sync_status(&self) -> NtpSyncStatus {
        let command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"];
        match self.commands.run(&command).await.as_deref().map(str::trim) {
            Ok("yes") => NtpSyncStatus::Synced,
            Ok("no") => NtpSyncStatus::Unsynced,
            _ => NtpSyncStatus::Unknown,
        }
    }

    async fn apply(
        &self,
        service: Option<TimeService>,
        servers: &[String],
    ) -> Result<(), NtpError> {
        if servers.is_empty() {
            return self.restore(service).await;
        }
        let service = service.ok_or(NtpError::NoService)?;
        let mut configurations = CHRONY_FILES.iter().map(|path| self.at(Path::new(path)));
        let chrony = configurations.find_map(|path| fs::read_to_string(path).ok());
        let wanted = plan::drop_in(service, &chrony.unwrap_or_default(), servers)?;
        if self.recorded().is_some_and(|own| own != wanted.path) {
            self.restore(Some(service)).await?;
        }
        let path = self.at(&wanted.path);
        let before = fs::read_to_string(&path).ok();
        if before.as_deref() == Some(&*wanted.text) && self.recorded().is_some() {
            return Ok(());
        }
        if path.exists() && self.recorded().is_none() {
            return Err(NtpError::Foreign(wanted.path));
        }
        self.write(&wanted)?;
        if let Err(reason) = self.commands.run(&wanted.reload).await {
            self.restore(Some(service)).await?;
            return Err(NtpError::Reload(reason));
        }
        Ok(())
    }

    fn write(&self, wanted: &DropIn) -> Result<(), NtpError> {
        let fail = |path: &Path, error: io::Error| NtpError::Write {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let name = wanted.path.display().to_string();
        replace(&self.record, &name).map_err(|error| fail(&self.record, error))?;
        replace(&self.at(&wanted.path), &wanted.text).map_err(|error| fail(&wanted.path, error))
    }

    /// Removes the file that this node wrote, if there is one.
    async fn restore(&self, service: Option<TimeService>) -> Result<(), NtpError> {
        let Some(path) = self.recorded() else { return Ok(()) };
        let fail =
            |error: io::Error| NtpError::Remove { path: path.clone(), reason: error.to_string() };
        let was_there = removed(&self.at(&path)).map_err(fail)?;
        if let Some(service) = service.filter(|_| was_there) {
            // The service reads its files again at its next start, whatever it answers now.
            let answer = self.commands.run(&plan::reload(service, Some(&path))).await;
            answer.map_err(NtpError::Reload)?;
        }
        removed(&self.record).map(drop).map_err(fail)
    }

    /// The file that this node wrote, or was going to write.
    fn recorded(&self) -> Option<PathBuf> {
        fs::read_to_string(&self.record).ok().map(PathBuf::from)
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Replaces a file at once, with a mode that services can read.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    // The name ends in what no time service reads.
    let new = path.with_extension("new");
    let mut file = fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// Removes a file; whether there was one.
fn removed(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
