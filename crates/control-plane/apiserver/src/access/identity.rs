//! Authentication of a request: by client certificate, front proxy or bearer token, or as
//! anonymous.

mod headers;
mod node_key;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use auth::User;
use auth::pki::tls::Peer;
use auth::revocation::{ClientCertificate, RevocationList};
use auth::token::bootstrap;
use auth::token::oidc::OidcError;
use auth::token::{ObjectRef, ServiceAccountTokens, StaticTokens, TokenError, Verified};
use base::clock;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, request};
use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tracing::info;

use self::headers::forwarded;
pub(crate) use self::headers::impersonate;
use self::node_key::check_node_key;
use crate::access::session::{self, SessionCookie};
use crate::api::{Api, ObjectStore};
use crate::audit;
use crate::extension::Lookup as _;
use crate::status::{ApiError, ApiResult};
use crate::verbs::object;

/// The facts that the transport has about the client; set by the code that accepted the
/// connection.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A TLS connection, with the user that its client certificate names.
    Network(Option<NetworkPeer>),
    /// A caller in this process, trusted to be who it says.
    InProcess(User),
}

/// The client of a connection that has shown a certificate.
#[derive(Debug, Clone)]
pub struct NetworkPeer {
    pub peer: Peer,
    pub certificate: ClientCertificate,
}

/// Everything that turns credentials into users.
#[derive(Debug)]
pub struct Authenticator {
    pub(crate) tokens: ArcSwap<ServiceAccountTokens>,
    static_tokens: ArcSwap<StaticTokens>,
    /// Tokens whose signature was checked recently; the objects that they are bound to are checked
    /// each time.
    checked: Mutex<HashMap<[u8; 32], Checked>>,
    revoked: watch::Sender<Arc<RevocationList>>,
}

/// A good token, and since when we know.
type Checked = (Arc<Verified>, Instant);

/// A signature that was good counts for this long; so may a token that just expired.
const RECENT: Duration = Duration::from_secs(10);
/// A connection whose certificate is revoked ends after this time: it may have made the request that
/// did so, and gets the answer. Further requests are refused at once.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// More tokens than this at once are checked anew each time.
const MOST_CHECKED: usize = 4096;

impl Authenticator {
    pub fn new(tokens: ServiceAccountTokens) -> Self {
        Self {
            tokens: ArcSwap::from_pointee(tokens),
            static_tokens: ArcSwap::from_pointee(StaticTokens::default()),
            checked: Mutex::default(),
            revoked: watch::Sender::default(),
        }
    }

    /// Checks a token's signature and claims, or remembers that it did.
    fn verify(&self, token: &str, audiences: &[String]) -> Result<Arc<Verified>, TokenError> {
        if !audiences.is_empty() {
            return self.tokens.load().verify(token, audiences, clock::now()).map(Arc::new);
        }
        let key: [u8; 32] = Sha256::digest(token).into();
        let now = Instant::now();
        let mut checked = self.checked.lock();
        if let Some((verified, since)) = checked.get(&key)
            && now.duration_since(*since) < RECENT
        {
            return Ok(verified.clone());
        }
        drop(checked);
        let verified = Arc::new(self.tokens.load().verify(token, audiences, clock::now())?);
        checked = self.checked.lock();
        if checked.len() >= MOST_CHECKED {
            checked.retain(|_, (_, since)| now.duration_since(*since) < RECENT);
        }
        if checked.len() < MOST_CHECKED {
            checked.insert(key, (verified.clone(), now));
        }
        Ok(verified)
    }

    /// Takes over changed keys: tokens are issued and verified with these from now on.
    pub fn set_tokens(&self, tokens: ServiceAccountTokens) {
        self.tokens.store(Arc::new(tokens));
    }

    pub fn tokens(&self) -> Arc<ServiceAccountTokens> {
        self.tokens.load_full()
    }

    /// Takes over a changed list: requests with these certificates are refused, and connections
    /// end, from now on.
    pub fn set_revoked(&self, list: RevocationList) {
        self.revoked.send_replace(Arc::new(list));
    }

    /// The list of revoked certificates, and its changes.
    pub fn revoked(&self) -> watch::Receiver<Arc<RevocationList>> {
        self.revoked.subscribe()
    }

    fn is_revoked(&self, certificate: &ClientCertificate) -> bool {
        self.revoked.borrow().revokes(certificate)
    }

