//! The FlowSchema of a request, and the limits of its priority level. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use auth::User;
use http::HeaderValue;
use serde_json::Value;

use super::schedule::{Limits, Queuing};

/// All schemas in the order in which they are asked, and all levels.
#[derive(Debug, Default)]
pub(super) struct FlowRules {
    schemas: Vec<Arc<Schema>>,
    levels: BTreeMap<Arc<str>, PriorityLevel>,
}

#[derive(Debug)]
pub(super) struct Schema {
    pub(super) name: Arc<str>,
    /// The UIDs that are sent in the headers of responses.
    pub(super) uid: HeaderValue,
    pub(super) level_uid: HeaderValue,
    pub(super) level: Arc<str>,
    pub(super) exempt: bool,
    precedence: i64,
    by: FlowDistinguisher,
    rules: Vec<FlowRule>,
}

#[derive(Debug)]
struct PriorityLevel {
    uid: HeaderValue,
    exempt: bool,
    shares: u64,
    queuing: Option<Queuing>,
}

/// The attribute that separates flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowDistinguisher {
    Nothing,
    User,
    Namespace,
}

#[derive(Debug)]
struct FlowRule {
    subjects: Vec<FlowSubject>,
    resources: Vec<ResourceRule>,
    urls: Vec<UrlRule>,
}

#[derive(Debug)]
enum FlowSubject {
    User(String),
    Group(String),
    Account { namespace: String, name: String },
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster: bool,
}

#[derive(Debug)]
struct UrlRule {
    verbs: Vec<String>,
    urls: Vec<String>,
}

/// The attributes of a request that schemas match.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowAttributes<'a> {
    pub(super) user: &'a User,
    pub(super) verb: &'a str,
    pub(super) what: RequestKind<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum RequestKind<'a> {
    Resource { group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str },
    Path(&'a str),
}

impl FlowRules {
    pub(super) fn read(schemas: &[Value], levels: &[Value]) -> Self {
        let levels: BTreeMap<Arc<str>, PriorityLevel> =
            levels.iter().map(|object| (name(object), PriorityLevel::read(object))).collect();
        let mut schemas: Vec<_> = schemas
            .iter()
            .filter_map(|object| Schema::read(object, &levels))
            .map(Arc::new)
            .collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        Self { schemas, levels }
    }

    /// The schema of a request and its flow; none if no schema is for it.
    pub(super) fn classify(&self, asked: &FlowAttributes<'_>) -> Option<(Arc<Schema>, u64)> {
        let schema = self.schemas.iter().find(|schema| schema.fits(asked))?;
        let mut hash = DefaultHasher::new();
        schema.name.hash(&mut hash);
        match (schema.by, asked.what) {
            (FlowDistinguisher::User, _) => asked.user.name.hash(&mut hash),
            // Not to be queued, but to see that one of them is a heavy flow to the others.
            _ if schema.exempt => asked.user.name.hash(&mut hash),
            (FlowDistinguisher::Namespace, RequestKind::Resource { namespace, .. }) => {
                namespace.hash(&mut hash)
            }
            (FlowDistinguisher::Namespace | FlowDistinguisher::Nothing, _) => {}
        }
        Some((Arc::clone(schema), hash.finish()))
    }

    /// How `total` seats are shared among levels.
    pub(super) fn limits(&self, total: u32) -> BTreeMap<Arc<str>, Limits> {
        let limited = || self.levels.iter().filter(|(_, level)| !level.exempt);
        let sum: u64 = limited().map(|(_, level)| level.shares).sum();
        let part = |level: &PriorityLevel| {
            let seats = (u64::from(total) * level.shares).div_ceil(sum.max(1));
            Limits {
                seats: u32::try_from(seats).unwrap_or(u32::MAX),
                weight: (level.shares as f64).max(0.1),
                queuing: level.queuing,
            }
        };
        limited().map(|(name, level)| (Arc::clone(name), part(level))).collect()
    }
}

fn name(object: &Value) -> Arc<str> {
    object["metadata"]["name"].as_str().unwrap_or("").into()
}

