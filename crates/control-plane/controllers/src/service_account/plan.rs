//! The wanted Secret that holds a token: pure.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
const TOKEN: &str = "token";

#[derive(Debug, PartialEq)]
pub(crate) enum ServiceAccountStep {
    Nothing,
    /// The account is gone.
    Delete {
        uid: String,
    },
    /// `mint` is the uid of the account if a token is missing.
    Write {
        secret: Box<Secret>,
        mint: Option<String>,
    },
}

/// The service account whose token the Secret is for.
pub(crate) fn account_name(secret: &Secret) -> Option<String> {
    if secret.type_.as_deref() != Some(TYPE) {
        return None;
    }
    annotation(secret, NAME).map(str::to_owned).filter(|name| !name.is_empty())
}

/// `account` is what exists under the name the Secret asks for.
pub(crate) fn step(
    mut secret: Secret,
    account: Option<&ServiceAccount>,
    root_ca: &str,
) -> ServiceAccountStep {
    let expected = annotation(&secret, UID).unwrap_or_default();
    let account = account
        .filter(|account| expected.is_empty() || account.metadata.uid.as_deref() == Some(expected));
    let Some(account) = account else {
        return ServiceAccountStep::Delete { uid: secret.metadata.uid.unwrap_or_default() };
    };
    let data = secret.data.get_or_insert_default();
    let has = |key: &str| data.get(key).is_some_and(|value| !value.0.is_empty());
    let (token, namespace) = (has(TOKEN), has("namespace"));
    let ca =
        root_ca.is_empty() || data.get("ca.crt").is_some_and(|own| own.0 == root_ca.as_bytes());
    if token && namespace && ca {
        return ServiceAccountStep::Nothing;
    }
    if !ca {
        data.insert("ca.crt".into(), ByteString(root_ca.as_bytes().to_vec()));
    }
    if !namespace {
        let own = secret.metadata.namespace.clone().unwrap_or_default();
        data.insert("namespace".into(), ByteString(own.into_bytes()));
    }
    let uid = account.metadata.uid.clone().unwrap_or_default();
    let name = account.metadata.name.clone().unwrap_or_default();
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(NAME.into(), name);
    annotations.insert(UID.into(), uid.clone());
    ServiceAccountStep::Write { secret: Box::new(secret), mint: (!token).then_some(uid) }
}

pub(crate) fn put_token(secret: &mut Secret, token: String) {
    let data = secret.data.get_or_insert_default();
    data.insert(TOKEN.into(), ByteString(token.into_bytes()));
}

fn annotation<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(uid: &str, data: serde_json::Value) -> Secret {
        let annotations = match uid {
            "" => serde_json::json!({NAME: "robot"}),
            _ => serde_json::json!({NAME: "robot", UID: uid}),
        };
        serde_json::from_value(serde_json::json!({"type": TYPE, "data": data,
            "metadata": {"name": "s", "namespace": "n", "uid": "su", "annotations": annotations}}))
        .unwrap()
    }

    fn account() -> ServiceAccount {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "robot", "uid": "au"}}))
            .unwrap()
    }

    fn full() -> serde_json::Value {
        // "t", "n" and "ca"
        serde_json::json!({"token": "dA==", "namespace": "bg==", "ca.crt": "Y2E="})
    }

    #[test]
    fn an_empty_secret_is_filled_and_asks_for_a_token() {
        let step = step(secret("", serde_json::json!({})), Some(&account()), "ca");
        let ServiceAccountStep::Write { mut secret, mint } = step else { panic!("{step:?}") };
        assert_eq!(mint.as_deref(), Some("au"));
        put_token(&mut secret, "t".into());
        assert_eq!(serde_json::to_value(&secret.data).unwrap(), full());
        assert_eq!(annotation(&secret, UID), Some("au"));
    }

    #[test]
    fn a_full_secret_stays_as_it_is() {
        assert_eq!(step(secret("au", full()), Some(&account()), "ca"), ServiceAccountStep::Nothing);
        assert_eq!(step(secret("au", full()), Some(&account()), ""), ServiceAccountStep::Nothing);
    }

    #[test]
    fn a_new_ca_keeps_the_token() {
        let step = step(secret("au", full()), Some(&account()), "new");
        assert!(matches!(step, ServiceAccountStep::Write { mint: None, .. }), "{step:?}");
    }

    #[test]
    fn the_token_of_an_absent_or_replaced_account_is_deleted() {
        let delete = ServiceAccountStep::Delete { uid: "su".into() };
        assert_eq!(step(secret("au", full()), None, "ca"), delete);
        assert_eq!(step(secret("old", full()), Some(&account()), "ca"), delete);
    }

    #[test]
    fn only_token_secrets_ask_for_an_account() {
        assert_eq!(account_name(&secret("", full())).as_deref(), Some("robot"));
        assert_eq!(
            account_name(&Secret { type_: Some("Opaque".into()), ..secret("", full()) }),
            None
        );
        let unnamed = Secret { metadata: Default::default(), ..secret("", full()) };
        assert_eq!(account_name(&unnamed), None);
    }
}
