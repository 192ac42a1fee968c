//! Provisioning of volumes whose content is an image. Pure.

use serde_json::Value;

use super::plan::ProvisionError;
use crate::longhorn::object::volume_bytes;
use crate::longhorn::record::BackingImageFields;
use crate::object::{is_deleting, read};
use crate::record::claim::{ClaimFields, StorageClassFields};

/// The backing image that volumes of a class begin as.
pub(super) fn wanted(class: &Value) -> Option<&str> {
    let parameters = read::<StorageClassFields<'_>>(class).parameters;
    parameters.get("backingImage").copied().filter(|name| !name.is_empty())
}

/// Whether a claim may begin as an image. Its data may still be on its way: the volume waits.
pub(super) fn check(
    claim: &Value,
    class: &Value,
    name: &str,
    image: Option<&Value>,
) -> Result<(), ProvisionError> {
    let missing = || ProvisionError::Missing { kind: "BackingImage", name: name.to_owned() };
    let image = image.filter(|image| !is_deleting(image)).ok_or_else(missing)?;
    let BackingImageFields { spec, status } = read(image);
    let is_encrypted = spec.source_parameters.encryption == "encrypt";
    let class: StorageClassFields<'_> = read(class);
    if is_encrypted != (class.parameter("encrypted") == "true") {
        let (volume, own) = match is_encrypted {
            true => ("a volume that is not encrypted", "one that is"),
            false => ("an encrypted volume", "one that is not"),
        };
        let why = format!("{volume} cannot begin as {own}: BackingImage {name}");
        return Err(ProvisionError::Refused { why });
    }
    let size = status.virtual_size.unwrap_or(0);
    match volume_bytes(read::<ClaimFields<'_>>(claim).spec.storage()) {
        Some(asked) if asked < size => {
            Err(ProvisionError::Small { asked, size, name: name.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_as_large_as_its_image_or_larger() {
        let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let class = json!({"parameters": {"backingImage": "i"}});
        let image = json!({"status": {"virtualSize": 2_i64 << 30}});
        assert_eq!(wanted(&class), Some("i"));
        assert_eq!(wanted(&json!({})), None);
        assert_eq!(check(&claim("2Gi"), &class, "i", Some(&image)), Ok(()));
        let error = check(&claim("1Gi"), &class, "i", Some(&image)).unwrap_err().to_string();
        assert_eq!(
            error,
            "requested volume size 1073741824 is less than the size 2147483648 for the source i"
        );
        let error = check(&claim("2Gi"), &class, "i", None).unwrap_err().to_string();
        assert_eq!(error, "BackingImage i is not found");
        assert_eq!(check(&claim("1Gi"), &class, "i", Some(&json!({}))), Ok(()), "not known yet");
        let class = json!({"parameters": {"backingImage": "i", "encrypted": "true"}});
        let error = check(&claim("2Gi"), &class, "i", Some(&image)).unwrap_err().to_string();
        assert!(error.contains("an encrypted volume cannot begin as one that is not"), "{error}");
        let mut hidden = image;
        hidden["spec"] = json!({"sourceParameters": {"encryption": "encrypt"}});
        assert_eq!(check(&claim("2Gi"), &class, "i", Some(&hidden)), Ok(()));
        let plain = json!({"parameters": {"backingImage": "i"}});
        assert!(check(&claim("2Gi"), &plain, "i", Some(&hidden)).is_err());
    }
}
