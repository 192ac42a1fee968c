//! Values of arguments that are checked before anything is done: names and sizes.

use std::net::Ipv4Addr;

use super::VipArg;
use super::token::TokenUses;
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

/// The name of a node: a DNS subdomain that is also the value of a label.
pub(crate) fn node_name(text: &str) -> Result<String, String> {
    if text.len() <= 63 && text.split('.').all(is_label_like) {
        return Ok(text.to_owned());
    }
    Err("a node name has at most 63 lower-case letters, digits, '-' and '.', and begins and ends \
         with a letter or digit"
        .to_owned())
}

/// A label that a node gives itself.
pub(crate) fn node_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
    let is_prefix = prefix.is_empty() || object_name(prefix).is_ok();
    if !is_prefix || !is_label_value(name) || name.is_empty() {
        return Err(format!("{key:?} is not a label key, for example example.com/rack"));
    }
    if !is_label_value(value) {
        return Err("a label value has at most 63 letters, digits, '-', '_' and '.', and begins \
                    and ends with a letter or digit"
            .to_owned());
    }
    if !hci::node_restriction::may_label_itself(key) {
        return Err(format!("{key} is set by administrators only: sheaf node label NODE {text}"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn is_label_value(text: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && is_end(text.bytes().next())
        && is_end(text.bytes().last())
}

/// A setting of the cluster and its value.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if !hci::cluster_setting::CLUSTER_SETTINGS.iter().any(|setting| setting.name == name) {
        return Err(format!("unknown setting {name:?}; `sheaf setting get` lists all"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// How long a join token can be used.
pub(crate) fn token_ttl(text: &str) -> Result<jiff::SignedDuration, String> {
    match duration(text)? {
        time if time.is_zero() => Err("the token would be expired at once".to_owned()),
        time => Ok(time),
    }
}

/// A virtual address: one that a machine can have on a network.
pub(crate) fn vip(text: &str) -> Result<VipArg, String> {
    if text == "off" {
        return Ok(VipArg::Off);
    }
    let address: Ipv4Addr =
        text.parse().map_err(|_| "expected an IPv4 address, or `off`".to_owned())?;
    let is_special = address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_link_local();
    if is_special {
        return Err("expected an address of a network that clients reach, not a loopback, \
                    link-local, multicast or broadcast address"
            .to_owned());
    }
    Ok(VipArg::Address(address))
}

/// A duration above zero.
pub(crate) fn positive_duration(text: &str) -> Result<jiff::SignedDuration, String> {
    match duration(text)? {
        time if time.is_zero() => Err("expected more than 0s".to_owned()),
        time => Ok(time),
    }
}

pub(crate) fn duration(text: &str) -> Result<jiff::SignedDuration, String> {
    let wrong = || "expected a number and s, m, h or d, for example 24h or 7d".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let total = number.checked_mul(seconds).filter(|total| *total <= 365 * 24 * 3600);
    match total {
        Some(total) => Ok(jiff::SignedDuration::from_secs(total)),
        None => Err("the maximum is 365d".to_owned()),
    }
}

/// How often a join token can be used.
pub(crate) fn token_uses(text: &str) -> Result<TokenUses, String> {
    match text.parse::<u32>() {
        _ if text == "unlimited" => Ok(TokenUses::Unlimited),
        Ok(uses @ 1..=1000) => Ok(TokenUses::Limited(uses)),
        _ => Err("expected a number from 1 to 1000, or `unlimited`".to_owned()),
    }
}

/// The name of an image as it is shown: any text in one line.
pub(crate) fn display_name(text: &str) -> Result<String, String> {
    if (1..=253).contains(&text.len())
        && !text.trim().is_empty()
        && !text.contains(char::is_control)
    {
        return Ok(text.to_owned());
    }
    Err("a display name has 1 to 253 bytes in one line".to_owned())
}

/// The name of a Service: a DNS label that begins with a letter.
pub(crate) fn service_name(text: &str) -> Result<String, String> {
    if text.len() <= 63 && is_label_like(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
    {
        return Ok(text.to_owned());
    }
    Err("a port forward's name has at most 63 lower-case letters, digits and '-', begins with a \
         letter, and ends with a letter or digit"
        .to_owned())
}

/// The name that a local user logs in with: a DNS label.
pub(crate) fn login_name(text: &str) -> Result<String, String> {
    if text.len() <= 63 && is_label_like(text) {
        return Ok(text.to_owned());
    }
    Err("a user name has at most 63 lower-case letters, digits and '-', and begins and ends with a \
         letter or digit"
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

/// A user: any text in one line.
pub(crate) fn user_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a user name must not be empty".to_owned()),
        _ if text.contains(char::is_control) => Err("a user name is text in one line".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// A group of users: any text in one line.
pub(crate) fn group_name(text: &str) -> Result<String, String> {
    match user_name(text) {
        Ok(name) => Ok(name),
        Err(_) => Err("a group name is text in one line, and not empty".to_owned()),
    }
}

/// Login name in a guest, for ssh.
pub(crate) fn guest_user(text: &str) -> Result<String, String> {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '@';
    if text.is_empty() || text.starts_with('-') || !text.chars().all(is_plain) {
        return Err("expected the name of a user in the guest, for example root".to_owned());
    }
    Ok(text.to_owned())
}

/// The URL of an API server.
pub(crate) fn server_url(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not a URL of the form https://HOST:PORT");
    let url: http::Uri = text.parse().map_err(|_| wrong())?;
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    if url.scheme_str() == Some("https") && has_host && url.query().is_none() {
        return Ok(text.to_owned());
    }
    Err(wrong())
}

/// A SHA-512 checksum.
pub(crate) fn sha512(text: &str) -> Result<String, String> {
    if text.len() == 128 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text.to_owned());
    }
    Err("expected a SHA-512 checksum: 128 hexadecimal digits, as sha512sum prints them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_address_is_one_that_clients_reach() {
        let address = VipArg::Address(Ipv4Addr::new(10, 0, 0, 10));
        assert_eq!((vip("10.0.0.10"), vip("off")), (Ok(address), Ok(VipArg::Off)));
        for bad in
            ["", "fd00::1", "10.0.0.10/24", "127.0.0.1", "0.0.0.0", "169.254.1.1", "224.0.0.1"]
        {
            assert!(vip(bad).unwrap_err().starts_with("expected"), "{bad}");
        }
        assert_eq!(positive_duration("4s").map(|time| time.as_secs()), Ok(4));
        assert!(positive_duration("0s").is_err() && positive_duration("soon").is_err());
    }

    #[test]
    fn names_of_users_and_groups_are_in_one_line() {
        for good in ["jane", "system:serviceaccount:default:default", "Jane Doe", "ü"] {
            assert!(user_name(good).is_ok() && group_name(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a\nb", "ü\u{1}"] {
            assert!(user_name(bad).is_err() && group_name(bad).is_err(), "{bad:?}");
        }
        assert!(guest_user("root").is_ok() && guest_user("jane.doe").is_ok());
        for bad in ["", "-oProxyCommand=x", "a b", "a@b"] {
            assert!(guest_user(bad).unwrap_err().contains("root"), "{bad:?}");
        }
    }

    #[test]
    fn servers_have_https_urls() {
        for good in ["https://10.0.0.1:6443", "https://sheaf.example.org", "https://[fd00::1]:6443"]
        {
            assert_eq!(server_url(good).as_deref(), Ok(good));
        }
        for bad in
            ["", "banana banana", "-1", "10.0.0.1:6443", "http://a", "https://", "https://a?b"]
        {
            assert!(server_url(bad).unwrap_err().contains("https://HOST:PORT"), "{bad:?}");
        }
    }

    #[test]
    fn checksums_have_the_length_of_sha512() {
        assert!(sha512(&"aF".repeat(64)).is_ok());
        for bad in ["", "banana", &"a".repeat(64), &"g".repeat(128)] {
            assert!(sha512(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_images_and_users_are_checked() {
        assert!(display_name("Debian 12 (LTS)").is_ok());
        for bad in ["", " ", "a\nb", &"a".repeat(254)] {
            assert!(display_name(bad).is_err(), "{bad:?}");
        }
        assert!(login_name("jane-1").is_ok());
        for bad in ["", "Jane", "a b", "-a", &"a".repeat(64)] {
            assert!(login_name(bad).is_err(), "{bad:?}");
        }
    }

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
    fn a_token_has_a_lifetime_and_a_number_of_uses() {
        let seconds = |text: &str| token_ttl(text).map(|ttl| ttl.as_secs()).ok();
        for (text, expected) in [
            ("90s", Some(90)),
            ("24h", Some(86400)),
            ("7d", Some(604_800)),
            ("365d", Some(31_536_000)),
            ("366d", None),
            ("0h", None),
            ("24", None),
            ("h", None),
            ("-1h", None),
            ("1w", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        assert_eq!(token_uses("3"), Ok(TokenUses::Limited(3)));
        assert_eq!(token_uses("unlimited"), Ok(TokenUses::Unlimited));
        for bad in ["0", "-1", "1001", "many", ""] {
            assert!(token_uses(bad).is_err(), "{bad}");
        }
        for bad in ["", "N2", "a..b", &"a".repeat(64)] {
            assert!(node_name(bad).is_err(), "{bad}");
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

    #[test]
    fn labels_of_a_node_are_checked_before_it_joins() {
        let pair = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(node_label("rack=a1"), pair("rack", "a1"));
        assert_eq!(node_label("example.com/rack="), pair("example.com/rack", ""));
        assert_eq!(
            node_label("topology.kubernetes.io/zone=z"),
            pair("topology.kubernetes.io/zone", "z")
        );
        for bad in ["rack", "=a", "ra ck=a", "a/b/c=d", "rack=-a", "node-role.kubernetes.io/x=y"] {
            assert!(node_label(bad).is_err(), "{bad}");
        }
        assert_eq!(setting("log-level=Debug"), pair("log-level", "Debug"));
        assert!(setting("banana=1").is_err() && setting("log-level").is_err());
    }
}
