//! `status.typeChecking` of a policy: type errors of its expressions with the kinds that it
//! matches. They are only reported, and never prevent a write.

use std::sync::Arc;

use kinds::typed_admission_names;
use schema::Schema;
use schema::cel::{CompileError, ExpectedType, Expression};
use serde_json::{Value, json};

use super::param::ParamKind;
use crate::api::Api;
use crate::schemas::served::ServedKind;

/// More kinds than this are not checked.
const MAX_KINDS: usize = 10;

/// The status of a policy as it is written.
pub(crate) fn check_types(api: &Api, policy: &Value) -> Value {
    let kinds = kinds(api, policy);
    let param = ParamKind::of(&policy["spec"]["paramKind"]);
    let param = param.map(|kind| kind.resolve(api).ok().and_then(|served| served.schema().ok()));
    let mut warnings = Vec::new();
    let rules = policy["spec"]["validations"].as_array().into_iter().flatten();
    for (index, rule) in rules.enumerate() {
        for field in ["expression", "messageExpression"] {
            let Some(source) = rule[field].as_str().filter(|source| !source.is_empty()) else {
                continue;
            };
            let texts: Vec<String> = kinds
                .iter()
                .filter_map(|(name, schema)| {
                    let error = check(policy, source, schema, param.as_ref()).err()?;
                    Some(format!("{name}: {error}\n"))
                })
                .collect();
            if !texts.is_empty() {
                warnings.push(json!({
                    "fieldRef": format!("spec.validations[{index}].{field}"),
                    "warning": texts.join("\n"),
                }));
            }
        }
    }
    let mut checked = json!({});
    if !warnings.is_empty() {
        checked["expressionWarnings"] = warnings.into();
    }
    json!({
        "observedGeneration": policy["metadata"]["generation"].as_i64().unwrap_or(1),
        "typeChecking": checked,
    })
}

fn check(
    policy: &Value,
    source: &str,
    object: &Schema,
    param: Option<&Option<Schema>>,
) -> Result<(), CompileError> {
    let param = param.map(|schema| schema.as_deref());
    let mut names = typed_admission_names(object, param);
    for variable in policy["spec"]["variables"].as_array().into_iter().flatten() {
        let text = |field: &str| variable[field].as_str().unwrap_or("");
        // An error in one is reported where it is used.
        let _ = names.variable(text("name"), text("expression"));
    }
    Expression::compile(source, &names, ExpectedType::Anything).map(drop)
}

/// The kinds that the rules name without wildcards, with their schemas.
fn kinds(api: &Api, policy: &Value) -> Vec<(String, Schema)> {
    let catalog = api.catalog.load();
    let mut found: Vec<(String, Arc<ServedKind>)> = Vec::new();
    let rules = &policy["spec"]["matchConstraints"]["resourceRules"];
    for rule in rules.as_array().into_iter().flatten() {
        let texts = |field: &str| -> Vec<&str> {
            rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        for group in &groups {
            for version in &versions {
                for resource in texts("resources") {
                    if resource.contains(['*', '/']) {
                        continue;
                    }
                    let Some(served) = catalog.find(group, version, resource) else { continue };
                    let group = if group.is_empty() { String::new() } else { format!("{group}/") };
                    let name = format!("{group}{version}, Kind={}", served.kind);
                    if found.len() < MAX_KINDS && !found.iter().any(|(known, _)| *known == name) {
                        found.push((name, served.clone()));
                    }
                }
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let schemas =
        found.into_iter().filter_map(|(name, served)| Some((name, served.schema().ok()?)));
    schemas.collect()
}
