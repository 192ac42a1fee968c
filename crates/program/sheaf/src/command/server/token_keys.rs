//! The keys of service-account tokens of this server: published for the other servers, replaced
//! from time to time, and those of the others verified with. [`auth::token::rotation`] decides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::Api;
use apiserver::extension::Lookup as _;
use auth::pki::token_keys::TokenKeys;
use auth::token::ServiceAccountTokens;
use auth::token::key::VerifyingKey;
use auth::token::rotation::{
    KeyLifetime, NAME, NAMESPACE, PublishedKey, PublishedKeys, RotationStep, RotationView,
    next_step,
};
use base::{Chain, Stop, clock};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Map, Value};
use tracing::{info, warn};

use super::ISSUER;
use super::map_feed::{MapFeed, MapName};

const MAP: MapName = MapName { namespace: NAMESPACE, name: NAME };
/// The key of this server is published before it answers requests, unless the store does not take it
/// within this time.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// After a step that failed.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// More steps than this at once would be a mistake.
const MOST_STEPS: usize = 8;

pub(super) fn tokens(keys: &TokenKeys) -> ServiceAccountTokens {
    ServiceAccountTokens::new(ISSUER, Vec::new(), Vec::new(), keys.ring())
}

pub(super) struct TokenKeyRotation {
    pub(super) api: Api,
    /// May write the ConfigMap.
    pub(super) client: Client,
    pub(super) keys: TokenKeys,
    pub(super) lifetime: KeyLifetime,
}

impl TokenKeyRotation {
    /// Before the first request: reads the keys of the other servers, and publishes its own.
    pub(super) async fn begin(&mut self) -> Result<()> {
        let published = published(&MAP.stored(&self.api));
        self.use_keys(&published)?;
        match tokio::time::timeout(START_TIMEOUT, self.steps(published)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(error = %Chain(&*error), "cannot publish the token key"),
            Err(_) => warn!("cannot publish the token key: the store does not answer"),
        }
        Ok(())
    }

    pub(super) async fn run(mut self, mut stop: Stop) {
        let mut feed = MapFeed::new(&self.client, MAP);
        let mut seen = published(&MAP.stored(&self.api));
        let mut wait = Duration::ZERO;
        loop {
            tokio::select! {
                () = stop.requested() => return,
                data = feed.changed() => seen = published(&data),
                () = tokio::time::sleep(wait) => {}
            }
            let done = match self.use_keys(&seen) {
                Ok(()) => self.steps(seen.clone()).await,
                Err(error) => Err(error),
            };
            wait = match done {
                Ok((keys, until)) => {
                    seen = keys;
                    let left = until.duration_since(clock::now()).unsigned_abs();
                    if until <= clock::now() { Duration::from_secs(1) } else { left }
                }
                Err(error) => {
                    warn!(error = %Chain(&*error), "cannot rotate the token keys");
                    RETRY_DELAY
                }
            };
        }
    }

    /// Verifies with all published keys, and signs with the own one.
    fn use_keys(&mut self, published: &PublishedKeys) -> Result<()> {
        // Keys that this server knows from before are published first.
        if published.get(self.keys.ring().signing_id()).is_some() {
            self.keys.verify_with(published.keys()).context("cannot keep the token keys")?;
        }
        let mut known = self.keys.ring().verifying().to_vec();
        known.extend(published.keys());
        let ring = self.keys.ring().with_verifying(known).context("cannot use the token keys")?;
        let tokens = ServiceAccountTokens::new(ISSUER, Vec::new(), Vec::new(), &ring);
        self.api.authenticator().set_tokens(tokens);
        Ok(())
    }

    /// Takes the steps that are due; answers with the keys after them and the time of the next.
    async fn steps(&mut self, mut published: PublishedKeys) -> Result<(PublishedKeys, Timestamp)> {
        let mut stored = None;
        for _ in 0..MOST_STEPS {
            let now = clock::now();
            let next = self.keys.next().map(|next| next.id().to_owned());
            let view = RotationView {
                lifetime: self.lifetime,
                signing: self.keys.ring().signing_id(),
                next: next.as_deref(),
                published: &published,
            };
            let none = BTreeSet::new();
            let step = next_step(&view, stored.as_ref().unwrap_or(&none), now);
            if matches!(step, RotationStep::Drop(_)) && stored.is_none() {
                stored = Some(self.stored_key_ids());
                continue;
            }
            match step {
                RotationStep::Wait(until) => return Ok((published, until)),
                step => published = self.carry_out(step, &published, now).await?,
            }
        }
        Ok((published, clock::now()))
    }

