//! The version of this host's QEMU and whether KVM works, found out by running a guest.
//!
//! That `/dev/kvm` can be opened proves nothing: there are hosts that interpret real mode and
//! fail at the first kernel. The guest of `probe/trial.S` does what every kernel does on its
//! way up. It runs as the user that machines run as, because the device's rights matter too.
//! An answer is kept in a file for as long as neither QEMU nor the device changes. That a trial
//! took too long says more about that hour than about the host, so it is not kept: the next
//! start tries again.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::machine::Accelerator;
use crate::process::{Binary, ProcessUser, confine};

const TRIAL: &[u8] = include_bytes!("probe/trial.bin");
/// Working KVM needs a tenth of a second, most of it for the firmware. A node that comes back
/// from a power cut with all its guests is slower.
const LIMIT: Duration = Duration::from_secs(15);
/// QEMU's exit status after the trial's last instruction.
const SUCCESS: i32 = 0x4b << 1 | 1;
const KVM: &str = "/dev/kvm";

/// Result of probing the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub accelerator: Accelerator,
    /// Why it is not KVM.
    pub reason: Option<String>,
    /// `7.2.22`.
    pub version: String,
    /// The names of the processor models that QEMU knows.
    pub cpu_models: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("cannot run {}", binary.display())]
    Run { binary: PathBuf, source: io::Error },
    #[error("{} is not QEMU: it said {said:?}", binary.display())]
    NotQemu { binary: PathBuf, said: String },
    #[error("cannot find {} in the search path", binary.display())]
    Missing { binary: PathBuf },
}

/// The groups that a machine's user must be in to reach KVM: that of the device, where the
/// device is open to its group and not to everyone.
pub fn kvm_groups() -> Vec<u32> {
    let Ok(device) = fs::metadata(KVM) else { return Vec::new() };
    let (mode, for_group, for_all) = (device.mode(), 0o060, 0o006);
    let needed = mode & for_group == for_group && mode & for_all != for_all;
    if needed { vec![device.gid()] } else { Vec::new() }
}

/// An answer and what it depends on.
#[derive(Serialize, Deserialize)]
struct CachedProbe {
    key: String,
    probe: Probe,
}

/// Examines QEMU and tries KVM, unless `cache` has the answer.
pub async fn probe(
    binary: &Binary,
    identity: Option<&ProcessUser>,
    cache: &Path,
) -> Result<Probe, ProbeError> {
    let key = key(binary, identity)?;
    let cached = fs::read(cache).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(CachedProbe { key: known, probe }) = cached
        && known == key
    {
        return Ok(probe);
    }
    let version = version(binary).await?;
    let cpu_models = cpu_models(binary).await?;
    let failure = try_kvm(binary, identity, cache).await.err();
    let accelerator = if failure.is_none() { Accelerator::Kvm } else { Accelerator::Tcg };
    let lasting = failure != Some(ProbeFailure::Late);
    let reason = failure.map(|failure| failure.to_string());
    let cached = CachedProbe { key, probe: Probe { accelerator, reason, version, cpu_models } };
    // Without the file the next start takes longer; nothing else.
    if lasting && let Ok(bytes) = serde_json::to_vec(&cached) {
        let _ = fs::write(cache, bytes);
    }
    Ok(cached.probe)
}

/// Why a trial did not succeed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ProbeFailure {
    #[error("{0}")]
    Refused(String),
    #[error("a trial guest did not finish within {} s", LIMIT.as_secs())]
    Late,
}

fn key(binary: &Binary, identity: Option<&ProcessUser>) -> Result<String, ProbeError> {
    let path = find(&binary.0)?;
    let stamp = |path: &Path| {
        let data = fs::metadata(path);
        data.map(|data| {
            let owner = (data.uid(), data.gid(), data.mode());
            format!("{} {} {} {owner:?}", data.size(), data.mtime(), data.ino())
        })
    };
    let missing = |_| ProbeError::Missing { binary: path.clone() };
    let qemu = stamp(&path).map_err(missing)?;
    let kvm = stamp(Path::new(KVM)).unwrap_or_default();
    // Rights depend on whether there is another user, not on which one of the range it is.
    let groups = identity.map(|identity| &identity.groups);
    Ok(format!("{} {qemu}; {kvm}; {groups:?}; {}", path.display(), TRIAL.len()))
}

/// Where a program is that was given by name.
fn find(binary: &Path) -> Result<PathBuf, ProbeError> {
    if binary.components().count() > 1 {
        return Ok(binary.to_owned());
    }
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/libexec"]
        .iter()
        .map(|folder| Path::new(folder).join(binary))
        .find(|path| path.exists())
        .ok_or_else(|| ProbeError::Missing { binary: binary.to_owned() })
}

