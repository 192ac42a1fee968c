//! The missing parts of an image: its data on a disk, the storage class of its volumes, a correct
//! status. Pure.
//!
//! ```text
//!              ┌────────── pause, then a new backing image ◄─┐
//!              ▼                                              │ failed ≤ retry
//!  new ─► Initialized ─► Imported: Unknown ──────────────► failed ─► RetryLimitExceeded
//!              │                 │
//!              │                 └─► Imported: True
//!              └ for a download: when its server has answered
//! ```

mod clone;
mod data;
mod made;
mod status;

use base::clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use virt::reason::ImageFailure;

use self::data::{ImageData, damage, data};
use self::made::{backing, class, copy};
use self::status::ImageStatus;
use crate::condition::{self, Condition};
use crate::image::record;
use crate::longhorn::record::{BackingImageFields, VolumeFields};
use crate::object::{is_deleting, read, uid};
use crate::record::condition::{ConditionFields, condition};
use crate::record::metadata::metadata;

/// Holds an image until its data is gone; Harvester's name for it.
pub(super) const HELD: &str = "wrangler.cattle.io/vm-image-controller";
/// The image that a backing image is for: namespace/name.
pub(super) const IMAGE_ID: &str = "harvesterhci.io/imageId";

/// The condition that says whether the data is as it was imported.
const INTACT: &str = "Intact";
/// Why an image is not begun with.
const NO_DISK: &str = ImageFailure::NoDisk.as_str();

const FIRST_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_RETRY_DELAY: SignedDuration = SignedDuration::from_mins(5);

/// The objects and facts of an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageInput<'a> {
    pub(super) image: &'a Value,
    pub(super) backing: Option<&'a Value>,
    pub(super) class: Option<&'a Value>,
    /// The volume that it is exported from, if it is, and the copy that is read instead: nothing
    /// writes to that meanwhile.
    pub(super) source: Option<&'a Value>,
    pub(super) copy: Option<&'a Value>,
    /// The image that it is a clone of, if it is.
    pub(super) origin: Option<&'a Value>,
    /// Why no disk takes its data.
    pub(super) obstacle: Option<&'a str>,
}

/// The changes to make, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ImagePlan {
    pub(super) class: Option<Value>,
    pub(super) backing: Option<Value>,
    pub(super) copy: Option<Value>,
    pub(super) delete_copy: bool,
    /// The data of an attempt that failed makes room for the next.
    pub(super) delete_backing: bool,
    /// A merge patch of the image.
    pub(super) patch: Option<Value>,
    /// When there is something to do again although nothing changes.
    pub(super) again: Option<Timestamp>,
}

pub(super) fn backing_name(image: &Value) -> String {
    format!("vmi-{}", uid(image))
}

pub(super) fn class_name(image: &Value) -> String {
    format!("lh-{}", uid(image))
}

/// The copy of a volume that is exported.
pub(super) fn copy_name(image: &Value) -> String {
    format!("export-{}", uid(image))
}

/// Why there is no use in trying.
fn refusal(seen: ImageInput<'_>) -> Option<String> {
    let image = seen.image;
    let spec = record::spec(image);
    if spec.backend == "cdi" {
        return Some("spec.backend cdi is not supported: it must be backingimage".into());
    }
    let kind = spec.source_type;
    if kind != "clone" && spec.parameter("encrypted") == "true" {
        return Some(
            "the storage class is encrypted: import the image with another, then clone it with \
             cryptoOperation encrypt"
                .into(),
        );
    }
    match kind {
        "download" | "upload" => None,
        "clone" if seen.backing.is_some() => None,
        "clone" => clone::refusal(image, seen.origin),
        "export-from-volume" => {
            let (space, claim) = (spec.pvc_namespace, spec.pvc_name);
            match seen.source {
                None => Some(format!(
                    "claim {space}/{claim} is not bound to a volume of {}",
                    hci::DRIVER
                )),
                Some(volume) if read::<VolumeFields<'_>>(volume).spec.encrypted => {
                    Some(format!("the volume of claim {space}/{claim} is encrypted"))
                }
                Some(_) => None,
            }
        }
        other => Some(format!("spec.sourceType {other} is not supported")),
    }
}

