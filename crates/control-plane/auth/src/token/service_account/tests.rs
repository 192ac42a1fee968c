use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

use super::*;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn tokens(keys: &KeyRing) -> ServiceAccountTokens {
    ServiceAccountTokens::new(ISSUER, vec!["https://old".into()], vec![], keys)
}

fn grant() -> TokenGrant {
    TokenGrant {
        namespace: "vms".into(),
        service_account: ObjectRef::new("robot", "u1"),
        expiration_seconds: 3600,
        ..TokenGrant::default()
    }
}

/// Parts 0 (header) and 1 (claims) of a token.
fn part(token: &str, index: usize) -> Value {
    let part = token.split('.').nth(index).unwrap();
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[test]
fn a_token_says_what_was_granted() {
    let keys = KeyRing::generate().unwrap();
    let tokens = tokens(&keys);
    let grant = TokenGrant {
        pod: Some(ObjectRef::new("web", "p1")),
        node: Some(ObjectRef::new("n1", "n-uid")),
        warn_after_seconds: Some(3607),
        audiences: vec!["vault".into(), ISSUER.into()],
        ..grant()
    };
    let issued = tokens.issue(&grant, at(1_000_000));
    assert_eq!(issued.expires, at(1_003_600));
    assert_eq!(part(&issued.token, 0), json!({"alg": "ES256", "kid": keys.verifying()[0].id()}));
    let mut claims = part(&issued.token, 1);
    let jti = claims.as_object_mut().unwrap().remove("jti").unwrap();
    assert_eq!(issued.credential_id, format!("JTI={}", jti.as_str().unwrap()));
    assert_eq!(
        claims,
        json!({
            "iss": ISSUER, "sub": "system:serviceaccount:vms:robot", "aud": ["vault", ISSUER],
            "exp": 1_003_600, "iat": 1_000_000, "nbf": 1_000_000,
            "kubernetes.io": {
                "namespace": "vms",
                "serviceaccount": {"name": "robot", "uid": "u1"},
                "pod": {"name": "web", "uid": "p1"},
                "node": {"name": "n1", "uid": "n-uid"},
                "warnafter": 1_003_607,
            },
        })
    );
    let verified = tokens.verify(&issued.token, &[], at(1_000_100)).unwrap();
    assert_eq!(verified.audiences(), [ISSUER]);
    let user = verified.user();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:vms:robot", "u1"));
    assert_eq!(user.extra[crate::user::EXTRA_POD_NAME], ["web"]);
    assert_eq!(user.extra[crate::user::EXTRA_NODE_UID], ["n-uid"]);
    assert_eq!(user.extra[crate::user::EXTRA_CREDENTIAL_ID], [issued.credential_id]);
}

#[test]
fn times_are_checked_with_a_minute_of_leeway() {
    let tokens = tokens(&KeyRing::generate().unwrap());
    let token = tokens.issue(&grant(), at(10_000)).token;
    for (now, expected) in [
        (10_000, Ok(())),
        (9_940, Ok(())),
        (9_939, Err(TokenError::NotYetValid)),
        (13_600, Ok(())),
        (13_660, Ok(())),
        (13_661, Err(TokenError::Expired)),
    ] {
        assert_eq!(tokens.verify(&token, &[], at(now)).map(drop), expected, "at {now}");
    }
}

#[test]
fn a_token_is_good_only_for_its_audience() {
    let tokens = tokens(&KeyRing::generate().unwrap());
    let grant = TokenGrant { audiences: vec!["vault".into(), "other".into()], ..grant() };
    let token = tokens.issue(&grant, at(0)).token;
    let error = tokens.verify(&token, &[], at(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            r#"token audiences ["vault" "other"] is invalid for the target audiences ["{ISSUER}"]"#
        )
    );
    let verified = tokens.verify(&token, &["x".into(), "vault".into()], at(0)).unwrap();
    assert_eq!(verified.audiences(), ["vault"]);
}

#[test]
fn older_keys_verify_until_they_are_gone() {
    let old = KeyRing::generate().unwrap();
    let token = tokens(&old).issue(&grant(), at(0)).token;
    let new = old.switched(&KeyRing::generate().unwrap()).unwrap();
    assert!(tokens(&new).verify(&token, &[], at(0)).is_ok());
    let other = KeyRing::generate().unwrap();
    assert_eq!(tokens(&other).verify(&token, &[], at(0)), Err(TokenError::UnknownKey));
}

#[test]
fn a_changed_token_is_refused() {
    let tokens = tokens(&KeyRing::generate().unwrap());
    let token = tokens.issue(&grant(), at(0)).token;
    let mut claims = part(&token, 1);
    claims["kubernetes.io"]["serviceaccount"]["name"] = "root".into();
    let forged = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    let mut parts: Vec<&str> = token.split('.').collect();
    parts[1] = &forged;
    assert_eq!(tokens.verify(&parts.join("."), &[], at(0)), Err(TokenError::Signature));
    // An unsigned token with the same header fields is no better.
    let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let unsigned = format!("{none}.{}.", parts[1]);
    assert!(tokens.verify(&unsigned, &[], at(0)).is_err());
}

#[test]
fn strangers_are_left_to_other_authenticators() {
    let keys = KeyRing::generate().unwrap();
    let stranger = ServiceAccountTokens::new("https://elsewhere", vec![], vec![], &keys);
    let token = stranger.issue(&grant(), at(0)).token;
    let tokens = tokens(&keys);
    assert_eq!(tokens.verify(&token, &[], at(0)), Err(TokenError::NotOurs));
    for junk in ["", "abc", "a.b.c"] {
        assert_eq!(tokens.verify(junk, &[], at(0)), Err(TokenError::NotOurs), "{junk}");
    }
    let former = ServiceAccountTokens::new("https://old", vec![], vec![ISSUER.into()], &keys);
    assert!(tokens.verify(&former.issue(&grant(), at(0)).token, &[], at(0)).is_ok());
}

#[test]
fn a_secret_token_never_expires() {
    let tokens = tokens(&KeyRing::generate().unwrap());
    let token = tokens.issue_legacy("vms", &ObjectRef::new("robot", "u1"), "robot-token");
    assert_eq!(
        part(&token, 1),
        json!({
            "iss": "kubernetes/serviceaccount",
            "kubernetes.io/serviceaccount/namespace": "vms",
            "kubernetes.io/serviceaccount/secret.name": "robot-token",
            "kubernetes.io/serviceaccount/service-account.name": "robot",
            "kubernetes.io/serviceaccount/service-account.uid": "u1",
            "sub": "system:serviceaccount:vms:robot",
        })
    );
    let verified = tokens.verify(&token, &[], at(100_000_000_000)).unwrap();
    assert_eq!(verified.service_account(), ("vms", "robot", "u1"));
    assert!(verified.user().extra.is_empty());
    let elsewhere = tokens.verify(&token, &["vault".into()], at(0)).unwrap_err();
    assert!(matches!(elsewhere, TokenError::Audience { .. }));
}

#[test]
fn claims_that_disagree_are_refused() {
    let tokens = tokens(&KeyRing::generate().unwrap());
    let token = tokens.issue_legacy("vms", &ObjectRef::new("robot", ""), "s");
    let missing = TokenError::MissingClaim { claim: "serviceAccountUID" };
    assert_eq!(tokens.verify(&token, &[], at(0)), Err(missing));
    let odd = TokenGrant { service_account: ObjectRef::new("Not A Name", "u"), ..grant() };
    let token = tokens.issue(&odd, at(0)).token;
    assert_eq!(tokens.verify(&token, &[], at(0)), Err(TokenError::Subject));
}

#[test]
fn others_can_verify_with_the_published_documents() {
    let keys = KeyRing::generate().unwrap();
    let keys = keys.switched(&KeyRing::generate().unwrap()).unwrap();
    let tokens = tokens(&keys);
    let token = tokens.issue(&grant(), at(0)).token;
    let set: jsonwebtoken::jwk::JwkSet = serde_json::from_value(tokens.jwks().clone()).unwrap();
    assert_eq!(set.keys.len(), 2);
    let kid = jsonwebtoken::decode_header(&token).unwrap().kid.unwrap();
    let key = DecodingKey::from_jwk(set.find(&kid).unwrap()).unwrap();
    let mut validation = Validation::new(Algorithm::ES256);
    validation.validate_exp = false;
    validation.set_audience(&[ISSUER]);
    assert!(jsonwebtoken::decode::<Value>(&token, &key, &validation).is_ok());
    assert_eq!(
        tokens.discovery("https://10.0.0.1:6443/openid/v1/jwks"),
        json!({
            "issuer": ISSUER,
            "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    );
}
