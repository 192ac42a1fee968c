//! POST: a new object.

use base::clock;
use http::StatusCode;
use serde_json::Value;
use store::Expect;

use crate::admission::{self, AdmissionOperation, Operation};
use crate::audit;
use crate::http::decode::Parsed;
use crate::http::options::WriteOptions;
use crate::http::verb_result::VerbResult;
use crate::schemas::served::Endpoint;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::write::{self, intake};

/// How often a generated name that is taken is drawn anew.
const NAME_DRAWS: usize = 8;

pub(crate) async fn create(
    call: &mut Call<'_>,
    parsed: Parsed,
    options: &WriteOptions,
) -> ApiResult<VerbResult> {
    let mut object = intake::take(call, parsed, options.field_validation)?;
    audit::note_created(object::name(&object));
    intake::check_namespace(call, &mut object)?;
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        object::set_meta(&mut object, field, None);
    }
    let manager = call.manager(options.field_manager.as_deref());
    write::track(call, None, &mut object, &manager, Endpoint::Main)?;
    admit(call, object, options.dry_run).await
}

/// From an object with its managers to a stored one; shared by POST and apply.
pub(super) async fn admit(
    call: &mut Call<'_>,
    mut object: Value,
    dry_run: bool,
) -> ApiResult<VerbResult> {
    if call.served.custom().is_some_and(|custom| custom.is_terminating) {
        let subject = call.served.subject(object::name(&object));
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::forbidden_because(subject, why));
    }
    let generated = object::name(&object).is_empty();
    let act = AdmissionOperation::new(Operation::Create, dry_run);
    for field in ["uid", "creationTimestamp"] {
        object::set_meta(&mut object, field, None);
    }
    admission::mutate(call, &act, &mut object, None).await?;
    intake::check_namespace(call, &mut object)?;
    let generated = generated && object::name(&object).is_empty();
    object::set_meta(&mut object, "uid", Some(uuid::Uuid::new_v4().to_string().into()));
    object::set_meta(&mut object, "creationTimestamp", Some(clock::now_rfc3339().into()));
    if generated {
        draw_name(&mut object);
    }
    call.served.prepare_create(&mut object);
    let errors = call.served.validate_create(&object);
    if !errors.is_empty() {
        return Err(ApiError::invalid(call.served.kind_subject(object::name(&object)), &errors));
    }
    call.warn_of(&object);
    let reserved =
        admission::complete::complete(call, Operation::Create, &mut object, None, dry_run).await?;
    let written = finish(call, object, generated, dry_run).await;
    reserved.settle(call.api, written.is_ok()).await;
    written
}

async fn finish(
    call: &mut Call<'_>,
    object: Value,
    generated: bool,
    dry_run: bool,
) -> ApiResult<VerbResult> {
    let warnings = admission::validate(
        call,
        &AdmissionOperation::new(Operation::Create, dry_run),
        Some(&object),
        None,
    )
    .await?;
    warnings.into_iter().for_each(|warning| call.warn(warning));
    if dry_run {
        let name = call.served.key(object::namespace(&object), object::name(&object));
        if call.api.store.get(&call.served.table, &name).is_some() {
            return Err(taken(call, &object));
        }
        return Ok(VerbResult::Made(StatusCode::CREATED, object));
    }
    store(call, object, generated).await
}

async fn store(call: &Call<'_>, mut object: Value, generated: bool) -> ApiResult<VerbResult> {
    // Upstream's store refuses this, after everything else had its say and not in a dry run. There, 0
    // and what is no number mean none.
    if object::meta(&object, "resourceVersion").parse().is_ok_and(|version: u64| version > 0) {
        return Err(ApiError::unclassified(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    object::set_meta(&mut object, "resourceVersion", None);
    let mut draws = 0;
    loop {
        let name = object::name(&object).to_owned();
        match write::put(call, object.clone(), Expect::Absent).await {
            Ok(written) => return Ok(VerbResult::Stored(StatusCode::CREATED, written.entry)),
            Err(error) if error.is_conflict() && generated && draws < NAME_DRAWS => {
                draws += 1;
                draw_name(&mut object);
            }
            Err(error) if error.is_conflict() && generated => {
                return Err(ApiError::generated_name_taken(call.served.subject(&name)));
            }
            Err(error) if error.is_conflict() => return Err(taken(call, &object)),
            Err(error) => return Err(error.into_api_error(call.served.subject(&name))),
        }
    }
}

/// The name is in use.
fn taken(call: &Call<'_>, object: &Value) -> ApiError {
    let key = call.served.key(object::namespace(object), object::name(object));
    let subject = call.served.subject(object::name(object));
    let holder = call.api.store.get(&call.served.table, &key);
    match holder {
        Some(entry) if object::is_deleting(&entry.item.to_value()) => {
            ApiError::being_deleted(subject)
        }
        _ => ApiError::already_exists(subject),
    }
}

/// `prefix` + five characters without vowels, so that no word comes out.
fn draw_name(object: &mut Value) {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let prefix = object::meta(object, "generateName");
    if prefix.is_empty() {
        return;
    }
    let mut end = prefix.len().min(58);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let random = uuid::Uuid::new_v4().into_bytes();
    let suffix =
        random.iter().take(5).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
    let name: String = prefix[..end].chars().chain(suffix).collect();
    object::set_meta(object, "name", Some(name.into()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn generated_names_fit_and_differ() {
        let long = "x".repeat(80);
        let mut first = json!({"metadata": {"generateName": long}});
        let mut second = first.clone();
        draw_name(&mut first);
        draw_name(&mut second);
        assert_eq!(object::name(&first).len(), 63);
        assert_ne!(object::name(&first), object::name(&second));
    }
}