pub(super) fn plan(seen: ImageInput<'_>, now: Timestamp) -> ImagePlan {
    let image = seen.image;
    let mut status = ImageStatus::of(image, now);
    if condition::is(image, "Imported", "True") {
        // The data was removed, or restored.
        if seen.backing.is_none() {
            let missing = format!("backing image {} is not found", backing_name(image));
            status.set(Condition::new("BackingImageMissing", "True").because("", missing));
        } else if condition(image, "BackingImageMissing").is_some() {
            status.set(Condition::new("BackingImageMissing", "False"));
        }
        match seen.backing.and_then(damage) {
            Some(damage) => status.set(
                Condition::new(INTACT, "False").because(ImageFailure::Damaged.as_str(), damage),
            ),
            None => condition::remove(&mut status.conditions, INTACT),
        }
        let class = seen.class.is_none().then(|| class(image));
        let delete_copy = seen.copy.is_some();
        return ImagePlan {
            class,
            delete_copy,
            patch: status.patch(image),
            ..ImagePlan::default()
        };
    }
    if condition::is(image, "RetryLimitExceeded", "True") {
        return ImagePlan { delete_copy: seen.copy.is_some(), ..ImagePlan::default() };
    }
    if let Some(why) = refusal(seen) {
        status.set(
            Condition::new("Initialized", "False").because(ImageFailure::Unsupported.as_str(), why),
        );
        return ImagePlan { patch: status.patch(image), ..ImagePlan::default() };
    }
    let mut plan = ImagePlan::default();
    match seen.backing {
        None => begin(seen, &mut plan, &mut status, now),
        // The next attempt begins when nothing is left of this one.
        Some(backing) if is_deleting(backing) => {}
        Some(backing) => follow(seen, backing, &mut plan, &mut status, now),
    }
    plan.patch = status.patch(image);
    plan
}

fn begin(seen: ImageInput<'_>, plan: &mut ImagePlan, status: &mut ImageStatus, now: Timestamp) {
    let due = due(seen.image);
    if due.is_some_and(|due| due > now) {
        plan.again = due;
        return;
    }
    let image = seen.image;
    if let Some(source) = seen.source {
        match seen.copy {
            None => plan.copy = Some(copy(image, source)),
            Some(copy) if is_copied(copy) => {}
            Some(_) => return,
        }
    }
    if plan.copy.is_some() {
        return;
    }
    plan.class = seen.class.is_none().then(|| class(image));
    plan.backing = Some(backing(seen));
    let spec = record::spec(image);
    for (field, value) in [
        ("storageClassName", json!(class_name(image))),
        ("targetStorageClassName", json!(spec.target_storage_class_name)),
        ("appliedUrl", json!(spec.url)),
        ("progress", json!(0)),
    ] {
        if !value.is_null() {
            status.fields.insert(field.into(), value);
        }
    }
    if spec.source_type != "download" {
        status.set(Condition::new("Initialized", "True"));
    }
}

