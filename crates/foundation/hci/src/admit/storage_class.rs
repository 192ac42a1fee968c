//! Storage classes: one default, known parameters, and those that stay.

mod profile;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::reference::authorize_secrets;
use super::{AdmissionResult, HARVESTER, Refusal, STORAGE, Write, text};

/// The driver whose classes these rules are for.
pub const DRIVER: &str = "driver.longhorn.io";

const DEFAULT: &str = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
const RESERVED: &str = "/metadata/annotations/harvesterhci.io~1is-reserved-storageclass";

pub(super) fn is_default(class: &Value) -> bool {
    text(class, DEFAULT) == "true"
}

/// Where people have chosen a default class, the server's own does not become another.
pub(super) fn complete(write: &Write<'_>, object: &mut Value) {
    let new = write.trusted && write.old.is_none() && is_default(object);
    let all = if new { write.objects.list(STORAGE, "storageclasses", "") } else { Vec::new() };
    if all.iter().any(|class| is_default(class) && text(class, "/metadata/name") != write.name)
        && let Some(mark) = object.pointer_mut(DEFAULT)
    {
        *mark = "false".into();
    }
}

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (None, Some(old)) => validate_deletion(write, old),
        (Some(object), _) => {
            validate_default(write, object)?;
            validate_parameters(write, object)?;
            profile::validate(write, object)
        }
        (None, None) => Ok(()),
    }
}

fn validate_default(write: &Write<'_>, object: &Value) -> AdmissionResult {
    if !is_default(object) || write.old.is_some_and(is_default) {
        return Ok(());
    }
    let all = write.objects.list(STORAGE, "storageclasses", "");
    let other =
        all.iter().find(|class| is_default(class) && text(class, "/metadata/name") != write.name);
    match other {
        None => Ok(()),
        Some(other) => Err(Refusal::invalid(
            "metadata.annotations",
            format!(
                "default storage class {} already exists, please reset it first before set {} as default",
                text(other, "/metadata/name"),
                write.name
            ),
        )),
    }
}

fn validate_parameters(write: &Write<'_>, object: &Value) -> AdmissionResult {
    if text(object, "/provisioner") != DRIVER || write.old.is_some() {
        return Ok(());
    }
    let parameters = &object["parameters"];
    match text(parameters, "/dataLocality") {
        "" | "disabled" | "best-effort" => {}
        "strict-local" => {
            return Err(Refusal::invalid(
                "parameters.dataLocality",
                "storage class with strict-local data locality is not allowed",
            ));
        }
        other => {
            return Err(Refusal::invalid(
                "parameters.dataLocality",
                format!(
                    "storage class with invalid data locality {other}, valid values: \"disabled\", \"best-effort\""
                ),
            ));
        }
    }
    let replicas = text(parameters, "/numberOfReplicas");
    if !replicas.is_empty() && !replicas.parse().is_ok_and(|count: u8| (1..=20).contains(&count)) {
        return Err(Refusal::invalid(
            "parameters.numberOfReplicas",
            format!("numberOfReplicas {replicas} is invalid: it must be from 1 to 20"),
        ));
    }
    authorize_secrets(write, "parameters", parameters, &Value::Null)?;
    validate_encryption(write, parameters)
}

/// Pairs of parameters that name the secret of an encrypted class.
const SECRETS: [(&str, &str); 3] = [
    (
        "csi.storage.k8s.io/provisioner-secret-name",
        "csi.storage.k8s.io/provisioner-secret-namespace",
    ),
    (
        "csi.storage.k8s.io/node-publish-secret-name",
        "csi.storage.k8s.io/node-publish-secret-namespace",
    ),
    ("csi.storage.k8s.io/node-stage-secret-name", "csi.storage.k8s.io/node-stage-secret-namespace"),
];

