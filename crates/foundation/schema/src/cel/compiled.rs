//! A schema with its rules ready to run.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::eval::{Error, Evaluator};
use super::field_path;
use super::program::Program;
use super::value::{ResourceValue, Val};
use super::{MAX_MESSAGE, OBJECT_BUDGET, RULE_BUDGET};
use crate::field::{FieldError, Path, Reason};
use crate::node::{Additional, CelRule, MapType, Schema, SchemaNode, Type};
use crate::validate::{self, ratchet::Old};

/// A schema and its compiled rules. Cheap to clone; made once per version of a
/// CustomResourceDefinition and used from any thread.
#[derive(Debug, Clone)]
pub struct Compiled {
    schema: Schema,
    /// By address of the node: the schema keeps them alive, and shared nodes share rules.
    /// Nodes with neither rules nor rules below them are absent.
    plans: Arc<HashMap<usize, Vec<Prepared>>>,
}

/// Why a rule cannot run, in words for the user of an object.
#[derive(Debug, thiserror::Error)]
#[error("rule compile error: compilation failed: {}", .0.join("; "))]
struct RuleError(Vec<String>);

#[derive(Debug)]
struct Prepared {
    program: Result<Program, RuleError>,
    message: Option<Program>,
    /// Where the failure is reported, relative to the value.
    field: String,
}

impl Compiled {
    pub fn new(schema: Schema) -> Self {
        let mut plans = HashMap::new();
        prepare(&schema, &mut plans);
        Self { schema, plans: Arc::new(plans) }
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Everything that is wrong with an object: [`validate`](crate::validate()), then the rules.
    pub fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::validate(value, old, &self.schema);
        if self.plans.is_empty() {
            return errors;
        }
        let blocking = errors.iter().any(|error| {
            matches!(
                error.reason,
                Reason::NotSupported
                    | Reason::Required
                    | Reason::TooLong
                    | Reason::TooMany
                    | Reason::TypeInvalid
            )
        });
        if blocking {
            // Rules rely on types and sizes being right.
            let text = "some validation rules were not checked because the object was invalid; \
                correct the existing errors to complete validation";
            errors.push(FieldError::invalid("<nil>", Value::Null, text));
        } else {
            errors.extend(self.check_rules(value, old, &Path::Root));
        }
        errors
    }

    /// The rules only, for a value at `at`.
    pub(crate) fn check_rules(
        &self,
        value: &Value,
        old: Option<&Value>,
        at: &Path<'_>,
    ) -> Vec<FieldError> {
        let mut run = Run { plans: &self.plans, left: OBJECT_BUDGET, errors: Vec::new() };
        let correlated = old.map(|old| Old::new(old, &self.schema));
        let site = EvalSite { at, old, correlated, nearest: None, resource: ResourceValue::Yes };
        // Running out of budget ends the whole run; errors found until then are kept.
        let _ended = run.visit(value, &self.schema, &site);
        run.errors
    }
}

/// Whether there are rules here or below.
fn prepare(node: &Schema, plans: &mut HashMap<usize, Vec<Prepared>>) -> bool {
    let address = Arc::as_ptr(node) as usize;
    if plans.contains_key(&address) {
        return true;
    }
    let mut below = false;
    for (_, property) in &node.properties {
        below |= prepare(property, plans);
    }
    if let Additional::Of(values) = &node.additional {
        below |= prepare(values, plans);
    }
    if let Some(items) = &node.items {
        below |= prepare(items, plans);
    }
    let rules = node.validation.as_ref().map(|validation| &*validation.rules).unwrap_or_default();
    let prepared: Vec<Prepared> = rules.iter().map(|rule| prepare_rule(rule, node)).collect();
    let any = below || !prepared.is_empty();
    if any {
        plans.insert(address, prepared);
    }
    any
}

fn prepare_rule(rule: &CelRule, node: &SchemaNode) -> Prepared {
    let parse = |source: &str| {
        Program::parse(source)
            .map_err(|issues| RuleError(issues.into_iter().map(|issue| issue.text).collect()))
    };
    Prepared {
        program: parse(&rule.rule),
        message: rule.message_expression.as_deref().and_then(|source| parse(source).ok()),
        field: rule
            .field_path
            .as_deref()
            .and_then(|path| field_path::resolve(path, node))
            .unwrap_or_default(),
    }
}

