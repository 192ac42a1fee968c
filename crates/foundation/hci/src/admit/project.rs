//! Projects and their namespaces: quotas, with the texts of Rancher's webhook.

use serde_json::Value;

use super::{AdmissionResult, Refusal, Write, text};
use crate::project::{
    CLUSTER, GROUP, PROJECT_ID, ProjectLimits, QUOTA, check_namespace, exceeded, limits,
    project_of, used,
};

const NAMESPACES: &str = "rancher.cattle.io.namespaces";
const PROJECTS: &str = "rancher.cattle.io.projects.management.cattle.io";
const PROJECT_FIELD: &str = "project.spec.resourceQuota";
const DEFAULT_FIELD: &str = "project.spec.namespaceDefaultResourceQuota";

/// A namespace that comes into a project, or changes its limits there.
pub(super) fn validate_namespace(write: &Write<'_>) -> AdmissionResult {
    let Some(namespace) = write.object else { return Ok(()) };
    let Some(name) = project_of(namespace) else { return Ok(()) };
    let has_changed = |key: &str| {
        let of = |object: &Value| object["metadata"]["annotations"][key].clone();
        write.old.is_none_or(|old| of(old) != of(namespace))
    };
    if !has_changed(PROJECT_ID) && !has_changed(QUOTA) {
        return Ok(());
    }
    let Some(project) = write.objects.get(GROUP, "projects", CLUSTER, name) else { return Ok(()) };
    let all = namespaces_of(write, name);
    let is_other = |own: &&Value| text(own, "/metadata/name") != write.name;
    let others: Vec<&Value> = all.iter().filter(is_other).collect();
    check_namespace(namespace, &project, &others).map_err(|error| {
        let message = format!("metadata.annotations[{QUOTA}]: {error}");
        Refusal::by(NAMESPACES, 422, "metadata.annotations", message)
    })
}

/// A project whose quota is new or changes.
pub(super) fn validate_project(write: &Write<'_>) -> AdmissionResult {
    let Some(project) = write.object else { return Ok(()) };
    let quota = |object: &Value, field: &str| object["spec"][field]["limit"].clone();
    let has_changed =
        |field: &str| write.old.is_none_or(|old| quota(old, field) != quota(project, field));
    if !has_changed("resourceQuota") && !has_changed("namespaceDefaultResourceQuota") {
        return Ok(());
    }
    let refuse = |message: String| Refusal::by(PROJECTS, 400, "", message);
    let parse = |field: &str, path: &str| -> Result<ProjectLimits, Refusal> {
        limits(&project["spec"][field])
            .map_err(|error| refuse(format!("{path}: Invalid value: it {error}")))
    };
    let all = parse("resourceQuota", PROJECT_FIELD)?;
    let default = parse("namespaceDefaultResourceQuota", DEFAULT_FIELD)?;
    check_fields(&all, &default).map_err(refuse)?;
    if let Some(fields) = exceeded(&default, &all) {
        let what = "namespace default quota limit exceeds project limit on fields";
        return Err(refuse(format!("{DEFAULT_FIELD}: Forbidden: {what}: {fields}")));
    }
    let namespaces = namespaces_of(write, write.name);
    if let Some(fields) = exceeded(&used(project, &namespaces), &all) {
        let what = "resourceQuota is below the used limit on fields";
        return Err(refuse(format!("{PROJECT_FIELD}: Forbidden: {what}: {fields}")));
    }
    Ok(())
}

/// Both quotas have the same limits, or there are none.
fn check_fields(all: &ProjectLimits, default: &ProjectLimits) -> Result<(), String> {
    match (all.is_empty(), default.is_empty()) {
        (true, true) => return Ok(()),
        (true, false) => {
            let what = "Required value: required when namespaceDefaultResourceQuota is set";
            return Err(format!("{PROJECT_FIELD}: {what}"));
        }
        (false, true) => {
            let what = "Required value: required when resourceQuota is set";
            return Err(format!("{DEFAULT_FIELD}: {what}"));
        }
        (false, false) => {}
    }
    if all.len() != default.len() {
        let what =
            "resource quota and namespace default quota do not have the same resources defined";
        return Err(format!("{PROJECT_FIELD}: Invalid value: {what}"));
    }
    match all.keys().find(|name| !default.contains_key(*name)) {
        None => Ok(()),
        Some(name) => {
            let what =
                format!("missing namespace default for resource {name} defined on resourceQuota");
            Err(format!("{DEFAULT_FIELD}: Invalid value: {what}"))
        }
    }
}

