//! Match conditions: expressions that narrow what a webhook or a policy is meant for.

use schema::cel::{CompileError, Declarations, EvalContext, EvalError, ExpectedType, Expression};
use serde_json::Value;

/// The cost limit of all conditions of one webhook or policy together.
const BUDGET: u64 = 2_500_000;

/// One condition, compiled when its configuration was read.
#[derive(Debug)]
pub(super) struct Condition {
    name: String,
    expression: Result<Expression, CompileError>,
}

/// Why conditions cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConditionError {
    #[error("compilation error: {0}")]
    Compile(CompileError),
    #[error("{0}")]
    Evaluate(EvalError),
    #[error("[{}]", joined(.0))]
    Several(Vec<Self>),
}

fn joined(errors: &[ConditionError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
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
                ),
            })
            .collect()
    }
}

/// Whether all conditions hold. One that does not outweighs others that cannot be evaluated.
pub(super) fn hold<'a>(
    conditions: &'a [Condition],
    scene: &EvalContext<'a>,
) -> Result<bool, ConditionError> {
    let mut budget = BUDGET;
    let mut errors = Vec::new();
    for condition in conditions {
        match &condition.expression {
            Err(error) => errors.push(ConditionError::Compile(error.clone())),
            Ok(expression) => match scene.evaluate(expression, &mut budget) {
                Ok(found) if found.as_bool() == Some(false) => {
                    tracing::trace!(condition = condition.name, "a match condition does not hold");
                    return Ok(false);
                }
                Ok(_) => {}
                Err(error @ EvalError::OutOfBudget) => return Err(ConditionError::Evaluate(error)),
                Err(error) => errors.push(ConditionError::Evaluate(error)),
            },
        }
    }
    match errors.len() {
        0 => Ok(true),
        1 => Err(errors.remove(0)),
        _ => Err(ConditionError::Several(errors)),
    }
}
