//! `/cacerts`: the certificates that clients verify this cluster by, for machines that join. They
//! know which one to expect.

use std::sync::{Arc, PoisonError, RwLock};

use apiserver::HttpReply;
use apiserver::extension::{AuthorizedRequest, Paths};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};

/// The bundle; replaced when the authority changes.
#[derive(Clone, Default)]
pub(in crate::command::server) struct RootCa(Arc<RwLock<Bytes>>);

impl RootCa {
    pub(in crate::command::server) fn set(&self, pem: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pem.into();
    }
}

impl Paths for RootCa {
    fn own(&self, path: &str, _query: &str) -> bool {
        path == "/cacerts"
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        let mut reply = HttpReply::default();
        if asked.parts.method == Method::GET {
            let pem = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
            *reply.body_mut() = Full::new(pem).boxed_unsync();
            let plain = HeaderValue::from_static("text/plain");
            reply.headers_mut().insert(CONTENT_TYPE, plain);
        } else {
            *reply.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        }
        Box::pin(async move { reply })
    }
}
