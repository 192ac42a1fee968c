//! ValidatingAdmissionPolicy: rules that refuse, warn or take note.

use std::sync::Arc;

use http::StatusCode;
use schema::cel::{CompileError, Declarations, EvalContext, EvalError, ExpectedType, Expression};
use serde_json::{Value, json};

use super::super::attributes::Attributes;
use super::super::condition;
use super::super::hooks::Read;
use super::super::version::Versions;
use super::{AdmissionPolicy, BUDGET, Binding, Invocation, PolicyContext, invocations};
use crate::status::{ApiError, ApiResult};

/// The longest text that an expression may make for a message, and for an annotation.
const MAX_MESSAGE: usize = 5 * 1024;
const MAX_ANNOTATION: usize = 10 * 1024;
/// How many failures one annotation lists.
const MAX_FAILURES: usize = 50;

/// The action for a failed rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValidationAction {
    Deny,
    Warn,
    Audit,
}

impl ValidationAction {
    pub(super) fn list(list: &Value) -> Vec<Self> {
        let words = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        let actions = words.filter_map(|word| match word {
            "Deny" => Some(Self::Deny),
            "Warn" => Some(Self::Warn),
            "Audit" => Some(Self::Audit),
            _ => None,
        });
        actions.collect()
    }

    fn word(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

/// The rules and annotations of a policy.
#[derive(Debug)]
pub(crate) struct ValidationRules {
    rules: Vec<ValidationRule>,
    annotations: Vec<Annotation>,
}

#[derive(Debug)]
struct ValidationRule {
    source: String,
    expression: Result<Expression, CompileError>,
    message: String,
    message_expression: Option<Expression>,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Unauthorized,
    Forbidden,
    Invalid,
    TooLarge,
}

#[derive(Debug)]
struct Annotation {
    key: String,
    source: String,
    value: Result<Expression, CompileError>,
}

impl Reason {
    fn of(word: Option<&str>) -> Self {
        match word {
            Some("Unauthorized") => Self::Unauthorized,
            Some("Forbidden") => Self::Forbidden,
            Some("RequestEntityTooLarge") => Self::TooLarge,
            _ => Self::Invalid,
        }
    }

    fn status(self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        }
    }
}

impl AdmissionPolicy<ValidationRules> {
    pub(crate) fn validating(policy: &Value) -> Self {
        Self::read(policy, |spec, names| {
            let list = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
            let plain = names.clone().without_authorizer();
            ValidationRules {
                rules: list("validations")
                    .iter()
                    .map(|rule| ValidationRule::of(rule, names, &plain))
                    .collect(),
                annotations: list("auditAnnotations")
                    .iter()
                    .map(|annotation| Annotation::of(annotation, &plain))
                    .collect(),
            }
        })
    }
}

impl ValidationRule {
    fn of(rule: &Value, names: &Declarations<'_>, plain: &Declarations<'_>) -> Self {
        let source = rule["expression"].as_str().unwrap_or("").to_owned();
        let message = rule["messageExpression"].as_str().filter(|source| !source.is_empty());
        Self {
            expression: Expression::compile(&source, names, ExpectedType::Bool),
            message: rule["message"].as_str().unwrap_or("").trim().to_owned(),
            message_expression: message
                .and_then(|source| Expression::compile(source, plain, ExpectedType::Text).ok()),
            reason: Reason::of(rule["reason"].as_str()),
            source,
        }
    }
}

impl Annotation {
    fn of(annotation: &Value, plain: &Declarations<'_>) -> Self {
        let source = annotation["valueExpression"].as_str().unwrap_or("").to_owned();
        Self {
            key: annotation["key"].as_str().unwrap_or("").to_owned(),
            value: Expression::compile(&source, plain, ExpectedType::TextOrNull),
            source,
        }
    }
}

/// A rule that failed, or could not be evaluated.
struct Denial {
    index: usize,
    message: String,
    reason: Reason,
}

/// The result of one policy with one parameter.
#[derive(Default)]
struct PolicyOutcome {
    denials: Vec<Denial>,
    /// Those that hold whatever the binding's actions are.
    absolute: Vec<Denial>,
    annotations: Vec<(String, String)>,
}

/// Asks all policies; the first denial counts.
pub(crate) async fn validate(
    attributes: &Attributes<'_, '_>,
    policies: &[Arc<Read<AdmissionPolicy<ValidationRules>>>],
    bindings: &[Arc<Read<Binding>>],
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<()> {
    let (found, wrong) = invocations(attributes, policies, bindings, object, old)?;
    let mut versions = Versions::new(attributes, object, old);
    for invocation in &found {
        versions.prepare(invocation.seen.as_ref()).await?;
    }
    let mut verdict = PolicyVerdict { attributes, denied: None, failures: Vec::new() };
    for misconfigured in &wrong {
        let kind = if misconfigured.binding.is_some() { "binding" } else { "policy" };
        let why = format!("failed to configure {kind}: {}", misconfigured.why);
        verdict.deny(misconfigured.policy, misconfigured.binding, Reason::Invalid, &why);
    }
    for invocation in &found {
        let (object, old) = versions.get(invocation.seen.as_ref());
        let surroundings = PolicyContext::of(attributes, invocation.seen.as_deref());
        let outcome = evaluate(invocation, &surroundings, object, old);
        verdict.take(invocation, outcome);
    }
    verdict.finish()
}

fn evaluate(
    invocation: &Invocation<'_, ValidationRules>,
    surroundings: &PolicyContext<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> PolicyOutcome {
    let policy = &invocation.policy.what;
    let failed = |message: String| {
        let denial = Denial { index: 0, message, reason: Reason::Invalid };
        let denials = if policy.fails_open { Vec::new() } else { vec![denial] };
        PolicyOutcome { denials, ..PolicyOutcome::default() }
    };
    if let Some(why) = &policy.broken {
        return failed(why.clone());
    }
    let scene = surroundings.scene(invocation, object, old);
    match condition::hold(&policy.conditions, &scene) {
        Ok(true) => {}
        Ok(false) => return PolicyOutcome::default(),
        Err(error) => return failed(error.to_string()),
    }
    let mut budget = BUDGET;
    let mut outcome = PolicyOutcome::default();
    for (index, rule) in policy.body.rules.iter().enumerate() {
        let denial = match check_rule(rule, &scene, &mut budget) {
            Ok(None) => continue,
            Ok(Some(message)) => Denial { index, message, reason: rule.reason },
            Err(EvalError::OutOfBudget) => return failed(EvalError::OutOfBudget.to_string()),
            Err(_) if policy.fails_open => continue,
            Err(error) => Denial { index, message: error.to_string(), reason: Reason::Invalid },
        };
        outcome.denials.push(denial);
    }
    annotate(&policy.body.annotations, &scene, policy.fails_open, &mut outcome);
    outcome
}

/// Nothing if the rule holds, otherwise what to say about it.
fn check_rule<'a>(
    rule: &'a ValidationRule,
    scene: &EvalContext<'a>,
    budget: &mut u64,
) -> Result<Option<String>, EvalError> {
    let expression = rule.expression.as_ref().map_err(|error| EvalError::Failed {
        expression: rule.source.clone(),
        reason: format!("compilation error: {error}"),
    })?;
    if scene.evaluate(expression, budget)?.as_bool() == Some(true) {
        return Ok(None);
    }
    let computed = match &rule.message_expression {
        None => None,
        Some(expression) => match scene.evaluate(expression, budget) {
            Ok(found) => found.as_text().map(|text| text.trim().to_owned()),
            Err(EvalError::OutOfBudget) => return Err(EvalError::OutOfBudget),
            Err(_) => None,
        },
    };
    let usable = computed
        .filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n'));
    Ok(Some(usable.unwrap_or_else(|| match rule.message.as_str() {
        "" => format!("failed expression: {}", rule.source.trim()),
        message => message.to_owned(),
    })))
}

fn annotate<'a>(
    annotations: &'a [Annotation],
    scene: &EvalContext<'a>,
    fails_open: bool,
    outcome: &mut PolicyOutcome,
) {
    let mut budget = BUDGET;
    for annotation in annotations {
        let value = match &annotation.value {
            Err(error) => Err(format!("compilation error: {error}")),
            Ok(expression) => match scene.evaluate(expression, &mut budget) {
                Err(error) => Err(error.to_string()),
                Ok(found) if found.is_null() => Ok(String::new()),
                Ok(found) => found.as_text().map(|text| text.trim().to_owned()).ok_or_else(|| {
                    format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                        annotation.source,
                        found.type_name()
                    )
                }),
            },
        };
        match value {
            Ok(mut value) if !value.is_empty() => {
                value.truncate(value.floor_char_boundary(MAX_ANNOTATION));
                outcome.annotations.push((annotation.key.clone(), value));
            }
            Ok(_) => {}
            Err(_) if fails_open => {}
            Err(message) => {
                outcome.absolute.push(Denial { index: 0, message, reason: Reason::Invalid });
            }
        }
    }
}

