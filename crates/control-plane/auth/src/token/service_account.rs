//! Issuing and verifying service-account tokens, and the documents by which others
//! can verify them too.

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::claims::{Audiences, BoundClaims, Kubernetes, LegacyClaims, ObjectRef, Verified};
use super::key::KeyRing;
use crate::rbac::rule::quoted;
use crate::user::{parse_service_account_name, service_account_name};

/// The issuer of tokens that are stored in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// How far the clocks of issuer and verifier may be apart.
const LEEWAY_SECONDS: i64 = 60;

/// Why a token was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a JWT of this cluster; another authenticator may know it.
    #[error("token is not a service account token of this cluster")]
    NotOurs,
    #[error("invalid signature, no keys found")]
    UnknownKey,
    #[error("invalid signature")]
    Signature,
    #[error("token issuer {issuer:?} is invalid")]
    Issuer { issuer: String },
    #[error(
        "token audiences {} is invalid for the target audiences {}",
        quoted(token),
        quoted(wanted)
    )]
    Audience { token: Vec<String>, wanted: Vec<String> },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYetValid,
    #[error("service account token is issued in the future")]
    IssuedInTheFuture,
    #[error("{claim} claim is missing")]
    MissingClaim { claim: &'static str },
    #[error("sub claim is invalid")]
    Subject,
    #[error("token claims are not readable")]
    Unreadable,
}

/// The content of a new token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenGrant {
    pub namespace: String,
    pub service_account: ObjectRef,
    /// Empty means the audiences of this API server.
    pub audiences: Vec<String>,
    pub expiration_seconds: i64,
    pub pod: Option<ObjectRef>,
    pub secret: Option<ObjectRef>,
    pub machine: Option<ObjectRef>,
    /// The node alone, or that of the pod.
    pub node: Option<ObjectRef>,
    pub warn_after_seconds: Option<i64>,
}

/// A fresh token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    pub token: String,
    pub audiences: Vec<String>,
    pub expires: Timestamp,
    /// `JTI=…`, for the audit log.
    pub credential_id: String,
}

/// Issues and verifies the tokens of one cluster.
pub struct ServiceAccountTokens {
    /// The first one issues; tokens of all are accepted.
    issuers: Vec<String>,
    audiences: Vec<String>,
    header: Header,
    signing: EncodingKey,
    verifying: Vec<(String, Algorithm, DecodingKey)>,
    jwks: Value,
}

impl std::fmt::Debug for ServiceAccountTokens {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { issuers, audiences, .. } = self;
        let mut out = out.debug_struct("ServiceAccountTokens");
        out.field("issuers", issuers).field("audiences", audiences).finish_non_exhaustive()
    }
}

impl ServiceAccountTokens {
    /// `older_issuers` are former names of this cluster whose tokens are still good.
    /// Without `audiences`, the issuer is the only audience of the API server.
    pub fn new(
        issuer: impl Into<String>,
        older_issuers: Vec<String>,
        audiences: Vec<String>,
        keys: &KeyRing,
    ) -> Self {
        let mut issuers = vec![issuer.into()];
        issuers.extend(older_issuers);
        let audiences = if audiences.is_empty() { vec![issuers[0].clone()] } else { audiences };
        let header = Header {
            typ: None,
            kid: Some(keys.signing_id().to_owned()),
            ..Header::new(keys.algorithm())
        };
        let ring = keys.verifying();
        let verifying =
            ring.iter().map(|key| (key.id().to_owned(), key.algorithm(), key.decoding_key()));
        let jwks: Vec<Value> = ring.iter().map(super::key::VerifyingKey::jwk).collect();
        Self {
            verifying: verifying.collect(),
            issuers,
            audiences,
            header,
            signing: keys.encoding_key(),
            jwks: json!({"keys": jwks}),
        }
    }

