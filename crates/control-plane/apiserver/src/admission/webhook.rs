//! Admission webhooks: mutating ones are called one after the other, validating ones in parallel.

mod review;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kinds::{Params, admission_names};
use schema::cel::EvalContext;
use serde_json::{Value, json};
use tracing::warn;

use self::review::{AdmissionReviewVersion, WebhookType, WebhookVerdict};
use super::attributes::Attributes;
use super::authority::{Authority, requested};
use super::condition::{self, Condition};
use super::hooks::Read;
use super::round::MutationRounds;
use super::version::Versions;
use crate::admission::matching::{Constraints, WriteOperation};
use crate::endpoints::traffic::timing::Timed;
use crate::fairness;
use crate::outbound::webhook::Hook;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Webhook {
    name: String,
    /// Distinguishes it from others of the same name.
    id: String,
    constraints: Constraints,
    conditions: Vec<Condition>,
    fails_open: bool,
    may_run_dry: bool,
    asks_again: bool,
    time: Duration,
    version: Option<AdmissionReviewVersion>,
    hook: Hook,
}

type Configured = [Arc<Read<Vec<Webhook>>>];

impl Webhook {
    /// All of a configuration.
    pub(super) fn list(configuration: &Value) -> Vec<Self> {
        let owner = crate::verbs::object::name(configuration);
        let hooks = configuration["webhooks"].as_array().into_iter().flatten();
        hooks.enumerate().map(|(index, hook)| Self::of(owner, index, hook)).collect()
    }

    fn of(owner: &str, index: usize, hook: &Value) -> Self {
        let name = hook["name"].as_str().unwrap_or("").to_owned();
        Self {
            id: format!("{owner}/{name}/{index}"),
            constraints: Constraints::of_hook(hook),
            conditions: Condition::list(&hook["matchConditions"], &admission_names(Params::None)),
            fails_open: hook["failurePolicy"] == "Ignore",
            may_run_dry: matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            asks_again: hook["reinvocationPolicy"] == "IfNeeded",
            time: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            version: AdmissionReviewVersion::of(hook),
            hook: Hook::of(&hook["clientConfig"]),
            name,
        }
    }
}

/// A webhook that is to be asked, and the version in which it wants to see the object.
struct Invocation<'h> {
    webhook: &'h Webhook,
    configuration: &'h str,
    /// Its place among all.
    index: usize,
    seen: Option<Arc<ServedKind>>,
}

/// Why a webhook gave no verdict.
enum WebhookError {
    /// It could not be asked, or its answer is none: its failure policy decides.
    Call(String),
    /// The answer cannot be used.
    Api(ApiError),
}

/// Asks those who change objects; `object` is what they leave of it.
pub(super) async fn mutate(
    attributes: &Attributes<'_, '_>,
    configured: &Configured,
    object: &mut Option<Value>,
    old: Option<&Value>,
    rounds: &mut MutationRounds,
) -> ApiResult<()> {
    if rounds.second {
        rounds.webhooks.resume(object.as_ref());
    }
    for (index, (owner, webhook)) in all(configured).into_iter().enumerate() {
        let mut versions = Versions::new(attributes, object.as_ref(), old);
        let Some(seen) = meant(attributes, webhook, &mut versions).await? else { continue };
        if rounds.second && !rounds.webhooks.is_due(&webhook.id) {
            continue;
        }
        let invocation = Invocation { webhook, configuration: owner, index, seen };
        let outcome = {
            let asking = ask(attributes, &invocation, WebhookType::Mutate, &mut versions);
            fairness::without_seat(std::pin::pin!(asking)).await
        };
        let round = usize::from(rounds.second);
        let changed = match outcome {
            Ok(verdict) => patched(attributes, &invocation, verdict, &mut versions, round).await,
            Err(failure) => Err(failure),
        };
        let changed = settle(attributes, &invocation, changed, "mutation", round)?;
        let mutated = json!({
            "configuration": invocation.configuration, "webhook": webhook.name,
            "mutated": changed.is_some(),
        });
        attributes.call.notes.annotate(
            &format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}"),
            || mutated.to_string(),
        );
        if let Some(changed) = changed {
            *object = Some(changed);
            rounds.webhooks.object_changed();
            rounds.changed = true;
        }
        if webhook.asks_again {
            rounds.webhooks.was_asked(&webhook.id);
        }
    }
    rounds.webhooks.leave(object.as_ref());
    Ok(())
}

