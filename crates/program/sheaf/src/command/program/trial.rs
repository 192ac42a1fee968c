//! `sheaf upgrade-trial`: runs a new program under the old one until it has proved itself. If it
//! does not within its time, the old one takes over again.
//!
//! The process is the one that the service manager started. When the trial is over it becomes the
//! server again, of the new program or of the old one.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tracing::{error, info, warn};

use super::super::server::StopSignals;
use super::health::HEALTHY;
use super::launch::{self, TRIAL, file_of, passed_digest};
use super::state::{ProgramEvent, ProgramState, Trial};
use crate::cli::{Cli, Command as Subcommand, LogFormat, TrialArgs};
use crate::data_dir::Layout;
use crate::logging;

/// How long a new program may take until it reports that it is healthy.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long it may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The end of a trial.
#[derive(Debug)]
enum TrialOutcome {
    Passed,
    Failed(String),
    /// The service is being stopped.
    Stopped,
}

pub(in crate::command) fn run(args: &TrialArgs) -> Result<()> {
    let (format, level) = logging_of(&args.words);
    logging::start(format, &level)?;
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    let state = ProgramState::load(&layout)?.unwrap_or_default();
    let Some(trial) = state.trial.clone() else {
        return Err(launch::resume(&args.words)).context("cannot restart this program");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let outcome = runtime.block_on(attempt(&layout, &state, &trial, &args.words));
    drop(runtime);
    let outcome = outcome.unwrap_or_else(|failure| TrialOutcome::Failed(format!("{failure:#}")));
    let failure = match outcome {
        // The next start takes the trial as interrupted.
        TrialOutcome::Stopped => return Ok(()),
        TrialOutcome::Passed => {
            info!(program = trial.digest.short(), "new program is healthy; it runs from now on");
            let state = state.after(ProgramEvent::TrialPassed);
            state.save(&layout)?;
            let path = file_of(&layout, &state, &trial.digest);
            let passed = passed_digest(&state, &trial.digest);
            launch::replace(&path, passed.as_ref(), args.words.iter().cloned())
        }
        TrialOutcome::Failed(message) => {
            error!(program = trial.digest.short(), "trial of the new program failed: {message}");
            state.after(ProgramEvent::TrialFailed(message)).save(&layout)?;
            launch::resume(&args.words)
        }
    };
    Err(failure).context("cannot start the server")
}

/// The format and the level that the server logs with.
fn logging_of(words: &[OsString]) -> (LogFormat, String) {
    let name = OsString::from("sheaf");
    match Cli::try_parse_from(std::iter::once(&name).chain(words)).map(|cli| cli.command) {
        Ok(Subcommand::Server(args)) => (args.log_format, args.log_level.clone()),
        Ok(Subcommand::Witness(args)) => (args.log_format, args.log_level.clone()),
        _ => (LogFormat::Text, "info".to_owned()),
    }
}

async fn attempt(
    layout: &Layout,
    state: &ProgramState,
    trial: &Trial,
    words: &[OsString],
) -> Result<TrialOutcome> {
    let mut signals = StopSignals::listen()?;
    let (ours, theirs) = StdUnixStream::pair().context("cannot open a socket")?;
    let path = file_of(layout, state, &trial.digest);
    info!(program = trial.digest.short(), "trying the new program");
    let mut command = std::process::Command::new(&path);
    launch::name(&mut command, passed_digest(state, &trial.digest).as_ref());
    // It reports on its standard input, which a server does not use, and ends with this process.
    command.args(words).env(TRIAL, "1").stdin(Stdio::from(OwnedFd::from(theirs)));
    let mut child = Command::from(command)
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))?;
    ours.set_nonblocking(true).context("cannot use a socket")?;
    let reports = BufReader::new(UnixStream::from_std(ours).context("cannot use a socket")?);
    let mut lines = reports.lines();
    let mut last = String::from("it has reported nothing");
    let deadline = tokio::time::sleep(TRIAL_TIMEOUT);
    tokio::pin!(deadline);
    let outcome = loop {
        tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) if line == HEALTHY => break TrialOutcome::Passed,
                Ok(Some(line)) => {
                    info!("new program: {line}");
                    last = line;
                }
                // It has closed its end, and will end itself next.
                _ => break TrialOutcome::Failed(ended(child.wait().await, &last)),
            },
            status = child.wait() => break TrialOutcome::Failed(ended(status, &last)),
            () = &mut deadline => break TrialOutcome::Failed(format!(
                "the new program was not healthy after {} s: {last}", TRIAL_TIMEOUT.as_secs()
            )),
            () = signals.received() => break TrialOutcome::Stopped,
        }
    };
    stop(&mut child).await;
    Ok(outcome)
}

fn ended(status: std::io::Result<ExitStatus>, last: &str) -> String {
    match status {
        Ok(status) => format!("the new program ended ({status}): {last}"),
        Err(error) => format!("the new program cannot be observed: {error}"),
    }
}

/// Ends the process and waits for it: the next one needs its lock and its ports.
async fn stop(child: &mut Child) {
    let Some(id) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
    if let Err(failure) = kill_process(id, Signal::TERM) {
        warn!(%failure, "cannot stop the program on trial");
    }
    if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        warn!("program on trial does not stop; killing it");
        let _ = child.kill().await;
    }
}
