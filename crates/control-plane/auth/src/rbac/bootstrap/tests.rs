use std::collections::BTreeSet;

use super::*;
use crate::rbac::aggregate::aggregate;
use crate::rbac::policy::{
    AccessTarget, Attributes, RbacPolicy, ResourceRequest, RoleRef, name, namespace, text,
};
use crate::rbac::reconcile::reconcile;
use crate::rbac::validate;
use crate::user::{AUTHENTICATED, User};

/// The objects after the aggregation controller is done with them.
fn settled() -> Vec<Value> {
    let mut objects = objects();
    // `admin` gathers from `edit`, which gathers from `view`.
    for _ in 0..3 {
        let all: Vec<Value> = objects
            .iter()
            .filter(|object| text(object, "kind") == "ClusterRole")
            .cloned()
            .collect();
        for object in &mut objects {
            if let Some(rules) = aggregate(object, &all) {
                object["rules"] = rules.iter().map(PolicyRule::to_value).collect();
            }
        }
    }
    objects
}

#[test]
fn every_object_is_valid_unique_and_marked() {
    let mut seen = BTreeSet::new();
    for object in objects() {
        let errors = match text(&object, "kind") {
            "ClusterRole" => validate::validate_cluster_role(&object, None),
            "Role" => validate::validate_role(&object, None),
            "ClusterRoleBinding" => validate::validate_cluster_role_binding(&object, None),
            "RoleBinding" => validate::validate_role_binding(&object, None),
            kind => panic!("unknown kind {kind}"),
        };
        assert_eq!(errors, [], "{object}");
        assert_eq!(object["metadata"]["labels"][LABEL], "rbac-defaults");
        assert_eq!(object["metadata"]["annotations"][AUTO_UPDATE], "true");
        let key = (
            text(&object, "kind").to_owned(),
            namespace(&object).to_owned(),
            name(&object).to_owned(),
        );
        assert!(seen.insert(key), "{object}");
    }
}

#[test]
fn every_binding_finds_its_role() {
    let objects = objects();
    let policy = RbacPolicy::build(&objects);
    for object in objects.iter().filter(|object| object.get("roleRef").is_some()) {
        assert!(policy.resolve(&RoleRef::of(object), namespace(object)).is_ok(), "{object}");
    }
}

#[test]
fn aggregated_roles_add_up() {
    let objects = settled();
    let rules = |wanted: &str| {
        let role = objects
            .iter()
            .find(|object| name(object) == wanted && text(object, "kind") == "ClusterRole");
        PolicyRule::list(role.unwrap())
    };
    use crate::rbac::escalation::covers;
    assert!(!rules("view").is_empty());
    assert_eq!(covers(&rules("edit"), &rules("view")), []);
    assert_eq!(covers(&rules("admin"), &rules("edit")), []);
    let secrets = [on(&["get"], CORE, &["secrets"])];
    assert_eq!(covers(&rules("edit"), &secrets), []);
    assert_eq!(covers(&rules("view"), &secrets).len(), 1, "secrets lead to more rights");
    let roles = [on(&["create"], GROUP, &["rolebindings"])];
    assert_eq!(covers(&rules("edit"), &roles).len(), 1);
    assert_eq!(covers(&rules("admin"), &roles), []);
}

