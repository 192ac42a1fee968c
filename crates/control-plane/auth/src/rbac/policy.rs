//! The policy in force: all roles and bindings, indexed by subject so that a
//! decision reads only the bindings that name the user or one of their groups.
//!
//! A [`Policy`] never changes. The watcher of roles and bindings builds a new one and swaps it in;
//! building is linear in the number of objects.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::GROUP;
use super::rule::PolicyRule;
use crate::user::{MASTERS, User, service_account_name};

/// The verb and the target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// `get`, `list`, `create`, …; for a path the lower-case HTTP method.
    pub verb: &'a str,
    pub target: AccessTarget<'a>,
}

/// The target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessTarget<'a> {
    Resource(ResourceRequest<'a>),
    /// A path outside the resource tree, such as `/healthz`.
    Path(&'a str),
}

/// Fields that do not apply are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceRequest<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    /// Also set for a list or watch narrowed by the field selector `metadata.name=`.
    pub name: &'a str,
}

impl Attributes<'_> {
    /// The namespace whose bindings count; empty at the cluster scope.
    pub fn namespace(&self) -> &str {
        match &self.target {
            AccessTarget::Resource(request) => request.namespace,
            AccessTarget::Path(_) => "",
        }
    }
}

/// The decision about a request. There is no denial: a request that no rule allows is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// With the binding that allowed it.
    Allow(Arc<str>),
    /// With the errors of the evaluation, usually nothing.
    NoOpinion(String),
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }
}

/// A role that a binding refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoleRef {
    pub kind: String,
    pub name: String,
    pub api_group: String,
}

impl RoleRef {
    /// The `roleRef` of a binding; missing fields are empty.
    pub fn of(binding: &Value) -> Self {
        let field = |name| text(&binding["roleRef"], name).to_owned();
        Self { kind: field("kind"), name: field("name"), api_group: field("apiGroup") }
    }
}

/// Why a role reference leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleRefError {
    #[error("{resource}.{GROUP} {name:?} not found")]
    NotFound { resource: &'static str, name: String },
    #[error("unsupported role reference kind: {kind:?}")]
    UnsupportedKind { kind: String },
}

type RoleRules = Arc<[PolicyRule]>;

/// A binding as one of its subjects sees it.
#[derive(Debug, Clone)]
struct Grant {
    /// Distinguishes the grants of one binding from those of another.
    binding: usize,
    reason: Arc<str>,
    rules: Result<RoleRules, Arc<RoleRefError>>,
}

#[derive(Debug, Default)]
struct Subjects {
    /// Service accounts are here too, under their user names.
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

/// All roles and bindings of a cluster at one moment.
#[derive(Debug)]
pub struct RbacPolicy {
    cluster_roles: HashMap<String, RoleRules>,
    /// By namespace, then by name.
    roles: HashMap<String, HashMap<String, RoleRules>>,
    cluster: Subjects,
    namespaces: HashMap<String, Subjects>,
    masters: Arc<str>,
}

impl Default for RbacPolicy {
    fn default() -> Self {
        Self::build([])
    }
}

impl RbacPolicy {
    /// Indexes roles and bindings; objects of any other kind are ignored.
    pub fn build<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut policy = Self {
            cluster_roles: HashMap::new(),
            roles: HashMap::new(),
            cluster: Subjects::default(),
            namespaces: HashMap::new(),
            masters: Arc::from(""),
        };
        let mut bindings = Vec::new();
        for object in objects {
            match text(object, "kind") {
                "ClusterRole" => {
                    policy.cluster_roles.insert(name(object).to_owned(), rules(object));
                }
                "Role" => {
                    let roles = policy.roles.entry(namespace(object).to_owned()).or_default();
                    roles.insert(name(object).to_owned(), rules(object));
                }
                "ClusterRoleBinding" | "RoleBinding" => bindings.push(object),
                _ => {}
            }
        }
        for (index, binding) in bindings.into_iter().enumerate() {
            policy.bind(index, binding);
        }
        policy
    }

    fn bind(&mut self, index: usize, binding: &Value) {
        let is_cluster = text(binding, "kind") == "ClusterRoleBinding";
        let namespace = if is_cluster { "" } else { namespace(binding) };
        if !is_cluster && namespace.is_empty() {
            return;
        }
        let role_ref = RoleRef::of(binding);
        let rules = self.resolve(&role_ref, namespace).map_err(Arc::new);
        let index_of = match is_cluster {
            true => &mut self.cluster,
            false => self.namespaces.entry(namespace.to_owned()).or_default(),
        };
        let Some(Value::Array(subjects)) = binding.get("subjects") else { return };
        for subject in subjects {
            let (kind, subject_name) = (text(subject, "kind"), text(subject, "name"));
            let home = match text(subject, "namespace") {
                "" => namespace,
                own => own,
            };
            let (map, key, shown) = match kind {
                "User" => (&mut index_of.users, subject_name.to_owned(), subject_name.to_owned()),
                "Group" => (&mut index_of.groups, subject_name.to_owned(), subject_name.to_owned()),
                "ServiceAccount" if !home.is_empty() => (
                    &mut index_of.users,
                    service_account_name(home, subject_name),
                    format!("{subject_name}/{home}"),
                ),
                _ => continue,
            };
            let grants = map.entry(key).or_default();
            if grants.last().is_some_and(|last| last.binding == index) {
                continue; // The same subject twice in one binding.
            }
            let source = match is_cluster {
                true => format!("ClusterRoleBinding {:?}", name(binding)),
                false => format!("RoleBinding {:?}", format!("{}/{namespace}", name(binding))),
            };
            let (role_kind, role) = (&role_ref.kind, &role_ref.name);
            let reason =
                format!("RBAC: allowed by {source} of {role_kind} {role:?} to {kind} {shown:?}");
            grants.push(Grant { binding: index, reason: reason.into(), rules: rules.clone() });
        }
    }

