//! The steps from a folder to a process, and back from a folder to its process.
//!
//! Blocking, and short: called from a thread that may block.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Resource, pidfd_open};

use super::launch::{LAST_WORDS, LaunchError};
use super::sys::{self, Preparation};
use super::{Binary, Confinement, ProcessId, Spec, cgroup};
use crate::argv::{TapFds, Wiring, argv};
use crate::isolation::{self, Entrance, Isolation, RootPlan};
use crate::machine::{Nic, NicBackend};
use crate::run_dir::{AGENT, MACHINE, PROCESS, QMP, RunDir, SERIAL};
use crate::tpm;

/// Threads and processes of one machine: its vCPUs, I/O threads and their workers stay far below.
const MAX_THREADS: u64 = 4096;

/// A process and the descriptor that refers to it.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) id: ProcessId,
    pub(super) pidfd: OwnedFd,
    /// The process of its TPM, if it is our child.
    pub(super) tpm: Option<OwnedFd>,
}

/// Starts QEMU in `dir`. When this returns an error, no process is left.
pub(super) fn start(dir: &RunDir, spec: &Spec, binary: &Binary) -> Result<Started, LaunchError> {
    let identity = spec.confinement.identity.as_ref();
    let failed = |step: &'static str| move |source| LaunchError::Prepare { step, source };
    dir.create(identity).map_err(failed("make the machine's folder"))?;
    let lock = dir.lock_patiently().map_err(failed("lock the machine's folder"))?;
    let lock = lock.ok_or_else(|| LaunchError::AlreadyRunning { dir: dir.path().into() })?;
    dir.forget_process().map_err(failed("clear the machine's folder"))?;
    dir.store(MACHINE, spec).map_err(failed("store the machine"))?;

    let mut inherit = vec![OwnedFd::from(lock)];
    let (wiring, tpm_process) = wire(dir, spec, &mut inherit)?;
    let cgroups = enter_cgroup(dir, spec)?;
    let mut command = Command::new(&binary.0);
    command
        .args(argv(&spec.machine, &wiring))
        .current_dir(dir.vm())
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
        .stdin(Stdio::null())
        .stdout(log(dir)?)
        .stderr(log(dir)?);
    let lock_memory = spec.machine.memory.locked;
    let identity = identity.cloned();
    // The kernel counts by user, so only a user of the machine's own can be limited.
    let limits = identity.iter().map(|_| (Resource::Nproc, MAX_THREADS)).collect();
    let entrance = entrance(dir, spec, binary).map_err(failed("plan the root of QEMU"))?;
    let is_apart = entrance.is_some();
    // QEMU has a filter of its own (`-sandbox`).
    let filter = None;
    let preparation =
        Preparation { identity, inherit, cgroups, lock_memory, limits, entrance, filter };
    sys::prepare(&mut command, preparation);
    let mut started = spawn(dir, &mut command, binary, is_apart);
    match &mut started {
        Ok(started) => {
            let tpm = tpm_process.map(identify).transpose().ok().flatten().flatten();
            started.tpm = tpm.map(|tpm| tpm.pidfd);
        }
        Err(_) => leave_cgroup(dir, spec),
    }
    started
}

/// Opens everything that QEMU inherits; says where it is, and which process is the TPM's.
fn wire(
    dir: &RunDir,
    spec: &Spec,
    inherit: &mut Vec<OwnedFd>,
) -> Result<(Wiring, Option<i32>), LaunchError> {
    let mut listen = |name| {
        let listener = dir.listen(name).map(OwnedFd::from);
        let listener =
            listener.map_err(|source| LaunchError::Prepare { step: "make a socket", source })?;
        let number = listener.as_raw_fd();
        inherit.push(listener);
        Ok::<_, LaunchError>(number)
    };
    let (qmp, serial, guest_agent) = (listen(QMP)?, listen(SERIAL)?, listen(AGENT)?);
    let taps = open_taps(spec, inherit)?;
    let (mut tpm, mut tpm_process) = (None, None);
    if let Some(started) = start_tpm(dir, spec)? {
        tpm = Some(started.channel.as_raw_fd());
        tpm_process = Some(started.pid);
        inherit.push(started.channel);
    }
    let wiring = Wiring {
        pid_file: dir.pid_file(),
        qmp,
        serial,
        guest_agent,
        taps,
        // Relative to the folder it runs in, because a socket's path must be short.
        vnc: "vnc.sock".into(),
        tpm,
    };
    Ok((wiring, tpm_process))
}

