//! Starting the program that was chosen. The process stays the same one, so that a service manager
//! sees no end of it; guests, storage and etcd go on.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use hci::upgrade::ProgramDigest;

use super::state::{FileIdentity, InstalledFile, ProgramEvent, ProgramState};
use super::store::{ProgramStore, digest_of};
use crate::data_dir::Layout;

/// Digest of the program that a process was started from; absent for the installed one.
const PROGRAM: &str = "SHEAF_PROGRAM";
/// Set for a process on trial.
pub(super) const TRIAL: &str = "SHEAF_PROGRAM_TRIAL";
const OWN_FILE: &str = "/proc/self/exe";

/// Hands over to the program that the last upgrade chose; returns if this is the one to run.
pub(in crate::command) fn hand_over(layout: &Layout) -> Result<()> {
    let is_chosen = [PROGRAM, TRIAL].iter().any(|name| std::env::var_os(name).is_some());
    if is_chosen || !layout.programs_record().exists() {
        return Ok(());
    }
    // Another server may be running, or still ending, with a program on trial.
    let lock = layout.take()?;
    let Some(state) = ProgramState::load(layout)? else { return Ok(()) };
    let known = state.clone();
    let state = with_installed(state).context("cannot read the file of this program")?;
    let state = state.after(ProgramEvent::Started);
    if state != known {
        state.save(layout)?;
    }
    drop(lock);
    let Some(selected) = &state.selected else { return Ok(()) };
    let path = ProgramStore::new(layout).path(selected);
    let failure = replace(&path, Some(selected), std::env::args_os().skip(1));
    // A node that does not start would be worse than one with the program before.
    eprintln!(
        "sheaf: cannot run {}, which the last upgrade chose: {failure}; the installed program \
         runs instead",
        path.display()
    );
    Ok(())
}

/// The program that this process was started from, if it is not the installed one.
pub(super) fn own() -> Option<ProgramDigest> {
    ProgramDigest::parse(&std::env::var(PROGRAM).ok()?).ok()
}

/// Takes another installed file over.
fn with_installed(state: ProgramState) -> io::Result<ProgramState> {
    let identity = FileIdentity::of(Path::new(OWN_FILE))?;
    if state.installed.as_ref().is_some_and(|file| file.identity == identity) {
        return Ok(state);
    }
    let path = std::fs::read_link(OWN_FILE)?;
    let digest = digest_of(Path::new(OWN_FILE))?;
    Ok(state.after(ProgramEvent::Installed(InstalledFile { path, digest, identity })))
}

/// The state of the programs of this node; the first time the running one is summed up, which
/// takes a while.
pub(super) fn current(layout: &Layout) -> Result<ProgramState> {
    if let Some(state) = ProgramState::load(layout)? {
        return Ok(state);
    }
    let state = with_installed(ProgramState::default());
    let state = state.context("cannot read the file of this program")?;
    state.save(layout)?;
    Ok(state)
}

/// Where the file of a program is.
pub(super) fn file_of(layout: &Layout, state: &ProgramState, digest: &ProgramDigest) -> PathBuf {
    match state.installed.as_ref().filter(|file| file.digest == *digest) {
        Some(installed) => installed.path.clone(),
        None => ProgramStore::new(layout).path(digest),
    }
}

/// The digest that a process of this program is given, if it is not the installed one.
pub(super) fn passed_digest(state: &ProgramState, digest: &ProgramDigest) -> Option<ProgramDigest> {
    let is_installed = state.installed.as_ref().is_some_and(|file| file.digest == *digest);
    (!is_installed).then(|| digest.clone())
}

/// Makes a command start a program under its digest.
pub(super) fn name(command: &mut Command, passed: Option<&ProgramDigest>) {
    match passed {
        Some(digest) => command.env(PROGRAM, digest.as_str()),
        None => command.env_remove(PROGRAM),
    };
}

/// Replaces this process; returns only on failure.
pub(super) fn replace(
    path: &Path,
    passed: Option<&ProgramDigest>,
    words: impl Iterator<Item = OsString>,
) -> io::Error {
    let mut command = Command::new(path);
    command.arg0("sheaf").args(words).env_remove(TRIAL);
    name(&mut command, passed);
    command.exec()
}

/// Replaces this process by one of the same program that tries another one.
pub(in crate::command) fn begin_trial(layout: &Layout) -> Result<()> {
    let root = std::path::absolute(&layout.root).context("cannot resolve the data directory")?;
    let failure = Command::new(OWN_FILE)
        .arg0("sheaf")
        .arg("upgrade-trial")
        .arg("--data-dir")
        .arg(root)
        .arg("--")
        .args(std::env::args_os().skip(1))
        .exec();
    Err(failure).context("cannot restart this program")
}

/// Replaces this process by the server that it was before, with the arguments that it had.
pub(super) fn resume(words: &[OsString]) -> io::Error {
    Command::new(OWN_FILE).arg0("sheaf").args(words).env_remove(TRIAL).exec()
}
