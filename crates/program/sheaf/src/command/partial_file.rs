//! A file that is being downloaded: it has its name only when it is complete, and nothing is left
//! of it when the download fails or is interrupted.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The file beside the one that is wanted.
#[derive(Debug)]
pub(super) struct PartialFile {
    part: PathBuf,
    wanted: PathBuf,
    is_complete: bool,
}

impl PartialFile {
    /// Creates it, so that a place that cannot be written is found before anything is asked for.
    pub(super) fn create(wanted: &Path) -> Result<(Self, File)> {
        if wanted.as_os_str().is_empty() {
            bail!("the name of the file to write is empty");
        }
        if wanted.is_dir() {
            bail!("{} is a directory: name a file in it", wanted.display());
        }
        // A rename would replace a device by a file.
        if std::fs::metadata(wanted).is_ok_and(|found| !found.is_file()) {
            bail!("{} is not a regular file", wanted.display());
        }
        let mut part = wanted.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file =
            File::create(&part).with_context(|| format!("cannot write {}", wanted.display()))?;
        Ok((Self { part, wanted: wanted.to_owned(), is_complete: false }, file))
    }

    /// Gives it its name.
    pub(super) fn complete(mut self) -> Result<()> {
        std::fs::rename(&self.part, &self.wanted)
            .with_context(|| format!("cannot write {}", self.wanted.display()))?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_complete {
            // It may be gone already, and a failure cannot be handled here.
            drop(std::fs::remove_file(&self.part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = folder.path().join("image.raw");
        drop(PartialFile::create(&wanted).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let (partial, _) = PartialFile::create(&wanted).unwrap();
        partial.complete().unwrap();
        assert!(wanted.exists() && std::fs::read_dir(folder.path()).unwrap().count() == 1);
        for (path, expected) in [
            (folder.path().to_owned(), "is a directory: name a file in it"),
            (folder.path().join("none/x"), "cannot write"),
            (PathBuf::new(), "is empty"),
            (PathBuf::from("/dev/null"), "is not a regular file"),
        ] {
            let error = PartialFile::create(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