/// The result of all policies together.
struct PolicyVerdict<'a, 'c> {
    attributes: &'a Attributes<'a, 'c>,
    denied: Option<ApiError>,
    failures: Vec<Value>,
}

impl PolicyVerdict<'_, '_> {
    fn deny(&mut self, policy: &str, binding: Option<&str>, reason: Reason, why: &str) {
        if self.denied.is_some() {
            return;
        }
        let message = match binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}"
            ),
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {why}"),
        };
        let subject = self.attributes.call.served.subject(&self.attributes.name);
        let (code, reason) = reason.status();
        self.denied = Some(ApiError::denied_by_policy(subject, code, reason, &message));
    }

    fn take(&mut self, invocation: &Invocation<'_, ValidationRules>, outcome: PolicyOutcome) {
        let (policy, binding) = (&*invocation.policy.name, &*invocation.binding.name);
        let actions = &invocation.binding.what.actions;
        let notes = &self.attributes.call.notes;
        for denial in &outcome.denials {
            for action in actions {
                match action {
                    ValidationAction::Deny => {
                        self.deny(policy, Some(binding), denial.reason, &denial.message);
                    }
                    ValidationAction::Warn => notes.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {}",
                        denial.message
                    )),
                    ValidationAction::Audit => self.failures.push(json!({
                        "message": denial.message, "policy": policy, "binding": binding,
                        "expressionIndex": denial.index,
                        "validationActions":
                            actions.iter().map(|action| action.word()).collect::<Vec<_>>(),
                    })),
                }
            }
        }
        for denial in &outcome.absolute {
            self.deny(policy, Some(binding), denial.reason, &denial.message);
        }
        for (key, value) in outcome.annotations {
            notes.annotate(&format!("{policy}/{key}"), || value);
        }
    }

    fn finish(mut self) -> ApiResult<()> {
        if !self.failures.is_empty() {
            self.failures.truncate(MAX_FAILURES);
            let key = "validation.policy.admission.k8s.io/validation_failure";
            let list = Value::Array(self.failures);
            self.attributes.call.notes.annotate(key, || list.to_string());
        }
        self.denied.map_or(Ok(()), Err)
    }
}
