//! The users that the parts of this process are to its own API server, and who of all users is
//! such a part.
//!
//! Trust is in exact identities: the name and the group that only this process and the cluster's
//! certificates give, never the beginning of a name or a namespace alone.

use auth::User;
use auth::user::{
    API_SERVER, AUTHENTICATED, GATEWAY, MANAGEMENT_NODES, MASTERS, NODES, PLATFORM, REST,
};

const CONTROLLERS: &str = "system:sheaf-controllers";
const NODE_PREFIX: &str = "system:node:";

pub(super) fn controllers() -> User {
    User::new(CONTROLLERS, [MASTERS, AUTHENTICATED])
}

/// Acts on machines for users whom the server has authorized. Its rights are those of the
/// ClusterRole of its name.
pub(super) fn gateway() -> User {
    User::new(GATEWAY, [PLATFORM, AUTHENTICATED])
}

/// Acts for users in the REST API, in their name. Its rights are those of the ClusterRole of its
/// name.
pub(super) fn steve() -> User {
    User::new(REST, [AUTHENTICATED])
}

/// The agent of this node. It has the rights that the Node authorizer gives to every node, and its
/// Node carries the label of the control plane.
pub(super) fn node(name: &str) -> User {
    User::new(format!("{NODE_PREFIX}{name}"), [NODES, MANAGEMENT_NODES, AUTHENTICATED])
}

/// Whether a user is a part of the cluster: this server, its controllers, its gateway or the
/// agent of a node.
pub(super) fn is_component(user: &User) -> bool {
    let name = user.name.as_str();
    let is_ours = [API_SERVER, CONTROLLERS].contains(&name) && user.is_in(MASTERS);
    let is_gateway = name == GATEWAY && user.is_in(PLATFORM);
    // As the Node authorizer: the certificate of a node carries both.
    let is_node =
        user.is_in(NODES) && name.strip_prefix(NODE_PREFIX).is_some_and(|node| !node.is_empty());
    is_ours || is_gateway || is_node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_cluster_are_known_by_name_and_group() {
        for user in [User::api_server(), controllers(), gateway(), node("one")] {
            assert!(is_component(&user), "{user:?}");
        }
        for user in [
            User::service_account("kubevirt", "default", "u"),
            User::service_account("kubevirt", "kubevirt-controller", "u"),
            User::new("system:sheaf-other", [MASTERS]),
            User::new("system:apiserver2", [MASTERS]),
            User::new(CONTROLLERS, [AUTHENTICATED]),
            User::new(API_SERVER, [AUTHENTICATED]),
            User::new(GATEWAY, [AUTHENTICATED]),
            User::new("system:sheaf-other", [PLATFORM]),
            User::new("system:node:one", [AUTHENTICATED]),
            User::new("system:node:", [NODES]),
            User::new("mallory", [NODES]),
            User::new("system:admin", [MASTERS]),
        ] {
            assert!(!is_component(&user), "{user:?}");
        }
    }
}
