//! Checks and changes that depend on more than the object itself: does its namespace live, is
//! there quota, may its writer grant these rights. One file per concern.
//!
//! `mutate` may change the object; `validate` may only refuse, and runs last. In each, our
//! own rules come first, then policies and webhooks, and quotas at the very end:
//!
//! ```text
//!   mutate     our rules ─► policies ─► webhooks ─┐ once more if the object changed
//!                  ▲──────────────────────────────┘
//!   validate   our rules ─► policies ─► webhooks ─► quotas
//! ```

mod attributes;
mod authority;
mod certificate;
pub(crate) mod complete;
mod condition;
mod extension;
pub(crate) mod hooks;
mod limits;
pub(crate) mod matching;
mod namespace;
mod ownership;
mod pod;
mod policy;
mod quota;
mod resize;
mod rights;
mod round;
mod runtime_class;
mod service_account;
mod storage;
mod version;
mod webhook;

use std::time::Instant;

use serde_json::Value;

use crate::admission::matching::Constraints;
use crate::endpoints::traffic::timing::Timed;
use crate::schemas::crd;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::object;

use attributes::Attributes;
use hooks::WebhookSnapshot;
use round::MutationRounds;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// The operation under admission, and its options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionOperation<'a> {
    pub(crate) operation: Operation,
    pub(crate) dry_run: bool,
    /// Options that came in a body; others are in the query.
    pub(crate) options: Option<&'a Value>,
}

impl AdmissionOperation<'_> {
    pub(crate) fn new(operation: Operation, dry_run: bool) -> Self {
        Self { operation, dry_run, options: None }
    }
}

pub(crate) async fn mutate(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    let began = Instant::now();
    let outcome = mutated(call, act, object, old).await;
    time(call, act, "admit", began, outcome.is_err());
    outcome
}

fn time(call: &Call<'_>, act: &AdmissionOperation<'_>, step: &str, began: Instant, rejected: bool) {
    let rejected = if rejected { "true" } else { "false" };
    let labels = [("operation", act.operation.word()), ("rejected", rejected), ("type", step)];
    call.api.traffic.timings.note(Timed::Admission, &labels, began.elapsed());
}

async fn mutated(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    own_rules(call, act.operation, object, old).await?;
    let hooks = hooks::current(call.api);
    if hooks.changes_nothing() || is_exempt(call) {
        return Ok(());
    }
    let mut rounds = MutationRounds::default();
    let mut changing = Some(std::mem::take(object));
    // In a box: most writes call no webhook and need not carry the memory for it.
    let outcome = Box::pin(change(call, act, &hooks, &mut changing, old, &mut rounds)).await;
    *object = changing.unwrap_or_default();
    outcome?;
    if !rounds.changed {
        return Ok(());
    }
    rounds.second = true;
    own_rules(call, act.operation, object, old).await?;
    let mut changing = Some(std::mem::take(object));
    let outcome = Box::pin(change(call, act, &hooks, &mut changing, old, &mut rounds)).await;
    *object = changing.unwrap_or_default();
    outcome
}

/// Asks those outside who change objects, once.
async fn change(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    hooks: &WebhookSnapshot,
    object: &mut Option<Value>,
    old: Option<&Value>,
    rounds: &mut MutationRounds,
) -> ApiResult<()> {
    let attributes = Attributes::new(call, act, object.as_ref(), old);
    let (policies, bindings) = (&hooks.mutating_policies, &hooks.mutating_bindings);
    if call.api.settings.admits("MutatingAdmissionPolicy") {
        policy::mutate(&attributes, policies, bindings, object, old, rounds).await?;
    }
    if call.api.settings.admits("MutatingAdmissionWebhook") {
        webhook::mutate(&attributes, &hooks.mutating, object, old, rounds).await?;
    }
    Ok(())
}

/// Asks those outside about something that is not stored as it is sent: below `/scale`,
/// `/eviction`, `/token`, and where there is no object at all.
pub(crate) async fn outside(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    object: &mut Option<Value>,
    old: Option<&Value>,
) -> ApiResult<()> {
    let hooks = hooks::current(call.api);
    if hooks.is_empty() || is_exempt(call) {
        return Ok(());
    }
    let mut rounds = MutationRounds::default();
    change(call, act, &hooks, object, old, &mut rounds).await?;
    judge(call, act, &hooks, object.as_ref(), old).await
}

