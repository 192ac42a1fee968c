//! Images that are made of others: a plain one becomes encrypted, or the other way round.

use serde_json::Value;

use super::is_imported;
use crate::admit::reference::authorize_secrets;
use crate::admit::{AdmissionResult, HARVESTER, Refusal, STORAGE, Write, storage_class, text};

/// Whether a parameter belongs to the encryption of volumes.
fn is_of_encryption(key: &str) -> bool {
    key == "encrypted" || key.starts_with("csi.storage.k8s.io/")
}

fn operation(image: &Value) -> &str {
    match text(image, "/spec/sourceType") {
        "clone" => text(image, "/spec/securityParameters/cryptoOperation"),
        _ => "",
    }
}

/// An image that is encrypted takes all of these parameters from its class, and one that is
/// decrypted takes none of them.
pub(super) fn complete(object: &mut Value, class: &Value) {
    let operation = operation(object).to_owned();
    let Some(own) = object["spec"]["storageClassParameters"].as_object_mut() else { return };
    match operation.as_str() {
        "encrypt" => {
            let all = class["parameters"].as_object().into_iter().flatten();
            for (key, value) in all.filter(|(key, _)| is_of_encryption(key)) {
                own.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        "decrypt" => own.retain(|key, _| !is_of_encryption(key)),
        _ => {}
    }
}

pub(super) fn validate(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let source = validate_source(write, object)?;
    if operation(object) == "decrypt" {
        let parameters = &source["spec"]["storageClassParameters"];
        authorize_passphrase(write, &source, parameters)?;
        return storage_class::validate_encryption(write, parameters);
    }
    validate_class(write, object)?;
    storage_class::validate_encryption(write, &object["spec"]["storageClassParameters"])
}

/// A decrypted copy is readable without the passphrase of its source, so its author must be able to
/// get that; the passphrase of a class of the administrator's is for all who use the class.
fn authorize_passphrase(write: &Write<'_>, source: &Value, parameters: &Value) -> AdmissionResult {
    let class = text(source, "/metadata/annotations/harvesterhci.io~1storageClassName");
    let class = write.objects.get(STORAGE, "storageclasses", "", class).unwrap_or_default();
    let field = "spec.securityParameters.sourceImageName";
    authorize_secrets(write, field, parameters, &class["parameters"])
}

/// The image that is to be cloned, if it can be.
fn validate_source(write: &Write<'_>, object: &Value) -> Result<Value, Refusal> {
    let wish = &object["spec"]["securityParameters"];
    let operation = text(wish, "/cryptoOperation");
    let (namespace, name) = (text(wish, "/sourceImageNamespace"), text(wish, "/sourceImageName"));
    for (is_missing, field, what) in [
        (wish.is_null(), "spec.sourceParameters", "sourceParameters"),
        (operation.is_empty(), "spec.cryptoOperation", "encryption"),
        (name.is_empty(), "spec.security.sourceImageName", "SourceImageName"),
        (namespace.is_empty(), "spec.security.sourceImageName", "SourceImageNamespace"),
    ] {
        if is_missing {
            let message = format!("{what} is required when image source type is \"clone\"");
            return Err(Refusal::invalid(field, message));
        }
    }
    if !write.writer.may_get(HARVESTER, "virtualmachineimages", namespace, name) {
        let message = format!(
            "user {:?} is not allowed to access source image {namespace}/{name}",
            write.writer.name()
        );
        return Err(Refusal::invalid("", message));
    }
    let Some(source) = write.objects.get(HARVESTER, "virtualmachineimages", namespace, name) else {
        return Err(Refusal::invalid(
            "spec.securityParameters.sourceImageName",
            format!("source image {namespace}/{name} not found"),
        ));
    };
    let shown = format!("source image {namespace}/{name} ({})", text(&source, "/spec/displayName"));
    let is_encrypted = self::operation(&source) == "encrypt";
    let message = match operation {
        "encrypt" if is_encrypted => format!("can not re-encrypt, {shown} is already encrypted"),
        "decrypt" if !is_encrypted => format!("can not re-decrypt, {shown} is not encrypted"),
        _ if !is_imported(&source) => format!("{shown} is not ready"),
        _ => return Ok(source),
    };
    Err(Refusal::invalid("", message))
}

/// The class that is to encrypt the volumes.
fn validate_class(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let name = text(object, "/metadata/annotations/harvesterhci.io~1storageClassName");
    let field = "metadata.annotations[harvesterhci.io/storageClassName]";
    if name.is_empty() {
        let message = "storageClassName is required when using security params";
        return Err(Refusal::invalid(field, message));
    }
    let Some(class) = write.objects.get(STORAGE, "storageclasses", "", name) else {
        return Err(Refusal::invalid(field, format!("storage class {name} not found")));
    };
    if text(object, "/spec/storageClassParameters/encrypted") != "true" {
        let message = format!("storage class {name} is not for encryption or decryption");
        return Err(Refusal::invalid("spec.parameters[encrypted] must be true", message));
    }
    if !text(&class, "/parameters/backingImage").is_empty() {
        let message = format!(
            "storage class {name} is tied to a specific backing image and cannot be used as target for clone/encrypt"
        );
        return Err(Refusal::invalid(field, message));
    }
    Ok(())
}
