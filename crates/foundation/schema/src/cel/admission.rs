//! The rules of a schema, when its CustomResourceDefinition is admitted.

use super::check::{Checker, Info};
use super::cost;
use super::program::{Issue, Program, Report};
use super::types::{Ty, Typed};
use super::value::ResourceValue;
use crate::field::{FieldError, Path};
use crate::node::{Additional, CelRule, ListType, MapType, SchemaNode};

/// Everything that is wrong with the rules of a schema that is otherwise structural.
pub(crate) fn check_rules(schema: &SchemaNode, at: &Path<'_>) -> Vec<FieldError> {
    let mut auditor = SchemaRuleChecker { errors: Vec::new(), total: 0, expensive: Vec::new() };
    let place = ValuePosition { count: Some(1), resource: ResourceValue::Yes, no_old: None };
    auditor.visit(schema, &place, at);
    if auditor.total > cost::SCHEMA_LIMIT {
        auditor.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        for (field, _) in auditor.expensive.iter().take(4) {
            let text = "contributed to estimated rule cost total exceeding cost limit for entire \
                OpenAPIv3 schema";
            auditor.errors.push(FieldError::forbidden(field, text));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let text = cost::exceeded(what, auditor.total, cost::SCHEMA_LIMIT);
        auditor.errors.push(FieldError::forbidden(at, text));
    }
    auditor.errors
}

struct SchemaRuleChecker {
    errors: Vec<FieldError>,
    total: u64,
    /// Rules that take more than a hundredth of the limit each.
    expensive: Vec<(String, u64)>,
}

/// The position of the values of a schema in an object.
struct ValuePosition {
    /// How many such values an object has at most, if its schema says so.
    count: Option<u64>,
    resource: ResourceValue,
    /// The schema above this one whose parts cannot be matched between old and new.
    no_old: Option<String>,
}

impl SchemaRuleChecker {
    fn visit(&mut self, node: &SchemaNode, place: &ValuePosition, at: &Path<'_>) {
        let rules = node.validation.as_ref().map(|validation| &*validation.rules);
        let here = at.field("x-kubernetes-validations");
        for (index, rule) in rules.unwrap_or_default().iter().enumerate() {
            self.check_rule(rule, node, place, &here.index(index));
        }
        let validation = node.validation.as_deref();
        let count = |most: Option<u64>| Some(place.count?.saturating_mul(most?));
        let inherit = |loses: bool| match &place.no_old {
            None if loses => Some(at.to_string()),
            known => known.clone(),
        };
        if let Additional::Of(values) = &node.additional {
            let place = ValuePosition {
                count: count(validation.and_then(|validation| validation.max_properties)),
                resource: resource(values),
                no_old: place.no_old.clone(),
            };
            self.visit(values, &place, &at.field("additionalProperties"));
        }
        let properties = at.field("properties");
        for (name, property) in &node.properties {
            let place = ValuePosition {
                count: place.count,
                resource: resource(property),
                no_old: inherit(node.map == MapType::Atomic),
            };
            self.visit(property, &place, &properties.key(name));
        }
        if let Some(items) = &node.items {
            let place = ValuePosition {
                count: count(validation.and_then(|validation| validation.max_items)),
                resource: resource(items),
                no_old: inherit(!matches!(node.list, ListType::Map(_))),
            };
            self.visit(items, &place, &at.field("items"));
        }
    }

    fn check_rule(
        &mut self,
        rule: &CelRule,
        node: &SchemaNode,
        place: &ValuePosition,
        at: &Path<'_>,
    ) {
        let Some(this) = Typed::of(node, place.resource) else { return };
        let (field, message_field) = (at.field("rule"), at.field("messageExpression"));
        let checked = compile(&rule.rule, &this, rule.optional_old_self);
        let (program, info) = match checked {
            Ok(checked) => checked,
            Err(issues) => {
                let report = Report { issues: &issues, source: &rule.rule };
                let text = format!("compilation failed: {report}");
                self.errors.push(FieldError::invalid(field, excerpt(&rule.rule), text));
                return;
            }
        };
        if !matches!(info.typed.ty, Ty::Bool | Ty::Dyn) {
            let text = "cel expression must evaluate to a bool";
            self.errors.push(FieldError::invalid(field, &*rule.rule, text));
        }
        let count = place.count.unwrap_or_else(|| cost::max_count(node));
        self.observe(info.cost.saturating_mul(count), "estimated rule cost", &field);
        if program.uses_old_self {
            if let Some(above) = &place.no_old {
                let text = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                     {above}"
                );
                self.errors.push(FieldError::invalid(field, &*rule.rule, text));
            }
        } else if rule.optional_old_self {
            let text = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(at.field("optionalOldSelf"), true, text));
        }
        let Some(source) = rule.message_expression.as_deref() else { return };
        match compile(source, &this, rule.optional_old_self) {
            Err(issues) => {
                let report = Report { issues: &issues, source };
                let text = format!("messageExpression compilation failed: {report}");
                self.errors.push(FieldError::invalid(message_field, excerpt(source), text));
            }
            Ok((_, info)) if !matches!(info.typed.ty, Ty::Text | Ty::Dyn) => {
                let text = "messageExpression must evaluate to a string";
                self.errors.push(FieldError::invalid(message_field, source, text));
            }
            Ok((_, info)) => {
                self.observe(info.cost, "estimated messageExpression cost", &message_field);
            }
        }
    }

    fn observe(&mut self, cost: u64, what: &str, at: &Path<'_>) {
        if cost > cost::RULE_LIMIT {
            let text = cost::exceeded(what, cost, cost::RULE_LIMIT);
            self.errors.push(FieldError::forbidden(at, text));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= cost::SCHEMA_LIMIT / 100 {
            self.expensive.push((at.to_string(), cost));
        }
    }
}

fn resource(node: &SchemaNode) -> ResourceValue {
    if node.embedded { ResourceValue::Yes } else { ResourceValue::No }
}

/// The part of an expression that an error shows; an expression may be refused for its very
/// length.
fn excerpt(source: &str) -> &str {
    source.get(..source.floor_char_boundary(1 << 10)).unwrap_or_default()
}

fn compile<'a>(
    source: &str,
    this: &Typed<'a>,
    optional_old_self: bool,
) -> Result<(Program, Info<'a>), Vec<Issue>> {
    let program = Program::parse(source)?;
    let (info, issues) = Checker::check(source, &program.expression, this, optional_old_self);
    if issues.is_empty() { Ok((program, info)) } else { Err(issues) }
}
