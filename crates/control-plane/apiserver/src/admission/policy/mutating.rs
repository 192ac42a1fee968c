//! MutatingAdmissionPolicy: changes as applied configurations and as JSON patches.

use std::sync::Arc;

use merge::{Faults, OperationError, PatchError};
use schema::Schema;
use schema::cel::{CompileError, EvalError, ExpectedType, Expression};
use serde_json::Value;
use types::Filling;

use super::super::attributes::Attributes;
use super::super::condition;
use super::super::hooks::Read;
use super::super::round::MutationRounds;
use super::super::version::Versions;
use super::{AdmissionPolicy, BUDGET, Binding, Invocation, PolicyContext, invocations};
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};
use crate::verbs::object;

/// The changes that a policy makes, in order.
#[derive(Debug)]
pub(crate) struct Mutations {
    list: Vec<Mutation>,
    asks_again: bool,
}

#[derive(Debug)]
struct Mutation {
    form: MutationForm,
    expression: Result<Expression, CompileError>,
}

/// Why one change cannot be made. The texts are upstream's, whole, since they are sent to the client.
#[derive(Debug, thiserror::Error)]
enum MutationError {
    #[error("compilation error: {0}")]
    Compile(CompileError),
    #[error("{0}")]
    Evaluate(EvalError),
    /// The value of the expression describes no change.
    #[error("{0}")]
    NoChange(schema::cel::PatchError),
    #[error("JSON Patch: {0}")]
    JsonPatch(PatchError),
    #[error("the kind has no schema")]
    NoSchema,
    #[error("error applying patch: {0}")]
    Configuration(ConfigurationError),
    /// The changed object is none of its kind.
    #[error("{}", .0.message())]
    Object(ApiError),
}

