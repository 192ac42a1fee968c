use super::*;

fn usual() -> FlowRules {
    let objects = super::super::objects::all();
    let of = |kind: &str| {
        objects.iter().filter(|object| object["kind"] == kind).cloned().collect::<Vec<_>>()
    };
    FlowRules::read(&of("FlowSchema"), &of("PriorityLevelConfiguration"))
}

#[test]
fn every_user_has_a_level() {
    let rules = usual();
    let all = "system:authenticated";
    let get =
        |resource| RequestKind::Resource { group: "", resource, subresource: "", namespace: "n" };
    let lease = RequestKind::Resource {
        group: "coordination.k8s.io",
        resource: "leases",
        subresource: "",
        namespace: "kube-system",
    };
    let cluster =
        |resource| RequestKind::Resource { group: "", resource, subresource: "", namespace: "" };
    for (user, groups, verb, what, schema, level) in [
        ("admin", &["system:masters", all][..], "get", get("pods"), "exempt", "exempt"),
        (
            "system:sheaf-controller:machines",
            &["system:sheaf-platform", all],
            "patch",
            get("pods"),
            "sheaf-controllers",
            "exempt",
        ),
        (
            "system:anonymous",
            &["system:unauthenticated"],
            "get",
            RequestKind::Path("/healthz"),
            "probes",
            "exempt",
        ),
        (
            "system:anonymous",
            &["system:unauthenticated"],
            "get",
            RequestKind::Path("/api"),
            "global-default",
            "global-default",
        ),
        (
            "system:node:a",
            &["system:nodes", all],
            "update",
            cluster("nodes"),
            "system-node-high",
            "node-high",
        ),
        ("system:node:a", &["system:nodes", all], "get", get("pods"), "system-nodes", "system"),
        (
            "system:kube-scheduler",
            &[all],
            "update",
            lease,
            "system-leader-election",
            "leader-election",
        ),
        (
            "system:kube-controller-manager",
            &[all],
            "list",
            get("pods"),
            "kube-controller-manager",
            "workload-high",
        ),
        (
            "system:serviceaccount:kube-system:x",
            &["system:serviceaccounts", all],
            "list",
            get("pods"),
            "kube-system-service-accounts",
            "workload-high",
        ),
        (
            "system:serviceaccount:n:x",
            &["system:serviceaccounts", all],
            "list",
            get("pods"),
            "service-accounts",
            "workload-low",
        ),
        ("jane", &[all], "list", get("pods"), "global-default", "global-default"),
    ] {
        let user = User::new(user, groups.iter().copied());
        let (found, _) = rules.classify(&FlowAttributes { user: &user, verb, what }).unwrap();
        assert_eq!((&*found.name, &*found.level), (schema, level), "{} {what:?}", user.name);
    }
}

#[test]
fn flows_differ_by_what_their_schema_says() {
    let rules = usual();
    let flow = |user: &str, namespace| {
        let user = User::new(user, ["system:authenticated"]);
        let what =
            RequestKind::Resource { group: "", resource: "pods", subresource: "", namespace };
        rules.classify(&FlowAttributes { user: &user, verb: "get", what }).unwrap().1
    };
    assert_ne!(flow("jane", "n"), flow("joe", "n"));
    assert_eq!(flow("jane", "n"), flow("jane", "m"));
    let manager = "system:kube-controller-manager";
    assert_ne!(flow(manager, "n"), flow(manager, "m"));
}

#[test]
fn seats_are_shared_as_upstream_shares_them() {
    let limits = usual().limits(600);
    let seats: Vec<(&str, u32)> =
        limits.iter().map(|(name, limits)| (&**name, limits.seats)).collect();
    assert_eq!(
        seats,
        [
            ("catch-all", 13),
            ("global-default", 49),
            ("leader-election", 25),
            ("node-high", 98),
            ("system", 74),
            ("workload-high", 98),
            ("workload-low", 245),
        ]
    );
    assert!(limits["catch-all"].queuing.is_none());
}
