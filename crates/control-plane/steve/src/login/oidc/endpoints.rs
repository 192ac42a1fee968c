//! The provider's endpoints, from its discovery document, and the two messages to them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use form_urlencoded::Serializer;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use super::attempt::LoginAttempt;
use super::{OidcLoginError, OidcProvider};

/// The document is fetched again after this time.
const FRESH: Duration = Duration::from_secs(300);
/// So much of a refusal is logged.
const LONGEST_REFUSAL: usize = 300;

/// The discovery document, in the part that a login needs.
#[derive(Debug, Deserialize)]
pub(super) struct Endpoints {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    #[serde(default = "usual_methods")]
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// The method of providers that name none.
fn usual_methods() -> Vec<String> {
    vec!["client_secret_basic".to_owned()]
}

/// The endpoints that were read last.
#[derive(Debug, Default)]
pub(super) struct EndpointCache(Mutex<Option<(Instant, Arc<Endpoints>)>>);

impl EndpointCache {
    pub(super) async fn get(
        &self,
        provider: &OidcProvider,
    ) -> Result<Arc<Endpoints>, OidcLoginError> {
        let known = self.0.lock().clone();
        if let Some((_, endpoints)) = known.filter(|(since, _)| since.elapsed() < FRESH) {
            return Ok(endpoints);
        }
        let issuer = provider.issuer.trim_end_matches('/');
        let url = format!("{issuer}/.well-known/openid-configuration");
        let document = provider.transport.get(&url).await.map_err(OidcLoginError::Unreachable)?;
        let endpoints = Arc::new(Endpoints::parse(&document, &provider.issuer)?);
        *self.0.lock() = Some((Instant::now(), endpoints.clone()));
        Ok(endpoints)
    }
}

impl Endpoints {
    pub(super) fn parse(document: &[u8], issuer: &str) -> Result<Self, OidcLoginError> {
        let parsed: Self = serde_json::from_slice(document)
            .map_err(|error| OidcLoginError::Answer(format!("discovery document: {error}")))?;
        if parsed.issuer != issuer {
            let message = format!("the discovery document is of issuer {:?}", parsed.issuer);
            return Err(OidcLoginError::Answer(message));
        }
        for url in [&parsed.authorization_endpoint, &parsed.token_endpoint] {
            if !url.starts_with("https://") {
                let message = format!("endpoint {url:?} does not begin with https://");
                return Err(OidcLoginError::Answer(message));
            }
        }
        Ok(parsed)
    }

    /// URL of the authorization endpoint with the parameters of this login.
    pub(super) fn authorization(
        &self,
        provider: &OidcProvider,
        callback: &str,
        attempt: &LoginAttempt,
    ) -> String {
        let url = &self.authorization_endpoint;
        let query = Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", &provider.client_id)
            .append_pair("redirect_uri", callback)
            .append_pair("scope", &provider.scopes.join(" "))
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256")
            .finish();
        format!("{url}{}{query}", if url.contains('?') { '&' } else { '?' })
    }

