//! Secrets and certificates that a source names, from the namespace of its claim.

use client::Fault;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};

use super::fetch::Access;
use super::source::RemoteSource;
use crate::api::present;
use crate::egress::Egress;

/// Why access could not be had; it may come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("{kind} {name} does not exist, waiting for it to appear")]
    Missing { kind: &'static str, name: String },
    #[error("{kind} {name} has no key {key}")]
    Key { kind: &'static str, name: String, key: &'static str },
    #[error("cannot read {kind} {name}")]
    Request { kind: &'static str, name: String, source: Fault },
}

/// The headers, credentials and other request parameters of a source.
pub(super) async fn access(
    client: &Client,
    egress: &Egress,
    namespace: &str,
    remote: &RemoteSource,
) -> Result<Access, LookupError> {
    let (headers, egress) = (remote.headers.clone(), egress.clone());
    let mut access = Access { headers, egress, ..Access::default() };
    for name in &remote.secret_headers {
        let data = secret(client, namespace, name).await?.data.unwrap_or_default();
        let texts = data.into_values().map(|value| String::from_utf8_lossy(&value.0).into_owned());
        access.headers.extend(texts.map(|text| text.trim().to_owned()));
    }
    if !remote.secret.is_empty() {
        access.user = Some(user(client, namespace, &remote.secret).await?);
    }
    if !remote.certificates.is_empty() {
        let name = remote.certificates.clone();
        let pem = certificates(client, namespace, &name).await?;
        access.certificates = Some((name, pem));
    }
    Ok(access)
}

/// Name and password as CDI's secrets have them.
async fn user(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<(String, String), LookupError> {
    let data = secret(client, namespace, name).await?.data.unwrap_or_default();
    let text = |key: &'static str| {
        let value =
            data.get(key).ok_or(LookupError::Key { kind: "secret", name: name.into(), key });
        value.map(|value| String::from_utf8_lossy(&value.0).trim().to_owned())
    };
    Ok((text("accessKeyId")?, text("secretKey")?))
}

pub(super) async fn secret(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Secret, LookupError> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let found = present(secrets.get(name).await);
    let found = found.map_err(|source| LookupError::Request {
        kind: "secret",
        name: name.into(),
        source: Fault(source),
    })?;
    found.ok_or_else(|| LookupError::Missing { kind: "secret", name: name.into() })
}

/// All certificates of a config map, one after the other.
async fn certificates(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Vec<u8>, LookupError> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let found = present(maps.get(name).await);
    let found = found.map_err(|source| LookupError::Request {
        kind: "config map",
        name: name.into(),
        source: Fault(source),
    })?;
    let missing = || LookupError::Missing { kind: "config map", name: name.into() };
    let data = found.ok_or_else(missing)?.data.unwrap_or_default();
    Ok(data.into_values().flat_map(|pem| [pem.into_bytes(), b"\n".to_vec()].concat()).collect())
}
