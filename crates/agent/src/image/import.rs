//! From what is fetched or sent to a complete image: stored as it comes, checked, unpacked,
//! turned into a raw disk, put into its place.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::Chain;
use hyper::body::Incoming;
use kube::Client;
use kube::api::DynamicObject;
use qemu::image::receive::{Compression, receive};
use qemu::image::{Kind, ReceiveError, check_header};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::error::ImportError;
use super::files::{Facts, Fetched, Folder, UPLOAD};
use super::object::{Image, Source};
use super::plan::Spot;
use super::tell::Teller;
use super::{Piece, UploadError};
use crate::storage::Storage;
use crate::volume::{
    Access, ConvertError, Download, FetchError, Gauge, Mark, RESERVE, Scratch, pump, to_disk,
};

/// Connections in a row that bring nothing, once a download has begun.
const PATIENCE: u32 = 5;

/// What came of an upload.
enum Taken {
    All(Facts),
    /// So much is there, and more is to come.
    Part(u64),
}

/// Work on one image on one disk. Dropping it stops it; the next attempt goes on or removes
/// what is left behind.
pub(super) struct Job {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) image: Image,
    pub(super) at: Spot,
    /// The complete image that it is made of, if it is and this node has it.
    pub(super) origin: Option<PathBuf>,
    pub(super) storage: Storage,
    /// How many may work at a time.
    pub(super) turns: Arc<Semaphore>,
}

impl Job {
    fn teller(&self) -> Teller {
        Teller::new(self.client.clone(), &self.node, &self.image, &self.at.disk)
    }

    pub(super) fn folder(&self) -> Folder {
        Folder(self.at.folder.clone())
    }

    /// Works until the image is complete or cannot be; answers its object.
    pub(super) async fn import(self) -> Option<DynamicObject> {
        let _turn = self.turns.acquire().await;
        let mut teller = self.teller();
        let gauge = Gauge::default();
        match self.persist(&gauge, &mut teller).await {
            Ok(facts) => {
                info!(image = self.image.name, bytes = facts.virtual_size, "image is complete");
                teller.ready(&facts).await;
            }
            Err(failure) => {
                let message = Chain(&failure).to_string();
                warn!(image = self.image.name, error = message, "image cannot be imported");
                // Its room goes back before somebody hears that there is none.
                self.clear().await;
                teller.failed(gauge.whole_percent().unwrap_or(0), &message).await;
            }
        }
        teller.last
    }

    async fn persist(&self, gauge: &Gauge, teller: &mut Teller) -> Result<Facts, ImportError> {
        if let Some(facts) = self.prepare().await? {
            return Ok(facts);
        }
        let url = match &self.image.source {
            Source::Download { url } => url.clone(),
            Source::Export { volume } => {
                teller.coming(1, None).await;
                let work = std::pin::pin!(self.export(volume, gauge));
                return teller.follow(gauge, work).await;
            }
            Source::Clone(wish) => {
                teller.coming(1, None).await;
                let work = std::pin::pin!(self.clone_image(wish, gauge));
                return teller.follow(gauge, work).await;
            }
            Source::Upload => return Err(ImportError::Interrupted),
            Source::Unsupported { what } => {
                return Err(ImportError::Unsupported { what: what.clone() });
            }
        };
        self.check_wish()?;
        teller.coming(0, None).await;
        let (mut download, at) = self.begin(&url).await?;
        teller.coming(1, download.length()).await;
        let work = std::pin::pin!(async {
            let fetched = self.fetch(&mut download, at, gauge).await?;
            self.make(&fetched, gauge).await
        });
        teller.follow(gauge, work).await
    }

