//! Upgraded streams, such as consoles and subscriptions, end with the credentials that they were
//! opened with: when a user has logged out or was removed, and when a token has expired. A revoked
//! certificate ends its connections by itself (`identity::Authenticator::until_revoked`). Tokens of an
//! OpenID Connect issuer last minutes, and cannot be taken back: their streams go on, as upstream's.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, request};
use tokio::sync::Notify;
use tracing::info;

use crate::access::identity::{self, Transport};
use crate::api::Api;

/// How long a stream may outlive its credentials.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The credentials of the stream that a connection may become; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamCredentials(Arc<Notify>);

impl StreamCredentials {
    /// Resolves when they are good no more.
    pub(crate) fn ended(&self) -> BoxFuture<'static, ()> {
        let end = Arc::clone(&self.0);
        Box::pin(async move { end.notified().await })
    }

    /// Checks those of `head` again and again, until the connection is gone.
    pub(crate) fn check(&self, api: &Api, transport: &Arc<Transport>, head: request::Parts) {
        let token = identity::bearer(&head.headers).zip(api.oidc.as_ref());
        if token.is_some_and(|(token, oidc)| oidc.verify(token).is_ok()) {
            return;
        }
        let end = Arc::downgrade(&self.0);
        api.tasks.spawn("stream-credentials", check(api.clone(), Arc::clone(transport), head, end));
    }
}

async fn check(api: Api, transport: Arc<Transport>, head: request::Parts, end: Weak<Notify>) {
    let mut stop = api.tasks.stop_signal();
    loop {
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            () = stop.requested() => return,
        }
        // Nobody else holds it once the stream is closed.
        let Some(end) = end.upgrade() else { return };
        if identity::authenticate(&api, &transport, &head).is_err() {
            info!(path = head.uri.path(), "stream ended: its credentials are not valid any more");
            end.notify_one();
            return;
        }
    }
}

/// The parts of a request that have its credentials.
pub(crate) fn head_of<B>(request: &Request<B>) -> request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.headers = request.headers().clone();
    head
}
