//! Expressions over named values, as admission policies and match conditions are written.

use std::fmt;
use std::rc::Rc;

use super::check::Checker;
use super::inquiry;
use super::program::{Issue, Program, Report};
use super::types::{Ty, Typed};
use super::value::ResourceValue;
use crate::node::SchemaNode;

/// A compiled expression; made once, used from any thread.
#[derive(Debug)]
pub struct Expression {
    pub(super) source: Box<str>,
    pub(super) program: Program,
}

/// The variables of an expression. Borrows the schemas that give names their types.
#[derive(Debug, Clone, Default)]
pub struct Declarations<'n> {
    values: Vec<(&'static str, Typed<'n>)>,
    variables: Vec<(String, Typed<'n>)>,
    authorizer: bool,
    constructors: bool,
}

/// The type that an expression must evaluate to, by its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedType {
    Bool,
    Text,
    TextOrNull,
    Anything,
    /// `Object{…}`
    Configuration,
    /// `[JSONPatch{…}]`
    JsonPatch,
}

/// Why an expression is refused, in cel-go's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    issues: Vec<Issue>,
    source: String,
    wrong_type: Option<String>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wrong_type {
            Some(text) => out.write_str(text),
            None => {
                let report = Report { issues: &self.issues, source: &self.source };
                write!(out, "compilation failed: {report}")
            }
        }
    }
}

impl std::error::Error for CompileError {}

impl<'n> Declarations<'n> {
    /// A name whose values are known at run time only.
    #[must_use]
    pub fn dynamic(mut self, name: &'static str) -> Self {
        self.values.push((name, Typed::dynamic()));
        self
    }

    /// A name whose values have the form of a schema.
    #[must_use]
    pub fn typed(mut self, name: &'static str, node: &'n SchemaNode) -> Self {
        let typed = Typed::of(node, ResourceValue::No).unwrap_or_else(Typed::dynamic);
        self.values.push((name, typed));
        self
    }

    /// Allows `authorizer`.
    #[must_use]
    pub fn authorizer(mut self) -> Self {
        self.authorizer = true;
        self
    }

    /// The same without it: expressions that only explain a decision may not query the authorizer.
    #[must_use]
    pub fn without_authorizer(mut self) -> Self {
        self.authorizer = false;
        self
    }

    /// Allows `Object{…}` and `JSONPatch{…}`.
    #[must_use]
    pub fn constructors(mut self) -> Self {
        self.constructors = true;
        self
    }

    /// Compiles a variable, and knows it from then on. One that does not compile is known,
    /// too, so that those who use it are not blamed.
    pub fn variable(&mut self, name: &str, source: &str) -> Result<Expression, CompileError> {
        let (outcome, typed) = match compile(source, self) {
            Ok((expression, typed)) => (Ok(expression), typed),
            Err(error) => (Err(error), Typed::dynamic()),
        };
        self.variables.push((name.to_owned(), typed));
        outcome
    }

    pub(super) fn find(&self, name: &str) -> Option<Typed<'n>> {
        if name == "authorizer" && self.authorizer {
            return Some(Typed::new(Ty::Named(inquiry::AUTHORIZER.into()), 1));
        }
        self.values.iter().find(|(known, _)| *known == name).map(|(_, typed)| typed.clone())
    }

    pub(super) fn find_variable(&self, name: &str) -> Option<Typed<'n>> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, typed)| typed.clone())
    }

    pub(super) fn request_resource(&self) -> Option<Typed<'n>> {
        self.authorizer.then(|| Typed::new(Ty::Named(inquiry::RESOURCE_CHECK.into()), 1))
    }

    pub(super) fn has_constructors(&self) -> bool {
        self.constructors
    }
}

impl Expression {
    pub fn compile(
        source: &str,
        names: &Declarations<'_>,
        wanted: ExpectedType,
    ) -> Result<Self, CompileError> {
        let (expression, typed) = compile(source, names)?;
        let Some(wrong_type) = wanted.refuses(&typed.ty) else { return Ok(expression) };
        let source = source.to_owned();
        Err(CompileError { issues: Vec::new(), source, wrong_type: Some(wrong_type) })
    }

    pub fn source(&self) -> &str {
        &self.source
    }
}

fn compile<'n>(
    source: &str,
    names: &Declarations<'n>,
) -> Result<(Expression, Typed<'n>), CompileError> {
    let refuse = |issues| CompileError { issues, source: source.to_owned(), wrong_type: None };
    let program = Program::parse(source).map_err(refuse)?;
    let (info, issues) = Checker::check_names(source, &program.expression, names);
    if !issues.is_empty() {
        return Err(refuse(issues));
    }
    Ok((Expression { source: source.into(), program }, info.typed))
}

impl ExpectedType {
    /// Why a type is not the expected one; a type that is known only at run time passes.
    fn refuses(self, ty: &Ty<'_>) -> Option<String> {
        let wanted = match self {
            _ if ty.is_dyn() => return None,
            Self::Anything => return None,
            Self::Bool => "bool",
            Self::Text => "string",
            Self::TextOrNull if matches!(ty, Ty::Text | Ty::Null) => return None,
            Self::TextOrNull => {
                return Some(format!("must evaluate to one of [string null_type] but got {ty}"));
            }
            Self::Configuration => "Object",
            Self::JsonPatch => match ty {
                Ty::List(item) if item.ty.is_dyn() => return None,
                _ => "list(JSONPatch)",
            },
        };
        let found = ty.to_string();
        (found != wanted).then(|| format!("must evaluate to {wanted} but got {found}"))
    }
}

/// A type that is known by its name only.
pub(super) fn named<'a>(name: &str) -> Ty<'a> {
    Ty::Named(Rc::from(name))
}
