//! The FlowSchemas and PriorityLevelConfigurations that exist from the start, as upstream has
//! them, written as a table.

use serde_json::{Value, json};

const VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Name, shares, lendable percent, and queues and hand where requests wait.
type LevelRow = (&'static str, i64, i64, Option<(i64, i64)>);

const LEVELS: &[LevelRow] = &[
    ("catch-all", 5, 0, None),
    ("system", 30, 33, Some((64, 6))),
    ("node-high", 40, 25, Some((64, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
    ("global-default", 20, 50, Some((128, 6))),
];

pub(crate) fn all() -> Vec<Value> {
    let mut objects = vec![object(
        "PriorityLevelConfiguration",
        "exempt",
        json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
    )];
    objects.extend(LEVELS.iter().map(|(name, shares, lendable, queues)| {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some((queues, hand)) => json!({
                "type": "Queue",
                "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50},
            }),
        };
        let limited = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": response,
        });
        object("PriorityLevelConfiguration", name, json!({"type": "Limited", "limited": limited}))
    }));
    objects.extend(schemas());
    objects
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": VERSION, "kind": kind,
        "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec,
    })
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

fn system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({
        "verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"],
    });
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// A rule for everything that `subjects` do.
fn everything(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn schema(name: &str, level: &str, precedence: i64, by: Option<&str>, rule: Value) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence, "rules": [rule],
    });
    if let Some(by) = by {
        spec["distinguisherMethod"] = json!({"type": by});
    }
    object("FlowSchema", name, spec)
}

#[expect(clippy::too_many_lines, reason = "a table: one entry for each FlowSchema")]
fn schemas() -> Vec<Value> {
    const EVERYBODY: &[&str] = &["system:unauthenticated", "system:authenticated"];
    const LEASES: &str = "coordination.k8s.io";
    let (user, namespace) = (Some("ByUser"), Some("ByNamespace"));
    let mut leaders = users(&["system:kube-controller-manager", "system:kube-scheduler"]);
    leaders.push(system_accounts());
    let leases = |verbs: &[&str]| resources(verbs, LEASES, &["leases"], false);
    let manager = everything(users(&["system:kube-controller-manager"]));
    let scheduler = everything(users(&["system:kube-scheduler"]));
    vec![
        schema("exempt", "exempt", 1, None, everything(groups(&["system:masters"]))),
        // The cluster's own controllers are limited by their queues.
        schema(
            "sheaf-controllers",
            "exempt",
            3,
            None,
            everything(users(&auth::user::CONTROLLER_USERS)),
        ),
        schema("catch-all", "catch-all", 10000, user, everything(groups(EVERYBODY))),
        schema(
            "probes",
            "exempt",
            2,
            None,
            json!({"subjects": groups(EVERYBODY), "nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]},
            ]}),
        ),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            user,
            json!({"subjects": leaders, "resourceRules": [leases(&["get", "create", "update"])]}),
        ),
        schema(
            "system-node-high",
            "node-high",
            400,
            user,
            json!({"subjects": groups(&["system:nodes"]), "resourceRules": [
                resources(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"]),
            ]}),
        ),
        schema("system-nodes", "system", 500, user, everything(groups(&["system:nodes"]))),
        schema("kube-controller-manager", "workload-high", 800, namespace, manager),
        schema("kube-scheduler", "workload-high", 800, namespace, scheduler),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            namespace,
            everything(vec![system_accounts()]),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            user,
            everything(groups(&["system:serviceaccounts"])),
        ),
        schema("global-default", "global-default", 9900, user, everything(groups(EVERYBODY))),
    ]
}
