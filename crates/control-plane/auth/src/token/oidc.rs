//! Verification of ID tokens of an OpenID Connect issuer. Pure: the caller fetches the issuer's
//! keys. Tokens of other issuers are left to other authenticators; names and groups that begin
//! with `system:` are refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;

use crate::user::User;

/// The signature algorithm of tokens. Only asymmetric ones: a token that anyone with a shared
/// secret could sign proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OidcAlgorithm(Algorithm);

impl OidcAlgorithm {
    pub const USUAL: Self = Self(Algorithm::RS256);

    pub fn named(name: &str) -> Option<Self> {
        let algorithm = match name {
            "RS256" => Algorithm::RS256,
            "RS384" => Algorithm::RS384,
            "RS512" => Algorithm::RS512,
            "ES256" => Algorithm::ES256,
            "ES384" => Algorithm::ES384,
            "PS256" => Algorithm::PS256,
            "PS384" => Algorithm::PS384,
            "PS512" => Algorithm::PS512,
            _ => return None,
        };
        Some(Self(algorithm))
    }
}

/// The trusted issuer, and the claims of a token that are the user.
#[derive(Debug, Clone)]
pub struct OidcConfig {
    pub issuer: String,
    pub client_id: String,
    pub username_claim: String,
    /// Prefix of user names; `None` means the URL of the issuer, unless the claim is `email`.
    pub username_prefix: Option<String>,
    pub groups_claim: Option<String>,
    pub groups_prefix: String,
    pub required_claims: BTreeMap<String, String>,
    pub algorithms: Vec<OidcAlgorithm>,
}

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// Another authenticator may accept it.
    #[error("token is not of the configured issuer")]
    NotTheirs,
    #[error("oidc: unknown key {key:?}")]
    UnknownKey { key: String },
    #[error("oidc: token cannot be verified")]
    Signature,
    #[error("oidc: token is signed with {found:?}, which is not allowed")]
    Algorithm { found: Algorithm },
    #[error("oidc: expected audience {wanted:?} got {found:?}")]
    Audience { wanted: String, found: Vec<String> },
    #[error("oidc: token is expired")]
    Expired,
    #[error("oidc: token is not valid yet")]
    NotYetValid,
    #[error("oidc: claim {claim:?} is missing or is no text")]
    Claim { claim: String },
    #[error("oidc: email not verified")]
    EmailNotVerified,
    #[error("oidc: required claim {claim:?} does not match")]
    Required { claim: String },
    #[error(
        "oidc: {name:?} is a name of the cluster itself; configure a prefix for names and groups"
    )]
    Reserved { name: String },
}

/// The keys of an issuer, as it publishes them.
#[derive(Debug, Clone, Default)]
pub struct OidcKeys(Option<JwkSet>);

impl OidcKeys {
    pub fn parse(document: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(document).map(|set| Self(Some(set)))
    }

    fn find(&self, id: Option<&str>) -> Vec<&jsonwebtoken::jwk::Jwk> {
        let all = self.0.iter().flat_map(|set| &set.keys);
        all.filter(|key| id.is_none() || key.common.key_id.as_deref() == id).collect()
    }
}

/// The key ID of a token, if it has one; `None` if the token does not claim to be of `issuer`. The
/// signature is not verified.
pub fn claims_to_be_of(token: &str, issuer: &str) -> Option<Option<String>> {
    let claims: Value = jsonwebtoken::dangerous::insecure_decode_claims(token).ok()?;
    (claims.get("iss")?.as_str()? == issuer).then_some(())?;
    Some(jsonwebtoken::decode_header(token).ok()?.kid)
}

impl OidcKeys {
    /// Whether the key that a token names is known; any will do for one that names none.
    pub fn has(&self, id: Option<&str>) -> bool {
        !self.find(id).is_empty()
    }
}

impl OidcConfig {
    /// The user of a token.
    pub fn verify(&self, token: &str, keys: &OidcKeys, now: Timestamp) -> Result<User, OidcError> {
        let Some(id) = claims_to_be_of(token, &self.issuer) else {
            return Err(OidcError::NotTheirs);
        };
        let claims = self.decode(token, keys, id.as_deref())?;
        self.check(&claims, now.as_second())?;
        self.user(&claims)
    }

