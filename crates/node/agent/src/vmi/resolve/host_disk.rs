//! Files of the host as disks of a guest, where the administrator of the node allows it.

use std::path::{Path, PathBuf};

use virt::v1::{HostDisk, Volume};

use super::{ResolveError, Resolved, Resolver, file, units};

/// Why a path of the host is not given to a guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostPathError {
    #[error("{} is not an absolute path without . and ..", path.display())]
    NotAbsolute { path: PathBuf },
    #[error(
        "{} is outside of the directories that this node allows for host disks ({}); an \
         administrator of the node can add one with --host-disk-path",
        path.display(), list(allowed)
    )]
    NotAllowed { path: PathBuf, allowed: Vec<PathBuf> },
}

fn list(paths: &[PathBuf]) -> String {
    let all: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Whether a path lies in one of the directories. Both are without symbolic links.
fn check(path: &Path, allowed: &[PathBuf]) -> Result<(), HostPathError> {
    use std::path::Component::{Normal, RootDir};
    let is_plain = path.components().all(|part| matches!(part, Normal(_) | RootDir));
    if !path.is_absolute() || !is_plain {
        return Err(HostPathError::NotAbsolute { path: path.to_owned() });
    }
    if allowed.iter().any(|dir| path.starts_with(dir) && path != dir) {
        return Ok(());
    }
    Err(HostPathError::NotAllowed { path: path.to_owned(), allowed: allowed.to_owned() })
}

/// The path as the kernel sees it: the last part may be missing, all above it exists or is
/// created below a directory that does.
fn real(path: &Path) -> std::io::Result<PathBuf> {
    for above in path.ancestors() {
        match above.canonicalize() {
            Ok(found) => {
                let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
                return Ok(if rest.as_os_str().is_empty() { found } else { found.join(rest) });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path.to_owned())
}

impl Resolver<'_> {
    pub(super) fn host_disk(
        &self,
        volume: &Volume,
        source: &HostDisk,
    ) -> Result<Resolved, ResolveError> {
        let given = PathBuf::from(&source.path);
        let refused = |problem: HostPathError| ResolveError::Volume {
            volume: volume.name.clone(),
            problem: problem.to_string(),
        };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ResolveError::File { doing: "find", path, source }
        };
        let allowed = &self.context.config.host_disk_paths;
        let allowed: Vec<PathBuf> =
            allowed.iter().filter_map(|path| path.canonicalize().ok()).collect();
        // Before anything is looked up: the answer must not reveal which files exist elsewhere.
        if allowed.is_empty() {
            check(&given, &allowed).map_err(refused)?;
        }
        let path = real(&given).map_err(failed(&given))?;
        check(&path, &allowed).map_err(refused)?;
        if !path.exists() {
            if source.r#type != "DiskOrCreate" {
                return Err(ResolveError::Missing { kind: "host disk", name: source.path.clone() });
            }
            let capacity = source.capacity.as_ref().ok_or_else(|| ResolveError::Volume {
                volume: volume.name.clone(),
                problem: "a host disk that is to be created needs a capacity".into(),
            })?;
            let size = units(capacity, volume)?;
            let folder = path.parent().unwrap_or(&path);
            qemu::create_passable(folder).and_then(|()| file::sparse(&path, size)).map_err(
                |source| ResolveError::File { doing: "make", path: path.clone(), source },
            )?;
        }
        self.image_file(volume, path, source.shared == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_disks_are_below_an_allowed_directory() {
        let allowed = [PathBuf::from("/srv/disks"), PathBuf::from("/mnt")];
        for (path, expected) in [
            ("/srv/disks/a.img", ""),
            ("/srv/disks/team/a.img", ""),
            ("/mnt/a", ""),
            ("/srv/disks", "is outside"),
            ("/srv/disks-2/a.img", "is outside"),
            ("/etc/shadow", "is outside"),
            ("/dev/sda", "is outside"),
            ("/srv/disks/../../etc/shadow", "not an absolute path without"),
            ("disks/a.img", "not an absolute path without"),
        ] {
            let judged = check(Path::new(path), &allowed);
            let text = judged.map_or_else(|error| error.to_string(), |()| String::new());
            assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{text}");
        }
        let none = check(Path::new("/mnt/a"), &[]).unwrap_err().to_string();
        assert!(none.contains("(none)") && none.contains("--host-disk-path"), "{none}");
    }

    #[test]
    fn a_symbolic_link_does_not_lead_out() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let allowed = home.join("allowed");
        std::fs::create_dir(&allowed).unwrap();
        std::os::unix::fs::symlink("/etc", allowed.join("link")).unwrap();
        let paths = [allowed.clone()];
        let judged = |name: &str| check(&real(&allowed.join(name)).unwrap(), &paths).is_ok();
        assert!(judged("new.img") && judged("folder/new.img"));
        assert!(!judged("link/shadow") && !judged("link/new/shadow"));
    }
}
