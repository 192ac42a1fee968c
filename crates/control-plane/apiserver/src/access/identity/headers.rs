//! Users that a request names in its headers: those that a front proxy has authenticated, and those
//! that its sender impersonates.

use std::collections::BTreeMap;

use auth::User;
use http::HeaderMap;

use crate::api::{Api, FrontProxy};
use crate::status::{ApiError, ApiResult, StatusSubject};

/// The user that a trusted front proxy speaks for.
pub(super) fn forwarded(names: &FrontProxy, headers: &HeaderMap) -> Option<User> {
    let first = |names: &[String]| {
        let mut values = names.iter().filter_map(|name| headers.get(name)?.to_str().ok());
        values.find(|value| !value.is_empty())
    };
    let groups = names.group.iter().flat_map(|name| all(headers, name));
    let mut user = User::new(first(&names.username)?, groups.collect::<Vec<_>>());
    first(&names.uid).unwrap_or("").clone_into(&mut user.uid);
    for prefix in &names.extra_prefix {
        user.extra.extend(extra(headers, &prefix.to_ascii_lowercase()));
    }
    Some(user)
}

fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
}

/// Headers `prefix + key: value`; the key may be percent-encoded.
fn extra(headers: &HeaderMap, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut extra = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(prefix) {
            let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
            extra.insert(key, all(headers, name.as_str()));
        }
    }
    extra
}

/// Replaces the user by the one that the request asks to be, if its sender may.
pub(crate) fn impersonate(api: &Api, user: User, headers: &HeaderMap) -> ApiResult<User> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let name = text("impersonate-user").unwrap_or("");
    let groups = all(headers, "impersonate-group");
    let uid = text("impersonate-uid").unwrap_or("");
    let extra = extra(headers, "impersonate-extra-");
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(user);
        }
        return Err(ApiError::bad_request(
            "requested impersonation of groups, a uid or extra fields without impersonating a user",
        ));
    }
    let ask = |group: &str, resource: &str, namespace: &str, name: &str, sub: &str| {
        may_impersonate(api, &user, group, resource, namespace, name, sub)
    };
    match auth::user::parse_service_account_name(name) {
        Some((namespace, account)) => ask("", "serviceaccounts", namespace, account, "")?,
        None => ask("", "users", "", name, "")?,
    }
    for group in &groups {
        ask("", "groups", "", group, "")?;
    }
    if !uid.is_empty() {
        ask("authentication.k8s.io", "uids", "", uid, "")?;
    }
    for (key, values) in &extra {
        for value in values {
            ask("authentication.k8s.io", "userextras", "", value, key)?;
        }
    }
    let mut other = match auth::user::parse_service_account_name(name) {
        Some((namespace, account)) if groups.is_empty() => {
            User::service_account(namespace, account, uid)
        }
        _ => User::new(name, groups),
    };
    uid.clone_into(&mut other.uid);
    other.extra = extra;
    Ok(if other.is_anonymous() { with_unauthenticated(other) } else { other.authenticated() })
}

fn with_unauthenticated(mut user: User) -> User {
    let group = auth::user::UNAUTHENTICATED;
    if !user.is_in(group) {
        user.groups.push(group.to_owned());
    }
    user
}

fn may_impersonate(
    api: &Api,
    user: &User,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> ApiResult<()> {
    let attributes = auth::Attributes {
        verb: "impersonate",
        target: auth::AccessTarget::Resource(auth::ResourceRequest {
            group,
            version: "",
            resource,
            subresource,
            namespace,
            name,
        }),
    };
    crate::access::authorize::check(api, user, &attributes, StatusSubject { group, resource, name })
}
