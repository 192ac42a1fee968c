//! Carries out the requests of an upgrade on this node: fetches and checks a program, runs it on
//! trial, replaces the storage process, and reports the progress in an annotation of the Node.
//! `plan` is pure and decides.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base::{Chain, Stop};
use hci::upgrade::{
    LEVEL, ProgramDigest, ProgramFailure, ProgramReport, ProgramRequest, ProgramStep, REPORT,
    REQUEST,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::{error, info, warn};

use super::fetch;
use super::launch::{self, TRIAL, current, file_of};
use super::state::{FileIdentity, ProgramEvent, ProgramState, Trial};
use super::store::ProgramStore;
use crate::command::management::{EndRequest, NodeFeed, ProcessEnd};
use crate::command::version;
use crate::data_dir::Layout;

/// Timeout of `sheaf preflight`, which a new program runs on the data of this node.
const PREFLIGHT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a storage process may take to be replaced.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(60);
const STORAGE_INTERVAL: Duration = Duration::from_millis(100);
/// After a report that could not be written.
const RETRY_DELAY: Duration = Duration::from_secs(5);

pub(in crate::command) struct ProgramFollower {
    pub(in crate::command) client: Client,
    pub(in crate::command) layout: Layout,
    pub(in crate::command) node: String,
    pub(in crate::command) end: EndRequest,
}

/// The next thing to do for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramAction {
    Nothing,
    Prepare,
    /// Run the program on trial.
    Try,
    RestartStorage,
}

/// The state of this node's programs besides the recorded choice.
#[derive(Debug, Clone)]
struct ProgramFacts {
    running: ProgramDigest,
    is_trial: bool,
    is_storage_outdated: bool,
    /// Whether the file of the requested program is on this node.
    has_file: bool,
}

fn plan(state: &ProgramState, facts: &ProgramFacts, request: &ProgramRequest) -> ProgramAction {
    // A program on trial decides nothing.
    if facts.is_trial || state.has_failed(request) {
        return ProgramAction::Nothing;
    }
    let wanted = &request.digest;
    let is_running = facts.running == *wanted;
    match request.step {
        ProgramStep::Prepare if is_running => ProgramAction::Nothing,
        ProgramStep::Prepare if state.prepared.as_ref() == Some(wanted) && facts.has_file => {
            ProgramAction::Nothing
        }
        ProgramStep::Prepare => ProgramAction::Prepare,
        ProgramStep::Run if is_running => ProgramAction::Nothing,
        // A program that ran here before needs no second preflight.
        ProgramStep::Run if facts.has_file && state.needs(wanted) => ProgramAction::Try,
        ProgramStep::Run if is_installed(state, wanted) => ProgramAction::Try,
        ProgramStep::Run => ProgramAction::Prepare,
        ProgramStep::Storage if is_running && facts.is_storage_outdated => {
            ProgramAction::RestartStorage
        }
        ProgramStep::Storage => ProgramAction::Nothing,
    }
}

fn is_installed(state: &ProgramState, digest: &ProgramDigest) -> bool {
    state.installed.as_ref().is_some_and(|file| file.digest == *digest)
}

impl ProgramFollower {
    pub(in crate::command) async fn run(self, mut stop: Stop) {
        let mut feed = NodeFeed::named(self.client.clone(), &self.node);
        loop {
            let nodes = tokio::select! {
                nodes = feed.changed() => nodes,
                () = stop.requested() => return,
            };
            let Some(node) = nodes.into_iter().next() else { continue };
            let followed = tokio::select! {
                followed = self.follow(&node) => followed,
                () = stop.requested() => return,
            };
            if let Err(failure) = followed {
                warn!(error = %Chain(&*failure), "cannot follow a request for a program");
                tokio::select! {
                    () = tokio::time::sleep(RETRY_DELAY) => {}
                    () = stop.requested() => return,
                }
            }
        }
    }