fn uid(object: &Value) -> HeaderValue {
    let uid = object["metadata"]["uid"].as_str().unwrap_or("");
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl PriorityLevel {
    fn read(object: &Value) -> Self {
        let limited = &object["spec"]["limited"];
        let response = &limited["limitResponse"];
        let number = |value: &Value| usize::try_from(value.as_i64().unwrap_or(1)).unwrap_or(1);
        let queuing = (response["type"] == "Queue").then(|| Queuing {
            // As many as can have an effect; more would only take memory.
            queues: number(&response["queuing"]["queues"]).clamp(1, 1024),
            hand: number(&response["queuing"]["handSize"]).max(1),
            longest: number(&response["queuing"]["queueLengthLimit"]),
        });
        Self {
            uid: uid(object),
            exempt: object["spec"]["type"] == "Exempt",
            shares: limited["nominalConcurrencyShares"].as_u64().unwrap_or(30),
            queuing,
        }
    }
}

impl Schema {
    /// None if its level does not exist: it is dangling and counts for nothing.
    fn read(object: &Value, levels: &BTreeMap<Arc<str>, PriorityLevel>) -> Option<Self> {
        let spec = &object["spec"];
        let wanted = spec["priorityLevelConfiguration"]["name"].as_str().unwrap_or("");
        let (level_name, level) = levels.get_key_value(wanted)?;
        let by = match spec["distinguisherMethod"]["type"].as_str() {
            Some("ByUser") => FlowDistinguisher::User,
            Some("ByNamespace") => FlowDistinguisher::Namespace,
            _ => FlowDistinguisher::Nothing,
        };
        Some(Self {
            name: name(object),
            uid: uid(object),
            level_uid: level.uid.clone(),
            level: Arc::clone(level_name),
            exempt: level.exempt,
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            by,
            rules: list(&spec["rules"]).map(FlowRule::read).collect(),
        })
    }

    fn fits(&self, asked: &FlowAttributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.fits(asked))
    }
}

impl FlowRule {
    fn read(rule: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let subject = |subject: &Value| match subject["kind"].as_str() {
            Some("User") => Some(FlowSubject::User(text(&subject["user"]["name"]))),
            Some("Group") => Some(FlowSubject::Group(text(&subject["group"]["name"]))),
            Some("ServiceAccount") => Some(FlowSubject::Account {
                namespace: text(&subject["serviceAccount"]["namespace"]),
                name: text(&subject["serviceAccount"]["name"]),
            }),
            _ => None,
        };
        let resource = |rule: &Value| ResourceRule {
            verbs: texts(&rule["verbs"]),
            groups: texts(&rule["apiGroups"]),
            resources: texts(&rule["resources"]),
            namespaces: texts(&rule["namespaces"]),
            cluster: rule["clusterScope"] == true,
        };
        let url = |rule: &Value| UrlRule {
            verbs: texts(&rule["verbs"]),
            urls: texts(&rule["nonResourceURLs"]),
        };
        Self {
            subjects: list(&rule["subjects"]).filter_map(subject).collect(),
            resources: list(&rule["resourceRules"]).map(resource).collect(),
            urls: list(&rule["nonResourceRules"]).map(url).collect(),
        }
    }

    fn fits(&self, asked: &FlowAttributes<'_>) -> bool {
        if !self.subjects.iter().any(|subject| subject.is(asked.user)) {
            return false;
        }
        let any = |list: &[String], item: &str| list.iter().any(|it| it == "*" || it == item);
        match asked.what {
            RequestKind::Resource { group, resource, subresource, namespace } => {
                let joined;
                let resource = if subresource.is_empty() {
                    resource
                } else {
                    joined = format!("{resource}/{subresource}");
                    &joined
                };
                self.resources.iter().any(|rule| {
                    any(&rule.verbs, asked.verb)
                        && any(&rule.groups, group)
                        && any(&rule.resources, resource)
                        && match namespace {
                            "" => rule.cluster,
                            namespace => any(&rule.namespaces, namespace),
                        }
                })
            }
            RequestKind::Path(path) => self.urls.iter().any(|rule| {
                any(&rule.verbs, asked.verb)
                    && rule.urls.iter().any(|url| match url.strip_suffix('*') {
                        Some(prefix) => path.starts_with(prefix),
                        None => url == path,
                    })
            }),
        }
    }
}

impl FlowSubject {
    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.is_in(name),
            Self::Account { namespace, name } => auth::user::parse_service_account_name(&user.name)
                .is_some_and(|(of, account)| of == namespace && (name == "*" || account == name)),
        }
    }
}

#[cfg(test)]
mod tests;
