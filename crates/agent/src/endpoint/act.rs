//! Requests that are answered at once: what a guest says, and what is done to it.

use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use qemu::qmp::QmpError;

use super::answer::{Body, Failure, content, done};
use super::route::{Act, Read};
use crate::vmi::Live;

/// Options are a few fields.
const LARGEST_OPTIONS: usize = 64 << 10;

pub(super) async fn read(live: &Live, what: Read) -> Result<Response<Body>, Failure> {
    match what {
        Read::Screenshot => match live.running.screenshot().await {
            Ok(picture) => Ok(content("image/png", picture)),
            Err(failure) => Err(Failure::internal(&failure)),
        },
        Read::Log => {
            let path = live.running.dir().serial_log();
            let log = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
            Ok(content("text/plain; charset=utf-8", log.ok().and_then(Result::ok).unwrap_or_default()))
        }
        Read::GuestOsInfo | Read::UserList | Read::FilesystemList => Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "VMI does not have guest agent connected",
        )),
    }
}

pub(super) async fn act(
    live: &Live,
    what: Act,
    body: Incoming,
) -> Result<Response<Body>, Failure> {
    let options = http_body_util::Limited::new(body, LARGEST_OPTIONS).collect().await;
    let options = options.map_err(|_| {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "the options are too long")
    })?;
    let _options = options.to_bytes();
    let failed = |failure: QmpError| Failure::internal(&failure);
    let qmp = live.running.qmp().await.map_err(failed)?;
    match what {
        Act::Pause => qmp.pause().await.map_err(failed)?,
        Act::Unpause => qmp.resume().await.map_err(failed)?,
        Act::Reset => qmp.reset().await.map_err(failed)?,
        Act::SoftReboot => qmp.power_down().await.map_err(failed)?,
        Act::Freeze | Act::Unfreeze => {
            let text = "VMI does not have guest agent connected";
            return Err(Failure::new(StatusCode::CONFLICT, text));
        }
    }
    Ok(done())
}