    /// Takes in what a client sends. What breaks may come again, and a part that was said to be
    /// one stays. Answers how much is there.
    pub(super) async fn upload(
        self,
        body: Incoming,
        piece: Piece,
    ) -> (Result<u64, UploadError>, Option<DynamicObject>) {
        let mut teller = self.teller();
        let at = self.uploaded().await;
        if let Some(offset) = piece.offset.filter(|offset| *offset > 0 && *offset != at) {
            let object = None;
            return (Err(UploadError::Position { at, offset }), object);
        }
        teller.coming(1, piece.size).await;
        let gauge = Gauge::default();
        let result = {
            let work = std::pin::pin!(self.take_in(body, piece, &gauge));
            teller.follow(&gauge, work).await
        };
        let result = match result {
            Ok(Taken::All(facts)) => {
                info!(image = self.image.name, bytes = facts.virtual_size, "image was uploaded");
                teller.ready(&facts).await;
                Ok(facts.size)
            }
            Ok(Taken::Part(at)) => {
                teller.pending(&format!("the upload goes on at {at}")).await;
                Ok(at)
            }
            Err(failure) => {
                let message = Chain(&failure).to_string();
                warn!(image = self.image.name, error = message, "upload failed");
                let stays = piece.offset.is_some() && failure.is_broken_off();
                if !stays {
                    self.clear().await;
                }
                teller.pending(&message).await;
                Err(UploadError::Failed(Box::new(failure)))
            }
        };
        (result, teller.last)
    }

    async fn uploaded(&self) -> u64 {
        let look = |folder: Folder| Ok(folder.uploaded());
        self.blocking(look, "look for a part").await.unwrap_or(0)
    }

    async fn take_in(
        &self,
        body: Incoming,
        piece: Piece,
        gauge: &Gauge,
    ) -> Result<Taken, ImportError> {
        let Piece { size, offset } = piece;
        self.prepare().await?;
        self.check_wish()?;
        let at = offset.unwrap_or(0);
        if let Some(size) = size {
            self.check_room(size.saturating_sub(at)).await?;
        }
        if offset == Some(0) {
            let mark = Mark { validator: UPLOAD.into(), length: size };
            let begin = move |folder: Folder| {
                folder.start_over()?;
                folder.note(Some(&mark))
            };
            self.blocking(begin, "note an upload").await?;
        }
        let (sender, feed) = qemu::image::feed();
        let storing = self.blocking(move |folder| folder.store(feed, at), "store the image");
        let ((), fetched) = tokio::join!(pump(body, sender, gauge), storing);
        let fetched = fetched?;
        match size {
            Some(expected) if fetched.size < expected && offset.is_some() => {
                Ok(Taken::Part(fetched.size))
            }
            Some(expected) if fetched.size != expected => {
                Err(ImportError::Cut { got: fetched.size, expected })
            }
            _ => self.make(&fetched, gauge).await.map(Taken::All),
        }
    }

    /// An upload that may come, or go on.
    pub(super) async fn wait(self, message: &str) -> Option<DynamicObject> {
        let mut teller = self.teller();
        // The process may have ended between the last byte and the last word.
        match self.prepare().await {
            Ok(Some(facts)) => teller.ready(&facts).await,
            _ => match self.uploaded().await {
                0 => {
                    self.clear().await;
                    teller.pending(message).await;
                }
                at => teller.pending(&format!("the upload goes on at {at}")).await,
            },
        }
        teller.last
    }

    async fn prepare(&self) -> Result<Option<Facts>, ImportError> {
        let open = |folder: Folder| folder.open().map(|()| folder.facts());
        self.blocking(open, "make the folder of the image").await
    }

    fn check_wish(&self) -> Result<(), ImportError> {
        let text = &self.image.checksum;
        let is_sum = text.len() == 128 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.is_empty() || is_sum {
            return Ok(());
        }
        Err(ImportError::BadChecksum { text: text.clone() })
    }

    pub(super) async fn check_room(&self, needed: u64) -> Result<(), ImportError> {
        let free = self.blocking(|folder| folder.room(), "look for room").await?;
        let free = free.saturating_sub(RESERVE);
        if needed > free { Err(ImportError::NoRoom { needed, free }) } else { Ok(()) }
    }

