//! Values of arguments that are checked before anything is done: names and sizes.

use super::volume::parse_size;

const MIN_MEMORY: u64 = 16 << 20;
const MIN_VOLUME: u64 = 1 << 20;

/// The name of an object: a DNS subdomain.
pub(crate) fn object_name(text: &str) -> Result<String, String> {
    let labels = text.split('.');
    if text.len() <= 253 && labels.into_iter().all(is_label_like) {
        return Ok(text.to_owned());
    }
    Err("a name has at most 253 lower-case letters, digits, '-' and '.', and begins and ends with \
         a letter or digit"
        .to_owned())
}

/// The name of a namespace: a DNS label.
pub(crate) fn namespace_name(text: &str) -> Result<String, String> {
    if text.len() <= 63 && is_label_like(text) {
        return Ok(text.to_owned());
    }
    Err("a namespace has at most 63 lower-case letters, digits and '-', and begins and ends with \
         a letter or digit"
        .to_owned())
}

fn is_label_like(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(|byte| is_plain(byte) || byte == b'-')
        && text.bytes().next().is_some_and(is_plain)
        && text.bytes().last().is_some_and(is_plain)
}

/// Memory of a guest.
pub(crate) fn memory_size(text: &str) -> Result<u64, String> {
    at_least(text, MIN_MEMORY, "16Mi", "Mi")
}

/// The size of a disk or volume.
pub(crate) fn volume_size(text: &str) -> Result<u64, String> {
    at_least(text, MIN_VOLUME, "1Mi", "Gi")
}

fn at_least(text: &str, least: u64, shown: &str, usual_unit: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size >= least {
        return Ok(size);
    }
    let has_unit = !text.bytes().all(|byte| byte.is_ascii_digit());
    if size == 0 || has_unit {
        return Err(format!("the minimum is {shown}"));
    }
    Err(format!(
        "a number without a unit is in bytes, and the minimum is {shown}; did you mean \
         {text}{usual_unit}?"
    ))
}

/// A user: any text but an empty one.
pub(crate) fn user_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a user name must not be empty".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_api_accepts() {
        for good in ["web", "web-1", "a.b", "0"] {
            assert_eq!(object_name(good).as_deref(), Ok(good));
        }
        let long = "a".repeat(254);
        for bad in ["", "a b", "a/../b", "-x", "x-", "Web", "a..b", "a_b", "ü", &long] {
            assert!(object_name(bad).is_err(), "{bad:?}");
        }
        assert!(namespace_name("default").is_ok());
        for bad in ["", "a.b", "a/b", "BAD NS", &long] {
            assert!(namespace_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_size_that_lacks_its_unit_is_refused_with_a_suggestion() {
        assert_eq!(memory_size("256Mi"), Ok(256 << 20));
        assert!(memory_size("256").unwrap_err().ends_with("did you mean 256Mi?"));
        assert!(volume_size("10").unwrap_err().ends_with("did you mean 10Gi?"));
        assert_eq!(memory_size("1Mi").unwrap_err(), "the minimum is 16Mi");
        assert_eq!(volume_size("0").unwrap_err(), "the minimum is 1Mi");
        assert_eq!(volume_size("1073741824"), Ok(1 << 30));
        assert!(memory_size("a lot").is_err());
    }
}
