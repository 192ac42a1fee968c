//! Which import a DataImportCron wants, what it says of it, and which old ones go: pure.

use hci::import_cron::{LAST_CRON_TIME, SOURCE_DIGEST};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use virt::api::cdi::DataImportCron;

use crate::condition::{self, Condition};
use crate::copied_spec::text_mut;
use crate::object::{annotation, controlled_by, name, namespace, read};
use crate::populate::IMMEDIATE;
use crate::record::fields;
use crate::record::metadata::metadata;

pub(super) const API: &str = "cdi.kubevirt.io/v1beta1";
/// On the imports of a cron and on its DataSource: the name of the cron.
pub(super) const LABEL: &str = "cdi.kubevirt.io/dataImportCron";
const DEFAULT_KEEP: usize = 3;
/// How much of a digest is in the name of its import.
const DIGEST_PREFIX: usize = 12;

/// The digest that is to be imported, once the source was polled.
pub(super) fn desired(cron: &DataImportCron) -> Option<&str> {
    cron.metadata.annotations.get(SOURCE_DIGEST).map(String::as_str).filter(|own| !own.is_empty())
}

/// The name of the import of a digest.
pub(super) fn import_name(cron: &DataImportCron, digest: &str) -> String {
    let plain = digest.split_once(':').map_or(digest, |(_, hex)| hex);
    let prefix: String = plain.chars().take(DIGEST_PREFIX).collect();
    format!("{}-{prefix}", cron.spec.managed_data_source)
}

fields! {
    struct CronFields<'a> {
        spec: ImportCronSpec,
        status: CronStatus<'a>,
    }

    struct ImportCronSpec {
        template: ImportTemplate,
    }

    /// The data volume of an import, which is copied.
    struct ImportTemplate {
        metadata: ImportMetadata,
        spec: Value,
    }

    struct ImportMetadata {
        labels: Map<String, Value>,
        annotations: Map<String, Value>,
    }

    struct CronStatus<'a> {
        last_imported as "lastImportedPVC": ImportedClaim<'a>,
    }

    struct ImportedClaim<'a> {
        name: &'a str,
    }
}

/// The data volume that imports a digest.
pub(super) fn import(object: &Value, cron: &DataImportCron, digest: &str) -> Value {
    let ImportTemplate { metadata, mut spec } = read::<CronFields<'_>>(object).spec.template;
    if let Some(url) = text_mut(&mut spec, "/source/registry/url") {
        *url = pinned(url, digest);
    }
    let ImportMetadata { mut labels, mut annotations } = metadata;
    labels.insert(LABEL.into(), name(object).into());
    annotations.insert(IMMEDIATE.into(), "true".into());
    let mut wanted = json!({
        "apiVersion": API, "kind": "DataVolume",
        "metadata": {
            "name": import_name(cron, digest), "namespace": namespace(object),
            "labels": labels, "annotations": annotations,
        },
        "spec": spec,
    });
    if cron.spec.retention_policy.as_deref() == Some("None") {
        wanted["metadata"]["ownerReferences"] =
            json!([controlled_by(object, API, "DataImportCron")]);
    }
    wanted
}

/// The image by its digest: a tag may be moved while it is imported.
fn pinned(url: &str, digest: &str) -> String {
    let (scheme, image) = url.split_once("://").unwrap_or(("docker", url));
    let image = image.split_once('@').map_or(image, |(image, _)| image);
    let slash = image.rfind('/').unwrap_or(0);
    let image = match image[slash..].rfind(':') {
        Some(colon) => &image[..slash + colon],
        None => image,
    };
    format!("{scheme}://{image}@{digest}")
}

/// The DataSource that a cron manages, as it should be after an import.
pub(super) fn data_source(object: &Value, cron: &DataImportCron, import: &str) -> Value {
    let mut wanted = json!({
        "apiVersion": API, "kind": "DataSource",
        "metadata": {
            "name": cron.spec.managed_data_source, "namespace": namespace(object),
            "labels": {LABEL: name(object)},
        },
        "spec": {"source": {"pvc": {"namespace": namespace(object), "name": import}}},
    });
    if cron.spec.retention_policy.as_deref() == Some("None") {
        wanted["metadata"]["ownerReferences"] =
            json!([controlled_by(object, API, "DataImportCron")]);
    }
    wanted
}

/// The state of the current import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImportStage<'a> {
    /// The source was not polled yet.
    NoDigest,
    /// A data volume in this phase.
    Importing(&'a str),
    Imported,
}

/// The status of a cron, as a patch.
pub(super) fn status(
    object: &Value,
    cron: &DataImportCron,
    stage: ImportStage<'_>,
    now: Timestamp,
) -> Value {
    let condition = |kind, status, message: &str, reason: &str| {
        Condition::new(kind, status).because(reason, message)
    };
    let none = || condition("Progressing", "False", "No current import", "NoImport");
    let (progressing, current) = match stage {
        ImportStage::NoDigest => {
            (none(), condition("UpToDate", "False", "No source digest", "NoDigest"))
        }
        ImportStage::Imported => {
            let message = "Latest import is up to date";
            (none(), condition("UpToDate", "True", message, "UpToDate"))
        }
        ImportStage::Importing(phase) => {
            let progressing = match phase {
                "" | "Pending" | "ImportScheduled" | "WaitForFirstConsumer" => {
                    condition("Progressing", "False", "Import is scheduled", "ImportScheduled")
                }
                "ImportInProgress" => {
                    condition("Progressing", "True", "Import is progressing", "ImportProgressing")
                }
                phase => {
                    let message = format!("Import DataVolume phase {phase}");
                    condition("Progressing", "False", &message, phase)
                }
            };
            let message = "Import is progressing";
            (progressing, condition("UpToDate", "False", message, "ImportProgressing"))
        }
    };
    let mut conditions = condition::of(object);
    condition::set(&mut conditions, &progressing, now);
    condition::set(&mut conditions, &current, now);
    let mut status = json!({"conditions": conditions, "sourceFormat": "pvc"});
    if let Some(polled) = annotation(object, LAST_CRON_TIME) {
        status["lastExecutionTimestamp"] = polled.into();
    }
    if let Some(digest) = desired(cron) {
        let import = import_name(cron, digest);
        status["currentImports"] = json!([{"DataVolumeName": import, "Digest": digest}]);
        let known = read::<CronFields<'_>>(object).status.last_imported.name;
        if stage == ImportStage::Imported && known != import {
            status["lastImportedPVC"] = json!({"namespace": namespace(object), "name": import});
            status["lastImportTimestamp"] = base::clock::rfc3339(now).into();
        }
    }
    json!({"status": status})
}

