//! Expressions: parsed once, then shared by all threads.

use std::fmt;

use kube_cel::cel::common::ast::{EntryExpr, Expr};
use kube_cel::cel::parser::{Expression, ParseErrors, Parser};

use super::MAX_EXPRESSION;

/// How many operators an expression may have. Each can make the tree one level deeper, and
/// every walk over the tree recurses.
const MAX_OPERATORS: usize = 500;
/// How deeply parentheses, brackets and braces may nest.
const MAX_NESTING: usize = 40;
/// In bytes; reserved, not used, until the parser nests that deeply.
const PARSER_STACK: usize = 32 << 20;

/// A parsed expression.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) expression: Expression,
    pub(super) uses_old_self: bool,
}

/// Why an expression is not accepted, in the form of cel-go's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issue {
    /// Line and column from 1, if known.
    pub(super) at: Option<(usize, usize)>,
    pub(super) text: String,
}

impl Program {
    pub(super) fn parse(source: &str) -> Result<Program, Vec<Issue>> {
        if let Some(text) = too_large(source) {
            return Err(vec![Issue { at: None, text }]);
        }
        let expression = parse_with_room(source)?;
        let mut uses_old_self = false;
        visit(&expression, &mut |expr| {
            uses_old_self |= matches!(expr, Expr::Ident(name) if name == "oldSelf");
        });
        Ok(Program { expression, uses_old_self })
    }
}

/// Parses on a stack of its own: the generated parser takes up to 100 KiB of it for every
/// level of parentheses, more than the thread of a caller has to spare.
fn parse_with_room(source: &str) -> Result<Expression, Vec<Issue>> {
    let failure = |text: &str| vec![Issue { at: None, text: text.to_owned() }];
    std::thread::scope(|scope| {
        let parser =
            std::thread::Builder::new().stack_size(PARSER_STACK).spawn_scoped(scope, || {
                let parser = Parser::new().enable_optional_syntax(true);
                parser.parse(source).map_err(|errors| issues(&errors))
            });
        match parser.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(_)) => Err(failure("the parser failed")),
            Err(_) => Err(failure("no thread to parse with")),
        }
    })
}

/// Why an expression is too large to be parsed: both parser and evaluator recurse.
fn too_large(source: &str) -> Option<String> {
    if source.len() > MAX_EXPRESSION {
        return Some(format!("expression is longer than {MAX_EXPRESSION} bytes"));
    }
    let (mut operators, mut depth, mut deepest) = (0, 0_usize, 0);
    let (mut quote, mut before) = (None, ' ');
    let mut chars = source.chars();
    while let Some(next) = chars.next() {
        match (next, quote) {
            ('\\', Some(_)) => {
                chars.next();
            }
            ('"' | '\'', None) => quote = Some(next),
            (next, Some(open)) if next == open => quote = None,
            ('(' | '[' | '{', None) => {
                depth += 1;
                deepest = deepest.max(depth);
                operators += usize::from(next == '[');
            }
            (')' | ']' | '}', None) => depth = depth.saturating_sub(1),
            ('.' | '?', None) => operators += 1,
            // `&&`, `>=` and the like are one operator.
            ('+' | '-' | '*' | '/' | '%' | '!' | '=' | '<' | '>' | '&' | '|', None) => {
                operators += usize::from(!"=<>!&|".contains(before));
            }
            _ => {}
        }
        before = next;
    }
    if operators > MAX_OPERATORS {
        return Some(format!("expression has more than {MAX_OPERATORS} operators"));
    }
    (deepest > MAX_NESTING).then(|| format!("expression nests more than {MAX_NESTING} levels deep"))
}

fn issues(errors: &ParseErrors) -> Vec<Issue> {
    errors
        .errors
        .iter()
        .map(|error| {
            let position = |number: isize| usize::try_from(number).unwrap_or(1).max(1);
            Issue {
                at: Some((position(error.pos.0), position(error.pos.1))),
                text: error.msg.clone(),
            }
        })
        .collect()
}

/// Prints issues as cel-go does, with the line and a pointer to the place.
pub(super) struct Report<'a> {
    pub(super) issues: &'a [Issue],
    pub(super) source: &'a str,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            let Some((line, column)) = issue.at else {
                write!(out, "ERROR: <input>:1:1: {}", issue.text)?;
                continue;
            };
            write!(out, "ERROR: <input>:{line}:{column}: {}", issue.text)?;
            if let Some(text) = self.source.lines().nth(line - 1) {
                write!(out, "\n | {text}\n | {}^", ".".repeat(column - 1))?;
            }
        }
        Ok(())
    }
}

/// Calls `seen` for every node of an expression.
pub(super) fn visit(expression: &Expression, seen: &mut impl FnMut(&Expr)) {
    seen(&expression.expr);
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Call(call) => {
            for part in call.target.iter().map(|target| &**target).chain(&call.args) {
                visit(part, seen);
            }
        }
        Expr::Comprehension(fold) => {
            for part in
                [&fold.iter_range, &fold.accu_init, &fold.loop_cond, &fold.loop_step, &fold.result]
            {
                visit(part, seen);
            }
        }
        Expr::List(list) => {
            for element in &list.elements {
                visit(element, seen);
            }
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                visit_entry(&entry.expr, seen);
            }
        }
        Expr::Select(select) => visit(&select.operand, seen),
        Expr::Struct(fields) => {
            for entry in &fields.entries {
                visit_entry(&entry.expr, seen);
            }
        }
    }
}

fn visit_entry(entry: &EntryExpr, seen: &mut impl FnMut(&Expr)) {
    match entry {
        EntryExpr::StructField(field) => visit(&field.value, seen),
        EntryExpr::MapEntry(entry) => {
            visit(&entry.key, seen);
            visit(&entry.value, seen);
        }
    }
}
