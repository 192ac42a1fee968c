//! Match conditions: expressions that narrow what a webhook or a policy is meant for.

use schema::cel::{Declarations, EvalContext, ExpectedType, Expression};
use serde_json::Value;

/// The cost limit of all conditions of one webhook or policy together.
const BUDGET: u64 = 2_500_000;

/// One condition, compiled when its configuration was read.
#[derive(Debug)]
pub(super) struct Condition {
    name: String,
    expression: Result<Expression, String>,
}

impl Condition {
    pub(super) fn list(list: &Value, names: &Declarations<'_>) -> Vec<Self> {
        let conditions = list.as_array().into_iter().flatten();
        conditions
            .map(|condition| Self {
                name: condition["name"].as_str().unwrap_or("").to_owned(),
                expression: Expression::compile(
                    condition["expression"].as_str().unwrap_or(""),
                    names,
                    ExpectedType::Bool,
                )
                .map_err(|error| error.to_string()),
            })
            .collect()
    }
}

/// Whether all conditions hold. One that does not outweighs others that cannot be told.
pub(super) fn hold<'a>(
    conditions: &'a [Condition],
    scene: &EvalContext<'a>,
) -> Result<bool, String> {
    let mut budget = BUDGET;
    let mut errors = Vec::new();
    for condition in conditions {
        match &condition.expression {
            Err(text) => errors.push(format!("compilation error: {text}")),
            Ok(expression) => match scene.evaluate(expression, &mut budget) {
                Ok(found) if found.as_bool() == Some(false) => {
                    tracing::trace!(condition = condition.name, "a match condition does not hold");
                    return Ok(false);
                }
                Ok(_) => {}
                Err(error @ schema::cel::EvalError::OutOfBudget) => return Err(error.to_string()),
                Err(error) => errors.push(error.to_string()),
            },
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}
