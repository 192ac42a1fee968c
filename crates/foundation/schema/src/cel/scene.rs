//! Evaluation of an [`Expression`] over named values: the variables of admission policies and
//! match conditions.
//!
//! A scene is made once per request and policy. Its variables are computed when they are
//! first used and then remembered, so that the order of rules does not matter and an unused
//! variable costs nothing.

use std::cell::OnceCell;
use std::rc::Rc;

use serde_json::Value;

use super::RULE_BUDGET;
use super::eval::{Error, EvalResult, Evaluator};
use super::expression::Expression;
use super::inquiry::{Authorize, AuthorizerTarget, Inquiry};
use super::message;
use super::value::{ResourceValue, Val};

/// Named values, the variables that are computed from them, and whom to ask about rights.
#[derive(Clone)]
pub struct EvalContext<'a>(Rc<EvalContextInner<'a>>);

#[derive(Default, Clone)]
pub(super) struct EvalContextInner<'a> {
    values: Vec<(&'static str, Val<'a>)>,
    variables: Vec<Variable<'a>>,
    pub(super) authority: Option<&'a dyn Authorize>,
    request: Option<AuthorizerTarget>,
}

#[derive(Clone)]
struct Variable<'a> {
    name: &'a str,
    expression: &'a Expression,
    value: OnceCell<EvalResult<'a>>,
}

impl std::fmt::Debug for EvalContext<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.0.values.iter().map(|(name, _)| *name).collect();
        out.debug_tuple("Scene").field(&names).finish()
    }
}

impl Default for EvalContext<'_> {
    fn default() -> Self {
        Self(Rc::new(EvalContextInner::default()))
    }
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// Nothing else may be evaluated for this request and policy.
    #[error(
        "validation failed due to running out of cost budget, no further validation rules will be run"
    )]
    OutOfBudget,
    #[error("expression '{expression}' resulted in error: {reason}")]
    Failed { expression: String, reason: String },
}

impl<'a> EvalContext<'a> {
    /// Adds a named value; an absent one is null.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Option<&'a Value>) -> Self {
        let value = value.map_or(Val::Null, |value| Val::view(value, None, ResourceValue::No));
        Rc::make_mut(&mut self.0).values.push((name, value));
        self
    }

    /// Gives the scene an `authorizer`; `request` is what `authorizer.requestResource` asks for.
    #[must_use]
    pub fn with_authorizer(
        mut self,
        authority: &'a dyn Authorize,
        request: AuthorizerTarget,
    ) -> Self {
        let inside = Rc::make_mut(&mut self.0);
        inside.authority = Some(authority);
        inside.request = Some(request);
        self
    }

    /// Adds `variables.name`; it may use those that were added before.
    #[must_use]
    pub fn with_variable(mut self, name: &'a str, expression: &'a Expression) -> Self {
        let variable = Variable { name, expression, value: OnceCell::new() };
        Rc::make_mut(&mut self.0).variables.push(variable);
        self
    }

    /// Evaluates an expression and takes what it cost from `budget`.
    pub fn evaluate(
        &self,
        expression: &'a Expression,
        budget: &mut u64,
    ) -> Result<EvaluatedVariable<'a>, EvalError> {
        let limit = (*budget).min(RULE_BUDGET);
        let machine = Evaluator::on(Rc::clone(&self.0), limit);
        let outcome = machine.eval(&expression.program.expression, None);
        *budget -= limit - machine.left();
        match outcome {
            Ok(value) => Ok(EvaluatedVariable(value)),
            Err(Error::Exhausted) if *budget == 0 => Err(EvalError::OutOfBudget),
            Err(error) => Err(EvalError::Failed {
                expression: expression.source.to_string(),
                reason: error.to_string(),
            }),
        }
    }
}

impl<'a> EvalContextInner<'a> {
    pub(super) fn value(&self, name: &str) -> Option<EvalResult<'a>> {
        if name == "authorizer" && self.authority.is_some() {
            return Some(Ok(Val::Inquiry(Rc::new(Inquiry::default()))));
        }
        let (_, value) = self.values.iter().find(|(known, _)| *known == name)?;
        Some(Ok(value.clone()))
    }

    /// `variables.name`, computed by `machine` the first time.
    pub(super) fn variable(&self, name: &str, machine: &Evaluator<'a>) -> Option<EvalResult<'a>> {
        let variable = self.variables.iter().find(|variable| variable.name == name)?;
        if let Some(known) = variable.value.get() {
            return Some(known.clone());
        }
        let outcome = machine.eval(&variable.expression.program.expression, None);
        // Another expression may still have the budget that this one has not.
        if !matches!(outcome, Err(Error::Exhausted)) {
            let _ = variable.value.set(outcome.clone());
        }
        Some(outcome)
    }

    pub(super) fn request_resource(&self) -> Option<Val<'a>> {
        let request = self.request.clone()?;
        Some(Val::Inquiry(Rc::new(Inquiry { service_account: None, target: Some(request) })))
    }
}

/// The value of an expression.
#[derive(Debug, Clone)]
pub struct EvaluatedVariable<'a>(Val<'a>);

impl EvaluatedVariable<'_> {
    pub fn as_bool(&self) -> Option<bool> {
        match self.0 {
            Val::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match &self.0 {
            Val::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.0, Val::Null)
    }

    pub fn type_name(&self) -> &str {
        self.0.type_name()
    }

    /// `Object{…}` as JSON; types must be named after the field that they are in.
    pub fn to_configuration(&self) -> Result<Value, PatchError> {
        message::configuration(&self.0)
    }

    /// `[JSONPatch{…}]` as a JSON patch.
    pub fn to_json_patch(&self) -> Result<Value, PatchError> {
        message::json_patch(&self.0)
    }
}

/// Why the value of an expression describes no change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("unsupported return type from ApplyConfiguration expression: {0}")]
    NoObject(String),
    #[error("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")]
    NoPatch,
    #[error(
        "type mismatch: unexpected type name {found:?}, expected {expected:?}, which matches field name path from root Object type"
    )]
    Misnamed { found: String, expected: String },
    #[error("a value of type {0} has no form in JSON")]
    NoJson(String),
}