    /// The ID token for a code.
    pub(super) async fn exchange(
        &self,
        provider: &OidcProvider,
        code: &str,
        callback: &str,
        verifier: &str,
    ) -> Result<String, OidcLoginError> {
        let (authorization, form) = self.token_request(provider, code, callback, verifier);
        let sent = provider.transport.post(&self.token_endpoint, authorization, form).await;
        let (status, bytes) = sent.map_err(OidcLoginError::Unreachable)?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&bytes);
            let text: String = text.chars().take(LONGEST_REFUSAL).collect();
            return Err(OidcLoginError::Refused(format!("{status}: {text}")));
        }
        let answer: Value = serde_json::from_slice(&bytes)
            .map_err(|error| OidcLoginError::Answer(format!("token: {error}")))?;
        let token = answer["id_token"].as_str().map(str::to_owned);
        token.ok_or_else(|| OidcLoginError::Answer("there is no id_token".to_owned()))
    }

    /// The header and the form of a request for tokens.
    fn token_request(
        &self,
        provider: &OidcProvider,
        code: &str,
        callback: &str,
        verifier: &str,
    ) -> (Option<String>, String) {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", callback)
            .append_pair("code_verifier", verifier);
        let supports = |method: &str| {
            self.token_endpoint_auth_methods_supported.iter().any(|own| own == method)
        };
        let id = &provider.client_id;
        match &provider.client_secret {
            None => (None, form.append_pair("client_id", id).finish()),
            Some(secret) if supports("client_secret_post") && !supports("client_secret_basic") => {
                form.append_pair("client_id", id).append_pair("client_secret", secret);
                (None, form.finish())
            }
            Some(secret) => {
                let encode = |text: &str| -> String {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect()
                };
                let pair = BASE64_STANDARD.encode(format!("{}:{}", encode(id), encode(secret)));
                (Some(format!("Basic {pair}")), form.finish())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::login::oidc::tests::{ISSUER, provider};

    fn document(changes: &[(&str, Value)]) -> Vec<u8> {
        let mut document = json!({
            "issuer": ISSUER, "authorization_endpoint": "https://id.example/auth?tenant=1",
            "token_endpoint": "https://id.example/token",
        });
        for (name, value) in changes {
            document[*name] = value.clone();
        }
        document.to_string().into_bytes()
    }

    #[test]
    fn endpoints_of_another_issuer_or_without_tls_are_refused() {
        for (changes, expected) in [
            (vec![], ""),
            (vec![("issuer", json!("https://evil.example"))], "of issuer \"https://evil.example\""),
            (vec![("token_endpoint", json!("http://id.example/token"))], "begin with https://"),
            (vec![("authorization_endpoint", json!("javascript:1"))], "begin with https://"),
            (vec![("token_endpoint", Value::Null)], "discovery document"),
        ] {
            let outcome = Endpoints::parse(&document(&changes), ISSUER);
            let message = outcome.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(message.is_empty(), expected.is_empty(), "{changes:?}: {message}");
            assert!(message.contains(expected), "{changes:?}: {message}");
        }
    }

    #[test]
    fn the_user_is_sent_to_the_provider_with_a_challenge() {
        let endpoints = Endpoints::parse(&document(&[]), ISSUER).unwrap();
        let attempt = LoginAttempt::new("");
        let url = endpoints.authorization(&provider(None), "https://s/cb?", &attempt);
        let (address, query) = url.split_once("tenant=1&").unwrap();
        assert_eq!(address, "https://id.example/auth?");
        let pairs: std::collections::BTreeMap<_, _> =
            form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        assert_eq!(pairs["scope"], "openid email");
        assert_eq!(pairs["redirect_uri"], "https://s/cb?");
        assert_eq!(pairs["code_challenge"], attempt.challenge());
        assert_eq!((&pairs["state"], &pairs["nonce"]), (&attempt.state, &attempt.nonce));
        assert!(!url.contains(&attempt.verifier), "{url}");
    }

    #[test]
    fn the_client_authenticates_as_the_provider_supports() {
        let both = json!(["client_secret_post", "client_secret_basic"]);
        let post = json!(["client_secret_post"]);
        let basic = format!("Basic {}", BASE64_STANDARD.encode("sheaf:s%3Acret"));
        for (methods, secret, header, in_form) in [
            (None, None, None, true),
            (None, Some("s:cret"), Some(&basic), false),
            (Some(&both), Some("s:cret"), Some(&basic), false),
            (Some(&post), Some("s:cret"), None, true),
        ] {
            let changes = methods
                .map(|own| ("token_endpoint_auth_methods_supported", own.clone()))
                .into_iter();
            let document = document(&changes.collect::<Vec<_>>());
            let endpoints = Endpoints::parse(&document, ISSUER).unwrap();
            let (found, form) = endpoints.token_request(&provider(secret), "c", "https://s", "v");
            assert_eq!(found.as_ref(), header, "{methods:?} {secret:?}");
            assert_eq!(form.contains("client_id=sheaf"), in_form, "{form}");
            assert_eq!(form.contains("client_secret="), in_form && secret.is_some(), "{form}");
            assert!(form.contains("code_verifier=v"), "{form}");
        }
    }
}