/// The passphrase, in the secret of an encrypted volume. Longhorn has defaults for the rest.
const PASSPHRASE: &str = "CRYPTO_KEY_VALUE";
/// Where the passphrase comes from; empty or `secret`, as Longhorn has no other.
const PROVIDER: &str = "CRYPTO_KEY_PROVIDER";
/// The values that the other fields of the secret may have; each may also be missing.
const KNOWN: &[(&str, &[&str])] = &[
    (PROVIDER, &["secret"]),
    (
        "CRYPTO_KEY_CIPHER",
        &[
            "aes-xts-plain",
            "aes-xts-plain64",
            "aes-cbc-plain",
            "aes-cbc-plain64",
            "aes-cbc-essiv:sha256",
        ],
    ),
    ("CRYPTO_KEY_HASH", &["sha256", "sha384", "sha512"]),
    ("CRYPTO_KEY_SIZE", &["256", "384", "512"]),
    ("CRYPTO_PBKDF", &["argon2i", "argon2id", "pbkdf2"]),
];

/// Whether the secret that the parameters name is there and can be used, if they name one.
pub(super) fn validate_encryption(write: &Write<'_>, parameters: &Value) -> AdmissionResult {
    let encrypted = parameters["encrypted"].as_str();
    match encrypted {
        None | Some("false") => return Ok(()),
        Some("true") => {}
        Some(_) => {
            return Err(Refusal::invalid("spec.parameters", "invalid value for `encrypted`"));
        }
    }
    let value = |key: &str| parameters[key].as_str().unwrap_or_default();
    let (first_name, first_space) = (value(SECRETS[0].0), value(SECRETS[0].1));
    let keys = SECRETS.iter().flat_map(|(name, space)| [*name, *space]);
    let missing: Vec<&str> = keys.filter(|key| value(key).is_empty()).collect();
    if !missing.is_empty() {
        let message = format!("storage class must contain {}", missing.join(", "));
        return Err(Refusal::invalid("spec.parameters", message));
    }
    for (name, space) in SECRETS {
        if value(name) != first_name || value(space) != first_space {
            let message = format!(
                "secret names and namespaces in {name} and {space} are different from others"
            );
            return Err(Refusal::invalid("parameters", message));
        }
    }
    // The secret that a template names is known with the claim.
    if first_name.contains("${") || first_space.contains("${") {
        return Ok(());
    }
    let Some(secret) = write.objects.get("", "secrets", first_space, first_name) else {
        return Err(Refusal::invalid(
            "parameters",
            format!("secret {first_space}/{first_name} not found"),
        ));
    };
    validate_secret(&secret).map_err(|problem| {
        let what = format!("secret {first_space}/{first_name} is not a valid encryption secret");
        Refusal::invalid("parameters", format!("{what}, {problem}"))
    })
}

fn validate_secret(secret: &Value) -> Result<(), String> {
    match secret["data"][PASSPHRASE].as_str() {
        None => return Err(format!("missing field: {PASSPHRASE}")),
        Some("") => return Err(format!("invalid field: {PASSPHRASE}")),
        Some(_) => {}
    }
    for (field, known) in KNOWN {
        let value = secret["data"][*field].as_str().unwrap_or_default();
        let value = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let is_known = value.is_some_and(|it| it.is_empty() || known.contains(&it.as_str()));
        if !is_known {
            return Err(format!("invalid field: {field}: it must be one of {}", known.join(", ")));
        }
    }
    Ok(())
}

fn validate_deletion(write: &Write<'_>, old: &Value) -> AdmissionResult {
    if write.trusted {
        return Ok(());
    }
    if text(old, RESERVED) == "true" {
        return Err(Refusal::invalid(
            "",
            format!("storage class {} is reserved by Harvester and can't be deleted", write.name),
        ));
    }
    let images = write.objects.list(HARVESTER, "virtualmachineimages", "");
    let users: Vec<&str> = images
        .iter()
        .filter(|image| text(image, "/status/storageClassName") == write.name)
        .map(|image| text(image, "/metadata/name"))
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    let message = format!(
        "storage class {} is used by virtual machine images: [{}]",
        write.name,
        users.join(" ")
    );
    Err(Refusal::invalid("", message))
}

#[cfg(test)]
mod tests;
