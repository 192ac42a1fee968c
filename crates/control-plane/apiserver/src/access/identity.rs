//! Authentication of a request: by client certificate, front proxy or bearer token, or as
//! anonymous.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use auth::User;
use auth::pki::tls::Peer;
use auth::token::bootstrap;
use auth::token::oidc::OidcError;
use auth::token::{ServiceAccountTokens, StaticTokens, TokenError, Verified};
use base::clock;
use http::header::AUTHORIZATION;
use http::{HeaderMap, request};
use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::access::session::{self, SessionCookie};
use crate::api::{Api, FrontProxy, ObjectStore};
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::object;

/// The facts that the transport has about the client; set by the code that accepted the
/// connection.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A TLS connection, with whom its client certificate stands for.
    Network(Option<Peer>),
    /// A caller in this process, trusted to be who it says.
    InProcess(User),
}

/// Everything that turns credentials into users.
#[derive(Debug)]
pub struct Authenticator {
    pub(crate) tokens: ArcSwap<ServiceAccountTokens>,
    static_tokens: ArcSwap<StaticTokens>,
    /// Tokens whose signature was checked recently; the objects that they are bound to are checked
    /// each time.
    checked: Mutex<HashMap<[u8; 32], Checked>>,
}

/// A good token, and since when we know.
type Checked = (Arc<Verified>, Instant);

/// A signature that was good counts for this long; so may a token that just expired.
const RECENT: Duration = Duration::from_secs(10);
/// More tokens than this at once are checked anew each time.
const MOST_CHECKED: usize = 4096;

impl Authenticator {
    pub fn new(tokens: ServiceAccountTokens) -> Self {
        Self {
            tokens: ArcSwap::from_pointee(tokens),
            static_tokens: ArcSwap::from_pointee(StaticTokens::default()),
            checked: Mutex::default(),
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
    match peer {
        Some(Peer::FrontProxy { .. }) => {
            if let Some(user) = forwarded(&api.settings.front_proxy, headers) {
                return Ok(user.authenticated());
            }
        }
        Some(Peer::User(user)) => return Ok(user.clone().authenticated()),
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
    check_objects(&api.store, &verified, token)?;
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
fn check_objects(store: &ObjectStore, verified: &Verified, token: &str) -> Result<(), ReviewError> {
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
                // A node beside a pod only tells where the pod runs.
                ("minions", "node", if bound.pod.is_some() { &None } else { &bound.node }, false),
            ] {
                if let Some(reference) = reference {
                    let within = if namespaced { namespace } else { "" };
                    check_uid(store, table, what, within, &reference.name, &reference.uid)?;
                }
            }
            Ok(())
        }
    }
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
    let found = entry.item.to_value();
    if is_past_grace(&found, clock::now()) {
        return Err(gone());
    }
    let found = object::uid(&found);
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

/// The user that a trusted front proxy speaks for.
fn forwarded(names: &FrontProxy, headers: &HeaderMap) -> Option<User> {
    let first = |names: &[String]| {
        let mut values = names.iter().filter_map(|name| headers.get(name)?.to_str().ok());
        values.find(|value| !value.is_empty())
    };
    let groups = names.group.iter().flat_map(|name| all(headers, name));
    let mut user = User::new(first(&names.username)?, groups.collect::<Vec<_>>());
    first(&names.uid).unwrap_or("").clone_into(&mut user.uid);
    for prefix in &names.extra_prefix {
        user.extra.extend(extra(headers, &prefix.to_ascii_lowercase()));
    }
    Some(user)
}

fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
}

/// Headers `prefix + key: value`; the key may be percent-encoded.
fn extra(headers: &HeaderMap, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut extra = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(prefix) {
            let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
            extra.insert(key, all(headers, name.as_str()));
        }
    }
    extra
}

/// Replaces the user by the one that the request asks to be, if its sender may.
pub(crate) fn impersonate(api: &Api, user: User, headers: &HeaderMap) -> ApiResult<User> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let name = text("impersonate-user").unwrap_or("");
    let groups = all(headers, "impersonate-group");
    let uid = text("impersonate-uid").unwrap_or("");
    let extra = extra(headers, "impersonate-extra-");
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(user);
        }
        return Err(ApiError::bad_request(
            "requested impersonation of groups, a uid or extra fields without impersonating a user",
        ));
    }
    let ask = |group: &str, resource: &str, namespace: &str, name: &str, sub: &str| {
        may_impersonate(api, &user, group, resource, namespace, name, sub)
    };
    match auth::user::parse_service_account_name(name) {
        Some((namespace, account)) => ask("", "serviceaccounts", namespace, account, "")?,
        None => ask("", "users", "", name, "")?,
    }
    for group in &groups {
        ask("", "groups", "", group, "")?;
    }
    if !uid.is_empty() {
        ask("authentication.k8s.io", "uids", "", uid, "")?;
    }
    for (key, values) in &extra {
        for value in values {
            ask("authentication.k8s.io", "userextras", "", value, key)?;
        }
    }
    let mut other = match auth::user::parse_service_account_name(name) {
        Some((namespace, account)) if groups.is_empty() => {
            User::service_account(namespace, account, uid)
        }
        _ => User::new(name, groups),
    };
    uid.clone_into(&mut other.uid);
    other.extra = extra;
    Ok(if other.is_anonymous() { with_unauthenticated(other) } else { other.authenticated() })
}

fn with_unauthenticated(mut user: User) -> User {
    let group = auth::user::UNAUTHENTICATED;
    if !user.is_in(group) {
        user.groups.push(group.to_owned());
    }
    user
}

fn may_impersonate(
    api: &Api,
    user: &User,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> ApiResult<()> {
    let attributes = auth::Attributes {
        verb: "impersonate",
        target: auth::AccessTarget::Resource(auth::ResourceRequest {
            group,
            version: "",
            resource,
            subresource,
            namespace,
            name,
        }),
    };
    crate::access::authorize::check(api, user, &attributes, StatusSubject { group, resource, name })
}
