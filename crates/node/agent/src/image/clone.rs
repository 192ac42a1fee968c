//! An image that is made of another one of this node, encrypted or decrypted on the way.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use block::crypt::disk::{self, DiskError};
use block::crypt::luks::Cost;
use block::crypt::{HEADER, Passphrase};

use super::cancel::CancelGuard;
use super::error::ImportError;
use super::files::{Fetched, Folder, ImageFacts};
use super::import::Job;
use super::intake::ImageForm;
use crate::backing_image::{CloneWish, CryptoConversion};
use crate::storage::{SecretError, of_secret};
use crate::volume::{ConvertError, Gauge, TemporaryFile, shortage};

/// Why an image was not made of another.
#[derive(Debug, thiserror::Error)]
pub(super) enum CloneError {
    #[error("backing image {image} is not complete on this node")]
    Missing { image: String },
    #[error("passphrase is missing")]
    Secret(#[from] SecretError),
    #[error("cannot encrypt backing image {image}")]
    Encrypt { image: String, source: DiskError },
    #[error("cannot decrypt backing image {image}")]
    Decrypt { image: String, source: DiskError },
}

impl Job {
    pub(super) async fn clone_image(
        &self,
        wish: &CloneWish,
        gauge: &Gauge,
    ) -> Result<ImageFacts, ImportError> {
        let missing = || CloneError::Missing { image: wish.image.clone() };
        let origin = self.origin.clone().ok_or_else(missing)?;
        let folder = Folder(origin.parent().map(Path::to_owned).unwrap_or_default());
        let facts = self.blocking(move |_| Ok(folder.facts()), "read an image").await?;
        let facts = facts.ok_or_else(missing)?;
        self.check_room(facts.real_size + HEADER).await?;
        let (namespace, name) = &wish.secret;
        let secret = of_secret(&self.client, namespace, name).await.map_err(CloneError::from)?;

        let scratch = TemporaryFile(self.folder().work());
        let (halt, gauge) = (CancelGuard::default(), gauge.clone());
        let goes_on = halt.asked();
        let turned = CloneTransform { turn: wish.turn, origin, disk: facts.virtual_size };
        let work = tokio::task::spawn_blocking(move || {
            let mut step = |part| {
                gauge.set(part);
                goes_on()
            };
            turned.write(&scratch.0, &secret.passphrase(), &mut step).map(|made| (scratch, made))
        });
        let done = tokio::select! {
            done = work => done.map_err(|_| ImportError::Interrupted)?,
            free = shortage(&self.at.folder) => return Err(ConvertError::NoRoom { free }.into()),
        };
        let image = wish.image.clone();
        let (scratch, made) = done.map_err(|source| match wish.turn {
            CryptoConversion::Encrypt => CloneError::Encrypt { image, source },
            CryptoConversion::Decrypt => CloneError::Decrypt { image, source },
        })?;
        let publish = move |folder: Folder| {
            let scratch = scratch;
            folder.publish(&scratch.0, &made)
        };
        self.blocking(publish, "put the image into its place").await
    }
}

/// The source of a clone, and its conversion.
struct CloneTransform {
    turn: CryptoConversion,
    origin: PathBuf,
    /// Bytes of the disk.
    disk: u64,
}

impl CloneTransform {
    fn write(
        &self,
        to: &Path,
        passphrase: &Passphrase,
        step: disk::ProgressFn<'_>,
    ) -> Result<Fetched, DiskError> {
        let from = File::open(&self.origin).map_err(DiskError::Read)?;
        let to = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(to);
        let to = to.map_err(DiskError::Write)?;
        let disk = match self.turn {
            CryptoConversion::Encrypt => {
                disk::encrypt(&from, &to, passphrase, Cost::default(), step)?;
                Some(self.disk)
            }
            CryptoConversion::Decrypt => {
                disk::decrypt(&from, &to, self.disk, passphrase, step)?;
                None
            }
        };
        let size = to.metadata().map_err(DiskError::Write)?.len();
        Ok(Fetched { size, checksum: String::new(), disk, form: ImageForm::Disk })
    }
}
