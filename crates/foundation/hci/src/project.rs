//! Quotas of Rancher's projects: what the namespaces of a project may have together. Pure.
//!
//! A namespace has the limits of its annotation, else the default of its project. Their sum must not
//! exceed the limits of the project.

use std::collections::BTreeMap;

use serde_json::Value;
use types::Quantity;

pub const GROUP: &str = "management.cattle.io";
/// The namespace of projects is the name of the cluster.
pub const CLUSTER: &str = "local";
/// On a namespace: `local:PROJECT`.
pub const PROJECT_ID: &str = "field.cattle.io/projectId";
/// On a namespace: its limits, as JSON.
pub const QUOTA: &str = "field.cattle.io/resourceQuota";

/// Names of limits: as Rancher writes them, and as Kubernetes does.
pub const LIMIT_NAMES: [(&str, &str); 13] = [
    ("configMaps", "configmaps"),
    ("limitsCpu", "limits.cpu"),
    ("limitsMemory", "limits.memory"),
    ("persistentVolumeClaims", "persistentvolumeclaims"),
    ("pods", "pods"),
    ("replicationControllers", "replicationcontrollers"),
    ("requestsCpu", "requests.cpu"),
    ("requestsMemory", "requests.memory"),
    ("requestsStorage", "requests.storage"),
    ("secrets", "secrets"),
    ("services", "services"),
    ("servicesLoadBalancers", "services.loadbalancers"),
    ("servicesNodePorts", "services.nodeports"),
];

/// Amounts by Rancher's names of limits.
pub type ProjectLimits = BTreeMap<String, Quantity>;

/// Why limits are refused; the texts are Rancher's where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("is not JSON: {0}")]
    Json(String),
    #[error(
        "has no field \"limit\" with amounts, such as {{\"limit\":{{\"limitsCpu\":\"500m\"}}}}"
    )]
    NoLimit,
    #[error("has the unknown limit {name:?}; possible are {}", names())]
    Unknown { name: String },
    #[error("has {value} as {name}: it has to be an amount of 0 or more, such as 500m or 2Gi")]
    Amount { name: String, value: String },
    #[error("does not have all fields defined on a project quota")]
    FieldCount,
    #[error("misses {0} defined on a project quota")]
    Missing(String),
    #[error("exceeds projectLimit on fields: {0}")]
    Exceeds(String),
}

fn names() -> String {
    LIMIT_NAMES.map(|(name, _)| name).join(", ")
}

/// The limits of a quota object, `{"limit": {…}}`; none if there is no such object.
pub fn limits(quota: &Value) -> Result<ProjectLimits, LimitError> {
    if quota.is_null() {
        return Ok(ProjectLimits::new());
    }
    let fields = match &quota["limit"] {
        Value::Null if quota.is_object() => return Ok(ProjectLimits::new()),
        limit => limit.as_object().ok_or(LimitError::NoLimit)?,
    };
    let mut limits = ProjectLimits::new();
    for (name, value) in fields {
        if value.is_null() || value == "" {
            continue;
        }
        if !LIMIT_NAMES.iter().any(|(own, _)| own == name) {
            return Err(LimitError::Unknown { name: name.clone() });
        }
        let amount = Quantity::from_json(value).ok().filter(|amount| amount.signum() >= 0);
        let wrong = || LimitError::Amount { name: name.clone(), value: value.to_string() };
        limits.insert(name.clone(), amount.ok_or_else(wrong)?);
    }
    Ok(limits)
}

/// The limits of a namespace itself; nothing if it has no annotation.
pub fn own_limits(namespace: &Value) -> Result<Option<ProjectLimits>, LimitError> {
    let Some(text) = namespace["metadata"]["annotations"][QUOTA].as_str() else { return Ok(None) };
    let quota: Value =
        serde_json::from_str(text).map_err(|error| LimitError::Json(error.to_string()))?;
    if !quota.is_object() {
        return Err(LimitError::NoLimit);
    }
    // As upstream: an object without limits is no quota of its own.
    Ok(Some(limits(&quota)?).filter(|own| !own.is_empty()))
}

/// The limits of a quota object as it is stored: what is not understood does not count.
fn stored_limits(quota: &Value) -> ProjectLimits {
    let amount = |name: &str| {
        let amount = Quantity::from_json(quota["limit"].get(name)?).ok()?;
        (amount.signum() >= 0).then(|| (name.to_owned(), amount))
    };
    LIMIT_NAMES.iter().filter_map(|(name, _)| amount(name)).collect()
}

/// The limits that a namespace of the project has.
pub fn namespace_limits(namespace: &Value, project: &Value) -> ProjectLimits {
    let default = || stored_limits(&project["spec"]["namespaceDefaultResourceQuota"]);
    own_limits(namespace).ok().flatten().unwrap_or_else(default)
}

/// The name of the project that a namespace belongs to.
pub fn project_of(namespace: &Value) -> Option<&str> {
    let id = namespace["metadata"]["annotations"][PROJECT_ID].as_str()?;
    id.strip_prefix(CLUSTER)?.strip_prefix(':').filter(|name| !name.is_empty())
}

/// The sum over the namespaces of a project, of those limits that the project has.
pub fn used<'a>(project: &Value, namespaces: impl IntoIterator<Item = &'a Value>) -> ProjectLimits {
    let all = stored_limits(&project["spec"]["resourceQuota"]);
    let mut used: ProjectLimits =
        all.into_keys().map(|name| (name, Quantity::from_units(0))).collect();
    for namespace in namespaces {
        for (name, amount) in namespace_limits(namespace, project) {
            if let Some(sum) = used.get_mut(&name) {
                *sum += &amount;
            }
        }
    }
    used
}

