//! Reading and writing the files of the directory. Writing is atomic and durable:
//! a temporary file is synced, renamed over the old one, and the directory synced.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::PkiError;

/// Creates the directory, or removes all other users' rights to an existing one.
pub(super) fn make_directory(dir: &Path) -> Result<(), PkiError> {
    let failed = |source| PkiError::Directory { path: dir.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(failed)
}

/// Waits for any other process that is changing this directory; drop it when done.
pub(super) fn lock(dir: &Path) -> Result<File, PkiError> {
    let path = dir.join(".lock");
    let failed = |source| PkiError::Lock { path: path.clone(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

/// The text of a file; `None` if there is none. One that was copied here may be
/// readable for others; it is not any more.
pub(super) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match read_private(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::Read { path: path.to_owned(), source }),
    }
}

fn read_private(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    io::read_to_string(file)
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    write_private(path, text).map_err(|source| PkiError::Write { path: path.to_owned(), source })
}

/// Removes a file if it is there.
pub(super) fn remove(path: &Path) -> Result<(), PkiError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PkiError::Write { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Writes `text` to `path` with mode 0600, atomically and durably.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(".tmp");
    let temporary = path.with_file_name(temporary_name);
    // A temporary file left by a crash may have other permissions; create a new one.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
