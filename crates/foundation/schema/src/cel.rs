//! CEL rules: `x-kubernetes-validations`.
//!
//! The `cel` crate parses expressions and `kube-cel` brings Kubernetes' function
//! libraries; evaluation of the language itself is ours. Their interpreter can neither be
//! stopped nor bounded, copies values at every step, and does not know schemas. Ours works
//! on the JSON in place, counts every step against a budget, and sees objects through
//! their schema as upstream does.
//!
//! Cost is bounded twice. When a CustomResourceDefinition is admitted, [`check_rules`]
//! estimates the worst case from `maxItems`, `maxLength` and `maxProperties`. When an object
//! is validated, every rule may take [`RULE_BUDGET`] steps and all rules together
//! [`OBJECT_BUDGET`], where work that grows with the size of values counts accordingly.

mod admission;
mod check;
mod compare;
mod compiled;
mod cost;
mod eval;
mod expression;
pub(crate) mod field_path;
mod function;
mod inquiry;
mod library;
mod lookup;
mod macros;
mod message;
mod name;
mod operator;
mod program;
mod scene;
mod signature;
mod types;
mod value;

pub(crate) use admission::check_rules;
pub use compiled::Compiled;
pub use expression::{CompileError, Declarations, ExpectedType, Expression};
pub use inquiry::{AccessQuery, Authorize, AuthorizerTarget, AuthorizerVerdict, ResourceTarget};
pub use name::is_cel_word;
pub use scene::{EvalContext, EvalError, EvaluatedVariable, PatchError};

/// Steps that one evaluation of one expression may take.
const RULE_BUDGET: u64 = 1_000_000;
/// Steps that all rules of one object may take together.
const OBJECT_BUDGET: u64 = 10_000_000;
/// The longest expression, in bytes.
const MAX_EXPRESSION: usize = 16 << 10;
/// The longest text that a `messageExpression` may produce, in bytes.
const MAX_MESSAGE: usize = 5 << 10;

#[cfg(test)]
mod tests;
