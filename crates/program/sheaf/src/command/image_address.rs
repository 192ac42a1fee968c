//! Addresses of images: URLs and names in registries that a node can fetch. They are checked before
//! anything is created, since nobody waits for a node to find out.

use anyhow::{Result, bail};
use http::Uri;

/// The prefix of a name in a registry.
pub(super) const REGISTRY: &str = "docker://";

/// Refuses a text that is no http(s) URL.
pub(super) fn check_url(text: &str) -> Result<()> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !scheme.is_some_and(|scheme| ["http", "https"].contains(&scheme.as_str())) {
        bail!("{text:?} is not a URL that begins with http:// or https://");
    }
    let is_whole = text.parse::<Uri>().is_ok_and(|url| {
        let has_port = url.authority().is_none_or(|own| !own.as_str().ends_with(':'));
        has_port && url.host().is_some_and(|host| !host.is_empty())
    });
    if !is_whole {
        bail!("{text:?} is not a URL: expected for example https://example.org/debian-12.qcow2");
    }
    Ok(())
}

/// Refuses a text that cannot be the name of an image in a registry.
pub(super) fn check_registry(text: &str) -> Result<()> {
    let name = text.strip_prefix(REGISTRY).unwrap_or(text);
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@[]".contains(&byte);
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let begins = is_edge(name.as_bytes().first()) || name.starts_with('[');
    if !name.bytes().all(is_allowed) || !begins || !is_edge(name.as_bytes().last()) {
        bail!("{text:?} is not the name of an image: expected docker://HOST/NAME:TAG");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host() {
        for url in [
            "http://x",
            "https://example.org/a.img",
            "HTTPS://example.org:8443/a%20b?c=d",
            "http://[::1]:80/a",
            "http://127.0.0.1:1/a",
        ] {
            check_url(url).unwrap();
        }
        for url in
            ["http://", "https:///a", "http://x y/", "https://[::1/x", "http://:80/", "http://x:/"]
        {
            let refused = check_url(url).unwrap_err().to_string();
            assert!(refused.contains("is not a URL: expected"), "{refused}");
        }
        for url in ["", "x", "ftp://x/y", "file:///a", "http:/x"] {
            let refused = check_url(url).unwrap_err().to_string();
            assert!(refused.contains("begins with http:// or https://"), "{refused}");
        }
    }

    #[test]
    fn a_name_in_a_registry_has_no_other_characters() {
        for name in ["docker://x", "docker://quay.io/a/b:c", "docker://[::1]:5000/a@sha256:0f"] {
            check_registry(name).unwrap();
        }
        for name in ["docker://", "docker:///a", "docker://a b", "docker://a/", "docker://a:"] {
            assert!(check_registry(name).is_err(), "{name}");
        }
    }
}
