//! This host's means of running guests: found by trying, reported in the Node.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use base::{Chain, Stop};
use qemu::firmware::{self, Boot};
use qemu::machine::Accelerator;
use qemu::probe::probe;
use qemu::process::{Binary, ProcessUser};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::change_notifier::ChangeNotifier;

/// Stands for any machine's user in the trial.
const TRIAL_USER: u32 = 0x7000_7fff;
/// QEMU that is installed later is found without a restart.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// How guests run here, or why they cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Virtualization {
    /// Not probed yet.
    #[default]
    Unknown,
    Kvm {
        qemu: String,
    },
    /// Emulated, and why KVM is not used.
    Emulated {
        qemu: String,
        why: String,
    },
    /// No guest can run; the text says what is missing and how to get it.
    Missing {
        what: String,
    },
}

/// How far guests' QEMU is apart from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuestIsolation {
    Namespaces,
    /// The agent is not root.
    Unprivileged,
    Refused {
        why: String,
    },
}

/// The capabilities of the node.
#[derive(Debug, Clone)]
pub(crate) struct HostCapabilities {
    pub(crate) accelerator: Accelerator,
    pub(crate) firmware: Vec<Efi>,
    /// Whether a software TPM is installed.
    pub(crate) has_tpm: bool,
}

/// One EFI firmware that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Efi {
    pub(crate) secure_boot: bool,
    pub(crate) code: PathBuf,
    pub(crate) vars: PathBuf,
}

/// Result of the probe, and the capabilities that machines may rely on if it found any.
#[derive(Debug, Clone, Default)]
pub(crate) struct AcceleratorProbe {
    pub(crate) virtualization: Virtualization,
    pub(crate) host: Option<HostCapabilities>,
}

/// Tries until QEMU is there, then once for good.
pub(crate) async fn run(
    cache: PathBuf,
    found: watch::Sender<AcceleratorProbe>,
    notifier: ChangeNotifier,
    mut stop: Stop,
) {
    let mut is_reported = false;
    loop {
        let trial = attempt(&cache).await;
        match &trial.virtualization {
            Virtualization::Kvm { qemu } => info!(qemu, "guests run under KVM"),
            Virtualization::Emulated { qemu, why } => {
                info!(qemu, reason = why, "guests are emulated");
            }
            Virtualization::Missing { what } if !is_reported => {
                warn!(reason = what, "node cannot run guests");
            }
            Virtualization::Missing { .. } | Virtualization::Unknown => {}
        }
        is_reported = true;
        let done = trial.host.is_some();
        found.send_replace(trial);
        notifier.notify();
        if done {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(TRY_AGAIN) => {}
            () = stop.requested() => return,
        }
    }
}

async fn attempt(cache: &Path) -> AcceleratorProbe {
    // The user that machines run as must be able to use KVM, not only root.
    let identity = rustix::process::geteuid().is_root().then(|| ProcessUser {
        uid: TRIAL_USER,
        gid: TRIAL_USER,
        groups: kvm_group().into_iter().collect(),
    });
    let found = match probe(&Binary::default(), identity.as_ref(), cache).await {
        Ok(found) => found,
        Err(failure) => {
            let what = format!(
                "{}; install QEMU (Debian and Ubuntu: apt install qemu-system-x86 qemu-utils; \
                 Fedora: dnf install qemu-kvm)",
                Chain(&failure)
            );
            return AcceleratorProbe {
                virtualization: Virtualization::Missing { what },
                host: None,
            };
        }
    };
    let qemu = found.version;
    let virtualization = match found.reason {
        None => Virtualization::Kvm { qemu },
        Some(why) => Virtualization::Emulated { qemu, why },
    };
    let has_tpm = ["/usr/bin/swtpm", "/usr/local/bin/swtpm"].iter().any(|p| Path::new(p).exists());
    let host = HostCapabilities { accelerator: found.accelerator, firmware: efi(), has_tpm };
    AcceleratorProbe { virtualization, host: Some(host) }
}

/// Whether QEMU and its tools can have namespaces of their own: tried once. Blocks at first.
pub(crate) fn isolation() -> &'static GuestIsolation {
    static FOUND: LazyLock<GuestIsolation> = LazyLock::new(|| {
        if !rustix::process::geteuid().is_root() {
            return GuestIsolation::Unprivileged;
        }
        let user = ProcessUser { uid: TRIAL_USER, gid: TRIAL_USER, groups: Vec::new() };
        match qemu::isolation::probe(&user) {
            Ok(()) => GuestIsolation::Namespaces,
            Err(failure) => {
                let why = Chain(&failure).to_string();
                warn!(reason = why, "QEMU and qemu-img have no namespaces of their own");
                GuestIsolation::Refused { why }
            }
        }
    });
    &FOUND
}

pub(crate) fn has_namespaces() -> bool {
    *isolation() == GuestIsolation::Namespaces
}

/// The group that may use KVM.
pub(crate) fn kvm_group() -> Option<u32> {
    std::fs::metadata("/dev/kvm").ok().map(|device| device.gid())
}

fn efi() -> Vec<Efi> {
    let found = |boot, secure_boot| {
        firmware::find(boot).map(|ovmf| Efi { secure_boot, code: ovmf.code, vars: ovmf.vars })
    };
    [found(Boot::Secure, true), found(Boot::Plain, false)].into_iter().flatten().collect()
}