/// The imports that a cron does not keep, given those that are complete.
pub(super) fn outdated<'a>(
    cron: &DataImportCron,
    current: &str,
    imports: &'a [Value],
) -> Vec<&'a Value> {
    if cron.spec.garbage_collect.as_deref() == Some("Never") {
        return Vec::new();
    }
    let keep = cron.spec.imports_to_keep.and_then(|keep| usize::try_from(keep).ok());
    let mut others: Vec<&Value> = imports.iter().filter(|own| name(own) != current).collect();
    others.sort_by(|a, b| {
        let made = |own: &Value| metadata(own).creation_timestamp.to_owned();
        made(b).cmp(&made(a)).then_with(|| name(a).cmp(name(b)))
    });
    // The current one is kept in any case, and counts.
    others.split_off(others.len().min(keep.unwrap_or(DEFAULT_KEEP).max(1) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::text;

    fn cron(extra: Value) -> (Value, DataImportCron) {
        let mut object = json!({
            "metadata": {"name": "debian", "namespace": "images", "uid": "u",
                "annotations": {SOURCE_DIGEST: "sha256:0123456789abcdef"}},
            "spec": {"schedule": "@daily", "managedDataSource": "debian",
                "template": {"spec": {"storage": {},
                    "source": {"registry": {"url": "docker://h:5000/os/debian:12"}}}}},
        });
        for (key, value) in extra.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        let read = serde_json::from_value(object.clone()).unwrap();
        (object, read)
    }

    #[test]
    fn an_import_is_of_one_digest() {
        let (object, read) = cron(json!({}));
        let digest = desired(&read).unwrap();
        let dv = import(&object, &read, digest);
        assert_eq!(name(&dv), "debian-0123456789ab");
        let url = text(&dv, "/spec/source/registry/url");
        assert_eq!(url, "docker://h:5000/os/debian@sha256:0123456789abcdef");
        assert_eq!(dv["metadata"]["labels"][LABEL], "debian");
        assert_eq!(dv["metadata"].get("ownerReferences"), None, "it outlives the cron");
        let (object, read) = cron(json!({"retentionPolicy": "None"}));
        let dv = import(&object, &read, digest);
        assert_eq!(dv["metadata"]["ownerReferences"][0]["uid"], "u");
        for (url, expected) in [
            ("docker://h:5000/debian", "docker://h:5000/debian@d"),
            ("docker://debian:12", "docker://debian@d"),
            ("docker://h/a@sha256:1", "docker://h/a@d"),
        ] {
            assert_eq!(pinned(url, "d"), expected);
        }
    }

    #[test]
    fn the_status_follows_the_import() {
        let (object, read) = cron(json!({}));
        let now = "2026-11-16T08:00:00Z".parse().unwrap();
        let reported = |stage| {
            let status = status(&object, &read, stage, now);
            let conditions = &status["status"]["conditions"];
            let reason = |index: usize| text(&conditions[index], "/reason").to_owned();
            (reason(0), reason(1), status)
        };
        assert_eq!(reported(ImportStage::NoDigest).1, "NoDigest");
        assert_eq!(reported(ImportStage::Importing("Pending")).0, "ImportScheduled");
        assert_eq!(reported(ImportStage::Importing("ImportInProgress")).0, "ImportProgressing");
        assert_eq!(reported(ImportStage::Importing("Failed")).0, "Failed");
        let (progressing, current, status) = reported(ImportStage::Imported);
        assert_eq!((progressing.as_str(), current.as_str()), ("NoImport", "UpToDate"));
        let status = &status["status"];
        assert_eq!(status["lastImportedPVC"]["name"], "debian-0123456789ab");
        assert_eq!(status["currentImports"][0]["Digest"], "sha256:0123456789abcdef");
    }

    #[test]
    fn the_newest_imports_are_kept() {
        let import = |name: &str, day: u32| {
            json!({"metadata": {"name": name,
                "creationTimestamp": format!("2026-11-{day:02}T00:00:00Z")}})
        };
        let all = [import("a", 1), import("b", 2), import("c", 3), import("d", 4)];
        let gone = |extra: Value| -> Vec<String> {
            let (_, read) = cron(extra);
            outdated(&read, "d", &all).iter().map(|own| name(own).to_owned()).collect()
        };
        assert_eq!(gone(json!({})), ["a"]);
        assert_eq!(gone(json!({"importsToKeep": 1})), ["c", "b", "a"]);
        assert_eq!(gone(json!({"importsToKeep": 0})), ["c", "b", "a"]);
        assert!(gone(json!({"garbageCollect": "Never"})).is_empty());
    }
}