    async fn follow(&self, node: &Node) -> Result<()> {
        let request = annotation::<ProgramRequest>(node, REQUEST);
        // Nodes without any request so far have nothing to report.
        if request.is_none() && !self.layout.programs_record().exists() {
            return Ok(());
        }
        let layout = self.layout.clone();
        let state = tokio::task::spawn_blocking(move || current(&layout)).await;
        let mut state = state.context("cannot sum up the program")??;
        while let Some(request) = &request {
            let facts = self.facts(&state, Some(request));
            let event = match plan(&state, &facts, request) {
                ProgramAction::Nothing => break,
                ProgramAction::Prepare => self.prepare(&state, request).await,
                ProgramAction::RestartStorage => match restart_storage(&self.layout).await {
                    Ok(()) => break,
                    Err(failure) => Err(failure),
                },
                ProgramAction::Try => {
                    let (digest, id) = (request.digest.clone(), request.id.clone());
                    Ok(ProgramEvent::TrialBegun(Trial { digest, id }))
                }
            };
            let event = event.unwrap_or_else(|failure| {
                let message = format!("{failure:#}");
                error!(program = request.digest.short(), "cannot use a program: {message}");
                ProgramEvent::Failed(ProgramFailure { id: request.id.clone(), message })
            });
            let is_trial = matches!(event, ProgramEvent::TrialBegun(_));
            state = state.after(event);
            state.save(&self.layout)?;
            ProgramStore::new(&self.layout).prune(&state);
            if is_trial {
                info!(program = request.digest.short(), "handing over to a new program on trial");
                self.end.request(ProcessEnd::Upgrade);
                return Ok(());
            }
        }
        self.report(node, &state, request.as_ref()).await
    }

    fn facts(&self, state: &ProgramState, request: Option<&ProgramRequest>) -> ProgramFacts {
        let is_trial = std::env::var_os(TRIAL).is_some();
        let trial = state.trial.as_ref().filter(|_| is_trial).map(|trial| trial.digest.clone());
        // Known to the last byte once the state is.
        let running = trial.or_else(launch::own).or_else(|| state.running().cloned());
        let has_file =
            request.is_some_and(|request| file_of(&self.layout, state, &request.digest).exists());
        ProgramFacts {
            running: running.expect("the state names the installed program"),
            is_trial,
            is_storage_outdated: is_storage_outdated(&self.layout.storage()),
            has_file,
        }
    }

    /// Fetches a program, and runs its preflight on the data of this node.
    async fn prepare(
        &self,
        state: &ProgramState,
        request: &ProgramRequest,
    ) -> Result<ProgramEvent> {
        if !is_installed(state, &request.digest) {
            fetch::fetch(&self.layout, &self.client, request).await?;
        }
        let path = file_of(&self.layout, state, &request.digest);
        preflight(&path, &self.layout.root, request.cluster_level).await?;
        info!(program = request.digest.short(), "program is ready to be run");
        Ok(ProgramEvent::Prepared(request.digest.clone()))
    }

    async fn report(
        &self,
        node: &Node,
        state: &ProgramState,
        request: Option<&ProgramRequest>,
    ) -> Result<()> {
        let facts = self.facts(state, request);
        let report = ProgramReport {
            running: Some(facts.running),
            is_trial: facts.is_trial,
            is_storage_outdated: facts.is_storage_outdated,
            version: version::VERSION.sheaf.to_owned(),
            level: LEVEL,
            prepared: state.prepared.clone(),
            previous: state.previous.clone(),
            failure: state.failure.clone(),
        };
        if annotation::<ProgramReport>(node, REPORT).as_ref() == Some(&report) {
            return Ok(());
        }
        let text = serde_json::to_string(&report).context("cannot encode the report")?;
        let patch = Patch::Merge(json!({"metadata": {"annotations": {REPORT: text}}}));
        let nodes = Api::<Node>::all(self.client.clone());
        let written = nodes.patch(&self.node, &PatchParams::default(), &patch).await;
        written.map(drop).context("cannot write the Node")
    }
}

fn annotation<T: for<'a> serde::Deserialize<'a>>(node: &Node, key: &str) -> Option<T> {
    serde_json::from_str(node.metadata.annotations.as_ref()?.get(key)?).ok()
}

async fn preflight(path: &Path, root: &Path, level: u32) -> Result<()> {
    let mut command = tokio::process::Command::new(path);
    command.arg("preflight").arg("--data-dir").arg(root);
    command.arg("--cluster-level").arg(level.to_string());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PREFLIGHT_TIMEOUT, command.output()).await;
    let Ok(output) = output else {
        bail!("the new program did not check this node within {} s", PREFLIGHT_TIMEOUT.as_secs());
    };
    let output = output.context("the new program does not run on this machine")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim_end().rsplit('\n').next().unwrap_or_default();
    bail!("the new program cannot take over this node ({}): {last}", output.status)
}

