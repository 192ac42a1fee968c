//! Roles and quotas that projects give to their namespaces. Pure.

use hci::project::{self, CLUSTER, LIMIT_NAMES};
use serde_json::{Map, Value, json};

use crate::object::{is_merged, text};

/// The label of everything that is made here.
pub(super) const OWNED: &str = "management.cattle.io/project";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Templates that stand for roles that every cluster has.
const BUILT_IN: [(&str, &str); 3] =
    [("project-owner", "admin"), ("project-member", "edit"), ("read-only", "view")];

#[derive(Debug, Default)]
pub(super) struct ProjectState {
    pub(super) projects: Vec<Value>,
    pub(super) members: Vec<Value>,
    pub(super) templates: Vec<Value>,
    pub(super) namespaces: Vec<Value>,
    /// Made here earlier.
    pub(super) bindings: Vec<Value>,
    pub(super) roles: Vec<Value>,
    pub(super) quotas: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ProjectChange {
    Create { kind: &'static str, namespace: String, object: Value },
    Patch { kind: &'static str, namespace: String, name: String, patch: Value },
    Delete { kind: &'static str, namespace: String, name: String, uid: String },
}

pub(super) fn plan(state: &ProjectState) -> Vec<ProjectChange> {
    let mut changes = project_namespaces(state);
    changes.extend(template_roles(state));
    let wanted = wanted_bindings(state);
    changes.extend(differences("RoleBinding", &wanted, &state.bindings, |_, _| None));
    changes.extend(differences(
        "ResourceQuota",
        &wanted_quotas(state),
        &state.quotas,
        |want, have| {
            let differs = want["spec"]["hard"] != have["spec"]["hard"];
            // ProjectLimits that are gone have to be removed by name.
            let mut hard = have["spec"]["hard"].as_object().cloned().unwrap_or_default();
            hard.values_mut().for_each(|value| *value = Value::Null);
            hard.extend(want["spec"]["hard"].as_object().cloned().unwrap_or_default());
            differs.then(|| json!({"spec": {"hard": hard}}))
        },
    ));
    changes.extend(used_limits(state));
    changes
}

/// The sums over the namespaces of each project with a quota.
fn used_limits(state: &ProjectState) -> Vec<ProjectChange> {
    let limited = state.projects.iter().filter(|project| {
        is_live(project) && project["spec"]["resourceQuota"]["limit"].is_object()
    });
    let changed = limited.filter_map(|project| {
        let namespaces = state
            .namespaces
            .iter()
            .filter(|own| is_live(own) && project::project_of(own) == Some(name(project)));
        let used = project::used(project, namespaces);
        let have = project["spec"]["resourceQuota"]["usedLimit"].as_object();
        let mut fields: Map<String, Value> = have.cloned().unwrap_or_default();
        fields.values_mut().for_each(|value| *value = Value::Null);
        fields.extend(used.iter().map(|(name, amount)| (name.clone(), amount.to_string().into())));
        let patch = json!({"spec": {"resourceQuota": {"usedLimit": fields}}});
        (!is_merged(project, &patch)).then(|| ProjectChange::Patch {
            kind: "Project",
            namespace: text(project, "/metadata/namespace").to_owned(),
            name: name(project).to_owned(),
            patch,
        })
    });
    changed.collect()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn is_live(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_null()
}

/// Members of a project are objects in the namespace of its name.
fn project_namespaces(state: &ProjectState) -> Vec<ProjectChange> {
    let missing = state.projects.iter().filter(|project| {
        is_live(project) && !state.namespaces.iter().any(|own| name(own) == name(project))
    });
    missing
        .map(|project| ProjectChange::Create {
            kind: "Namespace",
            namespace: String::new(),
            object: json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name(project), "labels": {OWNED: name(project)}},
            }),
        })
        .collect()
}

/// Templates with rules of their own become roles.
fn template_roles(state: &ProjectState) -> Vec<ProjectChange> {
    let own = state.templates.iter().filter(|template| {
        is_live(template) && template["external"] != true && built_in(name(template)).is_none()
    });
    let wanted: Vec<Value> = own
        .map(|template| {
            let rules = template["rules"].as_array().cloned().unwrap_or_default();
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
                "metadata": {"name": role_of(state, name(template)), "labels": {OWNED: CLUSTER}},
                "rules": rules,
            })
        })
        .collect();
    differences("ClusterRole", &wanted, &state.roles, |want, have| {
        (want["rules"] != have["rules"]).then(|| json!({"rules": want["rules"]}))
    })
}

fn built_in(template: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(own, _)| *own == template).map(|(_, role)| *role)
}

/// The cluster role that a template stands for.
fn role_of(state: &ProjectState, template: &str) -> String {
    if let Some(role) = built_in(template) {
        return role.to_owned();
    }
    let found = state.templates.iter().find(|own| name(own) == template);
    match found {
        Some(found) if found["external"] == true => template.to_owned(),
        _ => format!("project:{template}"),
    }
}

