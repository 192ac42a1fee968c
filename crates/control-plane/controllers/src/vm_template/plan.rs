//! The status of templates and their versions.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object::{self, int, is_merged, text};

const LABEL: &str = "template.harvesterhci.io/templateID";

/// The template that a version says it belongs to.
fn template_of(version: &Value) -> Option<ObjectKey> {
    let (namespace, name) = text(version, "/spec/templateId").split_once('/')?;
    Some(ObjectKey::new(namespace, name))
}

/// Those of a template, the oldest first.
pub(super) fn versions_of(template: &Value, all: &[Value]) -> Vec<Value> {
    let own = ObjectKey::of(template);
    let mut versions: Vec<Value> = all
        .iter()
        .filter(|version| object::namespace(version) == &*own.namespace)
        .filter(|version| !object::is_deleting(version))
        .filter(|version| template_of(version).as_ref() == Some(&own))
        .cloned()
        .collect();
    let age = |version: &Value| {
        let number = number(version).unwrap_or(i64::MAX);
        let time = text(version, "/metadata/creationTimestamp").to_owned();
        (number, time, object::name(version).to_owned())
    };
    versions.sort_by_cached_key(age);
    versions
}

/// The number that a version has.
pub(super) fn number(version: &Value) -> Option<i64> {
    int(version, "/status/version").filter(|number| *number > 0)
}

/// The last number that was given. Numbers of deleted versions do not come back: the template
/// remembers the last one.
pub(super) fn last_number(template: &Value, versions: &[Value]) -> i64 {
    let known = int(template, "/status/latestVersion").unwrap_or(0);
    versions.iter().filter_map(number).fold(known, i64::max)
}

/// The patch that completes a version, if anything is missing.
pub(super) fn version(
    template: &Value,
    version: &Value,
    number: i64,
    images: &[Value],
    now: Timestamp,
) -> Option<Value> {
    let mut conditions = condition::of(version);
    condition::set(&mut conditions, &Condition::new("assigned", "True"), now);
    let missing = missing_image(version, images);
    let ready = match &missing {
        None => Condition::new("ready", "True"),
        Some(image) => Condition::new("ready", "False")
            .because("ImageNotReady", format!("image {image} is not imported yet")),
    };
    condition::set(&mut conditions, &ready, now);
    let owner =
        object::controlled_by(template, "harvesterhci.io/v1beta1", "VirtualMachineTemplate");
    let patch = json!({
        "metadata": {
            "labels": {LABEL: object::name(template)},
            "ownerReferences": [owner],
        },
        "status": {"version": number, "conditions": conditions},
    });
    (!is_merged(version, &patch)).then_some(patch)
}

/// An image that a version needs and that is not there yet.
fn missing_image(version: &Value, images: &[Value]) -> Option<String> {
    let metadata = &version["spec"]["vm"]["metadata"];
    let templates = hci::claim_templates(metadata).unwrap_or_default();
    let in_claims = templates.iter().map(|template| {
        text(&template.claim, "/metadata/annotations/harvesterhci.io~1imageId").to_owned()
    });
    let own = text(version, "/spec/imageId").to_owned();
    let mut needed = in_claims.chain([own]).filter(|id| !id.is_empty());
    needed.find(|id| {
        let image = images
            .iter()
            .find(|image| *id == format!("{}/{}", object::namespace(image), object::name(image)));
        !image.is_some_and(|image| condition::is(image, "Imported", "True"))
    })
}

/// The first version is the default unless a user chose one.
pub(super) fn default_version(template: &Value, versions: &[Value]) -> Option<Value> {
    if !text(template, "/spec/defaultVersionId").is_empty() {
        return None;
    }
    let first = versions.iter().find(|version| number(version).is_some())?;
    let id = format!("{}/{}", object::namespace(first), object::name(first));
    Some(json!({"spec": {"defaultVersionId": id}}))
}

pub(super) fn status(template: &Value, versions: &[Value]) -> Option<Value> {
    let latest = versions.iter().filter_map(number).max().unwrap_or(0);
    let latest = latest.max(int(template, "/status/latestVersion").unwrap_or(0));
    let chosen = text(template, "/spec/defaultVersionId");
    let default = versions.iter().find(|version| {
        chosen == format!("{}/{}", object::namespace(version), object::name(version))
    });
    let mut status = json!({"latestVersion": latest});
    if let Some(default) = default.and_then(number) {
        status["defaultVersion"] = json!(default);
    }
    let patch = json!({"status": status});
    (latest > 0 && !is_merged(template, &patch)).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::list;

    fn template() -> Value {
        json!({"metadata": {"namespace": "default", "name": "linux", "uid": "u"}})
    }

    fn made(name: &str, time: &str, number: Option<i64>) -> Value {
        let mut version = json!({
            "metadata": {"namespace": "default", "name": name, "creationTimestamp": time},
            "spec": {"templateId": "default/linux"},
        });
        if let Some(number) = number {
            version["status"] = json!({"version": number});
        }
        version
    }

    #[test]
    fn versions_are_numbered_in_the_order_they_came() {
        let mut template = template();
        let all = vec![
            made("b", "2", None),
            made("a", "1", None),
            json!({"spec": {"templateId": "default/x"}}),
        ];
        let versions = versions_of(&template, &all);
        let names: Vec<&str> = versions.iter().map(object::name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(last_number(&template, &versions), 0);
        let numbered = [made("c", "3", Some(2))];
        assert_eq!(last_number(&template, &numbered), 2, "the template is behind");
        template["status"] = json!({"latestVersion": 4});
        assert_eq!(last_number(&template, &numbered), 4, "some were deleted");
    }

    #[test]
    fn a_version_is_completed_once_and_waits_for_its_image() {
        let mut own = made("a", "1", None);
        own["spec"]["imageId"] = json!("default/debian");
        let now = Timestamp::UNIX_EPOCH;
        let patch = version(&template(), &own, 1, &[], now).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({LABEL: "linux"}));
        assert_eq!(patch["status"]["version"], 1);
        let said = list(&patch, "/status/conditions");
        assert_eq!(text(&said[1], "/status"), "False");
        assert_eq!(text(&said[1], "/message"), "image default/debian is not imported yet");
        let image = json!({"metadata": {"namespace": "default", "name": "debian"},
            "status": {"conditions": [{"type": "Imported", "status": "True"}]}});
        let images = [image];
        let patch = version(&template(), &own, 1, &images, now).unwrap();
        assert_eq!(text(&patch, "/status/conditions/1/status"), "True");
        own["metadata"]["labels"] = patch["metadata"]["labels"].clone();
        own["metadata"]["ownerReferences"] = patch["metadata"]["ownerReferences"].clone();
        own["status"] = patch["status"].clone();
        assert_eq!(version(&template(), &own, 1, &images, now), None);
    }

    #[test]
    fn the_first_version_is_the_default_until_another_is_chosen() {
        let mut template = template();
        let versions = [made("a", "1", Some(1)), made("b", "2", Some(2))];
        let patch = default_version(&template, &versions).unwrap();
        assert_eq!(patch, json!({"spec": {"defaultVersionId": "default/a"}}));
        template["spec"] = json!({"defaultVersionId": "default/b"});
        assert_eq!(default_version(&template, &versions), None);
        let patch = status(&template, &versions).unwrap();
        assert_eq!(patch, json!({"status": {"defaultVersion": 2, "latestVersion": 2}}));
        template["status"] = patch["status"].clone();
        assert_eq!(status(&template, &versions), None);
        assert_eq!(status(&template, &[]), None);
    }
}