/// Whether the storage process runs another program than this one; not if there is none.
fn is_storage_outdated(dir: &Path) -> bool {
    let Ok(socket) = UnixStream::connect(dir.join("control.sock")) else { return false };
    let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else { return false };
    let exe = format!("/proc/{}/exe", peer.pid.as_raw_nonzero());
    match (FileIdentity::of(Path::new(&exe)), FileIdentity::of(Path::new("/proc/self/exe"))) {
        (Ok(theirs), Ok(own)) => theirs != own,
        _ => false,
    }
}

/// Ends the storage process; the agent starts it again from the program of this process. Guests
/// wait for their disks meanwhile.
async fn restart_storage(layout: &Layout) -> Result<()> {
    let dir = layout.storage();
    let stopped = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || block::storage::Client::connect(&dir)?.stop()
    });
    stopped.await.context("cannot stop the storage process")?.context("cannot stop it")?;
    let replaced = async {
        while is_storage_outdated(&dir) {
            tokio::time::sleep(STORAGE_INTERVAL).await;
        }
    };
    let replaced = tokio::time::timeout(STORAGE_TIMEOUT, replaced).await;
    replaced.context("the storage process did not end in time")?;
    info!("storage process replaced");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::state::InstalledFile;
    use super::*;

    fn digest(letter: char) -> ProgramDigest {
        ProgramDigest::parse(&letter.to_string().repeat(128)).unwrap()
    }

    fn request(letter: char, step: ProgramStep) -> ProgramRequest {
        ProgramRequest {
            id: "u/1".into(),
            digest: digest(letter),
            step,
            url: None,
            cluster_level: 1,
        }
    }

    #[test]
    fn each_request_has_its_next_action() {
        let identity = FileIdentity::of(Path::new("/proc/self/exe")).unwrap();
        let installed =
            InstalledFile { path: "/usr/bin/sheaf".into(), digest: digest('a'), identity };
        let fresh = ProgramState::default().after(ProgramEvent::Installed(installed));
        let prepared = fresh.clone().after(ProgramEvent::Prepared(digest('b')));
        let failure = ProgramFailure { id: "u/1".into(), message: "no".into() };
        let failed = fresh.clone().after(ProgramEvent::Failed(failure));
        let facts = |running: char, has_file, is_storage_outdated| ProgramFacts {
            running: digest(running),
            is_trial: false,
            is_storage_outdated,
            has_file,
        };
        use ProgramAction::{Nothing, Prepare, RestartStorage, Try};
        use ProgramStep::{Prepare as Ready, Run, Storage};
        for (state, facts, request, expected) in [
            (&fresh, facts('a', false, false), request('b', Ready), Prepare),
            (&fresh, facts('a', false, false), request('a', Ready), Nothing),
            (&prepared, facts('a', true, false), request('b', Ready), Nothing),
            (&prepared, facts('a', false, false), request('b', Ready), Prepare),
            (&failed, facts('a', false, false), request('b', Ready), Nothing),
            (&prepared, facts('a', true, false), request('b', Run), Try),
            (&fresh, facts('a', false, false), request('b', Run), Prepare),
            (&fresh, facts('b', true, false), request('a', Run), Try),
            (&prepared, facts('b', true, true), request('b', Run), Nothing),
            (&prepared, facts('b', true, true), request('b', Storage), RestartStorage),
            (&prepared, facts('b', true, false), request('b', Storage), Nothing),
            (&prepared, facts('a', true, true), request('b', Storage), Nothing),
        ] {
            assert_eq!(plan(state, &facts, &request), expected, "{facts:?} {request:?}");
        }
        let on_trial = ProgramFacts { is_trial: true, ..facts('b', true, true) };
        assert_eq!(plan(&prepared, &on_trial, &request('c', Run)), Nothing);
    }

    #[test]
    fn a_node_without_a_storage_process_has_none_that_is_outdated() {
        assert!(!is_storage_outdated(tempfile::tempdir().unwrap().path()));
    }
}