fn start_tpm(dir: &RunDir, spec: &Spec) -> Result<Option<tpm::Started>, LaunchError> {
    let Some(tpm) = &spec.machine.tpm else { return Ok(None) };
    let started = tpm::start(&tpm.state, spec.confinement.identity.as_ref(), log(dir)?);
    let failed = |source| LaunchError::Spawn { binary: tpm::PROGRAM.into(), source };
    started.map(Some).map_err(failed)
}

/// The namespaces that QEMU enters; none without a user of its own, who could not leave ours.
fn entrance(dir: &RunDir, spec: &Spec, binary: &Binary) -> io::Result<Option<Entrance>> {
    let Confinement { isolation: Some(isolation), identity: Some(_), .. } = &spec.confinement
    else {
        return Ok(None);
    };
    let mut paths = isolation::machine_paths(&spec.machine);
    paths.insert(dir.path().to_owned());
    let root = RootPlan::new(&binary.0, &dir.vm(), &paths)?;
    let is_user_mode = |nic: &Nic| matches!(nic.backend, NicBackend::User { .. });
    let host_network = isolation.host_network || spec.machine.nics.iter().any(is_user_mode);
    Ok(Some(Entrance { isolation: Isolation { host_network }, root }))
}

fn spawn(
    dir: &RunDir,
    command: &mut Command,
    binary: &Binary,
    is_apart: bool,
) -> Result<Started, LaunchError> {
    let spawned =
        if is_apart { isolation::as_first_process(|| command.spawn()) } else { command.spawn() };
    let mut child =
        spawned.map_err(|source| LaunchError::Spawn { binary: binary.0.clone(), source })?;
    let record = || -> io::Result<Option<Started>> {
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        let started = identify(pid)?;
        if let Some(started) = &started {
            dir.store(PROCESS, &started.id)?;
        }
        Ok(started)
    };
    let recorded = record();
    if let Ok(Some(started)) = recorded {
        return Ok(started);
    }
    // Without a record the process would still be found, but by a search.
    let _ = child.kill();
    let _ = child.wait();
    Err(match recorded {
        Err(source) => LaunchError::Prepare { step: "record the process", source },
        // It was gone before it could be checked.
        Ok(_) => LaunchError::EndedEarly { said: dir.log_tail(LAST_WORDS) },
    })
}

fn log(dir: &RunDir) -> Result<fs::File, LaunchError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(dir.log())
        .map_err(|source| LaunchError::Prepare { step: "open the log", source })
}

fn open_taps(
    spec: &Spec,
    inherit: &mut Vec<OwnedFd>,
) -> Result<BTreeMap<String, TapFds>, LaunchError> {
    let mut taps = BTreeMap::new();
    for nic in &spec.machine.nics {
        let NicBackend::Tap { ifname, queues, vhost } = &nic.backend else { continue };
        let failed = |source| LaunchError::Tap { ifname: ifname.clone(), source };
        let opened = sys::open_tap(ifname, *queues).map_err(failed)?;
        let movers =
            if *vhost { sys::open_vhost_net(*queues).map_err(failed)? } else { Vec::new() };
        let fds = TapFds { queues: sys::numbers(&opened), vhost: sys::numbers(&movers) };
        taps.insert(nic.name.clone(), fds);
        inherit.extend(opened);
        inherit.extend(movers);
    }
    Ok(taps)
}

