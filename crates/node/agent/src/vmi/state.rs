//! State of a machine besides its disks: the firmware's variables and the TPM.
//!
//! It is in the directory of the run and is removed with it, unless the object requests persistence:
//! then it is in `agent/state/<namespace>.<machine>/` and is used again by the next run. State of
//! deleted machines is removed when the agent starts and once an hour. State of a guest that
//! migrates moves with it, and is removed from the source node.

use std::path::PathBuf;

use base::{Chain, Stop};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use qemu::RunDir;
use qemu::machine::Firmware;
use qemu::process::ProcessUser;
use tracing::{info, warn};

use super::launch::StartError;
use crate::api::present;
use crate::context::Context;
use crate::host::HostCapabilities;
use crate::machine::Vmi;

const SWEEP: std::time::Duration = std::time::Duration::from_secs(3600);

/// The paths of the state of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateDir {
    pub(super) nvram: PathBuf,
    pub(super) tpm: PathBuf,
    /// The folder that must exist for them.
    folder: Option<PathBuf>,
}

impl StateDir {
    pub(super) fn of(context: &Context, vmi: &Vmi, dir: &RunDir) -> Self {
        let domain = &vmi.spec.domain;
        let loader = domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
        let efi = loader.and_then(|loader| loader.efi.as_ref());
        let keeps_vars = efi.is_some_and(|efi| efi.persistent == Some(true));
        let tpm = domain.devices.tpm.as_ref();
        let keeps_tpm = tpm.is_some_and(|tpm| tpm.persistent == Some(true));
        let owner = vmi.machine.as_ref().unwrap_or(&vmi.name);
        let folder = folder(context).join(format!("{}.{owner}", vmi.namespace));
        Self {
            nvram: if keeps_vars { folder.join("nvram.fd") } else { dir.nvram() },
            tpm: if keeps_tpm { folder.join("tpm") } else { dir.vm().join("tpm") },
            folder: (keeps_vars || keeps_tpm).then_some(folder),
        }
    }

    /// Creates missing files.
    pub(super) fn provide(
        &self,
        host: &HostCapabilities,
        machine: &qemu::Machine,
        identity: Option<&ProcessUser>,
    ) -> Result<(), StartError> {
        let failed = |doing, path: &PathBuf| {
            let path = path.clone();
            move |source| StartError::File { doing, path, source }
        };
        if let Some(folder) = &self.folder {
            qemu::create_passable(folder).map_err(failed("make", folder))?;
        }
        let Firmware::Efi(efi) = &machine.firmware else { return Ok(()) };
        let template = host.firmware.iter().find(|each| each.code == efi.code);
        let Some(template) = template else { return Ok(()) };
        qemu::firmware::provide_vars(&template.vars, &efi.vars, identity)
            .map_err(failed("provide", &efi.vars))
    }
}

impl StateDir {
    /// Removes the state: the guest has it on another node.
    pub(super) fn remove(&self) -> std::io::Result<()> {
        ignore_missing(std::fs::remove_dir_all(&self.tpm))?;
        ignore_missing(std::fs::remove_file(&self.nvram))?;
        if let Some(folder) = &self.folder {
            // Fails if the folder has other files, which are kept.
            let _ = std::fs::remove_dir(folder);
        }
        Ok(())
    }

    /// Writes the firmware variables that the machine had on another node. The file exists.
    pub(super) fn restore_variables(&self, bytes: &[u8]) -> std::io::Result<()> {
        use std::io::Write as _;
        let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(&self.nvram)?;
        file.write_all(bytes)?;
        file.sync_all()
    }
}

fn ignore_missing(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(failure) if failure.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn folder(context: &Context) -> PathBuf {
    context.config.agent_dir().join("state")
}

/// Removes the state of machines that no longer exist.
pub(crate) async fn sweep(context: std::sync::Arc<Context>, mut stop: Stop) {
    loop {
        sweep_once(&context).await;
        tokio::select! {
            () = tokio::time::sleep(SWEEP) => {}
            () = stop.requested() => return,
        }
    }
}

async fn sweep_once(context: &Context) {
    let Ok(entries) = std::fs::read_dir(folder(context)) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some((namespace, owner)) = name.split_once('.') else { continue };
        match is_owned(context, namespace, owner).await {
            Ok(true) => {}
            Ok(false) => {
                info!(namespace, name = owner, "removing state of deleted machine");
                if let Err(failure) = std::fs::remove_dir_all(entry.path()) {
                    warn!(error = %Chain(&failure), "cannot remove a machine's state");
                }
            }
            // The API may be unavailable for a moment only: nothing is removed in doubt.
            Err(_) => return,
        }
    }
}

/// Removes the state of a guest that runs on another node.
pub(super) fn remove_migrated(context: &Context, vmi: &Vmi, dir: &RunDir) {
    if let Err(failure) = StateDir::of(context, vmi, dir).remove() {
        warn!(error = %Chain(&failure), "cannot remove state of migrated machine");
    }
}

async fn is_owned(context: &Context, namespace: &str, name: &str) -> kube::Result<bool> {
    for (kind, plural) in [
        ("VirtualMachine", "virtualmachines"),
        ("VirtualMachineInstance", "virtualmachineinstances"),
    ] {
        let gvk = GroupVersionKind::gvk("kubevirt.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api =
            Api::<DynamicObject>::namespaced_with(context.client.clone(), namespace, &resource);
        if present(api.get_metadata(name).await)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_that_moved_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("default.web");
        let state = StateDir {
            nvram: folder.join("nvram.fd"),
            tpm: folder.join("tpm"),
            folder: Some(folder.clone()),
        };
        state.remove().expect("nothing is there yet");
        std::fs::create_dir_all(&state.tpm).unwrap();
        std::fs::write(state.tpm.join("tpm2-00.permall"), "seeds").unwrap();
        std::fs::write(&state.nvram, "variables").unwrap();
        std::fs::write(folder.join("other"), "").unwrap();
        state.remove().unwrap();
        assert!(!state.tpm.exists() && !state.nvram.exists());
        assert!(folder.join("other").exists());
        std::fs::remove_file(folder.join("other")).unwrap();
        state.remove().unwrap();
        assert!(!folder.exists());
    }
}
