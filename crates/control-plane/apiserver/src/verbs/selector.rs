//! Label selectors: parsing with upstream's errors, and matching. Field selectors are in
//! `selector/field.rs`.

mod field;

use std::fmt;

use serde_json::Value;

pub(crate) use field::{FieldSelector, FieldTerm};

/// A parsed label selector; empty matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

/// Why a selector could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct SelectorError {
    text: String,
}

fn bad(text: impl fmt::Display) -> SelectorError {
    SelectorError { text: format!("unable to parse requirement: {text}") }
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut tokens = Tokens { rest: text };
        let mut requirements = Vec::new();
        if tokens.peek() == Token::End {
            return Ok(Self::default());
        }
        loop {
            requirements.push(requirement(&mut tokens)?);
            match tokens.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Comma if tokens.peek() == Token::End => {
                    let text = "found '', expected: identifier after ','".to_owned();
                    return Err(SelectorError { text });
                }
                Token::Comma => {}
                other => {
                    let text = format!("found '{other}', expected: ',' or 'end of string'");
                    return Err(SelectorError { text });
                }
            }
        }
    }

    /// A `LabelSelector` field of an object, or a plain map of labels.
    pub(crate) fn of(selector: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let structured = ["matchLabels", "matchExpressions"];
        let is_map = !structured.iter().any(|field| selector.get(field).is_some());
        let labels = if is_map { selector } else { &selector["matchLabels"] };
        let mut requirements: Vec<Requirement> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::In(vec![text(value)]),
            })
            .collect();
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
        requirements.extend(expressions.map(|expression| {
            let values: Vec<String> =
                expression["values"].as_array().into_iter().flatten().map(text).collect();
            let operator = match expression["operator"].as_str() {
                Some("In") => Operator::In(values),
                Some("NotIn") => Operator::NotIn(values),
                Some("DoesNotExist") => Operator::Absent,
                _ => Operator::Exists,
            };
            Requirement { key: text(&expression["key"]), operator }
        }));
        Self(requirements)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a set of labels, given as a look-up, satisfies every requirement.
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|Requirement { key, operator }| {
            let value = label(key);
            match operator {
                Operator::In(values) => value.is_some_and(|value| contains(values, value)),
                // A missing label is "not in" any set.
                Operator::NotIn(values) => !value.is_some_and(|value| contains(values, value)),
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
                Operator::Greater(bound) => number(value).is_some_and(|value| value > *bound),
                Operator::Less(bound) => number(value).is_some_and(|value| value < *bound),
            }
        })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator }) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str(",")?;
            }
            match operator {
                Operator::In(values) => match values.as_slice() {
                    [one] => write!(out, "{key}={one}")?,
                    many => write!(out, "{key} in ({})", many.join(","))?,
                },
                Operator::NotIn(values) => write!(out, "{key} notin ({})", values.join(","))?,
                Operator::Exists => out.write_str(key)?,
                Operator::Absent => write!(out, "!{key}")?,
                Operator::Greater(bound) => write!(out, "{key}>{bound}")?,
                Operator::Less(bound) => write!(out, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn contains(values: &[String], value: &str) -> bool {
    values.iter().any(|known| known == value)
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, SelectorError> {
    let absent = tokens.peek() == Token::Not;
    if absent {
        tokens.next();
    }
    let key = match tokens.next() {
        Token::Word(key) => key,
        other => return Err(bad(format!("found '{other}', expected: identifier"))),
    };
    check_key(key)?;
    if absent {
        return Ok(Requirement { key: key.to_owned(), operator: Operator::Absent });
    }
    let operator = match tokens.peek() {
        Token::End | Token::Comma => Operator::Exists,
        Token::Word("in") => {
            tokens.next();
            Operator::In(set(tokens)?)
        }
        Token::Word("notin") => {
            tokens.next();
            Operator::NotIn(set(tokens)?)
        }
        Token::Equal => {
            tokens.next();
            Operator::In(vec![value(tokens)?])
        }
        Token::NotEqual => {
            tokens.next();
            Operator::NotIn(vec![value(tokens)?])
        }
        Token::Greater => {
            tokens.next();
            Operator::Greater(bound(tokens)?)
        }
        Token::Less => {
            tokens.next();
            Operator::Less(bound(tokens)?)
        }
        other => {
            return Err(bad(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")));
        }
    };
    Ok(Requirement { key: key.to_owned(), operator })
}

fn value(tokens: &mut Tokens<'_>) -> Result<String, SelectorError> {
    match tokens.peek() {
        Token::Word(value) => {
            tokens.next();
            check_value(value)?;
            Ok(value.to_owned())
        }
        Token::End | Token::Comma => Ok(String::new()),
        other => Err(bad(format!("found '{other}', expected: identifier"))),
    }
}

fn bound(tokens: &mut Tokens<'_>) -> Result<i64, SelectorError> {
    let text = value(tokens)?;
    text.parse().map_err(|_| {
        bad(format!("for 'Gt', 'Lt' operators, the value must be an integer: {text:?}"))
    })
}

fn set(tokens: &mut Tokens<'_>) -> Result<Vec<String>, SelectorError> {
    if tokens.next() != Token::Open {
        return Err(bad("found something else, expected: '('"));
    }
    let mut values = Vec::new();
    loop {
        match tokens.next() {
            Token::Word(value) => {
                check_value(value)?;
                values.push(value.to_owned());
                match tokens.next() {
                    Token::Comma if tokens.peek() == Token::Close => values.push(String::new()),
                    Token::Comma => {}
                    Token::Close => return Ok(values),
                    other => return Err(bad(format!("found '{other}', expected: ',' or ')'"))),
                }
            }
            Token::Comma => values.push(String::new()),
            Token::Close => {
                if values.is_empty() {
                    values.push(String::new());
                }
                return Ok(values);
            }
            other => return Err(bad(format!("found '{other}', expected: ',', ')' or identifier"))),
        }
    }
}

fn check_key(key: &str) -> Result<(), SelectorError> {
    let name = key.rsplit('/').next().unwrap_or(key);
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    if name.len() <= 63
        && ends(name)
        && name.chars().all(word)
        && key.len() <= 253 + 64
        && key.matches('/').count() <= 1
    {
        return Ok(());
    }
    let (what, rest) = if key.matches('/').count() > 1 {
        (
            "a valid label key",
            " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    } else {
        ("name part", "")
    };
    Err(bad(format!(
        "<nil>: Invalid value: {key:?}: {what} must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'){rest}"
    )))
}

fn check_value(value: &str) -> Result<(), SelectorError> {
    let fine = value.len() <= 63
        && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if fine {
        return Ok(());
    }
    Err(SelectorError {
        text: format!(
            "values[0][key]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Open,
    Close,
    Comma,
    Not,
    Equal,
    NotEqual,
    Greater,
    Less,
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Word(word) => word,
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::Not => "!",
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::End => "",
        })
    }
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        Tokens { rest: self.rest }.next()
    }

    fn next(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start();
        let (token, length) = match self.rest.as_bytes() {
            [] => (Token::End, 0),
            [b'!', b'=', ..] => (Token::NotEqual, 2),
            [b'=', b'=', ..] => (Token::Equal, 2),
            [b'!', ..] => (Token::Not, 1),
            [b'=', ..] => (Token::Equal, 1),
            [b'>', ..] => (Token::Greater, 1),
            [b'<', ..] => (Token::Less, 1),
            [b'(', ..] => (Token::Open, 1),
            [b')', ..] => (Token::Close, 1),
            [b',', ..] => (Token::Comma, 1),
            _ => {
                let end = self
                    .rest
                    .find(|c: char| c.is_whitespace() || "!=<>(),".contains(c))
                    .unwrap_or(self.rest.len());
                (Token::Word(&self.rest[..end]), end)
            }
        };
        self.rest = &self.rest[length..];
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &'static str)]) -> bool {
        let selector = LabelSelector::parse(selector).unwrap();
        selector.matches(|key| labels.iter().find(|(known, _)| *known == key).map(|(_, v)| *v))
    }

    #[test]
    fn label_selectors_follow_set_syntax() {
        let labels = [("app", "web"), ("tier", "front"), ("n", "5")];
        for yes in [
            "",
            "app",
            "app=web",
            "app==web,tier=front",
            "app in (web, db)",
            "app notin (db)",
            "!missing",
            "missing!=x",
            "n>4",
            "n<6,app",
        ] {
            assert!(matches(yes, &labels), "{yes}");
        }
        for no in ["app=db", "!app", "missing", "missing=x", "app notin (web)", "n>5", "app="] {
            assert!(!matches(no, &labels), "{no}");
        }
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for bad in ["a,", "=x", "a in", "a in (", "a in (x", "a b", "a!b", "-x=1", "a=b c"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