/// The name of a machine's control group.
pub(super) fn group_name(dir: &RunDir) -> String {
    let name = dir.path().file_name().unwrap_or(OsStr::new("machine"));
    format!("vm-{}", name.to_string_lossy())
}

fn enter_cgroup(dir: &RunDir, spec: &Spec) -> Result<Vec<fs::File>, LaunchError> {
    let (Some(layout), Some(limits)) = (&spec.confinement.cgroup, &spec.confinement.limits) else {
        return Ok(Vec::new());
    };
    let name = group_name(dir);
    cgroup::create(layout, &name, limits).map_err(|source| LaunchError::Cgroup { name, source })
}

/// Removes the group of a machine that is gone; a leftover costs nothing but tidiness.
pub(super) fn leave_cgroup(dir: &RunDir, spec: &Spec) {
    if let Some(layout) = &spec.confinement.cgroup {
        let name = group_name(dir);
        if let Err(error) = cgroup::remove(layout, &name) {
            tracing::warn!(group = name, %error, "cannot remove control group");
        }
    }
}

/// The process with this number, if it exists and is not waiting to be reaped.
pub(super) fn identify(pid: i32) -> io::Result<Option<Started>> {
    let Some(number) = Pid::from_raw(pid) else { return Ok(None) };
    // The descriptor is opened first: /proc afterwards describes this very process, or the process
    // is gone and so is its entry.
    let pidfd = match pidfd_open(number, PidfdFlags::NONBLOCK) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(start_time(&stat).map(|start_time| Started {
        id: ProcessId { pid, start_time },
        pidfd,
        tpm: None,
    }))
}

/// The start time in a line of `/proc/<pid>/stat`; none for a process that has ended.
fn start_time(stat: &str) -> Option<u64> {
    // The name may hold anything, spaces and parentheses included.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

/// Finds the process of a folder whose lock is held.
pub(super) fn find(dir: &RunDir) -> io::Result<Option<Started>> {
    if let Some(recorded) = dir.load::<ProcessId>(PROCESS)?
        && let Some(started) = identify(recorded.pid)?
        && started.id == recorded
    {
        return Ok(Some(started));
    }
    let pid_file = dir.pid_file();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        if is_ours(&entry.path(), &pid_file)
            && let Some(started) = identify(pid)?
        {
            dir.store(PROCESS, &started.id)?;
            return Ok(Some(started));
        }
    }
    Ok(None)
}

/// Whether the process behind a folder of /proc was started with this pid file, and is not
/// a child on its way to that, nor another process that merely names it.
fn is_ours(proc: &Path, pid_file: &Path) -> bool {
    let Ok(arguments) = fs::read(proc.join("cmdline")) else { return false };
    let arguments: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
    let named = arguments
        .windows(2)
        .any(|pair| pair[0] == b"-pidfile" && pair[1] == pid_file.as_os_str().as_bytes());
    // The folder that only its owner may enter excludes another program with the same arguments.
    let owner = |path: &Path| fs::metadata(path).map(|data| data.uid());
    let folder = pid_file.parent().unwrap_or(pid_file);
    named && matches!((owner(proc), owner(folder)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let line = |name: &str, state: &str| {
            let zeros = "0 ".repeat(18);
            format!("12 ({name}) {state} {zeros}4242 99")
        };
        assert_eq!(start_time(&line("qemu", "S")), Some(4242));
        assert_eq!(start_time(&line("a) Z (b", "R")), Some(4242));
        assert_eq!(start_time(&line("qemu", "Z")), None);
        assert_eq!(start_time("nonsense"), None);
    }

    #[test]
    fn we_ourselves_are_identified_and_the_void_is_not() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(identify(me).unwrap().expect("we exist").id.pid, me);
        assert!(identify(i32::MAX).unwrap().is_none());
        assert!(identify(0).unwrap().is_none());
    }
}