/// Asks those outside who judge.
async fn judge(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    hooks: &WebhookSnapshot,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<()> {
    let attributes = Attributes::new(call, act, object, old);
    let (policies, bindings) = (&hooks.validating_policies, &hooks.validating_bindings);
    if call.api.settings.admits("ValidatingAdmissionPolicy") {
        policy::validate(&attributes, policies, bindings, object, old).await?;
    }
    if call.api.settings.admits("ValidatingAdmissionWebhook") {
        webhook::validate(&attributes, &hooks.validating, object, old).await?;
    }
    Ok(())
}

/// Shows a deletion to those who change objects; there is nothing that they could change.
pub(crate) async fn mutate_deletion(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    old: &Value,
) -> ApiResult<()> {
    let hooks = hooks::current(call.api);
    if hooks.changes_nothing() || is_exempt(call) {
        return Ok(());
    }
    change(call, act, &hooks, &mut None, Some(old), &mut MutationRounds::default()).await
}

/// Configurations of webhooks and policies are exempt, so that a faulty one can be deleted.
fn is_exempt(call: &Call<'_>) -> bool {
    &*call.served.group == "admissionregistration.k8s.io"
}

/// Whether the labels of a write's namespace and object are those that are wanted.
fn selected(
    attributes: &Attributes<'_, '_>,
    constraints: &Constraints,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<bool> {
    let labels = |value: &Value, selector: &crate::verbs::selector::LabelSelector| {
        let labels = &value["metadata"]["labels"];
        selector.matches(|key| labels.get(key).and_then(Value::as_str))
    };
    let objects = &constraints.objects;
    if !objects.is_empty() && ![object, old].into_iter().flatten().any(|it| labels(it, objects)) {
        return Ok(false);
    }
    let namespaces = &constraints.namespaces;
    if namespaces.is_empty() || (attributes.namespace.is_empty() && !attributes.is_namespace()) {
        return Ok(true);
    }
    let itself = attributes.is_namespace() && attributes.call.path.subresource.is_empty();
    if let Some(object) = object.filter(|_| itself) {
        return Ok(labels(object, namespaces));
    }
    let name = &*attributes.namespace;
    let Some(found) = attributes.api().store.get("namespaces", name) else {
        return Err(ApiError::not_found(StatusSubject { group: "", resource: "namespaces", name }));
    };
    Ok(namespaces.matches(|key| found.item.label(key)))
}

/// Whether a write that changes nothing still has to be reviewed by webhooks.
pub(crate) fn is_watched(call: &Call<'_>) -> bool {
    !hooks::current(call.api).is_empty() && !is_exempt(call)
}

async fn own_rules(
    call: &Call<'_>,
    operation: Operation,
    object: &mut Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    let asked = &call.api.settings;
    if operation == Operation::Create && asked.admits("NamespaceLifecycle") {
        namespace::exists(call, object).await?;
    }
    extension::mutate(call, operation, object, old)?;
    match &*call.served.table {
        "persistentvolumeclaims" | "persistentvolumes" => {
            if asked.admits("DefaultStorageClass") {
                storage::mutate(call, operation, object);
            }
            if asked.admits("LimitRanger") {
                limits::mutate(call, operation, object)
            } else {
                Ok(())
            }
        }
        "minions" => {
            if asked.runs_pods && asked.admits("TaintNodesByCondition") {
                pod::taint(call, operation, object);
            }
            Ok(())
        }
        "pods" => {
            if asked.runs_pods && asked.admits("Priority") {
                pod::prioritize(call, operation, object, old)?;
            }
            if asked.runs_pods && asked.admits("DefaultTolerationSeconds") {
                pod::tolerate(call, object);
            }
            if asked.admits("RuntimeClass") {
                runtime_class::mutate(call, operation, object)?;
            }
            if asked.admits("ServiceAccount") {
                service_account::mutate(call, operation, object).await?;
            }
            if asked.admits("LimitRanger") {
                limits::mutate(call, operation, object)
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

/// May refuse; says what the client should be warned of.
pub(crate) async fn validate(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<Vec<String>> {
    let began = Instant::now();
    let outcome = validated(call, act, object, old).await;
    time(call, act, "validate", began, outcome.is_err());
    outcome
}

async fn validated(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<Vec<String>> {
    let operation = act.operation;
    namespace::protected(call, operation, old)?;
    if let Some(object) = object {
        rights::check(call, operation, object, old)?;
        certificate::check(call, operation, object, old)?;
        if call.api.settings.admits_also(ownership::PLUGIN) {
            ownership::check(call, operation, object, old)?;
        }
        if call.api.settings.admits("LimitRanger") {
            limits::validate(call, operation, object)?;
        }
        if call.api.settings.admits("PersistentVolumeClaimResize") {
            resize::validate(call, operation, object, old)?;
        }
        if &*call.served.table == crd::TABLE {
            let errors = crd::validate(object, old);
            if !errors.is_empty() {
                let subject = call.served.kind_subject(object::name(object));
                return Err(ApiError::invalid(subject, &errors));
            }
        }
    }
    // Before quotas, which count what they let pass.
    let warnings = extension::validate(call, operation, object, old)?;
    let hooks = hooks::current(call.api);
    // Those below see what was sent; `outside` has asked about it.
    let elsewhere = matches!(call.path.subresource, "scale" | "eviction");
    if !hooks.is_empty() && !is_exempt(call) && !elsewhere {
        Box::pin(judge(call, act, &hooks, object, old)).await?;
    }
    if let Some(object) = object
        && call.api.settings.admits("ResourceQuota")
    {
        quota::check(call, operation, object, old, act.dry_run).await?;
    }
    Ok(warnings)
}