struct Run<'a> {
    plans: &'a HashMap<usize, Vec<Prepared>>,
    left: u64,
    errors: Vec<FieldError>,
}

/// The budget is gone.
struct Exhausted;

/// The position of a value, and its old value.
#[derive(Clone, Copy)]
struct EvalSite<'a> {
    at: &'a Path<'a>,
    /// For `oldSelf`.
    old: Option<&'a Value>,
    /// For ratcheting, as everywhere else in validation.
    correlated: Option<Old<'a>>,
    /// The closest value above that correlates, for those that do not.
    nearest: Option<(Old<'a>, &'a Value)>,
    resource: ResourceValue,
}

impl<'a> EvalSite<'a> {
    fn child(
        &self,
        at: &'a Path<'a>,
        old: Option<&'a Value>,
        correlated: Option<Old<'a>>,
        value: &'a Value,
        node: &SchemaNode,
    ) -> EvalSite<'a> {
        let resource = if node.embedded { ResourceValue::Yes } else { ResourceValue::No };
        match self.correlated {
            Some(here) => EvalSite { at, old, correlated, nearest: Some((here, value)), resource },
            None => EvalSite { at, old, correlated: None, nearest: self.nearest, resource },
        }
    }

    fn is_unchanged(&self, value: &Value) -> bool {
        match (self.correlated, self.nearest) {
            (Some(old), _) => old.equals(value),
            (None, Some((old, value))) => old.equals(value),
            (None, None) => false,
        }
    }
}