    /// Resolves when a certificate is revoked. A new connection with one that is already is not
    /// ended: its requests get an answer that says so.
    pub(crate) fn until_revoked(
        &self,
        certificate: ClientCertificate,
    ) -> Option<BoxFuture<'static, ()>> {
        let mut list = self.revoked.subscribe();
        if list.borrow_and_update().revokes(&certificate) {
            return None;
        }
        Some(Box::pin(async move {
            let found = list.wait_for(|list| list.revokes(&certificate)).await.is_ok();
            if !found {
                // The server ends, and the connection with it.
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(LAST_ANSWER).await;
            info!(
                user = certificate.user,
                serial = certificate.serial,
                "connection ended: its certificate was revoked"
            );
        }))
    }

    /// Takes over a changed token file: tokens that are no longer in it stop working at once.
    pub fn set_static_tokens(&self, tokens: StaticTokens) {
        self.static_tokens.store(Arc::new(tokens));
    }
}

/// Finds out who sent a request. Bad credentials are refused; none at all is anonymous.
pub(crate) fn authenticate(
    api: &Api,
    transport: &Transport,
    parts: &request::Parts,
) -> ApiResult<User> {
    let headers = &parts.headers;
    let peer = match transport {
        Transport::InProcess(user) => return Ok(user.clone()),
        Transport::Network(peer) => peer,
    };
    if let Some(NetworkPeer { certificate, .. }) = peer
        && api.authenticator.is_revoked(certificate)
    {
        audit::annotate("sheaf.io/revoked-certificate", || certificate.serial.clone());
        return Err(ApiError::certificate_revoked(&certificate.user, &certificate.serial));
    }
    match peer.as_ref().map(|known| &known.peer) {
        Some(Peer::FrontProxy { .. }) => {
            if let Some(user) = forwarded(&api.settings.front_proxy, headers) {
                return Ok(user.authenticated());
            }
        }
        Some(Peer::User(user)) => {
            if let Some(NetworkPeer { certificate, .. }) = peer {
                check_node_key(api, user, certificate)?;
            }
            return Ok(user.clone().authenticated());
        }
        None => {}
    }
    match bearer(headers) {
        None if headers.contains_key(AUTHORIZATION) => Err(ApiError::unauthorized()),
        None if !api.extensions.credentials.is_empty() => by_session(api, parts),
        None if api.settings.anonymous => Ok(User::anonymous()),
        None => Err(ApiError::unauthorized()),
        Some(token) => {
            let known = review(api, token, &[]).map_err(|_| ApiError::unauthorized())?;
            Ok(known.user.authenticated())
        }
    }
}

/// The user of a browser session.
fn by_session(api: &Api, parts: &request::Parts) -> ApiResult<User> {
    match session::of_request(parts) {
        SessionCookie::Token(token) => {
            let user = local_user(api, token).ok_or_else(ApiError::unauthorized)?;
            Ok(user.authenticated())
        }
        SessionCookie::CrossSite => Err(ApiError::unauthorized()),
        SessionCookie::Absent if api.settings.anonymous => Ok(User::anonymous()),
        SessionCookie::Absent => Err(ApiError::unauthorized()),
    }
}

