//! Which resources are encrypted at rest, and with which keys: upstream's
//! EncryptionConfiguration, turned into rules for the store. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use store::{Method, SealKey, SealRule, Sealing, SecretError};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    #[error("the configuration is not readable")]
    Unreadable(#[source] serde_saphyr::Error),
    #[error(
        "apiVersion and kind are {found:?}, must be apiserver.config.k8s.io/v1 and EncryptionConfiguration"
    )]
    Kind { found: String },
    #[error("{field}: {problem}")]
    Field { field: String, problem: &'static str },
    #[error("{field}: cannot use the key")]
    Key { field: String, source: SecretError },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    resources: Vec<Resources>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    aescbc: Option<Keys>,
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<IdentityProvider>,
    kms: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct IdentityProvider {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    keys: Vec<NamedKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedKey {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: String,
}

/// Reads a configuration (YAML or JSON).
pub fn parse(text: &str) -> Result<Sealing, EncryptionError> {
    let configuration: Configuration =
        serde_saphyr::from_str(text).map_err(EncryptionError::Unreadable)?;
    let (version, kind) = (&*configuration.api_version, &*configuration.kind);
    if (version, kind) != ("apiserver.config.k8s.io/v1", "EncryptionConfiguration") {
        return Err(EncryptionError::Kind { found: format!("{version} {kind}") });
    }
    if configuration.resources.is_empty() {
        return Err(wrong("resources".to_owned(), "name at least one"));
    }
    let rules = configuration.resources.iter().enumerate();
    let rules = rules.map(|(index, rule)| read(rule, &format!("resources[{index}]")));
    Ok(Sealing::new(rules.collect::<Result<_, _>>()?))
}

/// One key for secrets, which is ours alone: no configuration needed. The first key seals.
pub fn of_secrets(keys: Vec<SealKey>) -> Sealing {
    let mut keys = keys.into_iter();
    let covers = Arc::new(|table: &str| table == "secrets");
    Sealing::new(vec![SealRule { covers, writes: keys.next(), reads: keys.collect() }])
}

/// The same keys for reading only: new values are written unencrypted.
pub fn plain_secrets(keys: Vec<SealKey>) -> Sealing {
    Sealing::new(vec![SealRule { covers: Arc::new(|_| true), writes: None, reads: keys }])
}

fn wrong(field: String, problem: &'static str) -> EncryptionError {
    EncryptionError::Field { field, problem }
}

fn read(rule: &Resources, field: &str) -> Result<SealRule, EncryptionError> {
    if rule.resources.is_empty() {
        return Err(wrong(format!("{field}.resources"), "name at least one resource"));
    }
    if rule.providers.is_empty() {
        return Err(wrong(format!("{field}.providers"), "name at least one provider"));
    }
    let mut keys = Vec::new();
    for (index, provider) in rule.providers.iter().enumerate() {
        keys.extend(provider.keys(&format!("{field}.providers[{index}]"))?);
    }
    let mut keys = keys.into_iter();
    // The first provider writes, and so its first key; identity has none.
    let writes = if rule.providers[0].identity.is_some() { None } else { keys.next() };
    let reads = keys.collect();
    Ok(SealRule { covers: covers(&rule.resources), writes, reads })
}

impl Provider {
    fn keys(&self, field: &str) -> Result<Vec<SealKey>, EncryptionError> {
        if self.kms.is_some() {
            return Err(wrong(
                format!("{field}.kms"),
                "is not supported; use aescbc, aesgcm, secretbox or identity",
            ));
        }
        let given = [
            (Method::AesCbc, &self.aescbc),
            (Method::AesGcm, &self.aesgcm),
            (Method::Secretbox, &self.secretbox),
        ];
        let mut given =
            given.into_iter().filter_map(|(method, keys)| Some((method, keys.as_ref()?)));
        let Some((method, keys)) = given.next() else {
            return match self.identity {
                Some(_) => Ok(Vec::new()),
                None => Err(wrong(
                    field.to_owned(),
                    "must be one of aescbc, aesgcm, secretbox and identity",
                )),
            };
        };
        if given.next().is_some() || self.identity.is_some() {
            return Err(wrong(field.to_owned(), "must be one provider only"));
        }
        let field = format!("{field}.{}.keys", method.name());
        if keys.keys.is_empty() {
            return Err(wrong(field, "name at least one key"));
        }
        let key = |(index, key): (usize, &NamedKey)| {
            let field = format!("{field}[{index}]");
            let secret = STANDARD
                .decode(key.secret.trim())
                .map_err(|_| wrong(format!("{field}.secret"), "is not base64"))?;
            SealKey::new(&key.name, method, &secret)
                .map_err(|source| EncryptionError::Key { field, source })
        };
        keys.keys.iter().enumerate().map(key).collect()
    }
}

/// The tables of resources like `secrets`, `deployments.apps`, `*.apps`, `*.` and `*.*`.
fn covers(patterns: &[String]) -> store::TableFilter {
    let patterns: Vec<(String, String)> = patterns
        .iter()
        .map(|pattern| match pattern.split_once('.') {
            Some((resource, group)) => (resource.to_owned(), group.to_owned()),
            None => (pattern.clone(), String::new()),
        })
        .collect();
    let fits = move |group: &str, resource: &str| {
        patterns
            .iter()
            .any(|(wanted, of)| (wanted == "*" || wanted == resource) && (of == "*" || of == group))
    };
    let built_in: BTreeSet<&'static str> = kinds::builtin()
        .iter()
        .filter(|row| row.is_stored() && fits(row.group, row.plural))
        .map(|row| row.table)
        .collect();
    let all: BTreeSet<&'static str> = kinds::builtin().iter().map(|row| row.table).collect();
    Arc::new(move |table: &str| match table.split_once('/') {
        _ if all.contains(table) => built_in.contains(table),
        Some((group, resource)) => fits(group, resource),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_found_by_name_group_and_wildcard() {
        let covered = |pattern: &str, table: &str| covers(&[pattern.to_owned()])(table);
        for (pattern, table, expected) in [
            ("secrets", "secrets", true),
            ("secrets", "configmaps", false),
            ("deployments.apps", "deployments", true),
            ("deployments", "deployments", false),
            ("*.", "configmaps", true),
            ("*.", "deployments", false),
            ("*.apps", "deployments", true),
            ("*.*", "kubevirt.io/virtualmachines", true),
            ("virtualmachines.kubevirt.io", "kubevirt.io/virtualmachines", true),
            ("*.example.com", "kubevirt.io/virtualmachines", false),
        ] {
            assert_eq!(covered(pattern, table), expected, "{pattern} {table}");
        }
    }

    #[test]
    fn a_wrong_configuration_says_where() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
        let one = |provider: &str| {
            format!("{head}resources: [{{resources: [secrets], providers: [{provider}]}}]")
        };
        let secret = STANDARD.encode([7; 32]);
        assert!(
            parse(&one(&format!(
                "{{aescbc: {{keys: [{{name: k, secret: {secret}}}]}}}}, {{identity: {{}}}}"
            )))
            .is_ok()
        );
        for (text, expected) in [
            (
                "kind: EncryptionConfiguration".to_owned(),
                "apiVersion and kind are \" EncryptionConfiguration\", must be apiserver.config.k8s.io/v1 and EncryptionConfiguration",
            ),
            (head.to_owned(), "resources: name at least one"),
            (one(""), "resources[0].providers: name at least one provider"),
            (
                one("{}"),
                "resources[0].providers[0]: must be one of aescbc, aesgcm, secretbox and identity",
            ),
            (
                one("{kms: {name: k}}"),
                "resources[0].providers[0].kms: is not supported; use aescbc, aesgcm, secretbox or identity",
            ),
            (
                one("{aesgcm: {keys: []}}"),
                "resources[0].providers[0].aesgcm.keys: name at least one key",
            ),
            (
                one("{aesgcm: {keys: [{name: k, secret: '!'}]}}"),
                "resources[0].providers[0].aesgcm.keys[0].secret: is not base64",
            ),
            (
                one("{aesgcm: {keys: [{name: k, secret: AAAA}]}}"),
                "resources[0].providers[0].aesgcm.keys[0]: cannot use the key",
            ),
        ] {
            assert_eq!(parse(&text).map(drop).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