impl Run<'_> {
    fn visit(
        &mut self,
        value: &Value,
        node: &Schema,
        site: &EvalSite<'_>,
    ) -> Result<(), Exhausted> {
        let plans = self.plans;
        let Some(prepared) = plans.get(&(Arc::as_ptr(node) as usize)) else { return Ok(()) };
        if value.is_null() || self.errors.len() >= validate::MAX_ERRORS {
            return Ok(());
        }
        let rules =
            node.validation.as_ref().map(|validation| &*validation.rules).unwrap_or_default();
        for (rule, prepared) in rules.iter().zip(prepared) {
            self.check(rule, prepared, value, node, site)?;
        }
        match value {
            Value::Array(list) => {
                let Some(items) = &node.items else { return Ok(()) };
                let olds = site.old.and_then(|old| Old::new(old, node).items());
                for (index, item) in list.iter().enumerate() {
                    let at = site.at.index(index);
                    let old = olds.as_ref().and_then(|olds| olds.find(item));
                    let correlated = site.correlated.and(old);
                    let old = old.map(|old| old.value);
                    self.visit(item, items, &site.child(&at, old, correlated, value, items))?;
                }
            }
            Value::Object(map) => {
                let olds = site.old.and_then(Value::as_object);
                for (name, child) in map {
                    let (schema, at) = match (node.property(name), &node.additional) {
                        (Some(schema), _) => (schema, site.at.field(name)),
                        (None, Additional::Of(schema)) => (schema, site.at.key(name)),
                        (None, _) => continue,
                    };
                    let old = olds
                        .filter(|_| node.map == MapType::Granular)
                        .and_then(|olds| olds.get(name));
                    let correlated = site.correlated.and_then(|old| old.field(name));
                    self.visit(child, schema, &site.child(&at, old, correlated, value, schema))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(
        &mut self,
        rule: &CelRule,
        prepared: &Prepared,
        value: &Value,
        node: &SchemaNode,
        site: &EvalSite<'_>,
    ) -> Result<(), Exhausted> {
        let field = validate::name(site.at);
        let ty = type_text(node);
        let program = match &prepared.program {
            Ok(program) => program,
            Err(error) => {
                self.errors.push(FieldError::invalid(field, ty, error.to_string()));
                return Ok(());
            }
        };
        if program.uses_old_self && site.old.is_none() && !rule.optional_old_self {
            return Ok(());
        }
        let view = |value| Val::view(value, Some(node), site.resource);
        let old = site.old.map(view);
        let old = match old {
            _ if !program.uses_old_self => None,
            old if rule.optional_old_self => Some(Val::Optional(old.map(std::rc::Rc::new))),
            old => old,
        };
        let budget = self.left.min(RULE_BUDGET);
        let machine = Evaluator::new(view(value), old, budget);
        let outcome = machine.eval(&program.expression, None);
        self.left -= budget - machine.left();
        match outcome {
            Ok(Val::Bool(true)) => Ok(()),
            Ok(Val::Bool(false)) => {
                let error = self.failure(rule, prepared, value, node, &machine, site);
                let forgiven = !program.uses_old_self && site.is_unchanged(value);
                self.errors.extend(Some(error).filter(|_| !forgiven));
                Ok(())
            }
            Ok(_) => self.fail(Error::Other("no boolean".to_owned()), rule, field, ty),
            Err(error) => self.fail(error, rule, field, ty),
        }
    }

    /// Reports a rule that came to no result.
    fn fail(
        &mut self,
        error: Error,
        rule: &CelRule,
        field: String,
        ty: &str,
    ) -> Result<(), Exhausted> {
        let name = rule.message.as_deref().unwrap_or(&rule.rule).trim();
        let text = match &error {
            Error::Exhausted if self.left == 0 => "validation failed due to running out of cost \
                budget, no further validation rules will be run"
                .to_owned(),
            Error::Exhausted => format!(
                "'{error}': no further validation rules will be run due to call cost exceeds \
                 limit for rule: {name}"
            ),
            Error::NoOverload { .. } => format!(
                "'{error}': call arguments did not match a supported operator, function or macro \
                 signature for rule: {name}"
            ),
            _ => format!("{error} evaluating rule: {name}"),
        };
        self.errors.push(FieldError::invalid(field, ty, text));
        if error == Error::Exhausted { Err(Exhausted) } else { Ok(()) }
    }

    /// The error for a rule that said no.
    fn failure<'v>(
        &mut self,
        rule: &CelRule,
        prepared: &'v Prepared,
        value: &Value,
        node: &SchemaNode,
        machine: &Evaluator<'v>,
        site: &EvalSite<'_>,
    ) -> FieldError {
        let field = match (site.at, prepared.field.as_str()) {
            (at, "") => validate::name(at),
            (Path::Root, field) => field.to_owned(),
            (at, field) if field.starts_with('[') => format!("{at}{field}"),
            (at, field) => format!("{at}.{field}"),
        };
        let detail = self.message(rule, prepared, machine);
        let whole = matches!(node.ty, Type::Object | Type::Array);
        let shown = Some(value.clone()).filter(|_| !whole);
        let error = |reason, detail| FieldError { reason, field, value: shown, detail };
        match rule.reason.as_deref() {
            Some("FieldValueForbidden") => error(Reason::Forbidden, detail),
            Some("FieldValueRequired") => error(Reason::Required, detail),
            Some("FieldValueDuplicate") => error(Reason::Duplicate, String::new()),
            _ => error(Reason::Invalid, detail),
        }
    }

    fn message<'v>(
        &mut self,
        rule: &CelRule,
        prepared: &'v Prepared,
        machine: &Evaluator<'v>,
    ) -> String {
        let computed = prepared.message.as_ref().and_then(|program| {
            let budget = self.left.min(RULE_BUDGET);
            let machine = Evaluator::new(machine.this.clone(), machine.old.clone(), budget);
            let outcome = machine.eval(&program.expression, None);
            self.left -= budget - machine.left();
            match outcome {
                Ok(Val::Text(text)) => Some(text.trim().to_owned()),
                _ => None,
            }
        });
        let usable = computed
            .filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n'));
        usable.unwrap_or_else(|| match rule.message.as_deref() {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.rule.trim()),
        })
    }
}

fn type_text(node: &SchemaNode) -> &'static str {
    match node.ty {
        Type::IntOrString => "",
        ty => validate::type_name(ty),
    }
}