    async fn carry_out(
        &mut self,
        step: RotationStep,
        published: &PublishedKeys,
        now: Timestamp,
    ) -> Result<PublishedKeys> {
        let entry =
            |key: &PublishedKey| Value::from(serde_json::to_string(key).unwrap_or_default());
        let fresh = |key: &VerifyingKey| (key.id().to_owned(), entry(&PublishedKey::new(key, now)));
        let changes: Map<String, Value> = match step {
            RotationStep::PublishOwn => {
                let own = self.keys.ring().verifying().iter();
                own.filter(|key| published.get(key.id()).is_none()).map(fresh).collect()
            }
            RotationStep::PublishNext => self.keys.next().map(fresh).into_iter().collect(),
            RotationStep::Touch => {
                let id = self.keys.ring().signing_id();
                let own = published.get(id).map(|own| PublishedKey { used: now, ..own.clone() });
                own.map(|own| (id.to_owned(), entry(&own))).into_iter().collect()
            }
            RotationStep::Drop(ids) => {
                info!(count = ids.len(), "token keys dropped: their tokens have ended");
                ids.into_iter().map(|id| (id, Value::Null)).collect()
            }
            RotationStep::Make => {
                self.keys.make_next().context("cannot make a token key")?;
                return Ok(published.clone());
            }
            RotationStep::Switch => {
                self.keys.switch().context("cannot switch to the next token key")?;
                self.use_keys(published)?;
                info!(id = self.keys.ring().signing_id(), "tokens are signed with another key");
                return Ok(published.clone());
            }
            RotationStep::ForgetNext => {
                self.keys.forget_next().context("cannot remove a token key")?;
                return Ok(published.clone());
            }
            RotationStep::Wait(_) => return Ok(published.clone()),
        };
        let after = changed(published, &changes);
        MAP.merge(&self.client, changes).await.context("cannot publish the token keys")?;
        self.use_keys(&after)?;
        Ok(after)
    }

    /// The keys of tokens in Secrets, which do not end.
    fn stored_key_ids(&self) -> BTreeSet<String> {
        let secrets = self.api.list("", "secrets", "");
        let tokens = secrets.iter().filter_map(|secret| {
            let is_token = secret["type"] == "kubernetes.io/service-account-token";
            let encoded = secret["data"]["token"].as_str().filter(|_| is_token)?;
            String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
        });
        tokens.filter_map(|token| auth::token::key::key_id(&token)).collect()
    }
}

fn published(data: &BTreeMap<String, String>) -> PublishedKeys {
    PublishedKeys::read(data.iter().map(|(id, value)| (&**id, &**value)))
}

/// The keys after a change of some entries.
fn changed(published: &PublishedKeys, changes: &Map<String, Value>) -> PublishedKeys {
    let mut data: BTreeMap<String, String> = published
        .iter()
        .map(|(id, key)| (id.to_owned(), serde_json::to_string(key).unwrap_or_default()))
        .collect();
    for (id, value) in changes {
        match value.as_str() {
            Some(text) => drop(data.insert(id.clone(), text.to_owned())),
            None => drop(data.remove(id)),
        }
    }
    self::published(&data)
}

/// Tokens that live in Secrets, for those who still want them.
pub(super) struct SecretTokenMinter(pub(super) Api);

impl controllers::TokenMinter for SecretTokenMinter {
    fn legacy_token(
        &self,
        namespace: &str,
        service_account: &str,
        service_account_uid: &str,
        secret: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let account = auth::token::ObjectRef::new(service_account, service_account_uid);
        Ok(self.0.authenticator().tokens().issue_legacy(namespace, &account, secret))
    }
}
