//! Findings from the image that a claim begins as: one that failed, or is still imported.

use super::Findings;
use super::object::{Claim, Image, StatusCondition};
use crate::reason::ImageFailure;

/// Harvester's, on a claim: NAMESPACE/NAME of its image.
const IMAGE_ID: &str = "harvesterhci.io/imageId";

pub(super) fn examine(findings: &mut Findings<'_>, claim: &Claim) {
    let Some(image) = image_of(&findings.facts.images, claim) else { return };
    let is = |kind: &str, status: &str| {
        image.status.conditions.iter().find(|own| own.r#type == kind && own.status == status)
    };
    if let Some(damaged) = is("Intact", "False") {
        return examine_failure(findings, claim.name(), image, damaged);
    }
    if is("Imported", "True").is_some() {
        return;
    }
    let known = |own: &&StatusCondition| {
        own.status != "True" && ImageFailure::parse(own.reason.as_deref().unwrap_or("")).is_some()
    };
    let failed = image.status.conditions.iter().find(known);
    // An attempt that is repeated is reported there only.
    let retried = || is("RetryLimitExceeded", "False");
    match failed.or_else(retried).filter(|own| !own.message.as_deref().unwrap_or("").is_empty()) {
        Some(condition) => examine_failure(findings, claim.name(), image, condition),
        None => {
            let progress = image.status.progress.unwrap_or(0);
            let (what, fix) = (
                format!("The image {} is being imported: {progress}%.", title(image)),
                get(image) + " --watch",
            );
            findings.info(what, format!("The claim {} begins as this image.", claim.name()), fix);
        }
    }
}

fn examine_failure(
    findings: &mut Findings<'_>,
    claim: &str,
    image: &Image,
    condition: &StatusCondition,
) {
    let title = title(image);
    let url = image.spec.url.as_deref().unwrap_or("");
    let message = condition.message.clone().unwrap_or_default();
    let describe = get(image) + " -o yaml";
    let again = get(image).replacen("get", "delete", 1) + " # then create it with a correct source";
    let reason = ImageFailure::parse(condition.reason.as_deref().unwrap_or(""));
    match reason {
        Some(ImageFailure::Unsupported) => findings.error(
            format!("The image {title} of claim {claim} has a source that is not supported."),
            message,
            again,
        ),
        Some(ImageFailure::NoDisk) => findings.error(
            format!("No disk of the cluster can take the image {title} of claim {claim}."),
            message,
            "kubectl get nodes.longhorn.io -n longhorn-system -o yaml",
        ),
        Some(ImageFailure::Upload) => findings.error(
            format!("The upload of image {title} of claim {claim} failed."),
            message,
            describe,
        ),
        Some(ImageFailure::Damaged) => findings.warning(
            format!("The image {title} of claim {claim} is damaged on a disk."),
            message,
            describe,
        ),
        Some(ImageFailure::Initialize | ImageFailure::Import) => findings.error(
            format!("The image {title} of claim {claim} cannot be downloaded from {url}."),
            message,
            again,
        ),
        None => findings.warning(
            format!("The image {title} of claim {claim} cannot be downloaded from {url} yet."),
            format!("{message} (it is tried again)"),
            describe,
        ),
    }
}

/// By the annotation of the claim, or by its class, which belongs to one image.
fn image_of<'a>(images: &'a [Image], claim: &Claim) -> Option<&'a Image> {
    let named = claim.metadata.annotations.get(IMAGE_ID);
    let class = claim.spec.storage_class_name.as_deref().filter(|class| !class.is_empty());
    images.iter().find(|own| match named {
        Some(id) => *id == id_of(own),
        None => class.is_some() && own.status.storage_class_name.as_deref() == class,
    })
}

fn id_of(image: &Image) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", part(&image.metadata.namespace), part(&image.metadata.name))
}

fn title(image: &Image) -> String {
    image.spec.display_name.clone().unwrap_or_else(|| id_of(image))
}

fn get(image: &Image) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (part(&image.metadata.namespace), part(&image.metadata.name));
    format!("kubectl get virtualmachineimage {name} -n {namespace}")
}
