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
use crate::http::respond::{Body, HttpReply};

/// Less than this is encoded already and fits into what the kernel takes at once.
const LARGE: u64 = 32 * 1024;
/// A client that reads more slowly than this gives its seat back: it does not need our processors.
const SLOW_READER_TIMEOUT: Duration = Duration::from_secs(1);

/// The answer, which keeps the seat until its last byte was asked for.
pub(crate) fn seated(reply: HttpReply, seat: Option<Seat>) -> HttpReply {
    let Some(seat) = seat else { return reply };
    if reply.body().size_hint().exact().is_some_and(|size| size < LARGE) {
        return reply;
    }
    let seat = Arc::new(Mutex::new(Some(seat)));
    let late = Arc::clone(&seat);
    tokio::spawn(async move {
        tokio::time::sleep(SLOW_READER_TIMEOUT).await;
        late.lock().take();
    });
    reply.map(|body| SeatedBody { body, seat }.boxed_unsync())
}

struct SeatedBody {
    body: Body,
    seat: Arc<Mutex<Option<Seat>>>,
}

impl http_body::Body for SeatedBody {
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

impl Drop for SeatedBody {
    fn drop(&mut self) {
        self.seat.lock().take();
    }
}

#[cfg(test)]
mod tests {
    use auth::User;
    use http::StatusCode;

    use super::super::{Fairness, InFlight};
    use super::*;
    use crate::http::respond;

    async fn seat(fairness: &Fairness) -> Option<Seat> {
        let user = User::new("jane", ["system:authenticated"]);
        let place = fairness.assign_path(&user, "get", "/api").unwrap();
        fairness.enter(Some(&place), false, 1).await.unwrap()
    }

    fn long() -> HttpReply {
        let chunks = futures_util::stream::iter(["a", "a"].map(Bytes::from));
        respond::reply(StatusCode::OK, "application/json", respond::streamed(chunks))
    }

    fn taken(fairness: &Fairness) -> u32 {
        fairness.in_flight()[0].1
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_answer_keeps_its_seat_until_it_is_sent_or_not_asked_for() {
        let fairness = Fairness::new(InFlight { reading: 1, writing: 1 });
        let reply = seated(long(), seat(&fairness).await);
        assert_eq!(taken(&fairness), 1);
        assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "aa");
        assert_eq!(taken(&fairness), 0, "its last byte was asked for");

        let reply = seated(long(), seat(&fairness).await);
        tokio::time::sleep(SLOW_READER_TIMEOUT * 2).await;
        assert_eq!(taken(&fairness), 0, "no client asks for it");
        drop(reply);

        let reply = seated(respond::text(StatusCode::OK, "short"), seat(&fairness).await);
        assert_eq!(taken(&fairness), 0, "there is nothing left to do");
        drop(reply);
    }
}
