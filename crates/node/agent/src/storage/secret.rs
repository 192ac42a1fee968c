//! The passphrase of an encrypted volume: a Secret that its PersistentVolume refers to, as
//! Longhorn's users write it.

use block::storage::Secret;
use client::Fault;
use k8s_openapi::api::core::v1::{self, PersistentVolume};
use kube::{Api, Client};

use crate::api::present;

/// Longhorn's name for it.
const KEY: &str = "CRYPTO_KEY_VALUE";

/// Why there is no passphrase.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error("cannot read {kind} {name}")]
    Request { kind: &'static str, name: String, source: Fault },
    #[error("{kind} {name} does not exist")]
    Missing { kind: &'static str, name: String },
    #[error(
        "the persistent volume {name} names no secret: its storage class needs \
         csi.storage.k8s.io/node-publish-secret-name and -namespace"
    )]
    Unnamed { name: String },
    #[error("secret {name} has no key {KEY}")]
    Key { name: String },
}

pub(super) async fn passphrase(client: &Client, volume: &str) -> Result<Secret, SecretError> {
    let request = |kind, name: &str| {
        let name = name.to_owned();
        move |source| SecretError::Request { kind, name, source: Fault(source) }
    };
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let found = present(volumes.get(volume).await);
    let found = found.map_err(request("the persistent volume", volume))?;
    let missing = |kind, name: &str| SecretError::Missing { kind, name: name.to_owned() };
    let found = found.ok_or_else(|| missing("the persistent volume", volume))?;
    let csi = found.spec.and_then(|spec| spec.csi);
    let reference = csi.and_then(|csi| {
        csi.node_publish_secret_ref.or(csi.node_stage_secret_ref).or(csi.node_expand_secret_ref)
    });
    let (name, namespace) = reference
        .and_then(|it| Some((it.name?, it.namespace?)))
        .ok_or_else(|| SecretError::Unnamed { name: volume.to_owned() })?;
    of_secret(client, &namespace, &name).await
}

/// The passphrase in a Secret.
pub(crate) async fn of_secret(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Secret, SecretError> {
    let shown = || format!("{namespace}/{name}");
    let secrets = Api::<v1::Secret>::namespaced(client.clone(), namespace);
    let request =
        |source| SecretError::Request { kind: "secret", name: shown(), source: Fault(source) };
    let secret = present(secrets.get(name).await).map_err(request)?;
    let missing = || SecretError::Missing { kind: "secret", name: shown() };
    let data = secret.ok_or_else(missing)?.data.unwrap_or_default();
    let value = data.get(KEY).ok_or_else(|| SecretError::Key { name: shown() })?;
    Ok(Secret::new(String::from_utf8_lossy(&value.0).into_owned()))
}
