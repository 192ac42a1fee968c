//! Tokens of logins: `token-xxxxx:secret`. The API server keeps a hash of the secret in an
//! object of kind Token; deleting the object revokes the token.

use client::Caller;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::oidc::{OidcIdentity, is_of_provider};

/// Letters and digits that cannot be confused, and form no words: as Rancher's tokens.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters of a secret: more than 256 bits.
const SECRET_LENGTH: usize = 54;
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// Random bytes from the system.
pub(crate) fn random_bytes(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// Random characters that can be read aloud.
pub(crate) fn random_text(length: usize) -> String {
    let mut text = String::with_capacity(length);
    while text.len() < length {
        // Values beyond the last whole multiple would make some characters likelier.
        let fair = (256 / ALPHABET.len()) * ALPHABET.len();
        let bytes = random_bytes(length);
        let usable = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < fair);
        text.extend(usable.map(|byte| char::from(ALPHABET[byte % ALPHABET.len()])));
    }
    text.truncate(length);
    text
}

/// A new secret.
pub(crate) fn secret() -> String {
    random_text(SECRET_LENGTH)
}

/// The stored form of a secret.
pub(crate) fn hash(secret: &str) -> String {
    let digest = Sha256::digest(secret);
    let hex = digest.iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", hex.collect::<String>())
}

/// The name of the Token and the secret in a bearer token; nothing if it is of another form.
pub(crate) fn split(token: &str) -> Option<(&str, &str)> {
    let (name, secret) = token.split_once(':')?;
    let is_ours = name.starts_with("token-") || name.starts_with("kubeconfig-");
    (is_ours && !secret.is_empty()).then_some((name, secret))
}

/// The user that a bearer token authenticates. `find` reads an object of `management.cattle.io` by
/// its resource and name.
pub fn identify(
    token: &str,
    find: &dyn Fn(&str, &str) -> Option<Value>,
    now: Timestamp,
) -> Option<Caller> {
    let (name, secret) = split(token)?;
    let stored = find("tokens", name).filter(is_live)?;
    let expected = stored["token"].as_str()?;
    let given = hash(secret);
    let differs = given.bytes().zip(expected.bytes()).fold(0, |all, (one, two)| all | (one ^ two));
    if differs != 0 || given.len() != expected.len() || is_expired(&stored, now) {
        return None;
    }
    let name = stored["userId"].as_str()?;
    let user = find("users", name).filter(is_live)?;
    let uid = user["metadata"]["uid"].as_str()?;
    // A user who was deleted and made again is another one.
    if stored["metadata"]["ownerReferences"][0]["uid"].as_str() != Some(uid) {
        return None;
    }
    let (name, mut groups, username, principal) = if is_of_provider(&stored) {
        let identity = OidcIdentity::of_token(&stored, &user)?;
        let principal = identity.principal();
        (identity.name.clone(), identity.groups, identity.name, principal)
    } else {
        let username = user["username"].as_str().unwrap_or(name).to_owned();
        (name.to_owned(), Vec::new(), username, format!("local://{name}"))
    };
    groups.push(AUTHENTICATED.to_owned());
    let extra = [("username", username), ("principalid", principal)];
    Some(Caller {
        name,
        uid: uid.to_owned(),
        groups,
        extra: extra.into_iter().map(|(key, value)| (key.to_owned(), vec![value])).collect(),
    })
}

fn is_live(object: &Value) -> bool {
    object["enabled"] != false && object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a Token has reached its end.
pub(crate) fn is_expired(token: &Value, now: Timestamp) -> bool {
    let end = token["expiresAt"].as_str().filter(|text| !text.is_empty());
    end.is_some_and(|text| text.parse::<Timestamp>().map_or(true, |end| end <= now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_long_and_differ() {
        assert_eq!(secret().len(), SECRET_LENGTH);
        assert_ne!(secret(), secret());
        assert!(random_text(200).bytes().all(|byte| ALPHABET.contains(&byte)));
        assert_eq!(random_bytes(40).len(), 40);
    }

    #[test]
    fn a_token_stands_for_its_user_while_both_are_live() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let token = json!({
            "metadata": {"name": "token-abcde", "ownerReferences": [{"uid": "7"}]},
            "token": hash("s"), "userId": "admin", "expiresAt": "",
        });
        let user = json!({"metadata": {"name": "admin", "uid": "7"}, "username": "admin"});
        let ask = |given: &str, token: &Value, user: &Value| {
            let find = |resource: &str, name: &str| match (resource, name) {
                ("tokens", "token-abcde") => Some(token.clone()),
                ("users", "admin") => Some(user.clone()),
                _ => None,
            };
            identify(given, &find, now).map(|caller| caller.name)
        };
        let with = |object: &Value, field: &str, value: Value| {
            let mut object = object.clone();
            object[field] = value;
            object
        };
        assert_eq!(ask("token-abcde:s", &token, &user).as_deref(), Some("admin"));
        for given in ["token-abcde:x", "token-other:s", "token-abcde", "x:s", "token-abcde:", ""] {
            assert_eq!(ask(given, &token, &user), None, "{given}");
        }
        let wrong = [
            (with(&token, "enabled", json!(false)), user.clone()),
            (with(&token, "expiresAt", json!("2026-01-01T00:00:00Z")), user.clone()),
            (with(&token, "expiresAt", json!("nonsense")), user.clone()),
            (with(&token, "metadata", json!({"ownerReferences": [{"uid": "6"}]})), user.clone()),
            (token.clone(), with(&user, "enabled", json!(false))),
            (token.clone(), with(&user, "metadata", json!({"uid": "7", "deletionTimestamp": "t"}))),
        ];
        for (token, user) in wrong {
            assert_eq!(ask("token-abcde:s", &token, &user), None, "{token} {user}");
        }
        let later = with(&token, "expiresAt", json!("2026-01-03T00:00:00Z"));
        assert_eq!(ask("token-abcde:s", &later, &user).as_deref(), Some("admin"));
    }

    #[test]
    fn a_token_of_a_provider_stands_for_the_identity_there() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let jane = OidcIdentity { name: "oidc:jane".to_owned(), groups: vec!["oidc:ops".into()] };
        let id = jane.user_name();
        let mut token = json!({
            "metadata": {"name": "token-abcde", "ownerReferences": [{"uid": "7"}]},
            "token": hash("s"), "userId": id, "expiresAt": "",
        });
        jane.write(&mut token);
        let ask = |principal: &str| {
            let user = json!({
                "metadata": {"name": id, "uid": "7"}, "username": "oidc:jane",
                "principalIds": [principal],
            });
            let find = |resource: &str, _: &str| {
                Some(if resource == "tokens" { token.clone() } else { user.clone() })
            };
            identify("token-abcde:s", &find, now)
        };
        let caller = ask("oidc://oidc:jane").unwrap();
        assert_eq!(caller.name, "oidc:jane");
        assert_eq!(caller.groups, ["oidc:ops", AUTHENTICATED]);
        assert_eq!(caller.extra["principalid"], ["oidc://oidc:jane"]);
        assert_eq!(ask("local://oidc:jane"), None);
    }
}