/// Asks those who judge, all at once; the first refusal counts.
pub(super) async fn validate(
    attributes: &Attributes<'_, '_>,
    configured: &Configured,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<()> {
    let mut versions = Versions::new(attributes, object, old);
    let mut invocations = Vec::new();
    for (owner, webhook) in all(configured) {
        let Some(seen) = meant(attributes, webhook, &mut versions).await? else { continue };
        let index = invocations.len();
        invocations.push(Invocation { webhook, configuration: owner, index, seen });
    }
    let mut asked = Vec::new();
    for invocation in &invocations {
        let question = question(attributes, invocation, &mut versions).await?;
        asked.push(verdict(attributes, invocation, question));
    }
    if asked.is_empty() {
        return Ok(());
    }
    let outcomes = fairness::without_seat(futures_util::future::join_all(asked)).await;
    for (invocation, outcome) in invocations.iter().zip(outcomes) {
        settle(attributes, invocation, outcome.map(|()| None::<Value>), "validating", 0)?;
    }
    Ok(())
}

/// All webhooks with the names of their configurations, in order.
fn all(configured: &Configured) -> Vec<(&str, &Webhook)> {
    let hooks = configured.iter();
    hooks.flat_map(|read| read.what.iter().map(|hook| (read.name.as_str(), hook))).collect()
}

async fn verdict(
    attributes: &Attributes<'_, '_>,
    invocation: &Invocation<'_>,
    (document, uid): (Value, String),
) -> Result<(), WebhookError> {
    let verdict = call(attributes, invocation, WebhookType::Validate, &document, &uid).await?;
    decide(invocation, &verdict)
}

/// Whether a webhook is to be asked; the inner answer is the version that its rules name.
async fn meant(
    attributes: &Attributes<'_, '_>,
    webhook: &Webhook,
    versions: &mut Versions<'_>,
) -> ApiResult<Option<Option<Arc<ServedKind>>>> {
    let equivalents = attributes.equivalents();
    let others: Vec<_> = equivalents.iter().map(|served| attributes.asked_as(served)).collect();
    let seen = match webhook.constraints.meant(&attributes.asked(), &others) {
        WriteOperation::No => return Ok(None),
        WriteOperation::AsAsked => None,
        WriteOperation::As(at) => Some(equivalents[at].clone()),
    };
    let (object, old) = versions.own();
    if !super::selected(attributes, &webhook.constraints, object, old)? {
        return Ok(None);
    }
    if webhook.conditions.is_empty() {
        return Ok(Some(seen));
    }
    versions.prepare(seen.as_ref()).await?;
    let (object, old) = versions.get(seen.as_ref());
    let request = attributes.request(seen.as_deref());
    let authority = Authority { api: attributes.api(), user: attributes.call.user };
    let scene = EvalContext::default()
        .with("object", object)
        .with("oldObject", old)
        .with("request", Some(&request))
        .with("namespaceObject", None)
        .with_authorizer(&authority, requested(attributes));
    match condition::hold(&webhook.conditions, &scene) {
        Ok(true) => Ok(Some(seen)),
        Ok(false) => Ok(None),
        Err(_) if webhook.fails_open => Ok(None),
        Err(error) => {
            let subject = attributes.call.served.subject(&attributes.name);
            Err(ApiError::forbidden_because(subject, error))
        }
    }
}

async fn question(
    attributes: &Attributes<'_, '_>,
    invocation: &Invocation<'_>,
    versions: &mut Versions<'_>,
) -> ApiResult<(Value, String)> {
    versions.prepare(invocation.seen.as_ref()).await?;
    let (object, old) = versions.get(invocation.seen.as_ref());
    let request = attributes.request(invocation.seen.as_deref());
    let uid = uuid::Uuid::new_v4().to_string();
    let version = invocation.webhook.version.unwrap_or(AdmissionReviewVersion::V1);
    Ok((review::question(version, &uid, request, object, old), uid))
}

async fn ask(
    attributes: &Attributes<'_, '_>,
    invocation: &Invocation<'_>,
    task: WebhookType,
    versions: &mut Versions<'_>,
) -> Result<WebhookVerdict, WebhookError> {
    let asked = question(attributes, invocation, versions).await;
    let (document, uid) = asked.map_err(WebhookError::Api)?;
    call(attributes, invocation, task, &document, &uid).await
}

async fn call(
    attributes: &Attributes<'_, '_>,
    invocation: &Invocation<'_>,
    task: WebhookType,
    document: &Value,
    uid: &str,
) -> Result<WebhookVerdict, WebhookError> {
    let webhook = invocation.webhook;
    let fail = |reason: String| {
        WebhookError::Call(format!("failed calling webhook {:?}: {reason}", webhook.name))
    };
    if attributes.dry_run && !webhook.may_run_dry {
        return Err(WebhookError::Api(ApiError::bad_request(format!(
            "admission webhook {:?} does not support dry run",
            webhook.name
        ))));
    }
    let Some(version) = webhook.version else {
        let reason = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(fail(format!("could not create admission objects: {reason}")));
    };
    let began = Instant::now();
    let answer = webhook.hook.call(attributes.api(), document, webhook.time).await;
    time(attributes, &webhook.name, task, began, answer.is_err());
    let answer = answer.map_err(|error| fail(format!("failed to call webhook: {error}")))?;
    let verdict = review::answer(version, uid, task, &answer)
        .map_err(|reason| fail(format!("received invalid webhook response: {reason}")))?;
    let notes = &attributes.call.notes;
    for (key, value) in &verdict.annotations {
        notes.annotate(&format!("{}/{key}", webhook.name), || value.clone());
    }
    for warning in &verdict.warnings {
        notes.warn(warning.clone());
    }
    Ok(verdict)
}

fn time(
    attributes: &Attributes<'_, '_>,
    name: &str,
    task: WebhookType,
    began: Instant,
    failed: bool,
) {
    let labels = [
        ("name", name),
        ("operation", attributes.operation.word()),
        ("rejected", if failed { "true" } else { "false" }),
        ("type", if matches!(task, WebhookType::Mutate) { "admit" } else { "validating" }),
    ];
    attributes.api().traffic.timings.note(Timed::Webhook, &labels, began.elapsed());
}

fn decide(invocation: &Invocation<'_>, verdict: &WebhookVerdict) -> Result<(), WebhookError> {
    if verdict.allowed {
        return Ok(());
    }
    let status = verdict.status.as_ref();
    Err(WebhookError::Api(ApiError::rejected(&invocation.webhook.name, status)))
}

/// The object with the patch of a verdict, or nothing if it stays as it is.
async fn patched(
    attributes: &Attributes<'_, '_>,
    invocation: &Invocation<'_>,
    verdict: WebhookVerdict,
    versions: &mut Versions<'_>,
    round: usize,
) -> Result<Option<Value>, WebhookError> {
    decide(invocation, &verdict)?;
    let Some(patch) = &verdict.patch else { return Ok(None) };
    let name = &invocation.webhook.name;
    let fail =
        |reason: String| WebhookError::Call(format!("failed calling webhook {name:?}: {reason}"));
    let patch: Value = serde_json::from_slice(patch)
        .ok()
        .filter(Value::is_array)
        .ok_or_else(|| fail("received undecodable patch in webhook response".to_owned()))?;
    if patch.as_array().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let internal = |text: String| WebhookError::Api(ApiError::internal(text));
    let (Some(before), _) = versions.get(invocation.seen.as_ref()) else {
        return Err(internal(format!(
            "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
        )));
    };
    if verdict.patch_type != "JSONPatch" {
        return Err(fail(format!("unsupported patch type {:?}", verdict.patch_type)));
    }
    let after = merge::json_patch(before, &patch)
        .map_err(|error| internal(base::Chain(&error).to_string()))?;
    let changed = after != *before;
    let note = json!({
        "configuration": invocation.configuration, "webhook": name,
        "patch": patch, "patchType": "JSONPatch",
    });
    attributes.call.notes.annotate(
        &format!("patch.webhook.admission.k8s.io/round_{round}_index_{}", invocation.index),
        || note.to_string(),
    );
    if !changed {
        return Ok(None);
    }
    let back = versions.take_back(invocation.seen.as_ref(), after).await;
    back.map(Some).map_err(WebhookError::Api)
}

/// Applies the failure policy.
fn settle<T>(
    attributes: &Attributes<'_, '_>,
    invocation: &Invocation<'_>,
    outcome: Result<Option<T>, WebhookError>,
    phase: &str,
    round: usize,
) -> ApiResult<Option<T>> {
    match outcome {
        Ok(changed) => Ok(changed),
        Err(WebhookError::Api(error)) => Err(error),
        Err(WebhookError::Call(text)) if invocation.webhook.fails_open => {
            warn!(webhook = invocation.webhook.name, error = text, "ignoring failed webhook");
            attributes.call.notes.annotate(
                &format!(
                    "failed-open.{phase}.webhook.admission.k8s.io/round_{round}_index_{}",
                    invocation.index
                ),
                || invocation.webhook.name.clone(),
            );
            Ok(None)
        }
        Err(WebhookError::Call(text)) => Err(ApiError::internal(text)),
    }
}
