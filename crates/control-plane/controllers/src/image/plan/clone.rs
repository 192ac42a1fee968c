//! Images that are made of others, encrypted or decrypted. Pure.

use serde_json::{Value, json};

use super::backing_name;
use crate::condition;
use crate::image::record;
use crate::object::is_deleting;

const SECRET: &str = "csi.storage.k8s.io/node-publish-secret-name";
const SECRET_NAMESPACE: &str = "csi.storage.k8s.io/node-publish-secret-namespace";

fn operation(image: &Value) -> &str {
    record::spec(image).security_parameters.crypto_operation
}

/// Whether the data of an image is encrypted.
pub(super) fn is_encrypted(image: &Value) -> bool {
    record::spec(image).source_type == "clone" && operation(image) == "encrypt"
}

/// Why an image cannot be a clone of another. Most errors are found before it exists; here are
/// those of changes since.
pub(super) fn refusal(image: &Value, origin: Option<&Value>) -> Option<String> {
    let wish = record::spec(image).security_parameters;
    let shown = format!("{}/{}", wish.source_image_namespace, wish.source_image_name);
    let Some(origin) = origin.filter(|origin| !is_deleting(origin)) else {
        return Some(format!("source image {shown} not found"));
    };
    if !condition::is(origin, "Imported", "True") {
        return Some(format!("source image {shown} is not ready"));
    }
    if is_encrypted(origin) == is_encrypted(image) {
        let is = if is_encrypted(origin) { "already" } else { "not" };
        return Some(format!("source image {shown} is {is} encrypted"));
    }
    let (name, namespace) = secret(image, origin);
    (name.is_empty() || namespace.is_empty()).then(|| {
        format!("spec.storageClassParameters needs {SECRET} and {SECRET_NAMESPACE} to encrypt")
    })
}

/// The secret with the passphrase: that of the encrypted one of the two.
fn secret<'a>(image: &'a Value, origin: &'a Value) -> (&'a str, &'a str) {
    let owner = if is_encrypted(image) { image } else { origin };
    let spec = record::spec(owner);
    (spec.parameter(SECRET), spec.parameter(SECRET_NAMESPACE))
}

/// The parameters for the node, in Longhorn's words.
pub(super) fn parameters(image: &Value, origin: Option<&Value>) -> Value {
    let Some(origin) = origin else { return json!({}) };
    let (name, namespace) = secret(image, origin);
    json!({
        "backing-image": backing_name(origin), "encryption": operation(image),
        "secret": name, "secret-namespace": namespace,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(uid: &str, operation: &str, secret: &str) -> Value {
        let mut image = json!({
            "metadata": {"name": uid, "namespace": "n", "uid": uid},
            "spec": {
                "sourceType": "upload",
                "storageClassParameters": {SECRET: secret, SECRET_NAMESPACE: "keys"},
            },
            "status": {"conditions": [{"type": "Imported", "status": "True"}]},
        });
        if !operation.is_empty() {
            image["spec"]["sourceType"] = json!("clone");
            image["spec"]["securityParameters"] = json!({
                "cryptoOperation": operation, "sourceImageName": "o", "sourceImageNamespace": "n",
            });
        }
        image
    }

    #[test]
    fn the_passphrase_is_that_of_the_encrypted_one() {
        let (plain, hidden) = (image("p", "", ""), image("h", "encrypt", "mine"));
        assert_eq!(refusal(&hidden, Some(&plain)), None);
        let wanted = json!({"backing-image": "vmi-p", "encryption": "encrypt",
            "secret": "mine", "secret-namespace": "keys"});
        assert_eq!(parameters(&hidden, Some(&plain)), wanted);
        let back = image("b", "decrypt", "");
        assert_eq!(refusal(&back, Some(&hidden)), None);
        let wanted = json!({"backing-image": "vmi-h", "encryption": "decrypt",
            "secret": "mine", "secret-namespace": "keys"});
        assert_eq!(parameters(&back, Some(&hidden)), wanted);
    }

    #[test]
    fn an_invalid_source_is_named() {
        let (plain, hidden) = (image("p", "", ""), image("h", "encrypt", "mine"));
        let mut unready = plain.clone();
        unready["status"] = json!({});
        for (image, origin, expected) in [
            (&hidden, None, "source image n/o not found"),
            (&hidden, Some(&unready), "source image n/o is not ready"),
            (&hidden, Some(&hidden), "source image n/o is already encrypted"),
            (&image("b", "decrypt", ""), Some(&plain), "source image n/o is not encrypted"),
        ] {
            assert_eq!(refusal(image, origin).as_deref(), Some(expected));
        }
        let bare = image("h", "encrypt", "");
        assert!(refusal(&bare, Some(&plain)).unwrap().contains(SECRET));
    }
}
