//! Field selectors: a conjunction of equalities, which only some fields of a kind allow.

use super::SelectorError;

/// A parsed field selector: conjunction of `field = value` and `field != value`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(pub Vec<FieldTerm>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldTerm {
    pub field: String,
    pub value: String,
    pub equal: bool,
}

impl FieldSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_unescaped(text).filter(|part| !part.is_empty()) {
            let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = part.split_once("==") {
                (field, value, true)
            } else if let Some((field, value)) = part.split_once('=') {
                (field, value, true)
            } else {
                return Err(SelectorError {
                    text: format!("invalid selector: '{text}'; can't understand '{part}'"),
                });
            };
            terms.push(FieldTerm { field: field.to_owned(), value: unescape(value), equal });
        }
        Ok(Self(terms))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name that `metadata.name=X` pins, which also narrows what RBAC must allow.
    pub(crate) fn name(&self) -> Option<&str> {
        self.pinned("metadata.name")
    }

    pub(crate) fn pinned(&self, field: &str) -> Option<&str> {
        let term = self.0.iter().find(|term| term.equal && term.field == field)?;
        Some(&term.value)
    }

    /// `read` gives the value of a field; unknown fields were refused before.
    pub(crate) fn matches(&self, read: impl Fn(&str) -> String) -> bool {
        self.0.iter().all(|term| (read(&term.field) == term.value) == term.equal)
    }
}

fn split_unescaped(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let cut = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        cut
    })
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            escaped = false;
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors_unescape_and_negate() {
        let selector = FieldSelector::parse(r"metadata.name=a\,b,type!=x").unwrap();
        assert_eq!(selector.name(), Some("a,b"));
        assert!(selector.matches(|field| if field == "type" { "y".into() } else { "a,b".into() }));
        assert!(FieldSelector::parse("oops").is_err());
    }
}
