//! Requests that the guest discards the unused blocks of its file systems, so that its volumes
//! give the space back. A recurring job makes them, as an annotation with the time of its run.

use base::Chain;
use qemu::guest_agent::TrimmedPath;
use tracing::{info, warn};

use super::actor::VmiActor;
use crate::event::EventNote;
use crate::machine::{AgentState, LiveMachine, Vmi};

/// The last request that was carried out, in a machine's folder.
const RECORD: &str = "filesystem-trim.json";

impl VmiActor {
    /// Carries out a request once.
    pub(super) fn trim_file_systems(&mut self, vmi: &Vmi, live: &LiveMachine) {
        let Some(at) = vmi.annotations.get(virt::FILESYSTEM_TRIM_AT) else { return };
        if self.process.trimmed.is_none() {
            self.process.trimmed = self.dir.load::<String>(RECORD).ok().flatten();
        }
        if self.process.trimmed.as_ref() == Some(at) {
            return;
        }
        self.process.trimmed = Some(at.clone());
        if let Err(failure) = self.dir.store(RECORD, at) {
            warn!(error = %Chain(&failure), "cannot record the request to trim file systems");
        }
        let (live, reporter, about) =
            (live.clone(), self.context.reporter.clone(), vmi.reference());
        self.tasks.spawn("filesystem trim", async move {
            let note = trim(&live).await;
            reporter.report(&about, note).await;
        });
    }
}

async fn trim(live: &LiveMachine) -> EventNote {
    if live.info.borrow().agent == AgentState::Absent {
        return failed("the guest agent is not connected");
    }
    match live.agent.trim().await {
        Ok(paths) => {
            let note = outcome(&paths);
            info!(paths = paths.len(), result = note.message, "file systems trimmed");
            note
        }
        Err(failure) => {
            warn!(error = %Chain(&failure), "cannot trim the file systems of a guest");
            failed(&Chain(&failure).to_string())
        }
    }
}

fn failed(why: &str) -> EventNote {
    EventNote::warning("FailedFilesystemTrim", format!("Cannot trim file systems: {why}"))
}

/// The event for users about the answer of the guest agent.
fn outcome(paths: &[TrimmedPath]) -> EventNote {
    let errors: Vec<String> = paths
        .iter()
        .filter_map(|own| own.error.as_ref().map(|why| format!("{}: {why}", own.path)))
        .collect();
    let bytes: u64 = paths.iter().filter_map(|own| own.trimmed).sum();
    let done = paths.len() - errors.len();
    if done == 0 && !errors.is_empty() {
        return failed(&errors.join("; "));
    }
    let mut message = format!("Trimmed {done} file systems, {bytes} bytes are unused");
    if !errors.is_empty() {
        message = format!("{message}; failed: {}", errors.join("; "));
    }
    EventNote::normal("FilesystemTrim", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_the_guest_is_reported() {
        let path = |path: &str, trimmed: Option<u64>, error: Option<&str>| TrimmedPath {
            path: path.to_owned(),
            trimmed,
            error: error.map(str::to_owned),
        };
        for (paths, message) in [
            (vec![path("/", Some(4096), None)], "Trimmed 1 file systems, 4096 bytes are unused"),
            (
                vec![path("/", Some(1), None), path("/boot", None, Some("not supported"))],
                "Trimmed 1 file systems, 1 bytes are unused; failed: /boot: not supported",
            ),
            (
                vec![path("/", None, Some("not supported"))],
                "Cannot trim file systems: /: not supported",
            ),
            (vec![], "Trimmed 0 file systems, 0 bytes are unused"),
        ] {
            assert_eq!(outcome(&paths).message, message);
        }
    }
}
