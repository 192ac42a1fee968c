//! Answers that keep their request's seat while they are sent: most of what a large list
//! costs is its encoding and its encryption, and that comes after the handler.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use super::Seat;
use crate::respond::{Body, Reply};

/// Less than this is encoded already and fits into what the kernel takes at once.
const LARGE: u64 = 32 * 1024;
/// Who reads more slowly than this does not need our processors, and gives the seat back.
const PATIENCE: Duration = Duration::from_secs(1);

/// The answer, which keeps the seat until its last byte was asked for.
pub(crate) fn seated(reply: Reply, seat: Option<Seat>) -> Reply {
    let Some(seat) = seat else { return reply };
    if reply.body().size_hint().exact().is_some_and(|size| size < LARGE) {
        return reply;
    }
    let seat = Arc::new(Mutex::new(Some(seat)));
    let late = Arc::clone(&seat);
    tokio::spawn(async move {
        tokio::time::sleep(PATIENCE).await;
        late.lock().take();
    });
    reply.map(|body| Seated { body, seat }.boxed_unsync())
}

struct Seated {
    body: Body,
    seat: Arc<Mutex<Option<Seat>>>,
}

impl http_body::Body for Seated {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.seat.lock().take();
    }
}
