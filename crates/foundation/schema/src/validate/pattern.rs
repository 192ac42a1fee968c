//! Patterns: Go's RE2 syntax, run by the `regex` crate.
//!
//! The two dialects are similar. These differences are translated: `\d`, `\w`, `\s` and `\b` mean
//! ASCII in Go; `[`, `&` and `~` are plain characters inside a class; a `{` that opens no
//! repetition is literal; `\Q…\E` quotes; every punctuation may be escaped.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use regex::Regex;

/// Compiled patterns are large and few: schemas repeat them. When the cache is full it
/// starts over, which only costs compiling again.
const CACHED: usize = 512;

type Cache = RwLock<HashMap<Box<str>, Arc<Regex>>>;

static CACHE: LazyLock<Cache> = LazyLock::new(Cache::default);

/// Why a pattern does not compile.
#[derive(Debug, thiserror::Error)]
#[error("error parsing regexp: {reason}")]
pub struct PatternError {
    reason: String,
}

/// A pattern in Go's syntax, for rules that no schema can express.
#[derive(Debug, Clone)]
pub struct Pattern(Arc<Regex>);

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(pattern: &str) -> Result<Self, PatternError> {
        compile(pattern).map(Self)
    }
}

impl Pattern {
    /// Whether any part of the text matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// The compiled form of a pattern, from the cache if it was seen before.
pub(crate) fn compile(pattern: &str) -> Result<Arc<Regex>, PatternError> {
    if let Some(known) = CACHE.read().unwrap_or_else(PoisonError::into_inner).get(pattern) {
        return Ok(Arc::clone(known));
    }
    let regex = Regex::new(&translate(pattern))
        .map(Arc::new)
        .map_err(|error| PatternError { reason: last_line(&error.to_string(), pattern) })?;
    let mut cache = CACHE.write().unwrap_or_else(PoisonError::into_inner);
    if cache.len() >= CACHED {
        cache.clear();
    }
    cache.insert(pattern.into(), Arc::clone(&regex));
    Ok(regex)
}

/// The crate explains over several lines with a drawing; errors of the API are one line.
fn last_line(text: &str, pattern: &str) -> String {
    let line = text.lines().last().unwrap_or_default();
    let reason = line.strip_prefix("error: ").unwrap_or(line);
    let reason = match reason {
        "repetition operator missing expression" => "missing argument to repetition operator",
        "unclosed character class" => "missing closing ]",
        "unclosed group" => "missing closing )",
        "unopened group" => "unexpected )",
        other => other,
    };
    format!("{reason}: `{pattern}`")
}

pub(crate) fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern.chars();
    let mut class = None;
    while let Some(next) = rest.next() {
        match (next, class) {
            ('\\', _) => escape(&mut rest, class.is_some(), &mut out),
            ('[', None) => {
                out.push('[');
                if rest.as_str().starts_with('^') {
                    rest.next();
                    out.push('^');
                }
                // A bracket right after the opening one is a member, not the end.
                if rest.as_str().starts_with(']') {
                    rest.next();
                    out.push_str(r"\]");
                }
                class = Some(());
            }
            ('[', Some(())) if !rest.as_str().starts_with(':') => out.push_str(r"\["),
            ('[', Some(())) => named_class(&mut rest, &mut out),
            (']', Some(())) => {
                out.push(']');
                class = None;
            }
            ('&' | '~', Some(())) => {
                out.push('\\');
                out.push(next);
            }
            ('{', None) if !is_repetition(rest.as_str()) => out.push_str(r"\{"),
            _ => out.push(next),
        }
    }
    out
}

/// `[:alpha:]` after its first bracket.
fn named_class(rest: &mut std::str::Chars<'_>, out: &mut String) {
    match rest.as_str().find(":]") {
        Some(end) => {
            out.push('[');
            out.push_str(&rest.as_str()[..end + 2]);
            *rest = rest.as_str()[end + 2..].chars();
        }
        None => out.push_str(r"\["),
    }
}

fn escape(rest: &mut std::str::Chars<'_>, in_class: bool, out: &mut String) {
    let Some(next) = rest.next() else {
        out.push('\\');
        return;
    };
    match next {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str(r"[\t\n\f\r ]"),
        'S' => out.push_str(r"[^\t\n\f\r ]"),
        'b' if !in_class => out.push_str(r"(?-u:\b)"),
        'Q' if !in_class => {
            let (quoted, after) = rest.as_str().split_once(r"\E").unwrap_or((rest.as_str(), ""));
            out.push_str(&regex::escape(quoted));
            *rest = after.chars();
        }
        other if other.is_ascii_alphanumeric() => {
            out.push('\\');
            out.push(other);
        }
        other if in_class && matches!(other, '-' | ']' | '[' | '^' | '&' | '~' | '\\') => {
            out.push('\\');
            out.push(other);
        }
        other => out.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
    }
}

/// Whether what follows a `{` makes it a repetition: `3}`, `3,}` or `3,5}`.
fn is_repetition(rest: &str) -> bool {
    let Some((inside, _)) = rest.split_once('}') else { return false };
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax_means_what_it_means_in_go() {
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            let regex = compile(pattern).unwrap();
            for text in yes {
                assert!(regex.is_match(text), "{pattern} should match {text}");
            }
            for text in no {
                assert!(!regex.is_match(text), "{pattern} should not match {text}");
            }
        };
        check(r"^\d+$", &["12"], &["١٢", ""]);
        check(r"^[\d.]+$", &["1.2"], &["١"]);
        check(r"^\w\s\W$", &["a -"], &["é -"]);
        check(r"^[[a]+$", &["[a["], &["b"]);
        check(r"^[]a]+$", &["]a"], &["b"]);
        check(r"^[^]a]+$", &["b"], &["]"]);
        check(r"^[a&&b]+$", &["a&b"], &["c"]);
        check(r"^[[:alpha:]_]+$", &["ab_"], &["1"]);
        check(r"^{{.*}}$", &["{{x}}"], &["x"]);
        check(r"^a{2,3}$", &["aa", "aaa"], &["a", "aaaa"]);
        check(r"^a{,3}$", &["a{,3}"], &["aa"]);
        check(r"^\Qa.b\E+$", &["a.bb"], &["axb"]);
        check(r"^\/\_\<\>\%$", &["/_<>%"], &[""]);
        check(r"^[\w-]+$", &["a-b"], &["a b"]);
        check(r"\bfoo\b", &["a foo b"], &["afoo"]);
    }

    #[test]
    fn errors_are_one_line() {
        let error = compile("+").unwrap_err().to_string();
        assert_eq!(error, "error parsing regexp: missing argument to repetition operator: `+`");
        assert!(compile("(a").unwrap_err().to_string().contains("missing closing )"));
        assert!(compile("[a").unwrap_err().to_string().contains("missing closing ]"));
    }
}
