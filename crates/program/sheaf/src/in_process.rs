//! A Kubernetes client without a socket: the server's own handler, as a tower service.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use apiserver::{Api, HttpReply, Transport};
use auth::User;
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;

/// A client of this process that acts as `user`.
pub(crate) fn client(api: Api, user: User) -> Client {
    client::in_process(Handler { api, transport: Transport::InProcess(user) }, |_| {})
}

#[derive(Clone)]
struct Handler {
    api: Api,
    transport: Transport,
}

impl tower::Service<Request<Body>> for Handler {
    type Response = HttpReply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpReply, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (api, transport) = (self.api.clone(), self.transport.clone());
        Box::pin(async move {
            let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
            Ok(api.handle(request, &transport).await)
        })
    }
}
