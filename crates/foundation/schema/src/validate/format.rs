//! `format`: which ones are checked, and how.
//!
//! Unknown formats are ignored; names are compared without dashes (`date-time` and
//! `datetime` are one).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::pattern;
use crate::node::Type;

type Check = fn(&str) -> bool;

/// Whether a format means something on a field of this type.
pub(crate) fn is_checked(ty: Type, format: &str) -> bool {
    match ty {
        Type::String | Type::Any | Type::IntOrString => check_of(format).is_some(),
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        Type::Object | Type::Array | Type::Boolean => false,
    }
}

/// Whether a text has the format; `None` if the format is unknown.
pub(super) fn matches(format: &str, text: &str) -> Option<bool> {
    check_of(format).map(|check| check(text))
}

fn check_of(format: &str) -> Option<Check> {
    let plain: String = format.chars().filter(|char| *char != '-').collect();
    Some(match plain.as_str() {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |text| text.contains('.') && parse_ip(text).is_some(),
        "ipv6" => |text| text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| is(UUID, text),
        "uuid3" => |text| is(UUID3, text),
        "uuid4" => |text| is(UUID4, text),
        "uuid5" => |text| is(UUID5, text),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| text.len() == 11 && is(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$", text),
        "hexcolor" => |text| is(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$", text),
        "rgbcolor" => is_rgb_color,
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && is_label(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_label),
        _ => return None,
    })
}

const UUID: &str = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
const UUID3: &str = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
const UUID4: &str =
    r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
const UUID5: &str =
    r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";

/// Matches one of the constant patterns of this module.
fn is(constant: &str, text: &str) -> bool {
    pattern::compile(constant).is_ok_and(|regex| regex.is_match(text))
}

/// A DNS label in lower case; lengths are up to the caller.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (Some(first), Some(last)) = (text.bytes().next(), text.bytes().last()) else {
        return false;
    };
    inner(first) && inner(last) && text.bytes().all(|byte| inner(byte) || byte == b'-')
}

/// The syntax of Go's `ParseRequestURI`: an absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f || byte == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return percent_signs_are_escapes(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut bytes = scheme.bytes();
    let named = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    // "opaque" URIs (mailto:x) are absolute, too, but a request URI has a path.
    named && !rest.is_empty() && percent_signs_are_escapes(rest)
}

fn percent_signs_are_escapes(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    path.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

/// `local@domain`, alone or as `Name <local@domain>`.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(open), Some(inner)) => &inner[open + 1..],
        (None, None) => text,
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    let atoms = |text: &str| {
        text.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| atom(byte) || byte >= 0x80))
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || atoms(local)) && (literal || atoms(domain))
}

fn is_hostname(text: &str) -> bool {
    const HOSTNAME: &str = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && is(HOSTNAME, text)
}

/// Leading zeros are decimal, for objects written before Go refused them.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = (1..=3).contains(&part.trim_start_matches('0').len().max(1))
            && part.bytes().all(|byte| byte.is_ascii_digit());
        if part.is_empty() || !digits {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match parse_ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    digits && length.parse::<u32>().is_ok_and(|length| length <= most)
}