/// The live namespaces of a project.
fn namespaces_of(write: &Write<'_>, project: &str) -> Vec<Value> {
    let mut all = write.objects.list("", "namespaces", "");
    all.retain(|own| {
        project_of(own) == Some(project) && own["metadata"]["deletionTimestamp"].is_null()
    });
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, uuid};
    use super::*;

    fn namespace(name: &str, cpu: &str) -> Value {
        let quota = json!({"limit": {"limitsCpu": cpu}}).to_string();
        json!({"metadata": {"name": name,
            "annotations": {PROJECT_ID: "local:p", QUOTA: quota}}})
    }

    fn project(all: Value, default: Value) -> Value {
        json!({"metadata": {"name": "p", "namespace": CLUSTER}, "spec": {
            "resourceQuota": all, "namespaceDefaultResourceQuota": default}})
    }

    fn cpu(amount: &str) -> Value {
        json!({"limit": {"limitsCpu": amount}})
    }

    /// The result of a write where a project with 2 CPUs has a namespace with 1.
    fn answer(resource: &'static str, old: Option<&Value>, object: Option<&Value>) -> String {
        let cluster = Cluster(vec![
            (GROUP, "projects", project(cpu("2"), cpu("100m"))),
            ("", "namespaces", namespace("first", "1")),
        ]);
        let write = Write {
            group: if resource == "projects" { GROUP } else { "" },
            resource,
            namespace: if resource == "projects" { CLUSTER } else { "" },
            name: object.map_or("", |own| text(own, "/metadata/name")),
            object,
            old,
            trusted: false,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        match super::super::validate(&write) {
            Ok(()) => String::new(),
            Err(refusal) => format!("{} {}", refusal.code, refusal.message),
        }
    }

    #[test]
    fn a_namespace_gets_what_its_project_has_left() {
        let fits = namespace("second", "1");
        let exceeds = namespace("second", "1001m");
        assert_eq!(answer("namespaces", None, Some(&fits)), "");
        let refused = answer("namespaces", None, Some(&exceeds));
        assert!(refused.starts_with("422 ") && refused.ends_with(
            "metadata.annotations[field.cattle.io/resourceQuota]: exceeds projectLimit on fields: \
             limitsCpu=2001m"), "{refused}");
        // Its own limits do not count twice, and what does not change is not judged again.
        let own = namespace("first", "1");
        assert_eq!(answer("namespaces", Some(&own), Some(&namespace("first", "2"))), "");
        assert_eq!(answer("namespaces", Some(&exceeds), Some(&exceeds)), "");
        assert_eq!(answer("namespaces", Some(&exceeds), None), "");
        let mut elsewhere = exceeds;
        elsewhere["metadata"]["annotations"][PROJECT_ID] = "local:other".into();
        assert_eq!(answer("namespaces", None, Some(&elsewhere)), "");
    }

    #[test]
    fn a_project_has_consistent_quotas_that_suffice() {
        let none = Value::Null;
        for (all, default, expected) in [
            (cpu("3"), cpu("1"), ""),
            (none.clone(), none.clone(), ""),
            (
                cpu("3"),
                none.clone(),
                "namespaceDefaultResourceQuota: Required value: required when \
                resourceQuota is set",
            ),
            (
                none,
                cpu("1"),
                "resourceQuota: Required value: required when \
                namespaceDefaultResourceQuota is set",
            ),
            (
                cpu("3"),
                json!({"limit": {"pods": "1"}}),
                "missing namespace default for resource \
                limitsCpu defined on resourceQuota",
            ),
            (
                cpu("3"),
                json!({"limit": {"pods": "1", "limitsCpu": "1"}}),
                "resource quota and \
                namespace default quota do not have the same resources defined",
            ),
            (
                cpu("3"),
                cpu("4"),
                "namespace default quota limit exceeds project limit on fields: \
                limitsCpu=4",
            ),
            (
                cpu("500m"),
                cpu("100m"),
                "resourceQuota is below the used limit on fields: \
                limitsCpu=1",
            ),
            (cpu("x"), cpu("1"), "Invalid value: it has \"x\" as limitsCpu"),
        ] {
            let found = answer("projects", None, Some(&project(all.clone(), default)));
            assert!(expected.is_empty() == found.is_empty(), "{all}: {found}");
            assert!(found.contains(expected), "{all}: {found}");
        }
        let small = project(cpu("500m"), cpu("100m"));
        assert_eq!(answer("projects", Some(&small), Some(&small)), "", "it does not change");
    }
}