    /// The audiences that a token must have one of to be used against this API server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    pub fn issuer(&self) -> &str {
        &self.issuers[0]
    }

    pub fn issue(&self, grant: &TokenGrant, now: Timestamp) -> Issued {
        let audiences = match grant.audiences.is_empty() {
            true => self.audiences.clone(),
            false => grant.audiences.clone(),
        };
        let issued_at = now.as_second();
        let expires = now
            .saturating_add(SignedDuration::from_secs(grant.expiration_seconds))
            .unwrap_or(Timestamp::MAX);
        let jti = uuid::Uuid::new_v4().to_string();
        let credential_id = format!("JTI={jti}");
        let claims = BoundClaims {
            aud: Audiences(audiences.clone()),
            exp: expires.as_second(),
            iat: issued_at,
            iss: self.issuers[0].clone(),
            jti,
            kubernetes: Kubernetes {
                namespace: grant.namespace.clone(),
                machine: grant.machine.clone(),
                node: grant.node.clone(),
                pod: grant.pod.clone(),
                secret: grant.secret.clone(),
                serviceaccount: grant.service_account.clone(),
                warnafter: grant.warn_after_seconds.map(|seconds| issued_at + seconds),
            },
            nbf: issued_at,
            sub: service_account_name(&grant.namespace, &grant.service_account.name),
        };
        Issued { token: self.sign(&claims), audiences, expires, credential_id }
    }

    /// A token to be kept in the Secret called `secret`.
    pub fn issue_legacy(&self, namespace: &str, account: &ObjectRef, secret: &str) -> String {
        self.sign(&LegacyClaims {
            iss: LEGACY_ISSUER.to_owned(),
            namespace: namespace.to_owned(),
            secret_name: secret.to_owned(),
            service_account_name: account.name.clone(),
            service_account_uid: account.uid.clone(),
            sub: service_account_name(namespace, &account.name),
        })
    }

    fn sign(&self, claims: &impl Serialize) -> String {
        jsonwebtoken::encode(&self.header, claims, &self.signing)
            .expect("a key that was checked when it was read signs claims that are plain JSON")
    }

    /// Checks signature, issuer, audience and times. Without `audiences` (as in a
    /// TokenReview that asks for some), those of this API server are meant.
    pub fn verify(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Verified, TokenError> {
        // Nothing in here is trusted; it only names the account that the token claims to be of.
        let claimed: Value = jsonwebtoken::dangerous::insecure_decode_claims(token)
            .map_err(|_| TokenError::NotOurs)?;
        let issuer = claimed.get("iss").and_then(Value::as_str).unwrap_or_default();
        let wanted = if audiences.is_empty() { &self.audiences } else { audiences };
        if issuer == LEGACY_ISSUER {
            return self.verify_legacy(token, wanted);
        }
        if !self.issuers.iter().any(|own| own == issuer) {
            return Err(TokenError::NotOurs);
        }
        let claims: Box<BoundClaims> = self.decode(token)?;
        if !self.issuers.contains(&claims.iss) {
            return Err(TokenError::Issuer { issuer: claims.iss });
        }
        let audiences = self.common_audiences(&claims.aud.0, wanted)?;
        check_times(&claims, now.as_second())?;
        let account = &claims.kubernetes.serviceaccount;
        for (claim, value) in [
            ("namespace", &claims.kubernetes.namespace),
            ("serviceAccountName", &account.name),
            ("serviceAccountUID", &account.uid),
        ] {
            require(claim, value)?;
        }
        check_subject(&claims.sub, &claims.kubernetes.namespace, &account.name)?;
        Ok(Verified::Bound { claims, audiences })
    }

    fn verify_legacy(&self, token: &str, wanted: &[String]) -> Result<Verified, TokenError> {
        let claims: LegacyClaims = self.decode(token)?;
        if claims.iss != LEGACY_ISSUER {
            return Err(TokenError::Issuer { issuer: claims.iss });
        }
        let audiences = self.common_audiences(&[], wanted)?;
        for (claim, value) in [
            ("sub", &claims.sub),
            ("namespace", &claims.namespace),
            ("secretName", &claims.secret_name),
            ("serviceAccountName", &claims.service_account_name),
            ("serviceAccountUID", &claims.service_account_uid),
        ] {
            require(claim, value)?;
        }
        check_subject(&claims.sub, &claims.namespace, &claims.service_account_name)?;
        Ok(Verified::Legacy { claims, audiences })
    }

    /// The claims, once one of our keys is seen to have signed them.
    fn decode<C: DeserializeOwned>(&self, token: &str) -> Result<C, TokenError> {
        use jsonwebtoken::errors::ErrorKind;
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::NotOurs)?;
        // Times are checked against the clock we were given, audiences by our own rules.
        let keys = self.verifying.iter();
        let keys = keys.filter(|(id, ..)| header.kid.as_ref().is_none_or(|kid| kid == id));
        let mut failure = TokenError::UnknownKey;
        for (_, algorithm, key) in keys {
            let mut validation = Validation::new(*algorithm);
            validation.required_spec_claims.clear();
            validation.validate_exp = false;
            validation.validate_aud = false;
            match jsonwebtoken::decode::<C>(token, key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => {
                    failure = match error.kind() {
                        ErrorKind::Json(_) => TokenError::Unreadable,
                        _ => TokenError::Signature,
                    };
                }
            }
        }
        Err(failure)
    }

    /// A token without audiences is meant for this API server.
    fn common_audiences(
        &self,
        token: &[String],
        wanted: &[String],
    ) -> Result<Vec<String>, TokenError> {
        let token = if token.is_empty() { &self.audiences } else { token };
        let common: Vec<String> =
            token.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
        match common.is_empty() {
            true => Err(TokenError::Audience { token: token.to_vec(), wanted: wanted.to_vec() }),
            false => Ok(common),
        }
    }

    /// The public keys, for `/openid/v1/jwks`.
    pub fn jwks(&self) -> &Value {
        &self.jwks
    }

    /// For `/.well-known/openid-configuration`; `jwks_uri` is where [`Self::jwks`] is served.
    pub fn discovery(&self, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<String> =
            self.verifying.iter().map(|(_, algorithm, _)| format!("{algorithm:?}")).collect();
        algorithms.sort();
        algorithms.dedup();
        json!({
            "issuer": self.issuer(),
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }
}

fn check_times(claims: &BoundClaims, now: i64) -> Result<(), TokenError> {
    if now.saturating_add(LEEWAY_SECONDS) < claims.nbf {
        return Err(TokenError::NotYetValid);
    }
    if now.saturating_sub(LEEWAY_SECONDS) > claims.exp {
        return Err(TokenError::Expired);
    }
    if now.saturating_add(LEEWAY_SECONDS) < claims.iat {
        return Err(TokenError::IssuedInTheFuture);
    }
    Ok(())
}

fn require(claim: &'static str, value: &str) -> Result<(), TokenError> {
    if value.is_empty() { Err(TokenError::MissingClaim { claim }) } else { Ok(()) }
}

fn check_subject(subject: &str, namespace: &str, name: &str) -> Result<(), TokenError> {
    match parse_service_account_name(subject) {
        Some(parsed) if parsed == (namespace, name) => Ok(()),
        _ => Err(TokenError::Subject),
    }
}

#[cfg(test)]
mod tests;
