//! Everything that changes an object, in the order in which it happens:
//!
//! ```text
//!   body ─► intake ─► defaults ─► field managers ─► admission (may change)
//!        ─► prepare ─► validate ─► admission (may refuse) ─► compare-and-swap
//! ```
//!
//! - `create.rs`: POST, and the creating half of apply.
//! - `update.rs`: the loop that PUT, PATCH and every subresource share.
//! - `patch.rs`:  **where a PATCH is applied** to the live object, by its media type.
//! - `delete.rs`: DELETE of one object; finalizers, propagation, preconditions.
//! - `collection.rs`: DELETE of many.

pub(crate) mod collection;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod intake;
pub(crate) mod patch;
pub(crate) mod update;

use base::clock;
use bytes::Bytes;
use merge::Set;
use serde_json::Value;
use store::{Expect, Write, WriteChange};

use crate::api::{ObjectWritten, write_failure};
use crate::endpoints::traffic::timing::Timed;
use crate::schemas::conversion;
use crate::schemas::served::Endpoint;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::item;
use crate::verbs::object;

/// Puts one version of an object into the store.
async fn put(
    call: &Call<'_>,
    mut object: Value,
    expect: Expect,
) -> Result<ObjectWritten, PutError> {
    let key = call.served.key(object::namespace(&object), object::name(&object));
    let converted = conversion::stored(call.api, &call.served, &object).await;
    if let Some(stored) = converted.map_err(PutError::Conversion)? {
        return put_converted(call, &object, stored, key, expect).await;
    }
    call.served.to_storage(&mut object);
    let write = Write {
        table: call.served.table.clone(),
        name: key.into(),
        expect,
        change: WriteChange::Put(Bytes::from(item::encode(&object))),
    };
    Ok(store(call, write).await?)
}

/// A write to the store, timed as upstream's dashboards know it.
pub(crate) async fn store(
    call: &Call<'_>,
    write: Write,
) -> Result<ObjectWritten, store::WriteError> {
    let operation = match (&write.change, &write.expect) {
        (WriteChange::Delete, _) => "delete",
        (_, Expect::Absent) => "create",
        _ => "update",
    };
    let began = std::time::Instant::now();
    let written = call.api.store.write(write).await;
    let labels = [("operation", operation), ("type", &*call.served.plural)];
    call.api.traffic.timings.note(Timed::Store, &labels, began.elapsed());
    written
}

/// The same for an object that is stored in another form than it was sent in; the answer
/// shows it as it was sent.
async fn put_converted(
    call: &Call<'_>,
    object: &Value,
    stored: Value,
    key: String,
    expect: Expect,
) -> Result<ObjectWritten, PutError> {
    let write = Write {
        table: call.served.table.clone(),
        name: key.into(),
        expect,
        change: WriteChange::Put(Bytes::from(item::encode(&stored))),
    };
    let mut written = store(call, write).await?;
    written.entry = conversion::remade(&written.entry, object);
    Ok(written)
}

/// Why an object was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutError {
    #[error(transparent)]
    Store(#[from] store::WriteError),
    #[error("the object cannot be converted to the version that is stored")]
    Conversion(ApiError),
}

impl PutError {
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Store(store::WriteError::Conflict { .. }))
    }

    /// The error for the client.
    pub(crate) fn into_api_error(self, subject: StatusSubject<'_>) -> ApiError {
        match self {
            Self::Store(error) => write_failure(&error, subject),
            Self::Conversion(error) => error,
        }
    }
}

/// Records which fields this request's manager now owns.
fn track(
    call: &Call<'_>,
    live: Option<&Value>,
    new: &mut Value,
    manager: &str,
    endpoint: Endpoint,
) -> ApiResult<()> {
    let facts = facts(call, endpoint)?;
    merge::track_update(live, new, &request(call, manager, &facts));
    Ok(())
}

/// Fields that an endpoint never changes and therefore never owns.
fn reset_fields(call: &Call<'_>, endpoint: Endpoint) -> Set {
    match endpoint {
        Endpoint::Main | Endpoint::Finalize if call.served.has_status() => {
            Set::of_fields(&[&["status"]])
        }
        Endpoint::Main | Endpoint::Finalize | Endpoint::Binding => Set::default(),
        Endpoint::Status if call.served.is_custom() => Set::of_fields(&[&["metadata"], &["spec"]]),
        Endpoint::Status | Endpoint::Approval => Set::of_fields(&[&["spec"]]),
    }
}

/// The input of `merge` for a write.
fn request<'a>(
    call: &'a Call<'_>,
    manager: &'a str,
    facts: &'a MergeInput,
) -> merge::MergeRequest<'a> {
    merge::MergeRequest {
        manager,
        subresource: call.path.subresource,
        api_version: &facts.api_version,
        kind: &call.served.kind,
        now: &facts.now,
        schema: &facts.schema,
        reset: &facts.reset,
        versions: &[],
        blank: facts.blank,
    }
}

/// The owned parts of a [`merge::Request`].
struct MergeInput {
    api_version: String,
    now: String,
    schema: schema::Schema,
    reset: Set,
    blank: Option<&'static Value>,
}

fn facts(call: &Call<'_>, endpoint: Endpoint) -> ApiResult<MergeInput> {
    let schema = call.served.schema()?;
    // Typed objects have their structs even when nothing is in them.
    let served = &call.served;
    let blank = types::Kind::find(&served.group, &served.version, &served.kind)
        .filter(|_| !served.is_custom())
        .map(types::Kind::blank);
    Ok(MergeInput {
        api_version: call.served.api_version(),
        now: clock::now_rfc3339(),
        reset: reset_fields(call, endpoint),
        schema,
        blank,
    })
}
