//! The identity of a user of an OpenID Connect provider: its User object, and its place in the Token
//! of a session. Pure.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::login::token::AUTHENTICATED;

/// The provider of logins, as Tokens name it.
const PROVIDER: &str = "oidc";
/// Names and groups of the cluster itself; no provider may give them.
const RESERVED: &str = "system:";
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Characters of a name that come from the hash, as many as Rancher has.
const HASH_LENGTH: usize = 10;

/// A user as the API server knows them, with the prefixes of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OidcIdentity {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl OidcIdentity {
    /// The user of a TokenReview.
    pub(super) fn of_review(user: &Value) -> Option<Self> {
        let name = user["username"].as_str().filter(|name| !name.is_empty())?;
        let groups = user["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let groups = groups.filter(|group| *group != AUTHENTICATED).map(str::to_owned);
        Self { name: name.to_owned(), groups: groups.collect() }.checked()
    }

    /// The identity in a Token, whose User is `user`; none if it is one of a local user.
    pub(crate) fn of_token(token: &Value, user: &Value) -> Option<Self> {
        let login = |principal: &Value| principal["loginName"].as_str().map(str::to_owned);
        let groups = token["groupPrincipals"].as_array().into_iter().flatten();
        let identity = Self {
            name: login(&token["userPrincipal"])?,
            groups: groups.filter_map(login).collect(),
        };
        let identity = identity.checked()?;
        (user["metadata"]["name"] == *identity.user_name() && identity.owns(user))
            .then_some(identity)
    }

    fn checked(self) -> Option<Self> {
        let is_reserved = |name: &String| name.starts_with(RESERVED);
        let has_reserved = is_reserved(&self.name) || self.groups.iter().any(is_reserved);
        (!has_reserved).then_some(self)
    }

    /// The name of the User object: names of providers need not be names of objects.
    pub(crate) fn user_name(&self) -> String {
        user_name(&self.name)
    }

    pub(crate) fn principal(&self) -> String {
        principal(&self.name)
    }

    /// Whether a User is that of this identity.
    pub(crate) fn owns(&self, user: &Value) -> bool {
        let principals = user["principalIds"].as_array();
        principals.is_some_and(|all| all.iter().any(|own| *own == *self.principal()))
    }

    /// The fields of a Token that hold it.
    pub(crate) fn write(&self, token: &mut Value) {
        let entry = |name: &String, kind: &str| json!({"loginName": name, "principalType": kind});
        token["authProvider"] = PROVIDER.into();
        token["userPrincipal"] = entry(&self.name, "user");
        token["groupPrincipals"] = self.groups.iter().map(|group| entry(group, "group")).collect();
    }
}

/// Whether a Token is of a login at a provider.
pub(crate) fn is_of_provider(token: &Value) -> bool {
    token["authProvider"] == PROVIDER
}

/// Whether a User logs in at a provider, and has no password.
pub(crate) fn has_provider(user: &Value) -> bool {
    let mut principals = user["principalIds"].as_array().into_iter().flatten();
    principals.any(|own| own.as_str().is_some_and(is_principal))
}

/// A user of the provider, as Rancher writes identities.
pub(crate) fn principal(name: &str) -> String {
    format!("{PROVIDER}://{name}")
}

/// Whether an identity is of the provider.
pub(crate) fn is_principal(text: &str) -> bool {
    text.strip_prefix(PROVIDER).is_some_and(|rest| rest.starts_with("://"))
}

/// Name of the User object for a user name of the provider.
pub(crate) fn user_name(name: &str) -> String {
    let digest = Sha256::digest(name);
    let letters = digest.iter().take(HASH_LENGTH);
    let letters = letters.map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
    format!("u-{}", letters.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jane() -> OidcIdentity {
        OidcIdentity { name: "oidc:jane@example.com".to_owned(), groups: vec!["oidc:ops".into()] }
    }

    fn user() -> Value {
        json!({"metadata": {"name": jane().user_name()}, "principalIds": [jane().principal()]})
    }

    #[test]
    fn a_token_holds_the_identity_of_its_user() {
        let mut token = json!({});
        jane().write(&mut token);
        assert!(is_of_provider(&token) && has_provider(&user()));
        assert_eq!(OidcIdentity::of_token(&token, &user()), Some(jane()));
        let of_review = json!({"username": jane().name, "groups": ["oidc:ops", AUTHENTICATED]});
        assert_eq!(OidcIdentity::of_review(&of_review), Some(jane()));
    }

    #[test]
    fn a_token_gives_no_identity_of_another_user_or_of_the_cluster() {
        let mut token = json!({});
        jane().write(&mut token);
        let with = |pointer: &str, value: &str| {
            let mut token = token.clone();
            *token.pointer_mut(pointer).unwrap() = value.into();
            token
        };
        for token in [
            with("/userPrincipal/loginName", "oidc:john@example.com"),
            with("/userPrincipal/loginName", "system:admin"),
            with("/groupPrincipals/0/loginName", "system:masters"),
            json!({}),
        ] {
            assert_eq!(OidcIdentity::of_token(&token, &user()), None, "{token}");
        }
        let mut local = user();
        local["principalIds"] = json!(["local://u-abc"]);
        assert_eq!(OidcIdentity::of_token(&token, &local), None);
        assert!(!has_provider(&local));
    }

    #[test]
    fn names_of_objects_are_short_and_differ() {
        let (one, other) = (user_name("oidc:jane"), user_name("oidc:john"));
        assert_ne!(one, other);
        assert_eq!(one.len(), 12);
        assert!(one.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{one}");
    }
}
