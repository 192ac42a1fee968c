//! Files of programs, named by their SHA-512 sums: `programs/` in the data directory. A file has
//! its name only when all of it is there and its sum is right.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use hci::upgrade::ProgramDigest;
use sha2::{Digest as _, Sha512};
use tokio::io::AsyncWriteExt as _;

use super::state::ProgramState;
use crate::data_dir::Layout;

/// No program is larger.
const MAX_SIZE: u64 = 2 << 30;

#[derive(Debug, thiserror::Error)]
pub(in crate::command) enum StoreError {
    #[error("cannot write the program to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read the program")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the program has the SHA-512 sum {found}, not {wanted}")]
    Sum { found: ProgramDigest, wanted: ProgramDigest },
    #[error("the program is larger than {} MiB", MAX_SIZE >> 20)]
    Size,
}

/// Fails for a file that is no program by its kind or size, and would only be refused by the nodes.
pub(in crate::command) fn check_file(path: &Path) -> io::Result<()> {
    let file = fs::metadata(path)?;
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match file.len() {
        _ if !file.is_file() => refused("it is not a file".to_owned()),
        0 => refused("it is empty".to_owned()),
        size if size > MAX_SIZE => refused(format!("it is larger than {} MiB", MAX_SIZE >> 20)),
        _ => Ok(()),
    }
}

#[derive(Debug, Clone)]
pub(in crate::command) struct ProgramStore {
    dir: PathBuf,
}

impl ProgramStore {
    pub(in crate::command) fn new(layout: &Layout) -> Self {
        Self { dir: layout.programs() }
    }

    /// The place of a program, whether it is there or not.
    pub(in crate::command) fn path(&self, digest: &ProgramDigest) -> PathBuf {
        self.dir.join(digest.as_str())
    }

    /// Writes a program. One that is there already is left alone.
    pub(in crate::command) async fn add<E>(
        &self,
        wanted: &ProgramDigest,
        chunks: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<(), StoreError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = self.path(wanted);
        let fail = |source| StoreError::Write { path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(fail)?;
        let part = self.dir.join(format!("{}.{}.part", wanted.short(), uuid::Uuid::new_v4()));
        let written = write(&part, wanted, chunks).await;
        let done = match written {
            Ok(()) => fs::rename(&part, &path).and_then(|()| sync(&self.dir)).map_err(fail),
            failed => failed,
        };
        if done.is_err() {
            // It may not exist.
            let _ = fs::remove_file(&part);
        }
        done
    }

    /// Removes files that are not needed, those of interrupted downloads included.
    pub(super) fn prune(&self, state: &ProgramState) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let digest = ProgramDigest::parse(&name.to_string_lossy());
            if !digest.is_ok_and(|digest| state.needs(&digest)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

async fn write<E>(
    part: &Path,
    wanted: &ProgramDigest,
    chunks: impl Stream<Item = Result<Bytes, E>>,
) -> Result<(), StoreError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let fail = |source| StoreError::Write { path: part.to_owned(), source };
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o700).open(part).map_err(fail)?;
    let mut file = tokio::fs::File::from_std(file);
    let mut sum = Sha512::new();
    let mut size = 0;
    let mut chunks = std::pin::pin!(chunks);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|failure| StoreError::Read(failure.into()))?;
        size += chunk.len() as u64;
        if size > MAX_SIZE {
            return Err(StoreError::Size);
        }
        sum.update(&chunk);
        file.write_all(&chunk).await.map_err(fail)?;
    }
    file.flush().await.map_err(fail)?;
    file.sync_all().await.map_err(fail)?;
    let found = digest(sum);
    match found == *wanted {
        true => Ok(()),
        false => Err(StoreError::Sum { found, wanted: wanted.clone() }),
    }
}

fn sync(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

fn digest(sum: Sha512) -> ProgramDigest {
    let digits: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    ProgramDigest::parse(&digits).expect("a sum has 64 bytes")
}

/// The sum of a file; takes a while.
pub(in crate::command) fn digest_of(path: &Path) -> io::Result<ProgramDigest> {
    let mut file = File::open(path)?;
    let mut sum = Sha512::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest(sum)),
            count => sum.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_files_are_refused_before_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        let check = |path: &Path| check_file(path).map_err(|error| error.to_string());
        assert_eq!(check(dir.path()), Err("it is not a file".to_owned()));
        assert_eq!(check(Path::new("/dev/zero")), Err("it is not a file".to_owned()));
        File::create(&file).unwrap();
        assert_eq!(check(&file), Err("it is empty".to_owned()));
        File::create(&file).unwrap().set_len(1).unwrap();
        assert_eq!(check(&file), Ok(()));
        File::create(&file).unwrap().set_len(MAX_SIZE + 1).unwrap();
        assert_eq!(check(&file), Err("it is larger than 2048 MiB".to_owned()));
    }

    #[tokio::test]
    async fn only_a_program_with_the_right_sum_gets_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(Some(dir.path())).unwrap();
        let store = ProgramStore::new(&layout);
        let file = dir.path().join("new");
        fs::write(&file, "program").unwrap();
        let wanted = digest_of(&file).unwrap();
        let pieces = |all: &'static [&'static str]| {
            futures_util::stream::iter(all).map(|piece| Ok::<_, StoreError>(Bytes::from(*piece)))
        };
        let count = || fs::read_dir(layout.programs()).unwrap().count();
        let refused = store.add(&wanted, pieces(&["pro", "gramme"])).await.unwrap_err();
        assert!(matches!(refused, StoreError::Sum { .. }), "{refused}");
        let broken = futures_util::stream::iter([Err::<Bytes, _>(StoreError::Size)]);
        assert!(matches!(store.add(&wanted, broken).await, Err(StoreError::Read(_))));
        assert_eq!(count(), 0, "nothing is left of a failure");
        store.add(&wanted, pieces(&["pro", "gram"])).await.unwrap();
        assert_eq!(fs::read_to_string(store.path(&wanted)).unwrap(), "program");
        let state = ProgramState { prepared: Some(wanted), ..Default::default() };
        store.prune(&state);
        assert_eq!(count(), 1);
        store.prune(&ProgramState::default());
        assert_eq!(count(), 0);
    }
}