/// Why a configuration cannot be merged into an object.
#[derive(Debug, thiserror::Error)]
enum ConfigurationError {
    #[error("failed to convert patch object to typed object: {0}")]
    Untyped(Faults),
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
    #[error("failed to merge patch: {0}")]
    Merge(Faults),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MutationForm {
    Configuration,
    JsonPatch,
}

impl AdmissionPolicy<Mutations> {
    pub(crate) fn mutating(policy: &Value) -> Self {
        Self::read(policy, |spec, names| {
            let names = names.clone().constructors();
            let list = spec["mutations"].as_array().into_iter().flatten().map(|mutation| {
                let (form, field, wanted) = match mutation["patchType"].as_str() {
                    Some("JSONPatch") => {
                        (MutationForm::JsonPatch, "jsonPatch", ExpectedType::JsonPatch)
                    }
                    _ => (
                        MutationForm::Configuration,
                        "applyConfiguration",
                        ExpectedType::Configuration,
                    ),
                };
                let source = mutation[field]["expression"].as_str().unwrap_or("");
                Mutation { form, expression: Expression::compile(source, &names, wanted) }
            });
            Mutations { list: list.collect(), asks_again: spec["reinvocationPolicy"] == "IfNeeded" }
        })
    }
}

/// Asks all policies in turn; `object` is what they leave of it.
pub(crate) async fn mutate(
    attributes: &Attributes<'_, '_>,
    policies: &[Arc<Read<AdmissionPolicy<Mutations>>>],
    bindings: &[Arc<Read<Binding>>],
    object: &mut Option<Value>,
    old: Option<&Value>,
    rounds: &mut MutationRounds,
) -> ApiResult<()> {
    // There is nothing to change in a deletion.
    if policies.is_empty() || object.is_none() {
        return Ok(());
    }
    if rounds.second {
        rounds.policies.resume(object.as_ref());
    }
    let (found, wrong) = invocations(attributes, policies, bindings, object.as_ref(), old)?;
    let mut complaints = Vec::new();
    for misconfigured in &wrong {
        let kind = if misconfigured.binding.is_some() { "binding" } else { "policy" };
        let why = format!("failed to configure {kind}: {}", misconfigured.why);
        complaints.push(complaint(misconfigured.policy, misconfigured.binding, &why));
    }
    for invocation in &found {
        let id = identity(invocation);
        if rounds.second && !rounds.policies.is_due(&id) {
            continue;
        }
        let mut versions = Versions::new(attributes, object.as_ref(), old);
        versions.prepare(invocation.seen.as_ref()).await?;
        let changed = match change(attributes, invocation, &versions) {
            Ok(changed) => changed,
            Err(Skipped) => continue,
        };
        let policy = &invocation.policy.what;
        for why in changed.complaints.iter().filter(|_| !policy.fails_open) {
            let binding = Some(invocation.binding.name.as_str());
            complaints.push(complaint(&invocation.policy.name, binding, why));
        }
        if let Some(after) = changed.object {
            let after = versions.take_back(invocation.seen.as_ref(), after).await?;
            *object = Some(after);
            rounds.policies.object_changed();
            rounds.changed = true;
        }
        if policy.body.asks_again {
            rounds.policies.was_asked(&id);
        }
    }
    rounds.policies.leave(object.as_ref());
    if complaints.is_empty() {
        return Ok(());
    }
    let reason = if wrong.is_empty() { "Invalid" } else { "Forbidden" };
    let subject = attributes.call.served.subject(&attributes.name);
    Err(ApiError::denied_mutation(subject, reason, complaints))
}

fn complaint(policy: &str, binding: Option<&str>, why: &str) -> String {
    match binding {
        Some(binding) => {
            format!("policy '{policy}' with binding '{binding}' denied request: {why}")
        }
        None => format!("policy {policy:?} denied request: {why}"),
    }
}

/// A policy with one parameter is one participant of a round.
fn identity(invocation: &Invocation<'_, Mutations>) -> String {
    let param = invocation.param.as_ref();
    let param = param.map(|param| object::key(object::namespace(param), object::name(param)));
    let (policy, binding) = (&invocation.policy.name, &invocation.binding.name);
    format!("{policy}\n{binding}\n{}", param.unwrap_or_default())
}

/// The conditions do not hold.
struct Skipped;

#[derive(Default)]
struct Changed {
    /// Nothing if it stays as it is.
    object: Option<Value>,
    complaints: Vec<String>,
}

/// Carries out the changes of one policy. One that fails leaves what the others did.
fn change(
    attributes: &Attributes<'_, '_>,
    invocation: &Invocation<'_, Mutations>,
    versions: &Versions<'_>,
) -> Result<Changed, Skipped> {
    let policy = &invocation.policy.what;
    let surroundings = PolicyContext::of(attributes, invocation.seen.as_deref());
    let (object, old) = versions.get(invocation.seen.as_ref());
    let Some(before) = object else { return Err(Skipped) };
    if let Some(why) = &policy.broken {
        return Ok(Changed { object: None, complaints: vec![why.clone()] });
    }
    match condition::hold(&policy.conditions, &surroundings.scene(invocation, object, old)) {
        Ok(true) => {}
        Ok(false) => return Err(Skipped),
        Err(error) => return Ok(Changed { object: None, complaints: vec![error.to_string()] }),
    }
    let served = invocation.seen.as_ref().unwrap_or(&attributes.call.served);
    let mut changed = Changed::default();
    for mutation in &policy.body.list {
        let current = changed.object.as_ref().unwrap_or(before);
        let scene = surroundings.scene(invocation, Some(current), old);
        match apply(mutation, &scene, served, current) {
            Ok(after) if after != *current => changed.object = Some(after),
            Ok(_) => {}
            Err(error) => changed.complaints.push(error.to_string()),
        }
    }
    changed.object = changed.object.filter(|after| after != before);
    Ok(changed)
}

fn apply<'a>(
    mutation: &'a Mutation,
    scene: &schema::cel::EvalContext<'a>,
    served: &ServedKind,
    current: &Value,
) -> Result<Value, MutationError> {
    let expression =
        mutation.expression.as_ref().map_err(|error| MutationError::Compile(error.clone()))?;
    let found = scene.evaluate(expression, &mut BUDGET.clone()).map_err(MutationError::Evaluate)?;
    let mut after = match mutation.form {
        MutationForm::Configuration => {
            let config = found.to_configuration().map_err(MutationError::NoChange)?;
            configured(served, current, config)?
        }
        MutationForm::JsonPatch => {
            let patch = found.to_json_patch().map_err(MutationError::NoChange)?;
            match merge::json_patch(current, &patch) {
                Ok(after) => after,
                // A test that fails is how a patch says that it is not meant.
                Err(PatchError::DoesNotApply(OperationError::TestFailed(_))) => current.clone(),
                Err(error) => return Err(MutationError::JsonPatch(error)),
            }
        }
    };
    served.clean(&mut after, Filling::Whole).map_err(MutationError::Object)?;
    served.default(&mut after);
    Ok(after)
}

/// The object with a configuration merged into it.
fn configured(
    served: &ServedKind,
    current: &Value,
    mut config: Value,
) -> Result<Value, MutationError> {
    let schema = served.schema().map_err(|_| MutationError::NoSchema)?;
    config["apiVersion"] = current["apiVersion"].clone();
    config["kind"] = current["kind"].clone();
    let failed = MutationError::Configuration;
    merge::validate(&config, &schema, merge::Duplicates::Refused)
        .map_err(|faults| failed(ConfigurationError::Untyped(faults)))?;
    let mut atomics = Vec::new();
    find_atomics(&config, &schema, String::new(), &mut atomics);
    if !atomics.is_empty() {
        return Err(failed(ConfigurationError::Atomic(atomics)));
    }
    let merged = merge::merge(current, &config, &schema)
        .map_err(|faults| failed(ConfigurationError::Merge(faults)))?;
    Ok(merged.unwrap_or_else(|| current.clone()))
}

/// Places that would be replaced as a whole where the policy means to change a part.
fn find_atomics(value: &Value, schema: &Schema, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if schema.map == schema::MapType::Atomic {
                found.push(path.clone());
            }
            for (name, value) in map {
                if let Some(property) = schema.property(name) {
                    find_atomics(value, property, format!("{path}.{name}"), found);
                }
            }
        }
        Value::Array(list) => {
            if schema.list == schema::ListType::Atomic {
                found.push(path.clone());
            }
            let Some(items) = &schema.items else { return };
            for (index, value) in list.iter().enumerate() {
                find_atomics(value, items, format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}
