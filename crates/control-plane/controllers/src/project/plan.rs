//! Roles and quotas that projects give to their namespaces. Pure.

use hci::machine_quota::{MIGRATING, MachineLimits, NO_SCALING, PROJECT_QUOTA, raised};
use hci::project::{self, CLUSTER, LIMIT_NAMES};
use serde_json::{Map, Value, json};

use super::record::{MemberFields, ProjectFields, hard_limits, is_external, rules};
use crate::object::{self, is_merged, name, namespace, read};

/// The label of everything that is made here.
pub(super) const OWNED: &str = "management.cattle.io/project";
const RBAC: &str = "rbac.authorization.k8s.io";
const QUOTA_NAME: &str = "default-project-quota";

/// Templates that represent roles that every cluster has.
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
    pub(super) moving: Vec<MovingInstance>,
}

/// An instance that is being migrated: it has two launcher pods for a moment.
#[derive(Debug, Clone)]
pub(super) struct MovingInstance {
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) limits: MachineLimits,
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
    changes.extend(differences("ResourceQuota", &wanted_quotas(state), &state.quotas, quota_patch));
    changes.extend(used_limits(state));
    changes
}

/// The difference of two quotas: their limits, and the machines that these are raised for.
fn quota_patch(want: &Value, have: &Value) -> Option<Value> {
    let (wanted, mut hard) = (hard_limits(want), hard_limits(have));
    let (marks, mut known) = (migration_marks(want), migration_marks(have));
    if wanted == hard && marks == known {
        return None;
    }
    // Limits that are gone have to be removed by name.
    for map in [&mut hard, &mut known] {
        map.values_mut().for_each(|value| *value = Value::Null);
    }
    hard.extend(wanted);
    known.extend(marks);
    let mut patch = json!({"spec": {"hard": hard}});
    if !known.is_empty() {
        patch["metadata"] = json!({"annotations": known});
    }
    Some(patch)
}

/// The annotations of a quota about machines that move.
fn migration_marks(quota: &Value) -> Map<String, Value> {
    let all = object::copied_map(object::annotations(quota)).into_iter();
    all.filter(|(key, _)| key.starts_with(MIGRATING)).collect()
}

/// The sums over the namespaces of each project with a quota.
fn used_limits(state: &ProjectState) -> Vec<ProjectChange> {
    let limited = state.projects.iter().filter(|project| {
        is_live(project) && read::<ProjectFields>(project).spec.resource_quota.limit.is_some()
    });
    let changed = limited.filter_map(|project| {
        let namespaces = state
            .namespaces
            .iter()
            .filter(|own| is_live(own) && project::project_of(own) == Some(name(project)));
        let used = project::used(project, namespaces);
        let mut fields = read::<ProjectFields>(project).spec.resource_quota.used_limit;
        fields.values_mut().for_each(|value| *value = Value::Null);
        fields.extend(used.iter().map(|(name, amount)| (name.clone(), amount.to_string().into())));
        let patch = json!({"spec": {"resourceQuota": {"usedLimit": fields}}});
        (!is_merged(project, &patch)).then(|| ProjectChange::Patch {
            kind: "Project",
            namespace: namespace(project).to_owned(),
            name: name(project).to_owned(),
            patch,
        })
    });
    changed.collect()
}

fn is_live(object: &Value) -> bool {
    !object::is_deleting(object)
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
        is_live(template) && !is_external(template) && built_in(name(template)).is_none()
    });
    let wanted: Vec<Value> = own
        .map(|template| {
            let rules = rules(template);
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
                "metadata": {"name": role_of(state, name(template)), "labels": {OWNED: CLUSTER}},
                "rules": rules,
            })
        })
        .collect();
    differences("ClusterRole", &wanted, &state.roles, |want, have| {
        let (want, have) = (rules(want), rules(have));
        (want != have).then(|| json!({"rules": want}))
    })
}

fn built_in(template: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(own, _)| *own == template).map(|(_, role)| *role)
}

/// The cluster role that a template represents.
fn role_of(state: &ProjectState, template: &str) -> String {
    if let Some(role) = built_in(template) {
        return role.to_owned();
    }
    let found = state.templates.iter().find(|own| name(own) == template);
    match found {
        Some(found) if is_external(found) => template.to_owned(),
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
    let member: MemberFields<'_> = read(member);
    for (name, kind) in [(member.user_name, "User"), (member.group_name, "Group")] {
        if !name.is_empty() {
            subjects.push(subject(kind, name));
        }
    }
    for (name, kind) in
        [(member.user_principal_name, "User"), (member.group_principal_name, "Group")]
    {
        // `local://jane` names the local user jane.
        let (_, name) = name.split_once("://").unwrap_or_default();
        let own = subject(kind, name);
        if !name.is_empty() && !subjects.contains(&own) {
            subjects.push(own);
        }
    }
    if let Some((namespace, name)) = member.service_account.split_once(':') {
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
                && object::namespace(member) == name(project)
                && read::<MemberFields<'_>>(member).project_name == own
        });
        for member in members {
            let template = read::<MemberFields<'_>>(member).role_template_name;
            let subjects = subjects(member);
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
        let hard = Value::Object(hard);
        let marks = marks(state, name(namespace), &hard);
        let amounts: Vec<String> =
            marks.values().filter_map(Value::as_str).map(str::to_owned).collect();
        wanted.push(json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {
                "name": QUOTA_NAME, "namespace": name(namespace),
                "labels": {OWNED: name(project), PROJECT_QUOTA: "true"}, "annotations": marks,
            },
            "spec": {"hard": raised(&hard, &amounts)},
        }));
    }
    wanted
}

/// The machines of a namespace that move, as annotations of its quota. Those that users have fixed
/// get none.
fn marks(state: &ProjectState, own: &str, hard: &Value) -> Map<String, Value> {
    let is_fixed = |quota: &Value| {
        namespace(quota) == own
            && name(quota) == QUOTA_NAME
            && object::annotation(quota, NO_SCALING) == Some("true")
    };
    if state.quotas.iter().any(is_fixed) {
        return Map::new();
    }
    let moving = state.moving.iter().filter(|instance| instance.namespace == own);
    let mark = |instance: &MovingInstance| {
        let amounts = instance.limits.annotation(hard)?;
        Some((format!("{MIGRATING}{}", instance.uid), amounts.into()))
    };
    moving.filter_map(mark).collect()
}

/// Whether an object was made here; what others made is never touched.
fn is_owned(object: &Value) -> bool {
    object::label(object, OWNED).is_some()
}

/// The changes from `have` to `want`; `patch` gives the difference of two objects of one name.
fn differences(
    kind: &'static str,
    want: &[Value],
    have: &[Value],
    patch: fn(&Value, &Value) -> Option<Value>,
) -> Vec<ProjectChange> {
    let key = |object: &Value| (namespace(object).to_owned(), name(object).to_owned());
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
            let uid = object::uid(object).to_owned();
            changes.push(ProjectChange::Delete { kind, namespace, name: own, uid });
        }
    }
    changes
}

#[cfg(test)]
mod tests;
