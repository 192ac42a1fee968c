//! The choice of a program: `program.json`, and how it changes.
//!
//! ```text
//!            prepared             request to run           healthy
//!   ready ──────────────► ready ────────────────► trial ─────────────► ready (new program)
//!     ▲                                             │ failed, late, interrupted
//!     └─────────────────────────────────────────────┘
//! ```

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use hci::upgrade::{ProgramDigest, ProgramFailure, ProgramRequest};
use serde::{Deserialize, Serialize};

use crate::data_dir::Layout;

/// Failure of a trial that no process has seen the end of.
const INTERRUPTED: &str = "the server was restarted while the new program was on trial";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ProgramState {
    /// The installed file, as it was when a choice was made.
    pub(super) installed: Option<InstalledFile>,
    /// The program that runs instead of the installed one.
    pub(super) selected: Option<ProgramDigest>,
    /// The program that ran before this one.
    pub(super) previous: Option<ProgramDigest>,
    /// A program that is verified and has read the data of this node.
    pub(super) prepared: Option<ProgramDigest>,
    pub(super) trial: Option<Trial>,
    pub(super) failure: Option<ProgramFailure>,
}

/// A program that has to prove itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trial {
    pub(super) digest: ProgramDigest,
    /// Of the request that asked for it.
    pub(super) id: String,
}

/// A file, such that another one in its place is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstalledFile {
    pub(super) path: PathBuf,
    pub(super) digest: ProgramDigest,
    pub(super) identity: FileIdentity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileIdentity {
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// Events of the programs of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgramEvent {
    /// Another file than before is installed.
    Installed(InstalledFile),
    /// A server is started, and no trial is under way.
    Started,
    Prepared(ProgramDigest),
    TrialBegun(Trial),
    TrialPassed,
    TrialFailed(String),
    /// A request cannot be carried out.
    Failed(ProgramFailure),
}

impl ProgramState {
    pub(super) fn load(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.programs_record();
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let state = serde_json::from_str(&text);
        state.map(Some).with_context(|| format!("{} is damaged", path.display()))
    }

    pub(super) fn save(&self, layout: &Layout) -> Result<()> {
        let path = layout.programs_record();
        let text = serde_json::to_string_pretty(self).context("cannot encode the programs")?;
        auth::kubeconfig::write_kubeconfig(&path, &(text + "\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The program of a server that is started now.
    pub(super) fn running(&self) -> Option<&ProgramDigest> {
        self.selected.as_ref().or_else(|| self.installed.as_ref().map(|file| &file.digest))
    }

    pub(super) fn after(mut self, event: ProgramEvent) -> Self {
        match event {
            // A newly installed file is the one to run.
            ProgramEvent::Installed(file) => {
                Self { installed: Some(file), failure: self.failure, ..Self::default() }
            }
            ProgramEvent::Started if self.trial.is_some() => self.failed(INTERRUPTED),
            ProgramEvent::Started => self,
            ProgramEvent::Prepared(digest) => {
                Self { prepared: Some(digest), failure: None, ..self }
            }
            ProgramEvent::TrialBegun(trial) => Self { trial: Some(trial), failure: None, ..self },
            ProgramEvent::TrialPassed => {
                let Some(trial) = self.trial.take() else { return self };
                let previous = self.running().cloned();
                let is_installed =
                    self.installed.as_ref().is_some_and(|file| file.digest == trial.digest);
                self.selected = (!is_installed).then_some(trial.digest);
                Self { previous, ..self }
            }
            ProgramEvent::TrialFailed(message) => self.failed(&message),
            ProgramEvent::Failed(failure) => Self { failure: Some(failure), ..self },
        }
    }

    fn failed(mut self, message: &str) -> Self {
        if let Some(trial) = self.trial.take() {
            let message = format!("{message}; the program before runs again");
            self.failure = Some(ProgramFailure { id: trial.id, message });
        }
        self
    }

    /// Whether the file of a program is still needed.
    pub(super) fn needs(&self, digest: &ProgramDigest) -> bool {
        let trial = self.trial.as_ref().map(|trial| &trial.digest);
        [self.selected.as_ref(), self.previous.as_ref(), self.prepared.as_ref(), trial]
            .contains(&Some(digest))
    }

    /// Whether a request failed and is not to be tried again.
    pub(super) fn has_failed(&self, request: &ProgramRequest) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.id == request.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(letter: char) -> ProgramDigest {
        ProgramDigest::parse(&letter.to_string().repeat(128)).unwrap()
    }

    fn installed(letter: char) -> InstalledFile {
        let identity = FileIdentity { device: 1, inode: 2, size: 3, modified: (4, 5) };
        InstalledFile { path: "/usr/bin/sheaf".into(), digest: digest(letter), identity }
    }

    fn trial(letter: char) -> Trial {
        Trial { digest: digest(letter), id: "u/1".into() }
    }

    #[test]
    fn a_program_is_selected_only_by_a_trial_that_it_passed() {
        let state = ProgramState::default().after(ProgramEvent::Installed(installed('a')));
        let state = state.after(ProgramEvent::Prepared(digest('b')));
        assert_eq!(state.running(), Some(&digest('a')));
        let on_trial = state.after(ProgramEvent::TrialBegun(trial('b')));
        for (event, running, failure) in [
            (ProgramEvent::TrialPassed, 'b', None),
            (ProgramEvent::TrialFailed("it ended".into()), 'a', Some("it ended; the program")),
            (ProgramEvent::Started, 'a', Some("the server was restarted while")),
        ] {
            let state = on_trial.clone().after(event);
            assert_eq!((state.running(), &state.trial), (Some(&digest(running)), &None));
            let message = state.failure.map(|failure| failure.message).unwrap_or_default();
            assert!(message.starts_with(failure.unwrap_or_default()), "{message}");
            assert_eq!(message.is_empty(), failure.is_none());
        }
    }

    #[test]
    fn the_way_back_leads_to_the_installed_program() {
        let state = ProgramState::default().after(ProgramEvent::Installed(installed('a')));
        let state = state.after(ProgramEvent::TrialBegun(trial('b')));
        let state = state.after(ProgramEvent::TrialPassed);
        assert_eq!(state.previous, Some(digest('a')));
        assert!(state.needs(&digest('b')) && !state.needs(&digest('c')));
        let state = state.after(ProgramEvent::TrialBegun(trial('a')));
        let state = state.after(ProgramEvent::TrialPassed);
        assert_eq!((state.selected.clone(), state.running()), (None, Some(&digest('a'))));
        assert_eq!(state.previous, Some(digest('b')));
    }

    #[test]
    fn a_newly_installed_program_runs() {
        let state = ProgramState::default().after(ProgramEvent::Installed(installed('a')));
        let state = state.after(ProgramEvent::TrialBegun(trial('b')));
        let state = state.after(ProgramEvent::TrialPassed);
        let state = state.after(ProgramEvent::Installed(installed('c')));
        assert_eq!((state.running(), &state.previous), (Some(&digest('c')), &None));
    }

    #[test]
    fn the_choice_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(Some(dir.path())).unwrap();
        assert_eq!(ProgramState::load(&layout).unwrap(), None);
        let state = ProgramState::default().after(ProgramEvent::Installed(installed('a')));
        let state = state.after(ProgramEvent::TrialBegun(trial('b')));
        state.save(&layout).unwrap();
        assert_eq!(ProgramState::load(&layout).unwrap(), Some(state));
        std::fs::write(layout.programs_record(), "{").unwrap();
        assert!(ProgramState::load(&layout).unwrap_err().to_string().contains("is damaged"));
    }
}
