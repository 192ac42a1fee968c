//! The users that the parts of this process are to its own API server, and who of all users is
//! such a part.
//!
//! Trust is in exact identities: the name and the group that only this process and the cluster's
//! certificates give, never the beginning of a name or a namespace alone.

use auth::User;
use auth::user::{
    API_SERVER, AUTHENTICATED, CONTROLLER_USERS, CONTROLLERS, GATEWAY, MANAGEMENT_NODES, MASTERS,
    NODES, PLATFORM, REST,
};
use controllers::ControllerGroup;

const NODE_PREFIX: &str = "system:node:";

/// The server where it keeps records that no other user may write: keys of tokens and revoked
/// certificates.
pub(super) fn api_server() -> User {
    User::api_server()
}

/// The server where it marks Nodes, and what all controllers share.
pub(super) fn controllers() -> User {
    controller(ControllerGroup::Shared)
}

/// A group of controllers. Its rights are those of the ClusterRole of its name.
pub(super) fn controller(group: ControllerGroup) -> User {
    let suffix = match group {
        ControllerGroup::Shared => return User::new(CONTROLLERS, [PLATFORM, AUTHENTICATED]),
        ControllerGroup::Alarms => "alarms",
        ControllerGroup::Autoscaling => "autoscaling",
        ControllerGroup::Certificates => "certificates",
        ControllerGroup::Cluster => "cluster",
        ControllerGroup::Garbage => "garbage",
        ControllerGroup::Machines => "machines",
        ControllerGroup::Namespaces => "namespaces",
        ControllerGroup::Operations => "operations",
        ControllerGroup::Projects => "projects",
        ControllerGroup::Quotas => "quotas",
        ControllerGroup::Roles => "roles",
        ControllerGroup::Storage => "storage",
        ControllerGroup::Tokens => "tokens",
    };
    User::new(format!("system:sheaf-controller:{suffix}"), [PLATFORM, AUTHENTICATED])
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
    let is_server = name == API_SERVER && user.is_in(MASTERS);
    let is_platform = name == GATEWAY || CONTROLLER_USERS.contains(&name);
    // As the Node authorizer: the certificate of a node carries both.
    let is_node =
        user.is_in(NODES) && name.strip_prefix(NODE_PREFIX).is_some_and(|node| !node.is_empty());
    is_server || is_platform && user.is_in(PLATFORM) || is_node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_of_controllers_is_a_user_with_a_role() {
        let mut names: Vec<String> =
            ControllerGroup::ALL.into_iter().map(|group| controller(group).name).collect();
        names.sort();
        let mut known = CONTROLLER_USERS;
        known.sort_unstable();
        assert_eq!(names, known);
        for group in ControllerGroup::ALL {
            assert!(is_component(&controller(group)), "{group:?}");
            assert!(!controller(group).is_in(MASTERS), "{group:?}");
        }
    }

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
            User::new(CONTROLLERS, [MASTERS]),
            User::new("system:sheaf-controller:machines", [MASTERS, AUTHENTICATED]),
            User::new("system:sheaf-controller:other", [PLATFORM]),
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