/// The user of a token that an extension in this process issued.
fn local_user(api: &Api, token: &str) -> Option<User> {
    api.extensions.credentials.iter().find_map(|credentials| credentials.user(token, api))
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// A token that is good, and for which audiences.
#[derive(Debug)]
pub(crate) struct Reviewed {
    pub(crate) user: User,
    pub(crate) audiences: Vec<String>,
}

/// Why a token is not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Oidc(#[from] OidcError),
    #[error("{what} {name:?} has been deleted")]
    Gone { what: &'static str, name: String },
    #[error("{what} UID ({found}) does not match claim ({claimed})")]
    Replaced { what: &'static str, found: String, claimed: String },
    #[error("token has been invalidated")]
    Invalidated,
}

/// Checks a token against keys, clock and the objects that it is bound to.
pub(crate) fn review(
    api: &Api,
    token: &str,
    audiences: &[String],
) -> Result<Reviewed, ReviewError> {
    let authenticator = &api.authenticator;
    if let Some(user) = authenticator.static_tokens.load().lookup(token) {
        return Ok(Reviewed { user: user.clone(), audiences: audiences.to_vec() });
    }
    if let Some(user) = joining(api, token) {
        return Ok(Reviewed { user, audiences: audiences.to_vec() });
    }
    if let Some(user) = local_user(api, token) {
        return Ok(Reviewed { user, audiences: audiences.to_vec() });
    }
    if let Some(oidc) = &api.oidc {
        match oidc.verify(token) {
            Ok(user) => return Ok(Reviewed { user, audiences: audiences.to_vec() }),
            Err(OidcError::NotTheirs) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let verified = authenticator.verify(token, audiences)?;
    check_objects(api, &verified, token)?;
    Ok(Reviewed { user: verified.user(), audiences: verified.audiences().to_vec() })
}

/// A machine that joins with a token which a secret vouches for.
fn joining(api: &Api, token: &str) -> Option<User> {
    use base64::Engine as _;
    let (id, secret) = bootstrap::split(token).filter(|_| api.settings.bootstrap_tokens)?;
    let name = format!("{}{id}", bootstrap::SECRET_PREFIX);
    let stored = api.store.get("secrets", &object::key(bootstrap::NAMESPACE, &name))?;
    let stored = stored.item.to_value();
    let deleting = stored["metadata"]["deletionTimestamp"].is_string();
    if stored["type"] != bootstrap::SECRET_TYPE || deleting {
        return None;
    }
    let text = |value: &serde_json::Value| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let fields = stored["data"].as_object().into_iter().flatten();
    let data = fields.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect();
    bootstrap::user(id, secret, &data, clock::now())
}

/// A token outlives neither its account nor the object that it is bound to.
fn check_objects(api: &Api, verified: &Verified, token: &str) -> Result<(), ReviewError> {
    let store = &api.store;
    let (namespace, name, uid) = verified.service_account();
    check_uid(store, "serviceaccounts", "service account", namespace, name, uid)?;
    match verified {
        Verified::Legacy { claims, .. } => {
            let key = object::key(namespace, &claims.secret_name);
            let secret = store.get("secrets", &key).ok_or_else(|| ReviewError::Gone {
                what: "secret",
                name: claims.secret_name.clone(),
            })?;
            use base64::Engine as _;
            let stored = secret.item.to_value()["data"]["token"].as_str().map(str::to_owned);
            let given = base64::engine::general_purpose::STANDARD.encode(token);
            // A token that was taken out of its secret is revoked.
            if stored.as_deref() == Some(&*given) { Ok(()) } else { Err(ReviewError::Invalidated) }
        }
        Verified::Bound { claims, .. } => {
            let bound = &claims.kubernetes;
            for (table, what, reference, namespaced) in [
                ("pods", "pod", &bound.pod, true),
                ("secrets", "secret", &bound.secret, true),
                // A node beside a pod only names where the pod runs.
                ("minions", "node", if bound.pod.is_some() { &None } else { &bound.node }, false),
            ] {
                if let Some(reference) = reference {
                    let within = if namespaced { namespace } else { "" };
                    check_uid(store, table, what, within, &reference.name, &reference.uid)?;
                }
            }
            match &bound.machine {
                Some(machine) => check_guest(api, namespace, machine),
                None => Ok(()),
            }
        }
    }
}

/// As for a pod: the token ends with the machine that it was written onto a disk of.
fn check_guest(api: &Api, namespace: &str, claimed: &ObjectRef) -> Result<(), ReviewError> {
    let guests = api.extensions.nodes.as_ref().map(|nodes| nodes.guests());
    let found = guests.and_then(|guests| {
        Some((guests, api.get(guests.group, guests.plural, namespace, &claimed.name)?))
    });
    let Some((guests, found)) = found else {
        return Err(ReviewError::Gone { what: "machine", name: claimed.name.clone() });
    };
    match_uid(guests.noun, &claimed.name, &claimed.uid, &found)
}

fn check_uid(
    store: &ObjectStore,
    table: &str,
    what: &'static str,
    namespace: &str,
    name: &str,
    claimed: &str,
) -> Result<(), ReviewError> {
    let gone = || ReviewError::Gone { what, name: name.to_owned() };
    let entry = store.get(table, &object::key(namespace, name)).ok_or_else(gone)?;
    match_uid(what, name, claimed, &entry.item.to_value())
}

fn match_uid(
    what: &'static str,
    name: &str,
    claimed: &str,
    found: &serde_json::Value,
) -> Result<(), ReviewError> {
    if is_past_grace(found, clock::now()) {
        return Err(ReviewError::Gone { what, name: name.to_owned() });
    }
    let found = object::uid(found);
    if found == claimed {
        return Ok(());
    }
    Err(ReviewError::Replaced { what, found: found.to_owned(), claimed: claimed.to_owned() })
}

/// An object on its way out keeps its tokens alive for a minute, so that it can say goodbye.
fn is_past_grace(object: &serde_json::Value, now: Timestamp) -> bool {
    object["metadata"]["deletionTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
        .is_some_and(|deleted| now.as_second() - deleted.as_second() > 60)
}
