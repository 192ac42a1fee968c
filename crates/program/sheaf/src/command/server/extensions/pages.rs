//! The dashboard's pages, handed from crate `ui` to the server.

use apiserver::HttpReply;
use apiserver::extension::{AuthorizedRequest, Paths};
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use ui::Dashboard;

/// Pages are for all users: they hold no data, and request the rest in the name of their user.
pub(super) struct DashboardPages(pub(super) Dashboard);

impl Paths for DashboardPages {
    fn own(&self, path: &str, _query: &str) -> bool {
        ui::owns(path)
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        let reply = self.0.answer(&asked.parts);
        Box::pin(async move { reply.map(|bytes| Full::new(bytes).boxed_unsync()) })
    }
}
