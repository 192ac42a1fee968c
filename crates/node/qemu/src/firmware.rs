//! Where distributions keep EFI firmware, and a machine's own copy of its variables.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::ProcessUser;

/// A firmware, and the variable store that a new machine begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ovmf {
    pub code: PathBuf,
    pub vars: PathBuf,
}

/// Code and variables that belong together, the best first: Debian and Ubuntu, Fedora and its
/// kin, Arch, openSUSE. Those with secure boot have Microsoft's keys in their variables.
const PLAIN: &[(&str, &str)] = &[
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/qemu/ovmf-x86_64-4m-code.bin", "/usr/share/qemu/ovmf-x86_64-4m-vars.bin"),
];
const SECURE: &[(&str, &str)] = &[
    ("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"),
    ("/usr/share/OVMF/OVMF_CODE.secboot.fd", "/usr/share/OVMF/OVMF_VARS.ms.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.secboot.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/qemu/ovmf-x86_64-ms-4m-code.bin", "/usr/share/qemu/ovmf-x86_64-ms-4m-vars.bin"),
];

/// Which firmware is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    Plain,
    Secure,
}

/// The firmware of this host; none if its package is not installed.
pub fn find(boot: Boot) -> Option<Ovmf> {
    choose(boot, |path| path.exists())
}

fn choose(boot: Boot, exists: impl Fn(&Path) -> bool) -> Option<Ovmf> {
    let candidates = match boot {
        Boot::Plain => PLAIN,
        Boot::Secure => SECURE,
    };
    let found = candidates
        .iter()
        .find(|(code, vars)| exists(Path::new(code)) && exists(Path::new(vars)))?;
    Some(Ovmf { code: found.0.into(), vars: found.1.into() })
}

/// Gives a machine its variables: a copy of the template, unless it has some already.
pub fn provide_vars(template: &Path, own: &Path, identity: Option<&ProcessUser>) -> io::Result<()> {
    if !own.exists() {
        // Whole or not there: half a store would be taken for a used one.
        let half = own.with_extension("new");
        fs::copy(template, &half)?;
        fs::File::open(&half)?.sync_all()?;
        fs::rename(&half, own)?;
    }
    if let Some(identity) = identity {
        std::os::unix::fs::chown(own, Some(identity.uid), Some(identity.gid))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_taken_only_with_its_variables() {
        let has = |paths: &'static [&str]| {
            move |path: &Path| paths.iter().any(|known| Path::new(known) == path)
        };
        let half = has(&["/usr/share/OVMF/OVMF_CODE_4M.fd"]);
        assert_eq!(choose(Boot::Plain, half), None);
        let fedora =
            has(&["/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"]);
        let found = choose(Boot::Plain, fedora).expect("both are there");
        assert_eq!(found.code, Path::new("/usr/share/edk2/ovmf/OVMF_CODE.fd"));
        assert_eq!(choose(Boot::Secure, fedora), None);
    }

    #[test]
    fn variables_that_a_machine_has_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (template, own) = (dir.path().join("template"), dir.path().join("own.fd"));
        fs::write(&template, "new").unwrap();
        provide_vars(&template, &own, None).unwrap();
        assert_eq!(fs::read(&own).unwrap(), b"new");
        fs::write(&own, "used").unwrap();
        provide_vars(&template, &own, None).unwrap();
        assert_eq!(fs::read(&own).unwrap(), b"used");
    }
}
