//! Tokens with which machines join: a Secret in `kube-system` says who may use one, and how
//! long. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::user::User;

/// Where the secrets are, and what their names begin with.
pub const NAMESPACE: &str = "kube-system";
pub const SECRET_PREFIX: &str = "bootstrap-token-";
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// The two parts of a token that looks like one: `abcdef.0123456789abcdef`.
pub fn split(token: &str) -> Option<(&str, &str)> {
    let plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let (id, secret) = token.split_once('.')?;
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

/// The id and the secret of a new token.
pub fn generate() -> (String, String) {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    // Bytes from here on would make some letters more likely than others.
    const LIMIT: u8 = 252;
    let mut text = String::with_capacity(22);
    let mut bytes = [0_u8; 32];
    while text.len() < 22 {
        let filled = aws_lc_rs::rand::fill(&mut bytes);
        debug_assert!(filled.is_ok(), "the system has random numbers");
        let fair = bytes.iter().filter(|byte| filled.is_ok() && **byte < LIMIT);
        text.extend(fair.map(|byte| char::from(LETTERS[usize::from(byte % 36)])));
    }
    (text[..6].to_owned(), text[6..22].to_owned())
}

/// The user of a token, if it is valid now according to `data`, the content of its Secret.
pub fn user(
    id: &str,
    secret: &str,
    data: &BTreeMap<String, String>,
    now: Timestamp,
) -> Option<User> {
    let get = |key: &str| data.get(key).map(String::as_str).unwrap_or("");
    // As long for a wrong secret as for the right one.
    let same = get("token-secret").len() == secret.len()
        && get("token-secret").bytes().zip(secret.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b))
            == 0;
    if !same || get("token-id") != id || get("usage-bootstrap-authentication") != "true" {
        return None;
    }
    let expiration = get("expiration");
    if !expiration.is_empty() && expiration.parse::<Timestamp>().ok()? <= now {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in get("auth-extra-groups").split(',').map(str::trim).filter(|it| !it.is_empty()) {
        // With other groups, the creator of a token could give it any rights.
        if !group.starts_with("system:bootstrappers:") {
            return None;
        }
        groups.push(group.to_owned());
    }
    Some(User::new(format!("system:bootstrap:{id}"), groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_as_long_as_its_secret_says() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let base = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        let ask = |more: &[(&str, &str)], secret: &str| {
            let data = base.iter().chain(more);
            let data = data.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            user("abcdef", secret, &data, now).map(|user| (user.name, user.groups.join(",")))
        };
        let good = "0123456789abcdef";
        let name = "system:bootstrap:abcdef".to_owned();
        for (more, secret, expected) in [
            (&[][..], good, Some("system:bootstrappers")),
            (&[], "0123456789abcdee", None),
            (&[("usage-bootstrap-authentication", "false")], good, None),
            (&[("expiration", "2026-06-02T00:00:00Z")], good, Some("system:bootstrappers")),
            (&[("expiration", "2026-05-31T00:00:00Z")], good, None),
            (&[("expiration", "nonsense")], good, None),
            (
                &[("auth-extra-groups", "system:bootstrappers:nodes")],
                good,
                Some("system:bootstrappers,system:bootstrappers:nodes"),
            ),
            (&[("auth-extra-groups", "system:masters")], good, None),
        ] {
            let expected = expected.map(|groups| (name.clone(), groups.to_owned()));
            assert_eq!(ask(more, secret), expected, "{more:?} {secret}");
        }
    }

    #[test]
    fn generated_tokens_look_like_tokens_and_differ() {
        let (id, secret) = generate();
        assert_eq!(split(&format!("{id}.{secret}")), Some((id.as_str(), secret.as_str())));
        assert_ne!(generate().1, secret);
    }

    #[test]
    fn only_what_looks_like_one_is_looked_up() {
        assert_eq!(split("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for token in ["", "abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123", "a.b.c"] {
            assert_eq!(split(token), None, "{token}");
        }
    }
}