    /// The rules of a role that a binding in `namespace` refers to (empty for a cluster binding).
    pub fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<RoleRules, RoleRefError> {
        let (found, resource) = match role.kind.as_str() {
            "ClusterRole" => (self.cluster_roles.get(&role.name), "clusterrole"),
            "Role" => {
                let found = self.roles.get(namespace).and_then(|roles| roles.get(&role.name));
                (found, "role")
            }
            kind => return Err(RoleRefError::UnsupportedKind { kind: kind.to_owned() }),
        };
        found.cloned().ok_or_else(|| RoleRefError::NotFound { resource, name: role.name.clone() })
    }

    /// Whether `user` may do what `attributes` describe.
    pub fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::Allow(self.masters.clone());
        }
        let mut broken: Vec<&RoleRefError> = Vec::new();
        for grant in self.grants(user, attributes.namespace()) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision::Allow(grant.reason.clone());
                }
                Ok(_) => {}
                Err(error) => broken.push(error),
            }
        }
        Decision::NoOpinion(match broken.is_empty() {
            true => String::new(),
            false => format!("RBAC: {}", aggregate_text(&broken)),
        })
    }

    /// Every rule that applies to `user` in `namespace` (cluster-wide ones included),
    /// and the roles that could not be found.
    pub fn rules(&self, user: &User, namespace: &str) -> (Vec<PolicyRule>, Vec<RoleRefError>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        let mut seen = Vec::new();
        for grant in self.grants(user, namespace) {
            if seen.contains(&grant.binding) {
                continue;
            }
            seen.push(grant.binding);
            match &grant.rules {
                Ok(own) => rules.extend(own.iter().cloned()),
                Err(error) => errors.push(RoleRefError::clone(error)),
            }
        }
        (rules, errors)
    }

    /// [`Self::rules`] split the way a SelfSubjectRulesReview shows them: resource
    /// rules, then path rules. Members of `system:masters` get everything.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<PolicyRule>, Vec<PolicyRule>) {
        let mut rules = self.rules(user, namespace).0;
        if user.is_in(MASTERS) && !full_authority().iter().all(|all| rules.contains(all)) {
            rules.extend(full_authority());
        }
        let resources = rules.iter().filter(|rule| !rule.resources.is_empty());
        let resources = resources
            .map(|rule| PolicyRule { non_resource_urls: Vec::new(), ..rule.clone() })
            .collect();
        let paths = rules.iter().filter(|rule| !rule.non_resource_urls.is_empty());
        let paths = paths
            .map(|rule| PolicyRule {
                verbs: rule.verbs.clone(),
                non_resource_urls: rule.non_resource_urls.clone(),
                ..PolicyRule::default()
            })
            .collect();
        (resources, paths)
    }

    fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let local = match namespace {
            "" => None,
            namespace => self.namespaces.get(namespace),
        };
        [Some(&self.cluster), local].into_iter().flatten().flat_map(move |subjects| {
            let users = subjects.users.get(&user.name);
            let groups = user.groups.iter().filter_map(|group| subjects.groups.get(group));
            users.into_iter().chain(groups).flatten()
        })
    }
}

/// The rules of `cluster-admin`.
pub fn full_authority() -> Vec<PolicyRule> {
    let all = || vec!["*".to_owned()];
    vec![
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

/// The message of the `Forbidden` status for a request that no authorizer allowed.
/// `reason` is the text of [`Decision::NoOpinion`].
pub fn forbidden_message(user: &User, attributes: &Attributes<'_>, reason: &str) -> String {
    let (user, verb) = (&user.name, attributes.verb);
    let (mut what, subject) = match &attributes.target {
        AccessTarget::Path(path) => {
            (format!("User {user:?} cannot {verb} path {path:?}"), "forbidden".to_owned())
        }
        AccessTarget::Resource(request) => {
            let ResourceRequest { group, resource, subresource, namespace, name, .. } = request;
            let mut full = (*resource).to_owned();
            if !subresource.is_empty() {
                let _ = write!(full, "/{subresource}");
            }
            let scope = match *namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let qualified = match *group {
                "" => (*resource).to_owned(),
                group => format!("{resource}.{group}"),
            };
            let subject = match *name {
                "" => format!("{qualified} is forbidden"),
                name => format!("{qualified} {name:?} is forbidden"),
            };
            let what = format!(
                "User {user:?} cannot {verb} resource {full:?} in API group {group:?} {scope}"
            );
            (what, subject)
        }
    };
    // Browsers must not take a reflected path or name for markup.
    what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        let _ = write!(what, ": {reason}");
    }
    format!("{subject}: {what}")
}

/// One error as it is, several as `[a, b]` without repetition.
fn aggregate_text(errors: &[&RoleRefError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn rules(role: &Value) -> RoleRules {
    PolicyRule::list(role).into()
}

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"], "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(&object["metadata"], "namespace")
}

#[cfg(test)]
mod tests;
