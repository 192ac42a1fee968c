//! Programs of upgrades: `PUT /sheaf/v1/program-uploads/DIGEST` brings one to this server, `GET
//! /sheaf/v1/programs/DIGEST` hands it to nodes. Nothing runs because of it: that takes an Upgrade.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use apiserver::HttpReply;
use apiserver::extension::{AuthorizedRequest, PathAccess, Paths, RequiredAccess};
use auth::User;
use auth::user::NODES;
use base::Chain;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use hci::upgrade::{BadDigest, ProgramDigest};
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::json;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tracing::info;

use crate::command::program::{ProgramStore, StoreError};

pub(in crate::command) const PROGRAMS_PATH: &str = "/sheaf/v1/programs/";
pub(in crate::command) const UPLOADS_PATH: &str = "/sheaf/v1/program-uploads/";
const CHUNK: usize = 256 * 1024;

/// Answers from the moment that it is opened.
#[derive(Clone, Default)]
pub(in crate::command::server) struct ProgramsHandle(Arc<OnceLock<ProgramStore>>);

#[derive(Debug, thiserror::Error)]
enum ProgramRefusal {
    #[error("the server is starting")]
    Starting,
    #[error(transparent)]
    Digest(#[from] BadDigest),
    #[error("programs are handed to nodes of the cluster only")]
    NotNode,
    #[error("this server does not have the program {}", .0.short())]
    Missing(ProgramDigest),
    #[error("cannot read the program")]
    Read(#[source] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the method is not allowed")]
    Method,
}

impl ProgramRefusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::Starting => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotNode => StatusCode::FORBIDDEN,
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Read(_) | Self::Store(StoreError::Write { .. }) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Digest(_) | Self::Store(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl ProgramsHandle {
    pub(in crate::command::server) fn open(&self, store: ProgramStore) {
        // Opened twice would be a mistake of ours, and the first remains good.
        let _ = self.0.set(store);
    }

    async fn reply(&self, asked: AuthorizedRequest) -> Result<HttpReply, ProgramRefusal> {
        let store = self.0.get().ok_or(ProgramRefusal::Starting)?;
        let AuthorizedRequest { user, parts, body } = asked;
        let path = parts.uri.path();
        if let Some(digest) = path.strip_prefix(UPLOADS_PATH) {
            if parts.method != Method::PUT {
                return Err(ProgramRefusal::Method);
            }
            let digest = ProgramDigest::parse(digest)?;
            store.add(&digest, body.into_data_stream()).await?;
            info!(program = digest.short(), "program of an upgrade uploaded");
            return Ok(super::json_reply(StatusCode::CREATED, &json!({"digest": digest})));
        }
        if parts.method != Method::GET {
            return Err(ProgramRefusal::Method);
        }
        if !user.as_ref().is_some_and(|user: &User| user.is_in(NODES)) {
            return Err(ProgramRefusal::NotNode);
        }
        let digest = ProgramDigest::parse(path.strip_prefix(PROGRAMS_PATH).unwrap_or_default())?;
        let file = match File::open(store.path(&digest)).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ProgramRefusal::Missing(digest));
            }
            file => file.map_err(ProgramRefusal::Read)?,
        };
        send(file).await.map_err(ProgramRefusal::Read)
    }
}

/// A file that cannot be read to its end is cut off; the reader misses the rest by its length.
async fn send(file: File) -> std::io::Result<HttpReply> {
    let length = file.metadata().await?.len();
    let pieces = stream::unfold(file, |mut file| async move {
        let mut buffer = vec![0; CHUNK];
        let count = file.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        buffer.truncate(count);
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(buffer))), file))
    });
    let mut reply = HttpReply::new(StreamBody::new(pieces).boxed_unsync());
    reply.headers_mut().insert(CONTENT_LENGTH, length.into());
    Ok(reply)
}

impl Paths for ProgramsHandle {
    fn own(&self, path: &str, _query: &str) -> bool {
        path.starts_with(PROGRAMS_PATH) || path.starts_with(UPLOADS_PATH)
    }

    fn access<'a>(&self, path: &'a str) -> PathAccess<'a> {
        if !path.starts_with(UPLOADS_PATH) {
            // The handler checks the requester: the rights of nodes are not those of users.
            return PathAccess::Authenticated;
        }
        PathAccess::Resource(RequiredAccess {
            verb: "create",
            group: "harvesterhci.io",
            version: "v1beta1",
            resource: "versions",
            subresource: "",
            namespace: "harvester-system",
            name: "",
        })
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        Box::pin(async move {
            match self.reply(asked).await {
                Ok(reply) => reply,
                Err(refusal) => super::failure(refusal.code(), &Chain(&refusal).to_string()),
            }
        })
    }
}