async fn output(binary: &Binary, arguments: &[&str]) -> Result<String, ProbeError> {
    let failed = |source| ProbeError::Run { binary: binary.0.clone(), source };
    let output = Command::new(&binary.0)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// QEMU's version.
pub async fn version(binary: &Binary) -> Result<String, ProbeError> {
    let said = output(binary, &["--version"]).await?;
    parse_version(&said)
        .ok_or_else(|| ProbeError::NotQemu { binary: binary.0.clone(), said: said.clone() })
}

fn parse_version(said: &str) -> Option<String> {
    let rest = said.strip_prefix("QEMU emulator version ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    Some(rest[..end].to_owned())
}

async fn cpu_models(binary: &Binary) -> Result<Vec<String>, ProbeError> {
    let said = output(binary, &["-cpu", "help"]).await?;
    Ok(parse_models(&said))
}

fn parse_models(said: &str) -> Vec<String> {
    let models = said.lines().filter_map(|line| {
        // QEMU 10 leaves out the architecture.
        let line = line.strip_prefix("x86 ").or_else(|| line.strip_prefix("  "))?;
        line.split_whitespace().next()
    });
    let models = models.filter(|model| !["max", "base", "host"].contains(model));
    // A list of features follows the models, in indented lines of many words.
    models.take_while(|model| *model != "3dnow").map(str::to_owned).collect()
}

/// Runs the trial under KVM.
async fn try_kvm(
    binary: &Binary,
    identity: Option<&ProcessUser>,
    cache: &Path,
) -> Result<(), ProbeFailure> {
    if !Path::new(KVM).exists() {
        return Err(ProbeFailure::Refused(format!("there is no {KVM}")));
    }
    let folder = TemporaryDir::beside(cache)
        .map_err(|error| ProbeFailure::Refused(format!("cannot make a folder: {error}")))?;
    run_trial(binary, identity, Accelerator::Kvm, &folder.0).await
}

/// A folder that is removed when it is dropped.
struct TemporaryDir(PathBuf);

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl TemporaryDir {
    /// Beside the cache, in a folder of ours: files in a public folder could belong to any user.
    fn beside(cache: &Path) -> io::Result<Self> {
        let path = cache.with_extension("trial");
        crate::create_passable(&path)?;
        Ok(Self(path))
    }
}

async fn run_trial(
    binary: &Binary,
    identity: Option<&ProcessUser>,
    accelerator: Accelerator,
    folder: &Path,
) -> Result<(), ProbeFailure> {
    let image = folder.join("trial.img");
    let write = || -> io::Result<()> {
        fs::write(&image, TRIAL)?;
        fs::set_permissions(&image, fs::Permissions::from_mode(0o644))?;
        // The firmware does not boot from a disk of one sector.
        fs::OpenOptions::new().write(true).open(&image)?.set_len(1 << 20)
    };
    write().map_err(|error| ProbeFailure::Refused(format!("cannot write the trial: {error}")))?;
    let mut command = std::process::Command::new(&binary.0);
    let path = image.to_string_lossy().replace(',', ",,");
    let model = if accelerator == Accelerator::Kvm { "host" } else { "max" };
    command
        .args(["-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-accel", accelerator.name(), "-cpu", model, "-m", "16"])
        .args(["-device", "isa-debug-exit,iobase=0xf4", "-serial", "stdio"])
        .arg("-drive")
        .arg(format!("file={path},format=raw,if=virtio,readonly=on"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    confine(&mut command, identity.cloned(), None);
    let mut command = Command::from(command);
    let not_run =
        |error| ProbeFailure::Refused(format!("cannot run {}: {error}", binary.0.display()));
    let mut child = command.kill_on_drop(true).spawn().map_err(not_run)?;
    let stderr = child.stderr.take().expect("it was asked for above");
    let ended = tokio::time::timeout(LIMIT, async {
        tokio::select! {
            complaint = complaint(stderr) => Err(complaint),
            status = child.wait() => Ok(status),
        }
    });
    let Ok(ended) = ended.await else { return Err(ProbeFailure::Late) };
    Err(ProbeFailure::Refused(match ended {
        Ok(Ok(status)) if status.code() == Some(SUCCESS) => return Ok(()),
        Ok(Ok(status)) => format!("QEMU ended with {status}"),
        Ok(Err(error)) => format!("cannot wait for QEMU: {error}"),
        Err(complaint) => complaint,
    }))
}

/// Waits for QEMU to say that it cannot go on. A guest that KVM cannot run leaves QEMU alive.
async fn complaint(mut stderr: impl AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    let mut bytes = [0; 1024];
    while let Ok(count) = stderr.read(&mut bytes).await {
        if count == 0 || said.len() > 64 << 10 {
            break;
        }
        said.extend_from_slice(&bytes[..count]);
        let text = String::from_utf8_lossy(&said);
        let fatal = ["KVM internal error", "failed to initialize kvm", "Could not access KVM"];
        if fatal.iter().any(|words| text.contains(words)) {
            let first = text.lines().next().unwrap_or_default();
            return first.trim_start_matches("qemu-system-x86_64: ").to_owned();
        }
    }
    // Warnings are no reason; the exit status decides.
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{run, within};

    #[test]
    fn versions_and_models_are_read_from_what_qemu_says() {
        let said = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright\n";
        assert_eq!(parse_version(said).as_deref(), Some("7.2.22"));
        assert_eq!(parse_version("QEMU emulator version 10.0.2\n").as_deref(), Some("10.0.2"));
        assert_eq!(parse_version("bash: no such thing"), None);
        let old = "Available CPUs:\nx86 486   (alias configured)\nx86 max   Enables all\n\n\
                   Recognized CPUID flags:\n  3dnow 3dnowext abm ace2\n  ace2-en\n";
        assert_eq!(parse_models(old), ["486"]);
        let new = "Available CPUs:\n  Denverton   (alias)\n  host   processor\n\nRecognized:\n\
                   \x20 3dnow 3dnowext\n";
        assert_eq!(parse_models(new), ["Denverton"]);
    }

    #[test]
    fn the_trials_bytes_are_those_of_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let (source, object, image) =
            (folder.path().join("t.S"), folder.path().join("t.o"), folder.path().join("t.bin"));
        fs::write(&source, include_str!("probe/trial.S")).unwrap();
        run(std::process::Command::new("as").arg("--64").arg("-o").args([&object, &source]));
        run(std::process::Command::new("ld")
            .args(["-m", "elf_x86_64", "-Ttext", "0x7c00", "--oformat", "binary", "-o"])
            .args([&image, &object]));
        assert_eq!(fs::read(image).unwrap(), TRIAL);
    }

    #[tokio::test]
    async fn the_trial_succeeds_where_the_processor_is_sound() {
        let folder = tempfile::tempdir().unwrap();
        let binary = Binary::default();
        let trial = run_trial(&binary, None, Accelerator::Tcg, folder.path());
        within("the trial", trial).await.unwrap();
    }

    #[tokio::test]
    async fn the_trial_runs_as_whom_machines_run_as() {
        let Some(identity) = crate::tests::identity() else { panic!("this test needs root") };
        let stage = crate::tests::Stage::new();
        let folder = TemporaryDir::beside(&stage.path().join("probe.json")).unwrap();
        let binary = Binary::default();
        let trial = run_trial(&binary, Some(&identity), Accelerator::Tcg, &folder.0);
        within("the trial", trial).await.unwrap();
        let left = folder.0.clone();
        drop(folder);
        assert!(!left.exists());
    }

    #[tokio::test]
    async fn the_answer_is_kept_until_qemu_changes() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("probe.json");
        let binary = Binary::default();
        let first = within("the probe", probe(&binary, None, &cache)).await.unwrap();
        assert!(first.cpu_models.iter().any(|model| model == "Nehalem"), "{first:?}");
        assert_eq!(first.reason.is_some(), first.accelerator == Accelerator::Tcg);
        let marked = Probe { version: "from the file".to_owned(), ..first.clone() };
        let key = key(&binary, None).unwrap();
        let keep = |key: &str| {
            let cached = CachedProbe { key: key.to_owned(), probe: marked.clone() };
            fs::write(&cache, serde_json::to_vec(&cached).unwrap()).unwrap();
        };
        keep(&key);
        assert_eq!(probe(&binary, None, &cache).await.unwrap(), marked);
        keep(&format!("{key}x"));
        let fresh = within("the probe", probe(&binary, None, &cache)).await.unwrap();
        // Which words a KVM that does not work finds is not always the same.
        let Probe { accelerator, version, cpu_models, .. } = first;
        assert_eq!(fresh, Probe { accelerator, version, cpu_models, reason: fresh.reason.clone() });
    }

    #[tokio::test]
    async fn a_trial_that_took_too_long_is_tried_again_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("probe.json");
        let slow = folder.path().join("qemu");
        let script = "#!/bin/sh\ncase $1 in\n\
                      --version) echo 'QEMU emulator version 9.9.9 (slow)' ;;\n\
                      -cpu) echo 'x86 486' ;;\n*) exec sleep 600 ;;\nesac\n";
        fs::write(&slow, script).unwrap();
        fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
        let found = within("the probe", probe(&Binary(slow), None, &cache)).await.unwrap();
        assert_eq!(found.accelerator, Accelerator::Tcg);
        // Where there is no device at all, nothing was tried, and that answer lasts.
        assert_eq!(cache.exists(), !Path::new(KVM).exists(), "{found:?}");
    }
}
