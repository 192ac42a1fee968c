//! Admission policies: rules and changes written as expressions, bound to what they apply to
//! and to the parameters that they apply with.

mod mutating;
mod param;
mod typecheck;
mod validating;

use std::sync::Arc;

use kinds::{admission_names, params_of};
use schema::cel::{Declarations, EvalContext, Expression};
use serde_json::Value;

use super::attributes::Attributes;
use super::authority::{Authority, requested};
use super::condition::Condition;
use super::hooks::Read;
use crate::admission::matching::{Constraints, WriteOperation};
use crate::schemas::served::ServedKind;
use crate::status::ApiResult;
use crate::verbs::object;

use param::ParamError;

pub(super) use mutating::{Mutations, mutate};
pub(super) use param::{ParamKind, ParamRef};
pub(super) use typecheck::check_types;
pub(super) use validating::{ValidationAction, ValidationRules, validate};

/// The cost limit of all expressions of one policy for one request.
const BUDGET: u64 = 10_000_000;

/// A policy with its expressions compiled; `R` is what it does.
#[derive(Debug)]
pub(super) struct AdmissionPolicy<R> {
    constraints: Constraints,
    param_kind: Option<ParamKind>,
    fails_open: bool,
    conditions: Vec<Condition>,
    variables: Vec<(String, Expression)>,
    /// Why it cannot be evaluated at all.
    broken: Option<String>,
    body: R,
}

/// A binding of a policy.
#[derive(Debug)]
pub(super) struct Binding {
    policy: String,
    constraints: Constraints,
    param_ref: Option<ParamRef>,
    actions: Vec<ValidationAction>,
}

impl Binding {
    pub(super) fn of(binding: &Value) -> Self {
        let spec = &binding["spec"];
        Self {
            policy: spec["policyName"].as_str().unwrap_or("").to_owned(),
            constraints: Constraints::of_match(&spec["matchResources"]),
            param_ref: ParamRef::of(&spec["paramRef"]),
            actions: ValidationAction::list(&spec["validationActions"]),
        }
    }
}

impl<R> AdmissionPolicy<R> {
    fn read(policy: &Value, body: impl FnOnce(&Value, &Declarations<'_>) -> R) -> Self {
        let spec = &policy["spec"];
        let mut names = admission_names(params_of(policy));
        let conditions = Condition::list(&spec["matchConditions"], &names);
        let mut variables = Vec::new();
        let mut broken = None;
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let text = |field: &str| variable[field].as_str().unwrap_or("");
            match names.variable(text("name"), text("expression")) {
                Ok(expression) => variables.push((text("name").to_owned(), expression)),
                Err(error) => broken = Some(format!("compilation error: {error}")),
            }
        }
        Self {
            constraints: Constraints::of_match(&spec["matchConstraints"]),
            param_kind: ParamKind::of(&spec["paramKind"]),
            fails_open: spec["failurePolicy"] == "Ignore",
            conditions,
            variables,
            broken,
            body: body(spec, &names),
        }
    }
}

/// A policy that applies to a write, by a binding, with a parameter.
struct Invocation<'h, R> {
    policy: &'h Read<AdmissionPolicy<R>>,
    binding: &'h Read<Binding>,
    seen: Option<Arc<ServedKind>>,
    param: Option<Value>,
}

/// A policy or a binding that cannot be used as it is configured.
struct Misconfigured<'h> {
    policy: &'h str,
    binding: Option<&'h str>,
    why: ParamError,
}

/// Every policy that applies, and those that would if they were configured correctly. Failure
/// policies are already applied.
fn invocations<'h, R>(
    attributes: &Attributes<'_, '_>,
    policies: &'h [Arc<Read<AdmissionPolicy<R>>>],
    bindings: &'h [Arc<Read<Binding>>],
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<(Vec<Invocation<'h, R>>, Vec<Misconfigured<'h>>)> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    let equivalents = attributes.equivalents();
    let others: Vec<_> = equivalents.iter().map(|served| attributes.asked_as(served)).collect();
    for policy in policies {
        let what = &policy.what;
        let bound: Vec<_> = bindings.iter().filter(|it| it.what.policy == policy.name).collect();
        if bound.is_empty() {
            continue;
        }
        let seen = match what.constraints.meant(&attributes.asked(), &others) {
            WriteOperation::No => continue,
            WriteOperation::AsAsked => None,
            WriteOperation::As(at) => Some(equivalents[at].clone()),
        };
        if !super::selected(attributes, &what.constraints, object, old)? {
            continue;
        }
        let mut complain = |binding: Option<&'h str>, why: ParamError| {
            if !what.fails_open {
                wrong.push(Misconfigured { policy: &policy.name, binding, why });
            }
        };
        let kind = match what.param_kind.as_ref().map(|kind| kind.resolve(attributes.api())) {
            None => None,
            Some(Ok(served)) => Some(served),
            Some(Err(why)) => {
                complain(None, why);
                continue;
            }
        };
        for binding in bound {
            let constraints = &binding.what.constraints;
            if constraints.meant(&attributes.asked(), &others) == WriteOperation::No
                || !super::selected(attributes, constraints, object, old)?
            {
                continue;
            }
            let reference = binding.what.param_ref.as_ref();
            match param::collect(attributes, kind.as_ref(), reference) {
                Ok(params) => found.extend(params.into_iter().map(|param| Invocation {
                    policy,
                    binding,
                    seen: seen.clone(),
                    param,
                })),
                Err(why) => complain(Some(&binding.name), why),
            }
        }
    }
    Ok((found, wrong))
}

/// The variables of expressions besides the object.
struct PolicyContext<'a> {
    authority: Authority<'a>,
    requested: schema::cel::AuthorizerTarget,
    request: Value,
    namespace: Option<Value>,
}

impl<'a> PolicyContext<'a> {
    fn of(attributes: &Attributes<'a, 'a>, seen: Option<&ServedKind>) -> Self {
        let api = attributes.api();
        let name = if attributes.is_namespace() { "" } else { attributes.namespace.as_str() };
        let entry = Some(name)
            .filter(|name| !name.is_empty())
            .and_then(|name| api.store.get("namespaces", name));
        let namespace = entry.map(|entry| {
            let mut namespace = entry.item.to_value();
            for field in ["managedFields", "ownerReferences"] {
                object::set_meta(&mut namespace, field, None);
            }
            namespace
        });
        Self {
            authority: Authority { api, user: attributes.call.user },
            requested: requested(attributes),
            request: attributes.request(seen),
            namespace,
        }
    }

    fn scene<'s, R>(
        &'s self,
        invocation: &'s Invocation<'_, R>,
        object: Option<&'s Value>,
        old: Option<&'s Value>,
    ) -> EvalContext<'s> {
        let mut scene = EvalContext::default()
            .with("object", object)
            .with("oldObject", old)
            .with("params", invocation.param.as_ref())
            .with("request", Some(&self.request))
            .with("namespaceObject", self.namespace.as_ref())
            .with_authorizer(&self.authority, self.requested.clone());
        for (name, expression) in &invocation.policy.what.variables {
            scene = scene.with_variable(name, expression);
        }
        scene
    }
}