fn project_of<'a>(state: &'a ProjectState, namespace: &Value) -> Option<&'a Value> {
    let own = project::project_of(namespace)?;
    state.projects.iter().find(|project| is_live(project) && name(project) == own)
}

/// The members of a project, as subjects of bindings.
fn subjects(member: &Value) -> Vec<Value> {
    let subject = |kind: &str, name: &str| json!({"apiGroup": RBAC, "kind": kind, "name": name});
    let mut subjects = Vec::new();
    for (field, kind) in [("/userName", "User"), ("/groupName", "Group")] {
        if !text(member, field).is_empty() {
            subjects.push(subject(kind, text(member, field)));
        }
    }
    for (field, kind) in [("/userPrincipalName", "User"), ("/groupPrincipalName", "Group")] {
        // `local://jane` names the local user jane.
        let (_, name) = text(member, field).split_once("://").unwrap_or_default();
        let own = subject(kind, name);
        if !name.is_empty() && !subjects.contains(&own) {
            subjects.push(own);
        }
    }
    if let Some((namespace, name)) = text(member, "/serviceAccount").split_once(':') {
        subjects.push(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
    }
    subjects
}

fn wanted_bindings(state: &ProjectState) -> Vec<Value> {
    let mut wanted = Vec::new();
    for namespace in state.namespaces.iter().filter(|namespace| is_live(namespace)) {
        let Some(project) = project_of(state, namespace) else { continue };
        let own = format!("{CLUSTER}:{}", name(project));
        let members = state.members.iter().filter(|member| {
            is_live(member)
                && text(member, "/metadata/namespace") == name(project)
                && text(member, "/projectName") == own
        });
        for member in members {
            let (template, subjects) = (text(member, "/roleTemplateName"), subjects(member));
            if template.is_empty() || subjects.is_empty() {
                continue;
            }
            let role = role_of(state, template);
            // A binding never changes its role: another role is another binding.
            wanted.push(json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
                "metadata": {
                    "name": format!("{}-{}-{}", name(project), name(member), role.replace(':', "-")),
                    "namespace": name(namespace), "labels": {OWNED: name(project)},
                },
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": subjects,
            }));
        }
    }
    wanted
}

fn wanted_quotas(state: &ProjectState) -> Vec<Value> {
    let mut wanted = Vec::new();
    for namespace in state.namespaces.iter().filter(|namespace| is_live(namespace)) {
        let Some(project) = project_of(state, namespace) else { continue };
        let limits = project::namespace_limits(namespace, project);
        let hard: Map<String, Value> = LIMIT_NAMES
            .iter()
            .filter_map(|(rancher, kubernetes)| {
                let amount = limits.get(*rancher)?.to_string();
                Some(((*kubernetes).to_owned(), amount.into()))
            })
            .collect();
        if hard.is_empty() {
            continue;
        }
        wanted.push(json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {
                "name": "default-project-quota", "namespace": name(namespace),
                "labels": {OWNED: name(project)},
            },
            "spec": {"hard": hard},
        }));
    }
    wanted
}

/// Whether an object was made here; what others made is never touched.
fn is_owned(object: &Value) -> bool {
    object["metadata"]["labels"][OWNED].is_string()
}

/// The changes from `have` to `want`; `patch` gives the difference of two objects of one name.
fn differences(
    kind: &'static str,
    want: &[Value],
    have: &[Value],
    patch: fn(&Value, &Value) -> Option<Value>,
) -> Vec<ProjectChange> {
    let key =
        |object: &Value| (text(object, "/metadata/namespace").to_owned(), name(object).to_owned());
    let mut changes = Vec::new();
    for object in want {
        let (namespace, own) = key(object);
        match have.iter().find(|other| is_owned(other) && key(other) == key(object)) {
            None => {
                changes.push(ProjectChange::Create { kind, namespace, object: object.clone() });
            }
            Some(other) => {
                if let Some(patch) = patch(object, other) {
                    changes.push(ProjectChange::Patch { kind, namespace, name: own, patch });
                }
            }
        }
    }
    for object in have.iter().filter(|object| is_live(object) && is_owned(object)) {
        if !want.iter().any(|other| key(other) == key(object)) {
            let (namespace, own) = key(object);
            let uid = text(object, "/metadata/uid").to_owned();
            changes.push(ProjectChange::Delete { kind, namespace, name: own, uid });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
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
        assert!(!plan(&state).iter().any(theirs), "a quota of somebody else is touched");
    }

    #[test]
    fn members_of_another_project_are_not_bound() {
        let mut state = state();
        state.members[0]["projectName"] = "local:p-2".into();
        state.members[1]["metadata"]["namespace"] = "p-2".into();
        assert!(wanted_bindings(&state).is_empty());
    }
}
