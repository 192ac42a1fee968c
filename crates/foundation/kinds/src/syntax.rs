//! Syntax of strings: DNS names, label keys and values, port names, paths.
//!
//! Each function says what is wrong with a value, in upstream's words, and nothing
//! when it is fine; putting the texts on a field is the caller's work.

use std::net::{IpAddr, Ipv4Addr};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// A rule of this module, to be handed around.
pub type SyntaxRule = fn(&str) -> Vec<String>;

/// The most bytes a DNS label may have.
const LABEL_MAX: usize = 63;
/// The most bytes a DNS name may have.
const SUBDOMAIN_MAX: usize = 253;

/// A DNS-1123 subdomain: the name of most objects.
pub fn subdomain(value: &str) -> Vec<String> {
    let mut problems = too_long(value, SUBDOMAIN_MAX);
    if !is_subdomain(value) {
        problems.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    problems
}

/// A DNS-1123 label: a name without dots.
pub fn label(value: &str) -> Vec<String> {
    let mut problems = too_long(value, LABEL_MAX);
    if is_label(value) {
        return problems;
    }
    problems.push(if is_subdomain(value) {
        "must not contain dots".to_owned()
    } else {
        pattern(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
             '-', and must start and end with an alphanumeric character",
            LABEL,
            &["my-name", "123-abc"],
        )
    });
    problems
}

/// A DNS-1035 label: a label that begins with a letter.
pub fn label_1035(value: &str) -> Vec<String> {
    let mut problems = too_long(value, LABEL_MAX);
    if !is_label(value) || !value.starts_with(|first: char| first.is_ascii_lowercase()) {
        problems.push(pattern(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// A subdomain whose first label is `*`.
pub fn wildcard_subdomain(value: &str) -> Vec<String> {
    let mut problems = too_long(value, SUBDOMAIN_MAX);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        problems.push(pattern(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS \
             subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and \
             end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    problems
}

/// One segment of a path: the names of RBAC objects.
pub fn path_segment(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    path_segment_prefix(value)
}

/// The beginning of a segment of a path, to which more will be appended.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"]
        .into_iter()
        .filter(|part| value.contains(part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// A label key, annotation key or finalizer: a name with an optional DNS prefix.
pub fn qualified_name(value: &str) -> Vec<String> {
    const WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must \
                         start and end with an alphanumeric character";
    let words = || pattern(WORDS, QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let mut problems = Vec::new();
    let name = match value.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(subdomain(prefix).iter().map(|text| format!("prefix part {text}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                words()
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        problems.push(format!("name part {}", max_length(LABEL_MAX)));
    }
    if !is_qualified(name) {
        problems.push(format!("name part {}", words()));
    }
    problems
}

/// The value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = too_long(value, LABEL_MAX);
    if !value.is_empty() && !is_qualified(value) {
        problems.push(pattern(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character",
            &format!("({QUALIFIED})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// A key of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut problems = too_long(value, SUBDOMAIN_MAX);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if value.is_empty() || !value.bytes().all(fits) {
        problems.push(pattern(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    problems.extend(parent_directory(value));
    problems
}

/// The name of a port (an IANA service name).
pub fn port_name(value: &str) -> Vec<String> {
    let mut problems = too_long(value, 15);
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if value.is_empty() || !value.bytes().all(fits) {
        problems.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        problems.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_owned());
    }
    problems
}

/// A port number.
pub fn port(value: i64) -> Vec<String> {
    in_range(value, 1, 65535)
}

/// A number within bounds.
pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        return Vec::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

/// The name of an environment variable.
pub fn env_var(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other \
         than '='"
            .to_owned(),
    ]
}

/// A percentage, `15%`.
pub fn percent(value: &str) -> Vec<String> {
    let digits = value.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    vec![pattern(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// The name of an HTTP header.
pub fn http_header(value: &str) -> Vec<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !value.is_empty() && value.bytes().all(fits) {
        return Vec::new();
    }
    vec![pattern(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// An IP address in its usual form.
pub fn ip(value: &str) -> Vec<String> {
    match value.parse::<IpAddr>() {
        Ok(_) => Vec::new(),
        Err(_) => {
            vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
        }
    }
}

/// A network in CIDR notation.
pub fn cidr(value: &str) -> Vec<String> {
    let valid = value.split_once('/').is_some_and(|(address, length)| {
        let most = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        length.parse::<u8>().is_ok_and(|length| length <= most)
    });
    if valid {
        return Vec::new();
    }
    vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()]
}

/// Whether the address is IPv4 (else IPv6, or no address at all).
pub(crate) fn is_ipv4(value: &str) -> bool {
    value.parse::<Ipv4Addr>().is_ok()
}

/// The error for a value that could leave its directory.
fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn is_label(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !value.is_empty()
        && value.bytes().all(inner)
        && !value.starts_with('-')
        && !value.ends_with('-')
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_qualified(value: &str) -> bool {
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = value.as_bytes();
    outer(bytes.first()) && outer(bytes.last()) && value.bytes().all(inner)
}

fn too_long(value: &str, most: usize) -> Vec<String> {
    if value.len() <= most {
        return Vec::new();
    }
    vec![max_length(most)]
}

pub(crate) fn max_length(most: usize) -> String {
    format!("must be no more than {most} characters")
}

/// A rule in words, with examples and the expression for it.
pub(crate) fn pattern(words: &str, regex: &str, examples: &[&str]) -> String {
    let regex = format!("regex used for validation is '{regex}'");
    match examples {
        [] => format!("{words} ({regex})"),
        _ => {
            let examples: Vec<String> =
                examples.iter().map(|example| format!("'{example}', ")).collect();
            format!("{words} (e.g. {}{regex})", examples.join(" or "))
        }
    }
}

#[cfg(test)]
mod tests;
