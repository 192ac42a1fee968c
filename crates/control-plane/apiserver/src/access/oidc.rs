//! Authentication with ID tokens of an OpenID Connect issuer: fetches the issuer's keys, and
//! fetches them again when a token names an unknown one. `auth::token::oidc` verifies the tokens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use auth::User;
use auth::token::oidc::{OidcConfig, OidcError, OidcKeys, claims_to_be_of};
use base::{Backoff, Tasks, clock};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use serde_json::Value;
use tokio::sync::Mutex;
use tracing::{info, warn};

use crate::access::identity;

/// The keys of the issuer are read again this often, without a request for them.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3600);
/// A token with an unknown key makes us ask again, but not more often than this.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// How long a request waits for an issuer.
const ISSUER_TIMEOUT: Duration = Duration::from_secs(10);

type OidcFailure = Box<dyn std::error::Error + Send + Sync>;

/// A reader of URLs.
pub trait Fetch: Send + Sync {
    fn fetch<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Bytes, OidcFailure>>;
}

/// The trusted issuer of tokens, and the way to fetch its keys.
#[derive(Clone)]
pub struct OidcLogin {
    pub config: OidcConfig,
    pub fetch: Arc<dyn Fetch>,
}

impl std::fmt::Debug for OidcLogin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("OidcLogin").field("config", &self.config).finish_non_exhaustive()
    }
}

pub(crate) struct Oidc {
    login: OidcLogin,
    keys: ArcSwap<OidcKeys>,
    /// When keys were last asked for; held while they are.
    asked: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Oidc {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Oidc").field("login", &self.login).finish_non_exhaustive()
    }
}

impl Oidc {
    pub(crate) fn start(login: OidcLogin, tasks: &Tasks) -> Arc<Self> {
        let oidc = Arc::new(Self { login, keys: ArcSwap::default(), asked: Mutex::new(None) });
        let (this, mut stop) = (Arc::clone(&oidc), tasks.stop_signal());
        tasks.spawn("oidc", async move {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
            loop {
                let pause = match this.refresh().await {
                    Ok(()) => REFRESH_INTERVAL,
                    Err(failure) => {
                        let issuer = &this.login.config.issuer;
                        warn!(issuer, error = %base::Chain(&*failure), "cannot load OIDC issuer keys");
                        backoff.delay()
                    }
                };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stop.requested() => return,
                }
            }
        });
        oidc
    }

    async fn refresh(&self) -> Result<(), OidcFailure> {
        let issuer = self.login.config.issuer.trim_end_matches('/');
        let fetch = |url: String| async move { self.login.fetch.fetch(&url).await };
        let document = fetch(format!("{issuer}/.well-known/openid-configuration")).await?;
        let document: Value = serde_json::from_slice(&document)?;
        if document["issuer"] != self.login.config.issuer.as_str() {
            return Err(format!("it calls itself {}", document["issuer"]).into());
        }
        let url = document["jwks_uri"].as_str().ok_or("it names no jwks_uri")?.to_owned();
        let keys = OidcKeys::parse(&fetch(url).await?)?;
        self.keys.store(Arc::new(keys));
        info!(issuer, "OIDC issuer keys loaded");
        Ok(())
    }

    /// Sees to it that the key of a request's token is known, if it can be.
    pub(crate) async fn prepare(&self, headers: &HeaderMap) {
        if let Some(token) = identity::bearer(headers) {
            self.prepare_token(token).await;
        }
    }

    /// As [`Self::prepare`], for a token that is not in a header.
    pub(crate) async fn prepare_token(&self, token: &str) {
        let Some(id) = claims_to_be_of(token, &self.login.config.issuer) else { return };
        if self.keys.load().has(id.as_deref()) {
            return;
        }
        let mut asked = self.asked.lock().await;
        let lately = asked.is_some_and(|asked| asked.elapsed() < MIN_REFRESH_INTERVAL);
        if lately || self.keys.load().has(id.as_deref()) {
            return;
        }
        *asked = Some(Instant::now());
        // The result is used by the next check; the token is verified with the keys that are
        // known.
        let _ = tokio::time::timeout(ISSUER_TIMEOUT, self.refresh()).await;
    }

    pub(crate) fn verify(&self, token: &str) -> Result<User, OidcError> {
        self.login.config.verify(token, &self.keys.load(), clock::now())
    }
}
