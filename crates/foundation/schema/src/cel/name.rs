//! Field names in expressions: names that are no CEL identifiers are escaped.

use std::borrow::Cow;

/// Words that the CEL grammar keeps for itself.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether CEL keeps this word for itself, so that it cannot name anything.
pub fn is_cel_word(word: &str) -> bool {
    RESERVED.contains(&word)
}

const ESCAPES: &[(&str, &str)] =
    &[("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];

/// The name of the field that an identifier represents.
pub(super) fn unescape(identifier: &str) -> Cow<'_, str> {
    if !identifier.contains("__") {
        return identifier.into();
    }
    let inner = identifier.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(inner) = inner.filter(|inner| RESERVED.contains(inner)) {
        return inner.to_owned().into();
    }
    let mut name = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(next) = rest.chars().next() {
        match ESCAPES.iter().find(|(escape, _)| rest.starts_with(escape)) {
            Some((escape, plain)) => {
                name.push_str(plain);
                rest = &rest[escape.len()..];
            }
            None => {
                name.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_what_identifiers_cannot_hold() {
        let check = |identifier, name| assert_eq!(unescape(identifier), name);
        check("plain_name", "plain_name");
        check("__namespace__", "namespace");
        check("a__dash__b__dot__c__slash__d", "a-b.c/d");
        check("a__underscores__b", "a__b");
        check("__other__", "__other__");
    }
}
