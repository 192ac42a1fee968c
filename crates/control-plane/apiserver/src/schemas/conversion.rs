//! Conversion of objects between the versions of a kind.
//!
//! Built-in kinds have conversion functions. Custom kinds change nothing but `apiVersion`, or call
//! the conversion webhook of their definition. Readers of entries of such a kind pass them
//! through [`shown`] first; everything after that works as if they had been stored in the
//! requested version.

mod review;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use store::{Shape as _, StoredVersion};

use self::review::ConversionReviewVersion;
use crate::api::{Api, ObjectEntry};
use crate::fairness;
use crate::outbound::webhook::Hook;
use crate::schemas::served::{KindOrigin, ServedKind};
use crate::status::{ApiError, ApiResult};
use crate::verbs::item::{self, ObjectShape};

/// How many objects are sent at once; upstream sends whole lists.
const BATCH: usize = 500;
const TIME: Duration = Duration::from_secs(30);

/// `spec.conversion` of a definition, if its strategy is a webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    hook: Hook,
    version: Option<ConversionReviewVersion>,
}

impl Webhook {
    pub(crate) fn of(conversion: &Value) -> Option<Self> {
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        Some(Self {
            hook: Hook::of(&webhook["clientConfig"]),
            version: ConversionReviewVersion::of(&webhook["conversionReviewVersions"]),
        })
    }
}

fn webhook(served: &ServedKind) -> Option<&Webhook> {
    served.custom().and_then(|custom| custom.conversion.as_ref())
}

/// Whether entries of a kind must pass through [`shown`].
pub(crate) fn is_needed(served: &ServedKind) -> bool {
    webhook(served).is_some()
}

/// Turns an object of one served kind into another that shows the same objects.
pub(crate) async fn convert(
    api: &Api,
    from: &Arc<ServedKind>,
    to: &Arc<ServedKind>,
    object: &mut Value,
) -> ApiResult<()> {
    if Arc::ptr_eq(from, to) {
        return Ok(());
    }
    match (&from.origin, &to.origin) {
        (KindOrigin::BuiltIn(from), KindOrigin::BuiltIn(to)) => {
            if let Some(conversion) = &from.conversion {
                (conversion.to_storage)(object);
            }
            if let Some(conversion) = &to.conversion {
                (conversion.from_storage)(object);
            }
        }
        (_, KindOrigin::Custom(custom)) => {
            let version = to.api_version();
            match &custom.conversion {
                Some(webhook) => {
                    let mut converted = ask(api, webhook, &version, vec![object.take()]).await?;
                    *object = converted.pop().unwrap_or_default();
                }
                None => object["apiVersion"] = version.into(),
            }
            custom.refresh(object);
        }
        _ => {}
    }
    Ok(())
}

/// Entries in the version in which a kind is served.
pub(crate) async fn shown(
    api: &Api,
    served: &ServedKind,
    mut entries: Vec<ObjectEntry>,
) -> ApiResult<Vec<ObjectEntry>> {
    let Some(webhook) = webhook(served) else { return Ok(entries) };
    let version = served.api_version();
    let head = format!("{{\"apiVersion\":{},", Value::from(version.as_str()));
    let foreign: Vec<usize> = (0..entries.len())
        .filter(|at| !entries[*at].item.bytes().starts_with(head.as_bytes()))
        .collect();
    for batch in foreign.chunks(BATCH) {
        let objects = batch.iter().map(|at| entries[*at].item.to_value()).collect();
        let converted = ask(api, webhook, &version, objects).await?;
        for (at, object) in batch.iter().zip(converted) {
            entries[*at] = remade(&entries[*at], &object);
        }
    }
    Ok(entries)
}

/// The same as [`shown`] for one entry.
pub(crate) async fn shown_one(
    api: &Api,
    served: &ServedKind,
    entry: ObjectEntry,
) -> ApiResult<ObjectEntry> {
    if !is_needed(served) {
        return Ok(entry);
    }
    let mut entries = shown(api, served, vec![entry]).await?;
    entries.pop().ok_or_else(|| ApiError::internal("a conversion lost its object"))
}

/// An object in the storage version; `None` if no webhook has to convert it.
pub(crate) async fn stored(
    api: &Api,
    served: &ServedKind,
    object: &Value,
) -> ApiResult<Option<Value>> {
    let (Some(webhook), Some(custom)) = (webhook(served), served.custom()) else {
        return Ok(None);
    };
    if *served.version == *custom.storage_version {
        return Ok(None);
    }
    let version = format!("{}/{}", served.group, custom.storage_version);
    Ok(ask(api, webhook, &version, vec![object.clone()]).await?.pop())
}

/// An entry of the same object with other content.
pub(crate) fn remade(entry: &ObjectEntry, object: &Value) -> ObjectEntry {
    let bytes = Bytes::from(item::encode(object));
    let (name, revision, created) = (entry.name.clone(), entry.revision, entry.created);
    let item = ObjectShape.shape("", &name, bytes, revision, created);
    Arc::new(StoredVersion { name, revision, created, item })
}

async fn ask(
    api: &Api,
    webhook: &Webhook,
    version: &str,
    objects: Vec<Value>,
) -> ApiResult<Vec<Value>> {
    let kind = review::kind_of(&objects);
    let failed = |why: &dyn std::fmt::Display| {
        ApiError::unclassified(format!("conversion webhook for {kind} {why}"))
    };
    let Some(review_version) = webhook.version else {
        return Err(ApiError::unclassified("no supported conversion review versions"));
    };
    let uid = uuid::Uuid::new_v4().to_string();
    let question = review::question(review_version, &uid, version, &objects);
    let asking = std::pin::pin!(webhook.hook.convert(api, &question, TIME));
    let answer = fairness::without_seat(asking).await;
    let answer = answer.map_err(|error| failed(&format_args!("failed: {error}")))?;
    review::answer(review_version, &uid, version, &objects, answer).map_err(|error| failed(&error))
}
