//! Waiting for a condition or for a command, with a bound.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for the slowest machine; a test that passes does not wait for it.
const BOUND: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(25);
/// Between requests to an emulated machine, which would be busy with nothing else.
const LONG_PAUSE: Duration = Duration::from_millis(500);

/// Asks until there is an answer; the last complaint says why there was none.
#[track_caller]
pub(crate) fn poll<T>(what: &str, ask: impl FnMut() -> Result<T, String>) -> T {
    poll_each(PAUSE, what, ask)
}

/// The same with fewer requests: for tests on an emulated machine.
#[track_caller]
pub(crate) fn poll_slowly<T>(what: &str, ask: impl FnMut() -> Result<T, String>) -> T {
    poll_each(LONG_PAUSE, what, ask)
}

#[track_caller]
fn poll_each<T>(pause: Duration, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(why) if began.elapsed() > BOUND => panic!("waited in vain: {what}: {why}"),
            Err(_) => thread::sleep(pause),
        }
    }
}

/// Asks until the answer is yes.
#[track_caller]
pub(crate) fn eventually(what: &str, mut ask: impl FnMut() -> bool) {
    poll(what, || if ask() { Ok(()) } else { Err("not yet".to_owned()) });
}

/// Waits for a process to end; one that does not is killed, and the test fails.
#[track_caller]
pub(crate) fn ended(child: &mut Child, report: impl Fn() -> String) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > BOUND {
            let stacks = stacks(child.id());
            let _ = child.kill();
            let _ = child.wait();
            panic!("process {} did not end:\n{stacks}\n{}", child.id(), report());
        }
        thread::sleep(PAUSE);
    }
}

/// Runs a command to its end. Its output goes through files: a process that it left behind keeps
/// a pipe open, and the test would wait for that one instead.
#[track_caller]
pub(crate) fn output_of(command: &mut Command) -> Output {
    let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let written = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    };
    command.stdin(Stdio::null());
    command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let line = format!("{command:?}");
    let complaint = stderr.try_clone().unwrap();
    let status = ended(&mut child, || {
        let complaint = written(&mut complaint.try_clone().unwrap());
        format!("{line}\n{}", String::from_utf8_lossy(&complaint))
    });
    Output { status, stdout: written(&mut stdout), stderr: written(&mut stderr) }
}

/// Where the threads of a process wait, if a debugger is there to report it.
fn stacks(process: u32) -> String {
    let process = process.to_string();
    let gdb = Command::new("gdb")
        .args(["-p", &process, "-batch", "-ex", "thread apply all backtrace 30"])
        .output();
    gdb.map_or_else(
        |error| format!("(no gdb: {error})"),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}