/// 6, 8 or 20 octets, as `01:23:…`, `01-23-…` or `0123.4567.…`.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: &[usize]| {
        let mut parts = 0;
        let fits = text.split(separator).all(|part| {
            parts += 1;
            part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        fits && counts.contains(&parts)
    };
    groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

fn isbn_digits(text: &str) -> String {
    text.chars().filter(|char| !char.is_ascii_whitespace() && *char != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    if !is("^(?:[0-9]{9}X|[0-9]{10})$", &digits) {
        return false;
    }
    let sum: u32 = (1..)
        .zip(digits.bytes())
        .map(|(weight, byte)| weight * if byte == b'X' { 10 } else { u32::from(byte - b'0') })
        .sum();
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = isbn_digits(text);
    if !is("^[0-9]{13}$", &digits) {
        return false;
    }
    let sum: u32 = [1, 3]
        .into_iter()
        .cycle()
        .zip(digits.bytes())
        .map(|(weight, byte)| weight * u32::from(byte - b'0'))
        .sum();
    sum.is_multiple_of(10)
}

/// Number ranges of the issuers, then the Luhn sum.
fn is_credit_card(text: &str) -> bool {
    const CARD: &str = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$";
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = digits
        .bytes()
        .rev()
        .zip([1, 2].into_iter().cycle())
        .map(|(byte, weight)| u32::from(byte - b'0') * weight)
        .map(|value| value / 10 + value % 10)
        .sum();
    is(CARD, &digits) && sum.is_multiple_of(10)
}

fn is_rgb_color(text: &str) -> bool {
    const OCTET: &str = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    is(&format!(r"^rgb\({OCTET},{OCTET},{OCTET}\)$"), text)
}

/// The standard alphabet with padding; the empty text does not count.
fn is_base64(text: &str) -> bool {
    let plain = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - plain.len() <= 2
        && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}

/// `2006-01-02`
fn is_date(text: &str) -> bool {
    if !is("^[0-9]{4}-[0-9]{2}-[0-9]{2}$", text) {
        return false;
    }
    let part = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or_default();
    let (year, month, day) = (part(0..4), part(5..7), part(8..10));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut halves = text.split('t');
    let (Some(date), Some(time)) = (halves.next(), halves.next()) else { return false };
    const TIME: &str = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    is_date(date)
        && is(TIME, time)
        && time[0..2] <= *"23"
        && time[3..5] <= *"59"
        && time[6..8] <= *"59"
}

/// A timestamp of the API: RFC 3339 in upper case.
pub(crate) fn is_time(text: &str) -> bool {
    is_date_time(text) && text.as_bytes().get(10).copied() == Some(b'T')
}

/// Go's durations (`1h30m`, `1.5s`) and Scala's (`3 days`).
fn is_duration(text: &str) -> bool {
    const GO: &str = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
    const SCALA: &str = r"(?i)[0-9]+\s*(ns|nano[a-zµ]*|us|µs|micro[a-zµ]*|ms|milli[a-zµ]*|s|sec[a-zµ]*|m|min[a-zµ]*|h|hr|hour[a-zµ]*|d|day[a-zµ]*|w|wk|week[a-zµ]*)([^a-zµ]|$)";
    is(GO, text) || is(SCALA, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse_what_upstream_does() {
        let check = |format: &str, yes: &[&str], no: &[&str]| {
            for text in yes {
                assert_eq!(matches(format, text), Some(true), "{format}: {text}");
            }
            for text in no {
                assert_eq!(matches(format, text), Some(false), "{format}: {text}");
            }
        };
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77"]);
        check(
            "uri",
            &["http://example.com/x?y=%", "/path", "urn:a"],
            &["", "example", "http://a b"],
        );
        check("email", &["a@b.c", "Mr A <a@b>"], &["a", "a@", "@b", "a@@b", "a b@c"]);
        check("hostname", &["a", "example.com", "a-b.london"], &["", "-a", "a_b", "a..b"]);
        check("ipv4", &["1.2.3.4", "01.2.3.4"], &["1.2.3", "256.1.1.1", "::1", "1.2.3.4.5"]);
        check("ipv6", &["::1", "fe80::1"], &["1.2.3.4", "::g", "::1%eth0"]);
        check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "a/8", "::/129"]);
        check("mac", &["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab"], &["01:23", ""]);
        check("uuid", &["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"], &["x"]);
        check(
            "uuid4",
            &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
            &["a0eebc99-9c0b-3ef8-bb6d-6bb9bd380a11"],
        );
        check("isbn", &["0321751043", "978-0321751041"], &["0321751044"]);
        check("isbn10", &["0321751043"], &["978-0321751041"]);
        check("isbn13", &["978-0321751041"], &["0321751043"]);
        check("creditcard", &["4111-1111-1111-1111"], &["4111-1111-1111-1112"]);
        check("ssn", &["111-11-1111"], &["111111111", "x"]);
        check("hexcolor", &["#fff", "FFFFFF"], &["#ff"]);
        check("rgbcolor", &["rgb(1, 2,255)"], &["rgb(1,2,256)"]);
        check("byte", &["YWJj", "YQ=="], &["", "YQ=", "Y$=="]);
        check("password", &[""], &[]);
        check("date", &["2024-02-29"], &["2023-02-29", "2023-13-01", "23-01-01"]);
        check(
            "date-time",
            &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+01:00"],
            &["2014-12-15", "2014-12-15T24:00:00Z"],
        );
        check("duration", &["1h30m", "22 ns", "3 days", "0"], &["", "x", "1"]);
        check("k8s-short-name", &["a-b"], &["A", "a.b", "-a"]);
        check("k8s-long-name", &["a-b.c"], &["A", "a..b"]);
        assert_eq!(matches("unheard-of", "x"), None);
    }

    #[test]
    fn formats_count_only_on_fitting_types() {
        assert!(is_checked(Type::Integer, "int32"));
        assert!(!is_checked(Type::Number, "int32"));
        assert!(is_checked(Type::Number, "float"));
        assert!(is_checked(Type::String, "date-time"));
        assert!(!is_checked(Type::String, "int32"));
        assert!(!is_checked(Type::Object, "date"));
    }
}
