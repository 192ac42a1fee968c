//! Credentials for a registry: name and password from a pull secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use oci_client::Reference;
use serde::Deserialize;
use std::collections::BTreeMap;

use crate::egress::Egress;
use crate::volume::fetch::Access;
use crate::volume::lookup::{self, LookupError};

/// Why a pull secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("cannot read secret {name}: its .dockerconfigjson is not what `docker login` writes")]
    Json { name: String, source: serde_json::Error },
}

#[derive(Debug, Default, Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, CacheKeyEntry>,
}

#[derive(Debug, Default, Deserialize)]
struct CacheKeyEntry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
}

pub(super) async fn access(
    client: &Client,
    egress: &Egress,
    namespace: &str,
    secret: Option<&str>,
    image: &str,
) -> Result<Access, KeysError> {
    let access = Access { egress: egress.clone(), ..Access::default() };
    let Some(name) = secret.filter(|name| !name.is_empty()) else { return Ok(access) };
    let data = lookup::secret(client, namespace, name).await?.data.unwrap_or_default();
    let bad = |source| KeysError::Json { name: name.to_owned(), source };
    let config = if let Some(json) = data.get(".dockerconfigjson") {
        serde_json::from_slice(&json.0).map_err(bad)?
    } else if let Some(json) = data.get(".dockercfg") {
        DockerConfig { auths: serde_json::from_slice(&json.0).map_err(bad)? }
    } else {
        let (kind, key) = ("secret", ".dockerconfigjson");
        return Err(LookupError::Key { kind, name: name.to_owned(), key }.into());
    };
    Ok(Access { user: user(config, image), ..access })
}

/// The entry for the registry of an image; the longest that fits, as docker has it.
fn user(config: DockerConfig, image: &str) -> Option<(String, String)> {
    let plain = image.strip_prefix("docker://").unwrap_or(image);
    let reference: Reference = plain.parse().ok()?;
    let whole = format!("{}/{}", reference.registry(), reference.repository());
    let place = |key: &str| {
        let key = key.trim_start_matches("https://").trim_start_matches("http://");
        let key = key.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2");
        if key == "index.docker.io" { "docker.io".to_owned() } else { key.to_owned() }
    };
    let fits = |place: &str| {
        whole.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let best = config
        .auths
        .into_iter()
        .map(|(key, entry)| (place(&key), entry))
        .filter(|(key, _)| fits(key))
        .max_by_key(|(key, _)| key.len())?
        .1;
    if !best.username.is_empty() {
        return Some((best.username, best.password));
    }
    let decoded = String::from_utf8(STANDARD.decode(best.auth.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_entry_that_fits_best_is_used() {
        let config = json!({"auths": {
            "registry.example.org": {"username": "u", "password": "p"},
            "registry.example.org/team": {"auth": STANDARD.encode("t:q:r")},
            "https://index.docker.io/v1/": {"username": "d", "password": "e"},
        }});
        let check = |image: &str, expected: Option<(&str, &str)>| {
            let config = serde_json::from_value(config.clone()).unwrap();
            let expected = expected.map(|(user, word)| (user.to_owned(), word.to_owned()));
            assert_eq!(user(config, image), expected, "{image}");
        };
        check("registry.example.org/x:1", Some(("u", "p")));
        check("docker://registry.example.org/team/x:1", Some(("t", "q:r")));
        check("registry.example.org.evil.org/x:1", None);
        check("debian:12", Some(("d", "e")));
    }
}