    fn decode(&self, token: &str, keys: &OidcKeys, id: Option<&str>) -> Result<Value, OidcError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| OidcError::NotTheirs)?;
        if !self.algorithms.contains(&OidcAlgorithm(header.alg)) {
            return Err(OidcError::Algorithm { found: header.alg });
        }
        let found = keys.find(id);
        if found.is_empty() {
            return Err(OidcError::UnknownKey { key: id.unwrap_or("").to_owned() });
        }
        // Times are checked against the clock we were given, audiences by our own rules.
        let mut validation = Validation::new(header.alg);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        for key in found {
            if let Ok(key) = DecodingKey::from_jwk(key)
                && let Ok(data) = jsonwebtoken::decode::<Value>(token, &key, &validation)
            {
                return Ok(data.claims);
            }
        }
        Err(OidcError::Signature)
    }

    fn check(&self, claims: &Value, now: i64) -> Result<(), OidcError> {
        if claims["iss"] != self.issuer.as_str() {
            return Err(OidcError::NotTheirs);
        }
        let found = texts(&claims["aud"]);
        if !found.contains(&self.client_id) {
            return Err(OidcError::Audience { wanted: self.client_id.clone(), found });
        }
        match claims["exp"].as_f64() {
            Some(expires) if expires > now as f64 => {}
            _ => return Err(OidcError::Expired),
        }
        // As upstream: five minutes for clocks that differ.
        if claims["nbf"].as_f64().is_some_and(|begins| begins > (now + 300) as f64) {
            return Err(OidcError::NotYetValid);
        }
        for (claim, wanted) in &self.required_claims {
            if claims[claim.as_str()] != wanted.as_str() {
                return Err(OidcError::Required { claim: claim.clone() });
            }
        }
        Ok(())
    }

    fn user(&self, claims: &Value) -> Result<User, OidcError> {
        let missing = || OidcError::Claim { claim: self.username_claim.clone() };
        let name = claims[self.username_claim.as_str()].as_str().ok_or_else(missing)?;
        if self.username_claim == "email"
            && claims.get("email_verified") == Some(&Value::Bool(false))
        {
            return Err(OidcError::EmailNotVerified);
        }
        let prefix = match &self.username_prefix {
            Some(prefix) if prefix == "-" => String::new(),
            Some(prefix) => prefix.clone(),
            None if self.username_claim == "email" => String::new(),
            None => format!("{}#", self.issuer),
        };
        let groups = match &self.groups_claim {
            None => Vec::new(),
            Some(claim) => texts(&claims[claim.as_str()]),
        };
        let groups: Vec<String> =
            groups.into_iter().map(|group| format!("{}{group}", self.groups_prefix)).collect();
        let name = format!("{prefix}{name}");
        // Another server must not be able to issue identities of the control plane.
        let reserved = groups.iter().chain([&name]).find(|name| name.starts_with("system:"));
        if let Some(name) = reserved {
            return Err(OidcError::Reserved { name: name.clone() });
        }
        Ok(User::new(name, groups))
    }
}