#[test]
fn all_users_may_read_what_clients_begin_with() {
    let policy = RbacPolicy::build(&objects());
    let alice = User::new("alice", [AUTHENTICATED]);
    let robot = User::service_account("vms", "robot", "").authenticated();
    let anonymous = User::anonymous();
    let path = |path| Attributes { verb: "get", target: AccessTarget::Path(path) };
    let review = ResourceRequest {
        group: AUTHORIZATION,
        resource: "selfsubjectaccessreviews",
        ..ResourceRequest::default()
    };
    let review = Attributes { verb: "create", target: AccessTarget::Resource(review) };
    for (user, attributes, expected) in [
        (&alice, path("/api"), true),
        (&alice, path("/apis/apps/v1"), true),
        (&alice, path("/openapi/v3"), true),
        (&alice, path("/version"), true),
        (&alice, path("/metrics"), false),
        (&alice, path("/openid/v1/jwks"), false),
        (&robot, path("/openid/v1/jwks"), true),
        (&anonymous, path("/version"), true),
        (&anonymous, path("/healthz"), true),
        (&anonymous, path("/api"), false),
        (&alice, review, true),
        (&anonymous, review, false),
    ] {
        let decision = policy.authorize(user, &attributes);
        assert_eq!(decision.is_allowed(), expected, "{} {attributes:?}", user.name);
    }
}

#[test]
fn new_objects_need_no_reconciling() {
    for object in objects() {
        assert_eq!(reconcile(&object, &object), None);
    }
    for (object, wanted) in settled().iter().zip(objects()) {
        assert_eq!(reconcile(object, &wanted), None, "{}", name(object));
    }
}

/// Everything that the gateway sends to the server, as `VERB GROUP RESOURCE`.
const GATEWAY_USES: &str = "
get - persistentvolumeclaims
patch - persistentvolumeclaims
get - persistentvolumes
get - secrets
get - nodes
list - nodes
get - pods
list - pods
get apps controllerrevisions
get kubevirt.io virtualmachines
patch kubevirt.io virtualmachines
patch kubevirt.io virtualmachines/status
get kubevirt.io virtualmachineinstances
patch kubevirt.io virtualmachineinstances
create kubevirt.io virtualmachineinstancemigrations
get kubevirt.io kubevirts
list kubevirt.io kubevirts
get instancetype.kubevirt.io virtualmachineinstancetypes
get instancetype.kubevirt.io virtualmachineclusterinstancetypes
get instancetype.kubevirt.io virtualmachinepreferences
get instancetype.kubevirt.io virtualmachineclusterpreferences
get snapshot.kubevirt.io virtualmachinesnapshots
get snapshot.kubevirt.io virtualmachinesnapshotcontents
get export.kubevirt.io virtualmachineexports
get template.kubevirt.io virtualmachinetemplates
get harvesterhci.io virtualmachineimages
get longhorn.io backingimages
list longhorn.io nodes
list longhorn.io replicas
";

/// Rights with which an attacker that took over the gateway could take over the cluster.
const GATEWAY_MAY_NOT: &str = "
list - secrets
watch - secrets
create - secrets
patch - secrets
create - pods
delete - persistentvolumeclaims
create - serviceaccounts/token
impersonate - users
create kubevirt.io virtualmachines
delete kubevirt.io virtualmachines
patch longhorn.io replicas
patch rbac.authorization.k8s.io clusterroles
bind rbac.authorization.k8s.io clusterroles
create rbac.authorization.k8s.io clusterrolebindings
approve certificates.k8s.io signers
";

#[test]
fn the_gateway_may_do_what_it_uses_and_nothing_else() {
    let policy = RbacPolicy::build(&settled());
    let gateway = User::new(crate::user::GATEWAY, [crate::user::PLATFORM, AUTHENTICATED]);
    let may = |line: &str| {
        let [verb, group, resource] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let group = if group == "-" { "" } else { group };
        let request = ResourceRequest {
            group,
            version: "v1",
            resource,
            subresource,
            namespace: "n",
            name: "x",
        };
        let asked = Attributes { verb, target: AccessTarget::Resource(request) };
        matches!(policy.authorize(&gateway, &asked), crate::Decision::Allow(_))
    };
    for line in GATEWAY_USES.lines().filter(|line| !line.is_empty()) {
        assert!(may(line), "{line}");
    }
    for line in GATEWAY_MAY_NOT.lines().filter(|line| !line.is_empty()) {
        assert!(!may(line), "{line}");
    }
}
