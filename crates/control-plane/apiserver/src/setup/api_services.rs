//! APIService objects for the groups that this server serves itself, so that clients that
//! read them see them as local and available.

use std::sync::Arc;

use base::{Tasks, clock};
use bytes::Bytes;
use serde_json::{Value, json};
use store::{Expect, Write, WriteChange, WriteError};
use tokio::sync::Notify;
use tracing::warn;

use crate::aggregation::TABLE;
use crate::api::Api;
use crate::schemas::catalog::Catalog;
use crate::schemas::refresh;
use crate::verbs::item;
use crate::verbs::object;

pub(crate) const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Brings the objects in line with the catalog: now, and whenever it changes.
pub(crate) fn start(api: &Api, tasks: &Tasks) {
    let (api, mut stop) = (api.clone(), tasks.stop_signal());
    let changed: Arc<Notify> = api.catalog_changed.clone();
    tasks.spawn("api services", async move {
        loop {
            align(&api).await;
            tokio::select! {
                () = stop.requested() => return,
                () = changed.notified() => {}
            }
        }
    });
}

async fn align(api: &Api) {
    let mut wanted = wanted(&api.catalog.load());
    for group in &api.extensions.groups {
        for (index, version) in group.versions().iter().enumerate() {
            wanted.push(service(group.name(), version, "onstart", 1000, index));
        }
    }
    let existing: Vec<Value> =
        refresh::entries(api, TABLE).iter().map(|entry| entry.item.to_value()).collect();
    let known = |name: &str| existing.iter().any(|service| object::name(service) == name);
    let missing = wanted.iter().filter(|service| !known(object::name(service)));
    let stale = existing.iter().filter(|service| {
        let ours = service["metadata"]["labels"][MANAGED].is_string();
        ours && !wanted.iter().any(|kept| object::name(kept) == object::name(service))
    });
    let writes = missing
        .map(|service| {
            let value = Bytes::from(item::encode(&stamped(service)));
            (object::name(service), Expect::Absent, WriteChange::Put(value))
        })
        .chain(stale.map(|service| (object::name(service), Expect::Any, WriteChange::Delete)))
        .map(|(name, expect, change)| {
            api.store.write(Write { table: TABLE.into(), name: name.into(), expect, change })
        });
    for result in futures_util::future::join_all(writes).await {
        match result {
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => warn!(error = %base::Chain(&error), "cannot write an API service"),
        }
    }
}

fn stamped(service: &Value) -> Value {
    let now = clock::now_rfc3339();
    let mut service = service.clone();
    object::set_meta(&mut service, "uid", Some(uuid::Uuid::new_v4().to_string().into()));
    object::set_meta(&mut service, "creationTimestamp", Some(now.clone().into()));
    service["status"]["conditions"][0]["lastTransitionTime"] = now.into();
    service
}

/// One object per group and version.
fn wanted(catalog: &Catalog) -> Vec<Value> {
    let mut services = Vec::new();
    for group in catalog.groups() {
        for (index, version) in group.versions.iter().enumerate() {
            let custom = catalog.of(&group.name, version).all(|served| served.is_custom());
            let (managed, priority) = match (custom, group.name.is_empty()) {
                (true, _) => ("true", 1000),
                (false, true) => ("onstart", 18000),
                (false, false) => ("onstart", 17000),
            };
            services.push(service(&group.name, version, managed, priority, index));
        }
    }
    services
}

/// `index` is the version's place among those of its group.
fn service(group: &str, version: &str, managed: &str, priority: u32, index: usize) -> Value {
    let mut spec = json!({
        "version": version,
        "groupPriorityMinimum": priority,
        "versionPriority": 100 - index.min(90),
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}"), "labels": {MANAGED: managed}},
        "spec": spec,
        "status": {"conditions": [{
            "type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available",
        }]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas::served::ServedKind;

    #[test]
    fn every_group_and_version_has_one() {
        let all = kinds::builtin().iter().map(|row| Arc::new(ServedKind::built_in(row))).collect();
        let services = wanted(&Catalog::new(all, 0));
        let names: Vec<&str> = services.iter().map(object::name).collect();
        for name in
            ["v1.", "v1.apps", "v2.autoscaling", "v1.autoscaling", "v1.apiextensions.k8s.io"]
        {
            assert!(names.contains(&name), "{name} is missing in {names:?}");
        }
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }
}
