//! DELETE: marking, waiting for finalizers, removing.

use base::clock;
use bytes::Bytes;
use http::StatusCode;
use kinds::DefaultPropagation;
use schema::FieldError;
use serde_json::{Value, json};
use store::{Expect, Write, WriteChange};

use crate::admission::{self, AdmissionOperation, Operation};
use crate::api::ObjectEntry;
use crate::http::body;
use crate::http::options::{self, Query};
use crate::http::verb_result::{self, VerbResult};
use crate::schemas::conversion;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::write::{self, PutError};

pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The treatment of the objects that this one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// `DeleteOptions`, from the body or the query.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    /// As they were sent, for those who are asked about the deletion.
    pub(crate) given: Value,
}

impl DeleteOptions {
    pub(crate) fn parse(call: &Call<'_>, bytes: &Bytes) -> ApiResult<Self> {
        let body = if bytes.is_empty() {
            json!({})
        } else {
            body::parse(call.headers, bytes, body::Accepts::All)?.value
        };
        if !matches!(body["kind"].as_str(), None | Some("" | "DeleteOptions")) {
            return Err(ApiError::bad_request(format!(
                "decoded object cannot be converted to DeleteOptions: kind is {}",
                body["kind"]
            )));
        }
        Self::read(&body, call.query)
    }

    fn read(body: &Value, query: &Query) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let dry: Vec<String> = match body["dryRun"].as_array() {
            Some(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            None => query.all("dryRun").to_vec(),
        };
        let policy = body["propagationPolicy"].as_str().or_else(|| query.get("propagationPolicy"));
        let orphan_dependents = match body.get("orphanDependents").and_then(Value::as_bool) {
            None => query.flag("orphanDependents")?,
            given => given,
        };
        if policy.is_some_and(|policy| !policy.is_empty()) && orphan_dependents.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy.unwrap_or(""),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match (policy, orphan_dependents) {
            (None | Some(""), None) => None,
            (None | Some(""), Some(true)) | (Some("Orphan"), _) => Some(Propagation::Orphan),
            (None | Some(""), Some(false)) | (Some("Background"), _) => {
                Some(Propagation::Background)
            }
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some(other), _) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    other,
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        let grace = match body["gracePeriodSeconds"].as_i64() {
            None => query.number("gracePeriodSeconds")?,
            given => given,
        };
        // As upstream: less than nothing is as soon as it can be done well.
        let grace = grace.map(|grace| if grace < 0 { 1 } else { grace });
        let dry_run = options::dry_run(&dry, &mut errors);
        if !errors.is_empty() {
            return Err(ApiError::invalid_options("DeleteOptions", &errors));
        }
        let text = |field: &str| {
            body["preconditions"][field].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Ok(Self {
            dry_run,
            grace_seconds: grace,
            propagation,
            uid: text("uid"),
            revision: text("resourceVersion"),
            given: given(body, policy),
        })
    }
}

/// The options as one object, wherever they came from.
fn given(body: &Value, policy: Option<&str>) -> Value {
    let mut given = body.clone();
    if let Some(policy) = policy.filter(|policy| !policy.is_empty()) {
        given["propagationPolicy"] = policy.into();
    }
    given
}

pub(crate) async fn delete(call: &Call<'_>, options: &DeleteOptions) -> ApiResult<VerbResult> {
    let key = call.served.key(call.namespace(), call.path.name);
    delete_key(call, &key, options).await
}

/// Deletes the object under `key`, trying again when another client changes it meanwhile.
pub(crate) async fn delete_key(
    call: &Call<'_>,
    key: &str,
    options: &DeleteOptions,
) -> ApiResult<VerbResult> {
    let name = key.rsplit('/').next().unwrap_or(key).to_owned();
    loop {
        let Some(entry) = call.api.store.get(&call.served.table, key) else {
            return Err(ApiError::not_found(call.served.subject(&name)));
        };
        let entry = conversion::shown_one(call.api, &call.served, entry).await?;
        let live = call.served.live(&entry);
        check_preconditions(call, &live, options)?;
        if let (None, DefaultPropagation::Orphan(Some(warning))) =
            (options.propagation, call.served.default_propagation())
        {
            call.notes.warn(warning.to_owned());
        }
        admit(call, &live, options).await?;
        match attempt(call, &entry, live, options).await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into_api_error(call.served.subject(&name))),
        }
    }
}

