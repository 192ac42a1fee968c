//! An image that a client sends: all at once, or in parts that go on where the last one ended.

use std::io::Read as _;

use base::Chain;
use hyper::body::Incoming;
use kube::api::DynamicObject;
use tracing::{info, warn};

use super::error::ImportError;
use super::files::{Folder, ImageFacts, UPLOAD};
use super::import::Job;
use super::{UploadChunk, UploadError};
use crate::volume::{ContentMark, Gauge, drain, pump};

/// The result of an upload.
enum UploadResult {
    All(ImageFacts),
    /// So much is there, and more is to come.
    Part(u64),
}

impl Job {
    /// Receives a client's data. A broken upload may be sent again, and a chunk that the client
    /// declared as such is kept. Returns how much is there.
    pub(super) async fn upload(
        &self,
        body: Incoming,
        piece: UploadChunk,
    ) -> (Result<u64, UploadError>, Option<DynamicObject>) {
        let mut writer = self.status_writer();
        let at = self.uploaded().await;
        if let Some(offset) = piece.offset.filter(|offset| *offset > 0 && *offset != at) {
            // A client that is cut off while it sends does not read the answer.
            drain(body).await;
            let object = None;
            return (Err(UploadError::Position { at, offset }), object);
        }
        writer.coming(1, piece.size).await;
        let gauge = Gauge::default();
        let result = {
            let work = std::pin::pin!(self.take_in(body, piece, &gauge));
            writer.follow(&gauge, work).await
        };
        let result = match result {
            Ok(UploadResult::All(facts)) => {
                info!(image = self.image.name, bytes = facts.virtual_size, "image was uploaded");
                writer.ready(&facts).await;
                Ok(facts.size)
            }
            Ok(UploadResult::Part(at)) => {
                writer.pending(&format!("the upload goes on at {at}")).await;
                Ok(at)
            }
            Err(failure) => {
                let message = Chain(&failure).to_string();
                warn!(image = self.image.name, error = message, "upload failed");
                let stays = piece.offset.is_some() && failure.is_broken_off();
                if !stays {
                    self.clear().await;
                }
                writer.pending(&message).await;
                Err(UploadError::Failed(Box::new(failure)))
            }
        };
        (result, writer.last)
    }

    async fn uploaded(&self) -> u64 {
        let count = |folder: Folder| Ok(folder.uploaded());
        self.blocking(count, "check for a part").await.unwrap_or(0)
    }

    /// Everything that is checked and noted before the client's data is read.
    async fn begin_upload(&self, piece: UploadChunk) -> Result<(), ImportError> {
        let UploadChunk { size, offset } = piece;
        self.prepare().await?;
        self.check_wish()?;
        let at = offset.unwrap_or(0);
        if let Some(size) = size {
            self.check_limit(size)?;
            self.check_room(size.saturating_sub(at)).await?;
        }
        if at == 0 {
            let mark = offset.map(|_| ContentMark { validator: UPLOAD.into(), length: size });
            let begin = move |folder: Folder| {
                folder.start_over()?;
                folder.note(mark.as_ref())
            };
            self.blocking(begin, "note an upload").await?;
        }
        Ok(())
    }

    async fn take_in(
        &self,
        body: Incoming,
        piece: UploadChunk,
        gauge: &Gauge,
    ) -> Result<UploadResult, ImportError> {
        if let Err(failure) = self.begin_upload(piece).await {
            // A client that is cut off while it sends does not read the answer.
            drain(body).await;
            return Err(failure);
        }
        let UploadChunk { size, offset } = piece;
        let at = offset.unwrap_or(0);
        let (sender, feed) = qemu::image::feed();
        let (sums, feed) = (self.is_summed(), feed.take(self.readable(at)));
        let storing = self.blocking(move |folder| folder.store(feed, at, sums), "store the image");
        let ((), fetched) = tokio::join!(pump(body, sender, gauge), storing);
        let fetched = fetched?;
        self.check_limit(fetched.size)?;
        match size {
            Some(expected) if fetched.size < expected && offset.is_some() => {
                Ok(UploadResult::Part(fetched.size))
            }
            Some(expected) if fetched.size != expected => {
                Err(ImportError::Cut { got: fetched.size, expected })
            }
            _ => self.make(&fetched, gauge).await.map(UploadResult::All),
        }
    }

    /// An upload that may come, or go on.
    pub(super) async fn wait(self, message: &str) -> Option<DynamicObject> {
        let mut writer = self.status_writer();
        // The process may have ended between the last byte and the last word.
        match self.prepare().await {
            Ok(Some(facts)) => writer.ready(&facts).await,
            _ => match self.uploaded().await {
                0 => {
                    self.clear().await;
                    writer.pending(message).await;
                }
                at => writer.pending(&format!("the upload goes on at {at}")).await,
            },
        }
        writer.last
    }
}