    /// Asks the server, for the rest if a part is there.
    async fn begin(&self, url: &str) -> Result<(Download, u64), ImportError> {
        let fail = |failure| match failure {
            FetchError::Status { code } => {
                ImportError::Status { code: code.as_u16(), url: url.to_owned() }
            }
            failure => ImportError::Fetch(failure),
        };
        let new = || Download::new(url, Access::default(), None).map_err(fail);
        let partial = self.blocking(|folder| Ok(folder.partial()), "look for a part").await?;
        if let Some((at, mark)) = partial {
            let mut download = new()?;
            download.resume(at, &mark);
            match download.prepare().await {
                Ok(()) => {
                    info!(image = self.image.name, at, "a download goes on");
                    download.give_up_after(PATIENCE);
                    return Ok((download, at));
                }
                Err(FetchError::Changed) => {}
                Err(failure) => return Err(fail(failure)),
            }
        }
        self.blocking(|folder| folder.start_over(), "start over").await?;
        let mut download = new()?;
        download.prepare().await.map_err(fail)?;
        if let Some(length) = download.length() {
            self.check_room(length).await?;
        }
        let mark = download.mark();
        self.blocking(move |folder| folder.note(mark.as_ref()), "note a download").await?;
        download.give_up_after(PATIENCE);
        Ok((download, 0))
    }

    async fn fetch(
        &self,
        download: &mut Download,
        at: u64,
        gauge: &Gauge,
    ) -> Result<Fetched, ImportError> {
        let (sender, feed) = qemu::image::feed();
        let storing = self.blocking(move |folder| folder.store(feed, at), "store the image");
        let fetching = async {
            let ended = download.run(Some(&sender), gauge).await;
            if ended.is_err() {
                let _ = sender.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
            }
            drop(sender);
            ended
        };
        let (ended, fetched) = tokio::join!(fetching, storing);
        ended.map_err(ImportError::Fetch)?;
        fetched
    }

    /// From what was fetched to what volumes begin as.
    async fn make(&self, fetched: &Fetched, gauge: &Gauge) -> Result<Facts, ImportError> {
        let expected = self.image.checksum.to_ascii_lowercase();
        if !expected.is_empty() && expected != fetched.checksum {
            gauge.set(1.0);
            let found = fetched.checksum.clone();
            return Err(ImportError::Mismatch { expected, found });
        }
        let folder = self.folder();
        let path = folder.download();
        let kind = check_header(&path).map_err(ConvertError::from)?;
        let image = match kind {
            // Or compressed: it is written anew, with holes.
            Kind::Raw => self.unpack(fetched.size).await?,
            _ => Scratch(path),
        };
        let at = folder.work();
        let disk = Scratch(to_disk(&image.0, &at, None, gauge).await?);
        let fetched = Fetched { checksum: fetched.checksum.clone(), ..*fetched };
        let publish = move |folder: Folder| {
            let disk = disk;
            folder.publish(&disk.0, &fetched)
        };
        self.blocking(publish, "put the image into its place").await
    }

    async fn unpack(&self, size: u64) -> Result<Scratch, ImportError> {
        let folder = self.folder();
        let room = self.blocking(|folder| folder.room(), "look for room").await?;
        let most = room.saturating_sub(RESERVE);
        let unpacked = tokio::task::spawn_blocking(move || {
            let scratch = Scratch(folder.work());
            let from = File::open(folder.download()).map_err(ReceiveError::Read)?;
            let received = receive(from, &scratch.0, most, |_| {})?;
            Ok((scratch, received))
        });
        let (scratch, received) = match unpacked.await.map_err(|_| ImportError::Interrupted)? {
            Err(ReceiveError::TooLarge { most }) => return Err(ImportError::TooLarge { most }),
            result => result?,
        };
        // A disk that somebody sent has whole sectors, or it was cut off.
        let is_disk = received.compression == Compression::None;
        if self.image.source == Source::Upload && is_disk && !size.is_multiple_of(512) {
            return Err(ImportError::Odd { size });
        }
        Ok(scratch)
    }

    async fn clear(&self) {
        if let Err(failure) = self.blocking(|folder| folder.remove(), "remove leftovers").await {
            warn!(image = self.image.name, error = %Chain(&failure), "an image leaves files");
        }
    }

    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Folder) -> io::Result<T> + Send + 'static,
        doing: &'static str,
    ) -> Result<T, ImportError> {
        let folder = self.folder();
        let done = tokio::task::spawn_blocking(move || work(folder)).await;
        let done = done.map_err(|_| ImportError::Interrupted)?;
        done.map_err(|source| ImportError::File { doing, source })
    }
}
