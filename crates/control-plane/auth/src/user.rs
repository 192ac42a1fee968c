//! The identity of a user: a name, a uid, groups and extra facts, plus the names that Kubernetes
//! reserves. This module does not know how a request was authenticated.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Members may do anything; no policy is consulted for them.
pub const MASTERS: &str = "system:masters";
/// All authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// All other users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of a user without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// All service accounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
pub const NODES: &str = "system:nodes";
/// Nodes that also run the API server.
pub const MANAGEMENT_NODES: &str = "system:sheaf-management-nodes";
pub const MONITORING: &str = "system:monitoring";
/// The server itself, when it acts on its own behalf.
pub const API_SERVER: &str = "system:apiserver";
/// The part of this server that acts on machines for users.
pub const GATEWAY: &str = "system:sheaf-gateway";
/// The part of this server that acts in the name of users of the REST API.
pub const REST: &str = "system:sheaf-steve";
/// Parts of this platform that are not in [`MASTERS`]; with their exact names, admission trusts them.
pub const PLATFORM: &str = "system:sheaf-platform";
/// The user of the feed of changes and of the election, which all controllers share.
pub const CONTROLLERS: &str = "system:sheaf-controllers";
/// The controllers of this platform, by their rights: each has the ClusterRole of its name, and is
/// a member of [`PLATFORM`].
pub const CONTROLLER_USERS: [&str; 14] = [
    CONTROLLERS,
    "system:sheaf-controller:alarms",
    "system:sheaf-controller:autoscaling",
    "system:sheaf-controller:certificates",
    "system:sheaf-controller:cluster",
    "system:sheaf-controller:garbage",
    "system:sheaf-controller:machines",
    "system:sheaf-controller:namespaces",
    "system:sheaf-controller:operations",
    "system:sheaf-controller:projects",
    "system:sheaf-controller:quotas",
    "system:sheaf-controller:roles",
    "system:sheaf-controller:storage",
    "system:sheaf-controller:tokens",
];
pub const KUBE_CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
pub const KUBE_SCHEDULER: &str = "system:kube-scheduler";
pub const KUBE_PROXY: &str = "system:kube-proxy";

/// Keys of [`User::extra`] that say more about a service-account token.
pub const EXTRA_CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
pub const EXTRA_POD_NAME: &str = "authentication.kubernetes.io/pod-name";
pub const EXTRA_POD_UID: &str = "authentication.kubernetes.io/pod-uid";
pub const EXTRA_NODE_NAME: &str = "authentication.kubernetes.io/node-name";
pub const EXTRA_NODE_UID: &str = "authentication.kubernetes.io/node-uid";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// A user who sends requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// Empty when the credential carries none.
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub fn new(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// The server's own identity, which may do everything.
    pub fn api_server() -> Self {
        Self::new(API_SERVER, [MASTERS, AUTHENTICATED])
    }

    /// A service account, with the groups that come with being one.
    pub fn service_account(namespace: &str, name: &str, uid: impl Into<String>) -> Self {
        let groups = [SERVICE_ACCOUNTS.to_owned(), service_account_group(namespace)];
        Self { uid: uid.into(), ..Self::new(service_account_name(namespace, name), groups) }
    }

    /// `UserInfo` of `authentication.k8s.io/v1`; empty fields are left out.
    pub fn to_user_info(&self) -> Value {
        let mut info = Map::new();
        for (field, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                info.insert(field.to_owned(), text.as_str().into());
            }
        }
        if !self.groups.is_empty() {
            info.insert("groups".to_owned(), self.groups.clone().into());
        }
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), serde_json::json!(self.extra));
        }
        Value::Object(info)
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// Adds the group of all authenticated users. Anonymous users, and
    /// those already placed in either group (by impersonation), stay as they are.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        let placed = self.is_in(AUTHENTICATED) || self.is_in(UNAUTHENTICATED);
        if !placed && !self.is_anonymous() {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// `system:serviceaccount:<namespace>:<name>`
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// `system:serviceaccounts:<namespace>`
pub fn service_account_group(namespace: &str) -> String {
    format!("{SERVICE_ACCOUNTS}:{namespace}")
}

/// The namespace and name in a service account's user name; `None` for any other user.
pub fn parse_service_account_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let is_label = is_dns_subdomain(namespace) && namespace.len() <= 63 && !namespace.contains('.');
    (is_label && is_dns_subdomain(name)).then_some((namespace, name))
}

/// Whether `text` is a lowercase RFC 1123 subdomain of at most 253 bytes.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let bytes = label.as_bytes();
            bytes.first().is_some_and(|byte| inner(*byte))
                && bytes.last().is_some_and(|byte| inner(*byte))
                && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_names_round_trip_and_others_are_refused() {
        let name = service_account_name("default", "robot.v1");
        assert_eq!(name, "system:serviceaccount:default:robot.v1");
        assert_eq!(parse_service_account_name(&name), Some(("default", "robot.v1")));
        for wrong in [
            "alice",
            "system:serviceaccount:default",
            "system:serviceaccount::name",
            "system:serviceaccount:default:",
            "system:serviceaccount:default:a:b",
            "system:serviceaccount:de.fault:name",
            "system:serviceaccount:Default:name",
            "system:serviceaccount:default:-name",
        ] {
            assert_eq!(parse_service_account_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_service_account_is_in_both_of_its_groups() {
        let user = User::service_account("vms", "robot", "u1");
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:vms"]);
        assert_eq!(user.uid, "u1");
    }

    #[test]
    fn user_info_leaves_out_what_is_empty() {
        let mut user = User { uid: "u".into(), ..User::new("a", ["g"]) };
        user.extra.insert("k".into(), vec!["v".into()]);
        let full = serde_json::json!({"username": "a", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}});
        assert_eq!(user.to_user_info(), full);
        assert_eq!(User::default().to_user_info(), serde_json::json!({}));
    }

    #[test]
    fn only_those_who_proved_it_become_authenticated() {
        let groups = |user: User| user.authenticated().groups;
        assert_eq!(groups(User::new("a", ["g"])), ["g", "system:authenticated"]);
        assert_eq!(groups(User::new("a", [AUTHENTICATED])), ["system:authenticated"]);
        assert_eq!(groups(User::anonymous()), ["system:unauthenticated"]);
        assert!(groups(User::new(ANONYMOUS, [""; 0])).is_empty());
    }
}