/// A list of texts, or one.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use rcgen::{KeyPair, PublicKeyData};
    use serde_json::json;

    use super::*;
    use crate::token::key::VerifyingKey;

    fn config() -> OidcConfig {
        OidcConfig {
            issuer: "https://issuer.example.com".to_owned(),
            client_id: "sheaf".to_owned(),
            username_claim: "sub".to_owned(),
            username_prefix: None,
            groups_claim: Some("groups".to_owned()),
            groups_prefix: "oidc:".to_owned(),
            required_claims: BTreeMap::new(),
            algorithms: vec![OidcAlgorithm(Algorithm::ES256)],
        }
    }

    fn issuer() -> (KeyPair, OidcKeys, String) {
        let key = KeyPair::generate().unwrap();
        let public = VerifyingKey::from_spki(&key.subject_public_key_info()).unwrap();
        let document = json!({"keys": [public.jwk()]}).to_string();
        (key, OidcKeys::parse(document.as_bytes()).unwrap(), public.id().to_owned())
    }

    fn sign(key: &KeyPair, id: &str, claims: &Value) -> String {
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &EncodingKey::from_ec_der(key.serialized_der()))
            .unwrap()
    }

    fn claims(changes: &[(&str, Value)]) -> Value {
        let mut claims = json!({
            "iss": "https://issuer.example.com", "aud": ["other", "sheaf"], "sub": "jane",
            "exp": 1_800_000_100, "groups": ["dev", "ops"], "email": "jane@example.com",
        });
        for (name, value) in changes {
            claims[*name] = value.clone();
        }
        claims
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn a_token_names_its_user_as_configured() {
        let (key, keys, id) = issuer();
        for (claim, prefix, expected) in [
            ("sub", None, "https://issuer.example.com#jane"),
            ("sub", Some("-"), "jane"),
            ("sub", Some("oidc:"), "oidc:jane"),
            ("email", None, "jane@example.com"),
        ] {
            let config = OidcConfig {
                username_claim: claim.to_owned(),
                username_prefix: prefix.map(str::to_owned),
                ..config()
            };
            let user = config.verify(&sign(&key, &id, &claims(&[])), &keys, now()).unwrap();
            assert_eq!(user.name, expected);
            assert_eq!(user.groups, ["oidc:dev", "oidc:ops"]);
        }
    }

    #[test]
    fn an_issuer_does_not_name_parts_of_the_cluster() {
        let (key, keys, id) = issuer();
        let bare = OidcConfig {
            username_prefix: Some("-".to_owned()),
            groups_prefix: String::new(),
            ..config()
        };
        for (claim, value, name) in [
            ("sub", json!("system:sheaf-controllers"), "system:sheaf-controllers"),
            ("groups", json!(["dev", "system:masters"]), "system:masters"),
        ] {
            let token = sign(&key, &id, &claims(&[(claim, value)]));
            let refused = bare.verify(&token, &keys, now());
            assert_eq!(refused, Err(OidcError::Reserved { name: name.to_owned() }));
        }
    }

    #[test]
    fn invalid_tokens_are_refused() {
        let (key, keys, id) = issuer();
        let required = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
        let strict = OidcConfig { required_claims: required, ..config() };
        let claim = |claim: &str| OidcError::Claim { claim: claim.to_owned() };
        for (config, changes, expected) in [
            (config(), vec![("iss", json!("https://evil"))], OidcError::NotTheirs),
            (config(), vec![("exp", json!(1_799_999_999))], OidcError::Expired),
            (config(), vec![("exp", Value::Null)], OidcError::Expired),
            (config(), vec![("nbf", json!(1_800_001_000))], OidcError::NotYetValid),
            (config(), vec![("sub", json!(7))], claim("sub")),
            (
                config(),
                vec![("aud", json!("other"))],
                OidcError::Audience { wanted: "sheaf".into(), found: vec!["other".into()] },
            ),
            (strict, vec![("team", json!("red"))], OidcError::Required { claim: "team".into() }),
        ] {
            let token = sign(&key, &id, &claims(&changes));
            assert_eq!(config.verify(&token, &keys, now()).unwrap_err(), expected, "{changes:?}");
        }
        let (other, _, _) = issuer();
        let forged = sign(&other, &id, &claims(&[]));
        assert_eq!(config().verify(&forged, &keys, now()), Err(OidcError::Signature));
        let unknown = sign(&key, "other", &claims(&[]));
        assert!(matches!(
            config().verify(&unknown, &keys, now()),
            Err(OidcError::UnknownKey { .. })
        ));
        let only_rsa = OidcConfig { algorithms: vec![OidcAlgorithm::USUAL], ..config() };
        let token = sign(&key, &id, &claims(&[]));
        assert!(matches!(only_rsa.verify(&token, &keys, now()), Err(OidcError::Algorithm { .. })));
        assert_eq!(config().verify("not.a.token", &keys, now()), Err(OidcError::NotTheirs));
    }
}