/// The amounts that are larger than a limit, as Rancher writes them; nothing if all fit.
pub fn exceeded(amounts: &ProjectLimits, limits: &ProjectLimits) -> Option<String> {
    let larger = amounts
        .iter()
        .filter(|(name, amount)| limits.get(*name).is_some_and(|limit| amount > &limit));
    let texts: Vec<String> = larger.map(|(name, amount)| format!("{name}={amount}")).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// Whether the project has room for the namespace beside its others.
pub fn check_namespace(
    namespace: &Value,
    project: &Value,
    others: &[&Value],
) -> Result<(), LimitError> {
    let own = own_limits(namespace)?;
    let all = stored_limits(&project["spec"]["resourceQuota"]);
    if all.is_empty() {
        return Ok(());
    }
    if let Some(own) = &own {
        if own.len() != all.len() {
            return Err(LimitError::FieldCount);
        }
        if let Some(name) = all.keys().find(|name| !own.contains_key(*name)) {
            return Err(LimitError::Missing(name.clone()));
        }
    }
    let used = used(project, others.iter().copied().chain([namespace]));
    exceeded(&used, &all).map_or(Ok(()), |fields| Err(LimitError::Exceeds(fields)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn project() -> Value {
        json!({"spec": {
            "resourceQuota": {"limit": {"limitsCpu": "2", "limitsMemory": "4Gi"}},
            "namespaceDefaultResourceQuota": {"limit": {"limitsCpu": "500m", "limitsMemory": "1Gi"}},
        }})
    }

    fn namespace(quota: &str) -> Value {
        match quota {
            "" => json!({"metadata": {"annotations": {PROJECT_ID: "local:p"}}}),
            quota => json!({"metadata": {"annotations": {PROJECT_ID: "local:p", QUOTA: quota}}}),
        }
    }

    fn limit(cpu: &str, memory: &str) -> String {
        json!({"limit": {"limitsCpu": cpu, "limitsMemory": memory}}).to_string()
    }

    #[test]
    fn namespaces_share_what_their_project_has() {
        let (half, full) = (namespace(&limit("1", "2Gi")), namespace(&limit("2", "4Gi")));
        let plain = namespace("");
        let rows: [(&Value, &[&Value], Option<&str>); 7] = [
            (&full, &[], None),
            (&half, &[&half], None),
            (&full, &[&half], Some("exceeds projectLimit on fields: limitsCpu=3,limitsMemory=6Gi")),
            // Others without limits of their own count with the default.
            (&half, &[&plain, &plain], None),
            (&half, &[&plain, &plain, &plain], Some("limitsCpu=2500m,limitsMemory=5Gi")),
            (&plain, &[&half, &plain], None),
            (&plain, &[&full], Some("limitsCpu=2500m,limitsMemory=5Gi")),
        ];
        for (own, others, expected) in rows {
            let found = check_namespace(own, &project(), others).map_err(|own| own.to_string());
            match expected {
                None => assert_eq!(found, Ok(()), "{own} {others:?}"),
                Some(text) => {
                    let error = found.unwrap_err();
                    assert!(error.contains(text), "{error}");
                }
            }
        }
    }

    #[test]
    fn the_annotation_is_understood_or_refused() {
        let cpu =
            |value: &str| format!(r#"{{"limit":{{"limitsCpu":{value},"limitsMemory":"1Gi"}}}}"#);
        for (quota, expected) in [
            ("{", "is not JSON"),
            ("[]", "has no field \"limit\""),
            (r#"{"limit":7}"#, "has no field \"limit\""),
            (r#"{"limit":{"cpu":"1"}}"#, "has the unknown limit \"cpu\"; possible are configMaps"),
            (&*cpu("\"x\""), "has \"x\" as limitsCpu: it has to be an amount"),
            (&*cpu("\"-1\""), "has \"-1\" as limitsCpu"),
            (&*cpu("{}"), "has {} as limitsCpu"),
            (
                r#"{"limit":{"limitsCpu":"1"}}"#,
                "does not have all fields defined on a project quota",
            ),
            (
                r#"{"limit":{"limitsCpu":"1","pods":"1"}}"#,
                "misses limitsMemory defined on a project quota",
            ),
        ] {
            let found = check_namespace(&namespace(quota), &project(), &[]).unwrap_err();
            assert!(found.to_string().starts_with(expected), "{quota}: {found}");
        }
        for quota in ["{}", r#"{"limit":{}}"#, &*cpu("1"), &*cpu("\"100m\"")] {
            assert_eq!(check_namespace(&namespace(quota), &project(), &[]), Ok(()), "{quota}");
        }
        // Without a quota of the project everything that is understood is possible.
        let free = json!({"spec": {}});
        assert_eq!(check_namespace(&namespace(&limit("9", "9")), &free, &[]), Ok(()));
        assert!(check_namespace(&namespace("{"), &free, &[]).is_err());
    }

    #[test]
    fn a_namespace_names_its_project() {
        let of = |id: &str| {
            let namespace = json!({"metadata": {"annotations": {PROJECT_ID: id}}});
            project_of(&namespace).map(str::to_owned)
        };
        assert_eq!(of("local:p-1").as_deref(), Some("p-1"));
        assert_eq!((of("local:"), of("other:p"), of("localp")), (None, None, None));
    }
}