fn follow(
    seen: ImageInput<'_>,
    backing: &Value,
    plan: &mut ImagePlan,
    status: &mut ImageStatus,
    now: Timestamp,
) {
    let reported = read::<BackingImageFields<'_>>(backing).status;
    for (field, bytes) in [("size", reported.size), ("virtualSize", reported.virtual_size)] {
        if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
            status.fields.insert(field.into(), json!(bytes));
        }
    }
    let importing = |status: &mut ImageStatus| {
        status.set(Condition::new("Initialized", "True"));
        status.set(Condition::new("Imported", "Unknown").because("Importing", ""));
    };
    match data(backing) {
        ImageData::Waiting => wait(seen, status),
        ImageData::Uploadable { complaint } if complaint.is_empty() => importing(status),
        ImageData::Uploadable { complaint } => {
            status.set(
                Condition::new("Imported", "False")
                    .because(ImageFailure::Upload.as_str(), complaint),
            );
        }
        // Before its server has answered nothing is known of a download.
        ImageData::Coming { has_begun: false, .. } => {}
        ImageData::Coming { progress, .. } => {
            importing(status);
            status.fields.insert("progress".into(), json!(progress.clamp(0, 99)));
        }
        ImageData::Ready => {
            status.fields.insert("progress".into(), json!(100));
            status.set(Condition::new("RetryLimitExceeded", "False"));
            status.set(Condition::new("Initialized", "True"));
            status.set(Condition::new("Imported", "True").because("Imported", ""));
        }
        ImageData::Failed { progress, has_begun, message } => {
            status.fields.insert("progress".into(), json!(progress.clamp(0, 100)));
            fail(seen, backing, (has_begun, &message), plan, status, now);
        }
    }
}

/// Nothing has failed: the disk may come, or become free.
fn wait(seen: ImageInput<'_>, status: &mut ImageStatus) {
    let before = condition::find(&status.conditions, "Initialized");
    let had_none = before.is_some_and(|own| read::<ConditionFields<'_>>(own).reason == NO_DISK);
    match seen.obstacle {
        Some(why) => {
            status.set(Condition::new("Initialized", "Unknown").because(NO_DISK, why));
        }
        None if had_none => status.set(Condition::new("Initialized", "Unknown")),
        None => {}
    }
}

/// An attempt has failed. It is counted once: a failure from before the backing image was created
/// belongs to an earlier attempt.
fn fail(
    seen: ImageInput<'_>,
    backing: &Value,
    (has_begun, message): (bool, &str),
    plan: &mut ImagePlan,
    status: &mut ImageStatus,
    now: Timestamp,
) {
    let image = seen.image;
    let before = record::status(image);
    let counted = time(before.last_failed_time)
        .zip(time(metadata(backing).creation_timestamp))
        .is_some_and(|(failed, began)| failed >= began);
    if counted {
        let due = due(image).filter(|due| *due > now);
        plan.delete_backing = due.is_none();
        plan.again = due;
        return;
    }
    let failed = before.failed.unwrap_or(0) + 1;
    let retry = record::spec(image).retry.unwrap_or(3);
    status.fields.insert("failed".into(), json!(failed));
    status.fields.insert("lastFailedTime".into(), json!(clock::rfc3339(now)));
    let text = match failed {
        1 => format!("failed due to error: {message}"),
        _ => format!("retry attempted {}/{retry} failed due to error: {message}", failed - 1),
    };
    if failed <= retry {
        status.set(Condition::new("RetryLimitExceeded", "False").because("", text));
        plan.again = Some(now.saturating_add(pause(failed)).unwrap_or(now));
        return;
    }
    status.set(Condition::new("RetryLimitExceeded", "True").because("", text));
    let (kind, reason) = if has_begun {
        ("Imported", ImageFailure::Import)
    } else {
        ("Initialized", ImageFailure::Initialize)
    };
    status.set(Condition::new(kind, "False").because(reason.as_str(), message));
}

fn pause(failed: i64) -> SignedDuration {
    let doubled = i32::try_from(failed.clamp(1, 6) - 1).unwrap_or(0);
    FIRST_RETRY_DELAY
        .checked_mul(1 << doubled)
        .unwrap_or(LONGEST_RETRY_DELAY)
        .min(LONGEST_RETRY_DELAY)
}

/// When the next attempt may begin.
fn due(image: &Value) -> Option<Timestamp> {
    let status = record::status(image);
    let failed = status.failed.filter(|failed| *failed > 0)?;
    time(status.last_failed_time)?.checked_add(pause(failed)).ok()
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Whether the copy of a volume is complete.
fn is_copied(copy: &Value) -> bool {
    read::<VolumeFields<'_>>(copy).status.clone_status.state == "completed"
}

#[cfg(test)]
mod tests;
