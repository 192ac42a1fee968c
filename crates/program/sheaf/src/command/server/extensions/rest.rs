//! Harvester's REST API and the login of local users, handed from crate `steve` to the server.

use std::io;
use std::sync::{Arc, OnceLock};

use apiserver::extension::{
    AuthorizedRequest, Credentials, Lookup, PathAccess, Paths, SourceAddress,
};
use apiserver::{HttpReply, Upgrade};
use auth::User;
use client::Caller;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::Value;
use steve::{Login, NodeReports, OidcProvider, RequestHead, Steve, SteveRequest};

/// The REST API, as soon as it can be reached.
#[derive(Clone, Default)]
pub(in crate::command::server) struct RestHandle(Arc<OnceLock<Rest>>);

struct Rest {
    client: Client,
    steve: Steve,
    login: Login,
}

impl RestHandle {
    /// From here on requests are answered. `client` may act as any user; `ca_pem` is what
    /// clients verify this server by, `reports` what support bundles say about nodes, and `oidc` where
    /// users of the dashboard log in besides.
    pub(in crate::command::server) fn open(
        &self,
        client: Client,
        ca_pem: &str,
        reports: Arc<dyn NodeReports>,
        oidc: Option<OidcProvider>,
    ) {
        let steve =
            Steve::new(client.clone(), ca_pem).with_reports(reports).with_oidc(oidc.clone());
        let login = Login::new(client.clone()).with_oidc(oidc);
        // Opened twice would be a mistake of ours, and the first remains good.
        let _ = self.0.set(Rest { client, steve, login });
    }
}

impl Paths for RestHandle {
    fn own(&self, path: &str, _query: &str) -> bool {
        steve::owns(path) || steve::owns_login(path)
    }

    fn access<'a>(&self, path: &'a str) -> PathAccess<'a> {
        if steve::is_public(path) { PathAccess::Open } else { PathAccess::Authenticated }
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        Box::pin(async move {
            let Some(rest) = self.0.get() else {
                let mut reply = HttpReply::default();
                *reply.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                return reply;
            };
            let source = asked.parts.extensions.get::<SourceAddress>().map(|from| from.0.ip());
            let body = asked.body.map_err(io::Error::other).boxed_unsync();
            let caller = asked.user.map(super::caller_of);
            let upgrade = asked.parts.extensions.get::<Upgrade>().and_then(Upgrade::take);
            let head = RequestHead { caller, source, parts: asked.parts, upgrade };
            let asked = SteveRequest { head, body };
            if steve::owns_login(asked.head.parts.uri.path()) {
                return rest.login.answer(&rest.client, asked).await;
            }
            rest.steve.answer(asked).await
        })
    }

    fn refuse(&self, status: &Value) -> Option<HttpReply> {
        Some(steve::refusal(status))
    }
}

/// The tokens that local users log in with.
pub(super) struct LocalUsers;

impl Credentials for LocalUsers {
    fn user(&self, token: &str, objects: &dyn Lookup) -> Option<User> {
        let find = |plural: &str, name: &str| objects.get("management.cattle.io", plural, "", name);
        let caller = steve::identify(token, &find, base::clock::now())?;
        let Caller { name, uid, groups, extra } = caller;
        Some(User { name, uid, groups, extra })
    }
}
