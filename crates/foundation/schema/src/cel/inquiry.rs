//! `authorizer`: questions about rights, asked step by step.
//!
//! ```text
//!   authorizer ─► path(p) ─────────────────────────────────► check(verb) ─► allowed(), reason()
//!      │   └───► group(g) ─► resource(r) ─► subresource(s),      ▲
//!      │                        namespace(n), name(n) ───────────┘
//!      └► serviceAccount(namespace, name) ─► the same on behalf of that account
//! ```

use std::rc::Rc;

use super::eval::{Error, EvalResult, Evaluator};
use super::value::Val;

/// The cost of one query: an authorizer may need long.
const CHECK_COST: u64 = 350_000;

/// Answers questions about rights.
pub trait Authorize {
    fn decide(&self, question: &AccessQuery) -> AuthorizerVerdict;
}

/// May the sender of the request, or a service account, do this?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessQuery {
    /// Namespace and name, if it is not about the sender of the request.
    pub service_account: Option<(String, String)>,
    pub verb: String,
    pub target: AuthorizerTarget,
}

/// The target of a query to the authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorizerTarget {
    Path(String),
    /// A group of which the resource is not said yet.
    Group(String),
    Resource(ResourceTarget),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceTarget {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorizerVerdict {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// A question that is being put together.
#[derive(Debug, Clone, Default)]
pub(super) struct Inquiry {
    pub(super) service_account: Option<(String, String)>,
    pub(super) target: Option<AuthorizerTarget>,
}

/// The type of a value in the chain, as cel-go names it.
pub(super) fn type_name(inquiry: &Inquiry) -> &'static str {
    match &inquiry.target {
        None => AUTHORIZER,
        Some(AuthorizerTarget::Path(_)) => PATH_CHECK,
        Some(AuthorizerTarget::Group(_)) => GROUP_CHECK,
        Some(AuthorizerTarget::Resource(_)) => RESOURCE_CHECK,
    }
}

pub(super) const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
pub(super) const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
pub(super) const DECISION: &str = "kubernetes.authorization.Decision";

/// The type that a function of the chain returns, for the static check.
pub(super) fn result(of: &str, function: &str, arguments: usize) -> Option<Returns> {
    Some(match (of, function, arguments) {
        (AUTHORIZER, "path", 1) => Returns::Chain(PATH_CHECK),
        (AUTHORIZER, "group", 1) => Returns::Chain(GROUP_CHECK),
        (AUTHORIZER, "serviceAccount", 2) => Returns::Chain(AUTHORIZER),
        (GROUP_CHECK, "resource", 1) => Returns::Chain(RESOURCE_CHECK),
        (
            RESOURCE_CHECK,
            "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector",
            1,
        ) => Returns::Chain(RESOURCE_CHECK),
        (PATH_CHECK | RESOURCE_CHECK, "check", 1) => Returns::Chain(DECISION),
        (DECISION, "allowed" | "errored", 0) => Returns::Bool,
        (DECISION, "reason" | "error", 0) => Returns::Text,
        _ => return None,
    })
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Returns {
    Chain(&'static str),
    Bool,
    Text,
}

pub(super) fn cost(function: &str) -> u64 {
    if function == "check" { CHECK_COST } else { 1 }
}

impl<'a> Evaluator<'a> {
    /// A function of the chain; `None` if the target is not part of one.
    pub(super) fn inquire(
        &self,
        function: &str,
        target: Option<&Val<'a>>,
        arguments: &[Val<'a>],
    ) -> Option<EvalResult<'a>> {
        match target? {
            Val::Inquiry(inquiry) => Some(self.extend(function, inquiry, arguments)),
            Val::Verdict(verdict) => Some(match (function, arguments) {
                ("allowed", []) => Ok(Val::Bool(verdict.allowed)),
                ("reason", []) => Ok(Val::text(verdict.reason.as_str())),
                ("errored", []) => Ok(Val::Bool(verdict.error.is_some())),
                ("error", []) => Ok(Val::text(verdict.error.as_deref().unwrap_or_default())),
                _ => Err(Error::overload(function, target)),
            }),
            _ => None,
        }
    }

    fn extend(&self, function: &str, inquiry: &Inquiry, arguments: &[Val<'a>]) -> EvalResult<'a> {
        let overload = || Error::overload(function, arguments);
        let texts: Vec<&str> = arguments
            .iter()
            .filter_map(|argument| match argument {
                Val::Text(text) => Some(&**text),
                _ => None,
            })
            .collect();
        if texts.len() != arguments.len() {
            return Err(overload());
        }
        let mut next = inquiry.clone();
        match (function, texts.as_slice(), &mut next.target) {
            ("serviceAccount", [namespace, name], None) => {
                next.service_account = Some(((*namespace).to_owned(), (*name).to_owned()));
            }
            ("path", [path], target @ None) => {
                *target = Some(AuthorizerTarget::Path((*path).to_owned()))
            }
            ("group", [group], target @ None) => {
                *target = Some(AuthorizerTarget::Group((*group).to_owned()))
            }
            ("resource", [resource], Some(target @ AuthorizerTarget::Group(_))) => {
                let AuthorizerTarget::Group(group) = target.clone() else { return Err(overload()) };
                let resource = (*resource).to_owned();
                *target = AuthorizerTarget::Resource(ResourceTarget {
                    group,
                    resource,
                    ..ResourceTarget::default()
                });
            }
            ("subresource", [text], Some(AuthorizerTarget::Resource(at))) => {
                at.subresource = (*text).to_owned();
            }
            ("namespace", [text], Some(AuthorizerTarget::Resource(at))) => {
                at.namespace = (*text).to_owned()
            }
            ("name", [text], Some(AuthorizerTarget::Resource(at))) => at.name = (*text).to_owned(),
            // Our authorizer does not evaluate selectors, as RBAC does not.
            ("fieldSelector" | "labelSelector", [_], Some(AuthorizerTarget::Resource(_))) => {}
            ("check", [verb], Some(target)) => {
                self.spend(CHECK_COST)?;
                let Some(authority) = self.authority() else { return Err(overload()) };
                let verdict = authority.decide(&AccessQuery {
                    service_account: inquiry.service_account.clone(),
                    verb: (*verb).to_owned(),
                    target: target.clone(),
                });
                return Ok(Val::Verdict(Rc::new(verdict)));
            }
            _ => return Err(overload()),
        }
        Ok(Val::Inquiry(Rc::new(next)))
    }
}
