use super::*;

fn object(namespace: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"metadata": {"namespace": namespace, "name": name, "uid": "u"}});
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn state() -> ProjectState {
    let limit = json!({"limit": {"limitsCpu": "4", "unknown": "1"}});
    let mut shop = object("", "shop", json!({}));
    shop["metadata"]["annotations"] = json!({"field.cattle.io/projectId": "local:p-1"});
    ProjectState {
        projects: vec![object(
            "local",
            "p-1",
            json!({"spec": {"namespaceDefaultResourceQuota": limit}}),
        )],
        members: vec![
            object(
                "p-1",
                "jane",
                json!({"projectName": "local:p-1",
                "roleTemplateName": "read-only", "userPrincipalName": "local://jane"}),
            ),
            object(
                "p-1",
                "ops",
                json!({"projectName": "local:p-1",
                "roleTemplateName": "operator", "groupName": "ops"}),
            ),
        ],
        templates: vec![object("", "operator", json!({"rules": [{"verbs": ["get"]}]}))],
        namespaces: vec![shop, object("", "other", json!({}))],
        ..ProjectState::default()
    }
}

fn brief(changes: &[ProjectChange]) -> Vec<String> {
    let line = |change: &ProjectChange| match change {
        ProjectChange::Create { kind, namespace, object } => {
            format!("+{kind} {namespace}/{}", name(object))
        }
        ProjectChange::Patch { kind, namespace, name, .. } => {
            format!("~{kind} {namespace}/{name}")
        }
        ProjectChange::Delete { kind, namespace, name, .. } => {
            format!("-{kind} {namespace}/{name}")
        }
    };
    changes.iter().map(line).collect()
}

#[test]
fn namespaces_of_a_project_get_its_members_and_quota() {
    let mut state = state();
    let changes = plan(&state);
    let expected = [
        "+Namespace /p-1",
        "+ClusterRole /project:operator",
        "+RoleBinding shop/p-1-jane-view",
        "+RoleBinding shop/p-1-ops-project-operator",
        "+ResourceQuota shop/default-project-quota",
    ];
    assert_eq!(brief(&changes), expected);
    // Once everything is there, nothing is to be done.
    for change in changes {
        let ProjectChange::Create { kind, object, .. } = change else { panic!("{change:?}") };
        match kind {
            "Namespace" => state.namespaces.push(object),
            "ClusterRole" => state.roles.push(object),
            "ResourceQuota" => state.quotas.push(object),
            _ => state.bindings.push(object),
        }
    }
    assert_eq!(state.bindings[0]["subjects"][0]["name"], "jane");
    assert_eq!(state.quotas[0]["spec"]["hard"], json!({"limits.cpu": "4"}));
    assert_eq!(plan(&state), []);
    // A member that leaves loses the binding, and a namespace that leaves loses all.
    state.members.remove(0);
    assert_eq!(brief(&plan(&state)), ["-RoleBinding shop/p-1-jane-view"]);
    state.namespaces[0]["metadata"]["annotations"] = json!({});
    let left = [
        "-RoleBinding shop/p-1-jane-view",
        "-RoleBinding shop/p-1-ops-project-operator",
        "-ResourceQuota shop/default-project-quota",
    ];
    assert_eq!(brief(&plan(&state)), left);
}

#[test]
fn a_quota_of_the_namespace_comes_before_that_of_the_project() {
    let mut state = state();
    state.namespaces[0]["metadata"]["annotations"]["field.cattle.io/resourceQuota"] =
        r#"{"limit":{"pods":"3"}}"#.into();
    let quotas = wanted_quotas(&state);
    assert_eq!(quotas[0]["spec"]["hard"], json!({"pods": "3"}));
    let hard = json!({"spec": {"hard": {"limits.cpu": "4"}}});
    let mut quota = object("shop", "default-project-quota", hard);
    let others = object("shop", "theirs", json!({}));
    quota["metadata"]["labels"] = json!({OWNED: "p-1"});
    state.quotas = vec![quota, others];
    let patch = json!({"spec": {"hard": {"limits.cpu": null, "pods": "3"}}});
    assert!(plan(&state).iter().any(|change| matches!(change,
        ProjectChange::Patch { patch: own, .. } if *own == patch)));
    let theirs = |change: &ProjectChange| matches!(change, ProjectChange::Delete { name, .. } if name == "theirs");
    assert!(!plan(&state).iter().any(theirs), "a quota of another owner is changed");
}

#[test]
fn members_of_another_project_are_not_bound() {
    let mut state = state();
    state.members[0]["projectName"] = "local:p-2".into();
    state.members[1]["metadata"]["namespace"] = "p-2".into();
    assert!(wanted_bindings(&state).is_empty());
}

#[test]
fn a_quota_is_larger_while_machines_of_its_namespace_move() {
    let mut state = state();
    let instance = |namespace: &str, uid: &str| {
        let limits = json!({"domain": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}});
        let limits = MachineLimits::of(&limits, |bytes| bytes);
        MovingInstance { namespace: namespace.to_owned(), uid: uid.to_owned(), limits }
    };
    state.moving = vec![instance("shop", "a"), instance("shop", "b"), instance("other", "c")];
    let mut quota = wanted_quotas(&state).remove(0);
    let mark = json!({"limits.cpu": "2"}).to_string();
    let key = |uid: &str| format!("harvesterhci.io/migratingUID-{uid}");
    assert_eq!(quota["metadata"]["annotations"], json!({key("a"): mark, key("b"): mark}));
    assert_eq!(quota["spec"]["hard"], json!({"limits.cpu": "8"}));
    state.quotas = vec![quota.clone()];
    let changed = |state: &ProjectState| {
        plan(state).into_iter().find_map(|change| match change {
            ProjectChange::Patch { kind: "ResourceQuota", patch, .. } => Some(patch),
            _ => None,
        })
    };
    assert_eq!(changed(&state), None, "it is raised once");
    state.moving.remove(0);
    let patch = changed(&state).unwrap();
    assert_eq!(patch["spec"]["hard"], json!({"limits.cpu": "6"}));
    assert_eq!(patch["metadata"]["annotations"], json!({key("a"): null, key("b"): mark}));
    // Users can fix a quota.
    quota["metadata"]["annotations"] = json!({NO_SCALING: "true"});
    quota["spec"]["hard"] = json!({"limits.cpu": "4"});
    state.quotas = vec![quota];
    assert_eq!(changed(&state), None);
}
