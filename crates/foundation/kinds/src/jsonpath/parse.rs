//! From text to nodes.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

use super::{JsonPathNode, Operator, ParseError, Slice};

/// How deep filters may be nested.
const DEPTH_MAX: usize = 8;

/// The nodes of one path.
pub(super) fn nodes(text: &str, depth: usize) -> Result<Vec<JsonPathNode>, ParseError> {
    if depth > DEPTH_MAX {
        return Err(ParseError::Depth);
    }
    let mut parser = Parser { rest: text, depth, nodes: Vec::new() };
    parser.run()?;
    Ok(parser.nodes)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    nodes: Vec<JsonPathNode>,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<(), ParseError> {
        while let Some(first) = self.rest.chars().next() {
            if self.rest.starts_with("[?(") {
                self.filter()?;
            } else if self.rest.starts_with("..") {
                self.recursive()?;
            } else {
                match first {
                    ' ' | '@' | '$' => self.skip(1),
                    '[' => self.array()?,
                    '"' | '\'' => self.quote(first)?,
                    '.' => {
                        self.skip(1);
                        self.field();
                    }
                    '+' | '-' => self.number()?,
                    _ if first.is_ascii_digit() => self.number()?,
                    _ if first == '_' || first.is_alphanumeric() => self.identifier()?,
                    _ => return Err(ParseError::Unexpected(first)),
                }
            }
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// Takes what precedes `end` and goes past it.
    fn take_past(&mut self, end: &str, what: &'static str) -> Result<&'a str, ParseError> {
        let (taken, rest) = self.rest.split_once(end).ok_or(ParseError::Unterminated(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((index, char)) = chars.next() {
            match char {
                '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
                _ if is_terminator(char) => {
                    end = index;
                    break;
                }
                _ => name.push(char),
            }
        }
        self.skip(end);
        self.nodes.push(if name == "*" {
            JsonPathNode::Wildcard
        } else {
            JsonPathNode::Field(name)
        });
    }

    fn recursive(&mut self) -> Result<(), ParseError> {
        if self.nodes.last() == Some(&JsonPathNode::Recursive) {
            return Err(ParseError::Recursive);
        }
        self.skip(2);
        self.nodes.push(JsonPathNode::Recursive);
        if self.rest.starts_with(|next: char| next == '_' || next.is_alphanumeric()) {
            self.field();
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), ParseError> {
        let digits = |char: char| char != '.' && !char.is_ascii_digit();
        let end = self.rest[1..].find(digits).map_or(self.rest.len(), |end| end + 1);
        let text = &self.rest[..end];
        let value = match text.trim_start_matches('+').parse::<i64>() {
            Ok(number) => Value::from(number),
            Err(_) => match text.parse::<f64>() {
                Ok(number) => Value::from(number),
                Err(_) => return Err(ParseError::Number { text: text.to_owned() }),
            },
        };
        self.skip(end);
        self.nodes.push(JsonPathNode::Literal(value));
        Ok(())
    }

    fn identifier(&mut self) -> Result<(), ParseError> {
        let end = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        let value = match name {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => return Err(ParseError::Identifier { name: name.to_owned() }),
        };
        self.skip(end);
        self.nodes.push(JsonPathNode::Literal(value));
        Ok(())
    }

    fn quote(&mut self, quote: char) -> Result<(), ParseError> {
        self.skip(1);
        let mut chars = self.rest.char_indices();
        let mut text = String::new();
        while let Some((index, char)) = chars.next() {
            match char {
                '\\' => text.extend(chars.next().map(|(_, escaped)| unescape(escaped))),
                _ if char == quote => {
                    self.skip(index + 1);
                    self.nodes.push(JsonPathNode::Literal(Value::String(text)));
                    return Ok(());
                }
                _ => text.push(char),
            }
        }
        Err(ParseError::Unterminated("quoted string"))
    }

    fn array(&mut self) -> Result<(), ParseError> {
        self.skip(1);
        let text = self.take_past("]", "array")?;
        if text.contains(',') {
            let parts =
                text.split(',').map(|part| nodes(&format!("[{}]", part.trim()), self.depth + 1));
            self.nodes.push(JsonPathNode::Union(parts.collect::<Result<_, _>>()?));
            return Ok(());
        }
        // A quoted key is read like a field, so its dots need a backslash too.
        let key = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        if let Some(key) = key.filter(|key| !key.contains('\'')) {
            self.nodes.extend(nodes(&format!(".{key}"), self.depth + 1)?);
            return Ok(());
        }
        let text = if text == "*" { ":" } else { text };
        let slice = slice(text).ok_or_else(|| ParseError::Index { text: text.to_owned() })?;
        self.nodes.push(JsonPathNode::Slice(slice));
        Ok(())
    }

    fn filter(&mut self) -> Result<(), ParseError> {
        self.skip("[?(".len());
        let end = filter_end(self.rest).ok_or(ParseError::Unterminated("filter"))?;
        let text = &self.rest[..end];
        self.skip(end + 1);
        if !self.rest.starts_with(']') {
            return Err(ParseError::Unterminated("filter"));
        }
        self.skip(1);
        let is_operator = |char: char| matches!(char, '!' | '<' | '>' | '=');
        let depth = self.depth + 1;
        let node = match text.find(is_operator).filter(|start| *start > 0) {
            None => JsonPathNode::Filter { left: nodes(text, depth)?, test: None },
            Some(start) => {
                let (left, rest) = text.split_at(start);
                let end = rest.find(|char| !is_operator(char)).unwrap_or(rest.len());
                let (sign, right) = rest.split_at(end);
                let test = (operator(sign)?, nodes(right, depth)?);
                JsonPathNode::Filter { left: nodes(left, depth)?, test: Some(test) }
            }
        };
        self.nodes.push(node);
        Ok(())
    }
}

/// Where the parenthesis of a filter closes, quoted ones aside.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (index, char) in text.char_indices() {
        match (char, quote) {
            _ if escaped => escaped = false,
            ('\\', _) => escaped = true,
            ('"' | '\'', None) => quote = Some(char),
            (_, Some(open)) if char == open => quote = None,
            (')', None) => return Some(index),
            _ => {}
        }
    }
    None
}

fn operator(text: &str) -> Result<Operator, ParseError> {
    Ok(match text {
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        ">=" => Operator::GreaterOrEqual,
        ">" => Operator::Greater,
        _ => return Err(ParseError::Operator { text: text.to_owned() }),
    })
}

fn slice(text: &str) -> Option<Slice> {
    let mut parts = text.split(':');
    let bound = |chars: Option<&str>| match chars {
        None | Some("") => Some(None),
        Some(text) if is_integer(&mut text.chars().peekable()) => text.parse().ok().map(Some),
        Some(_) => None,
    };
    let first = parts.next()?;
    let from = bound(Some(first))?;
    let second = parts.next();
    let (to, step) = (bound(second)?, bound(parts.next())?);
    if parts.next().is_some() || second.is_none() && from.is_none() {
        return None;
    }
    let single = second.is_none();
    let to = if single { from.map(|from| from + 1) } else { to };
    Some(Slice { from, to, step, single })
}

fn is_integer(chars: &mut Peekable<Chars<'_>>) -> bool {
    chars.next_if_eq(&'-');
    chars.peek().is_some() && chars.all(|char| char.is_ascii_digit())
}

fn unescape(char: char) -> char {
    match char {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        other => other,
    }
}

fn is_terminator(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