async fn admit(call: &Call<'_>, live: &Value, options: &DeleteOptions) -> ApiResult<()> {
    let act = AdmissionOperation {
        operation: Operation::Delete,
        dry_run: options.dry_run,
        options: Some(&options.given),
    };
    // An eviction was judged as such.
    if call.path.subresource.is_empty() {
        admission::mutate_deletion(call, &act, live).await?;
    }
    let warnings = admission::validate(call, &act, None, Some(live)).await?;
    warnings.into_iter().for_each(|warning| call.notes.warn(warning));
    Ok(())
}

fn check_preconditions(call: &Call<'_>, live: &Value, options: &DeleteOptions) -> ApiResult<()> {
    let subject = call.served.kind_subject(object::name(live));
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != object::uid(live)) {
        return Err(ApiError::conflict(
            subject,
            format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                object::uid(live)
            ),
        ));
    }
    let current = object::meta(live, "resourceVersion");
    if let Some(revision) = options.revision.as_deref().filter(|wanted| *wanted != current) {
        return Err(ApiError::conflict(
            subject,
            format!(
                "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({current}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

async fn attempt(
    call: &Call<'_>,
    entry: &ObjectEntry,
    live: Value,
    options: &DeleteOptions,
) -> Result<VerbResult, PutError> {
    let default = call.served.default_propagation();
    let finalizers = finalizers_after(&live, propagation(&live, options.propagation, default));
    let grace = grace_seconds(call, &live, options);
    let held = !finalizers.is_empty() || grace > 0 || holds_namespace(call, &live);
    if !held {
        return remove(call, entry, live, options.dry_run).await;
    }
    let marked = mark(&live, &finalizers, grace);
    if marked == live {
        return Ok(VerbResult::Made(StatusCode::OK, live));
    }
    if options.dry_run {
        return Ok(VerbResult::Made(StatusCode::OK, marked));
    }
    let written = write::put(call, marked, Expect::At(entry.revision)).await?;
    Ok(VerbResult::ok(written.entry))
}

async fn remove(
    call: &Call<'_>,
    entry: &ObjectEntry,
    mut live: Value,
    dry_run: bool,
) -> Result<VerbResult, PutError> {
    if !dry_run {
        let removal = Write {
            table: call.served.table.clone(),
            name: entry.name.clone(),
            expect: Expect::At(entry.revision),
            change: WriteChange::Delete,
        };
        let written = write::store(call, removal).await?;
        let revision = written.revision.to_string();
        object::set_meta(&mut live, "resourceVersion", Some(revision.into()));
        crate::verbs::after::removed(call, &live).await;
    }
    if &*call.served.table == "pods" {
        object::set_meta(&mut live, "deletionGracePeriodSeconds", Some(0.into()));
    }
    if call.served.row().is_some_and(|row| row.strategy.returns_deleted) {
        return Ok(VerbResult::Made(StatusCode::OK, live));
    }
    Ok(verb_result::deleted(call, &live))
}

/// A namespace is finalised by its controller, through `spec.finalizers`.
fn holds_namespace(call: &Call<'_>, live: &Value) -> bool {
    &*call.served.table == "namespaces"
        && live["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// Only pods that run somewhere are given time.
fn grace_seconds(call: &Call<'_>, live: &Value, options: &DeleteOptions) -> i64 {
    let is_running = &*call.served.table == "pods"
        && live["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
        && !matches!(live["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !is_running {
        return 0;
    }
    let wanted = options
        .grace_seconds
        .or_else(|| live["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(30);
    match live["metadata"]["deletionGracePeriodSeconds"].as_i64() {
        // A second deletion may shorten the time, never lengthen it.
        Some(before) if object::is_deleting(live) => wanted.min(before),
        _ => wanted,
    }
}

/// The propagation to the dependents: the request decides, then a finalizer that the object
/// carries already, then the kind. `None` where the finalizers stay as they are.
fn propagation(
    live: &Value,
    requested: Option<Propagation>,
    default: DefaultPropagation,
) -> Option<Propagation> {
    let decided = object::finalizers(live).iter().any(|name| [ORPHAN, FOREGROUND].contains(name));
    match (requested, default) {
        (Some(requested), _) => Some(requested),
        (None, DefaultPropagation::Orphan(_)) if !decided => Some(Propagation::Orphan),
        (None, _) => None,
    }
}

/// The finalizers that remain after the wish about dependents is written into them.
fn finalizers_after(live: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let mut finalizers: Vec<String> =
        object::finalizers(live).into_iter().map(str::to_owned).collect();
    let Some(propagation) = propagation else { return finalizers };
    finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    finalizers
}

fn mark(live: &Value, finalizers: &[String], grace: i64) -> Value {
    let mut marked = live.clone();
    let known = object::finalizers(live);
    if known != finalizers {
        let list = (!finalizers.is_empty()).then(|| finalizers.to_vec().into());
        object::set_meta(&mut marked, "finalizers", list);
    }
    let shortened = live["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|before| grace < before);
    if object::is_deleting(live) && !shortened {
        return marked;
    }
    let at = clock::now() + std::time::Duration::from_secs(grace.try_into().unwrap_or(0));
    object::set_meta(&mut marked, "deletionTimestamp", Some(clock::rfc3339(at).into()));
    // A namespace ends when it is empty.
    if marked["kind"] != "Namespace" {
        object::set_meta(&mut marked, "deletionGracePeriodSeconds", Some(grace.into()));
    }
    if !object::is_deleting(live)
        && let Some(generation) = live["metadata"]["generation"].as_i64()
    {
        object::set_meta(&mut marked, "generation", Some((generation + 1).into()));
    }
    if marked["kind"] == "Namespace" {
        marked["status"]["phase"] = "Terminating".into();
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wish_about_dependents_becomes_a_finalizer() {
        let live = json!({"metadata": {"finalizers": ["a", "orphan"]}});
        let after = |propagation| finalizers_after(&live, propagation);
        assert_eq!(after(None), ["a", "orphan"]);
        assert_eq!(after(Some(Propagation::Background)), ["a"]);
        assert_eq!(after(Some(Propagation::Foreground)), ["a", "foregroundDeletion"]);
        assert_eq!(after(Some(Propagation::Orphan)), ["a", "orphan"]);
    }

    #[test]
    fn propagation_falls_back_to_finalizers_then_to_the_kind() {
        use DefaultPropagation as Default;
        use Propagation::{Background, Foreground, Orphan};
        let live = |finalizers: &[&str]| json!({"metadata": {"finalizers": finalizers}});
        for (finalizers, requested, default, expected) in [
            (vec![], None, Default::Background, None),
            (vec!["a"], None, Default::Orphan(None), Some(Orphan)),
            (vec!["foregroundDeletion"], None, Default::Orphan(None), None),
            (vec!["orphan"], None, Default::Orphan(None), None),
            (vec![], Some(Background), Default::Orphan(None), Some(Background)),
            (vec![], Some(Foreground), Default::Orphan(None), Some(Foreground)),
            (vec![], Some(Orphan), Default::Background, Some(Orphan)),
        ] {
            let decided = propagation(&live(&finalizers), requested, default);
            assert_eq!(decided, expected, "{finalizers:?} {requested:?} {default:?}");
        }
    }

    #[test]
    fn marking_twice_changes_nothing() {
        let live = json!({"metadata": {"generation": 1, "finalizers": ["a"]}});
        let once = mark(&live, &["a".to_owned()], 0);
        assert_eq!(once["metadata"]["generation"], 2);
        assert_eq!(once["metadata"]["deletionGracePeriodSeconds"], 0);
        assert_eq!(mark(&once, &["a".to_owned()], 0), once);
    }

    #[test]
    fn options_come_from_body_or_query_and_are_checked() {
        let read = |body: Value, query: &str| DeleteOptions::read(&body, &Query::parse(query));
        let options = read(json!({"propagationPolicy": "Foreground"}), "dryRun=All").unwrap();
        assert_eq!((options.propagation, options.dry_run), (Some(Propagation::Foreground), true));
        let options = read(json!({}), "propagationPolicy=Orphan&gracePeriodSeconds=3").unwrap();
        assert_eq!(
            (options.propagation, options.grace_seconds),
            (Some(Propagation::Orphan), Some(3))
        );
        assert_eq!(read(json!({"propagationPolicy": "x"}), "").unwrap_err().code().as_u16(), 422);
        let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
        assert!(read(both, "").is_err());
    }
}
