//! Background work on definitions: the instances of a deleted definition are removed before the
//! definition is, and names that became free are given to the definitions that wait for them.

use std::time::Duration;

use base::Tasks;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tracing::warn;

use crate::api::{Api, ObjectEntry};
use crate::schemas::crd::{self, Accepted, Document};
use crate::schemas::refresh;
use crate::setup::bootstrap::call;
use crate::verbs::object;

const BASE: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Instances with finalizers of their own may take their time.
const RETRY: Duration = Duration::from_millis(500);

pub(crate) fn start(api: &Api, tasks: &Tasks) {
    let api = api.clone();
    let mut stop = tasks.stop_signal();
    tasks.spawn("definition cleanup", async move {
        loop {
            let from = api.store.revision();
            let waiting = pass(&api).await;
            let Ok(mut watcher) = api.store.watch(crd::TABLE, from) else { continue };
            tokio::select! {
                () = stop.requested() => return,
                () = tokio::time::sleep(RETRY), if waiting => {}
                events = watcher.next(1024) => {
                    if matches!(events, Err(store::WatchError::Closed)) {
                        return;
                    }
                }
            }
        }
    });
}

/// One pass over all definitions; whether some still wait for their instances to go.
async fn pass(api: &Api) -> bool {
    let entries = refresh::entries(api, crd::TABLE);
    let mut waiting = false;
    for entry in &entries {
        let Some(document) = Document::read(&entry.item) else { continue };
        if document.metadata.deletion_timestamp.is_some() {
            waiting |= !finish_deletion(api, entry, &document).await;
        } else if !document.is("NamesAccepted") {
            check_again(api, entry, &entries).await;
        }
    }
    waiting
}

/// Deletes the instances, and then releases the definition. Whether it is done.
async fn finish_deletion(api: &Api, entry: &ObjectEntry, document: &Document) -> bool {
    let definition = entry.item.to_value();
    if !object::finalizers(&definition).contains(&crd::CLEANUP) {
        return true;
    }
    let names = &document.status.accepted_names;
    let table = format!("{}/{}", document.spec.group, names.plural);
    let instances = refresh::entries(api, &table);
    let version = document.spec.versions.iter().find(|version| version.served);
    if let (false, Some(version)) = (instances.is_empty(), version) {
        for instance in &instances {
            let (namespace, name) = instance.name.split_once('/').unwrap_or(("", &instance.name));
            let place = if namespace.is_empty() {
                String::new()
            } else {
                format!("/namespaces/{namespace}")
            };
            let path = format!(
                "/apis/{}/{}{place}/{}/{name}",
                document.spec.group, version.name, names.plural
            );
            call(api, Method::DELETE, &path, None).await;
        }
        if !refresh::entries(api, &table).is_empty() {
            return false;
        }
    }
    let left: Vec<&str> = object::finalizers(&definition)
        .into_iter()
        .filter(|finalizer| *finalizer != crd::CLEANUP)
        .collect();
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion",
         "value": object::meta(&definition, "resourceVersion")},
        {"op": "replace", "path": "/metadata/finalizers", "value": left},
    ]);
    patch_definition(api, &entry.name, &patch).await
}

async fn patch_definition(api: &Api, name: &str, patch: &Value) -> bool {
    let (code, body) =
        crate::setup::bootstrap::json_patch(api, &format!("{BASE}/{name}"), patch).await;
    if !code.is_success() && code != StatusCode::NOT_FOUND {
        warn!(name, %code, message = %body["message"], "cannot finish deleting a definition");
    }
    code.is_success() || code == StatusCode::NOT_FOUND
}

/// A definition whose names were taken: perhaps they are free now.
async fn check_again(api: &Api, entry: &ObjectEntry, all: &[ObjectEntry]) {
    let definition = entry.item.to_value();
    let taken = Accepted::by_others(&definition, all);
    let now = base::clock::now_rfc3339();
    if crd::conditions(&definition, &taken, &now) != definition["status"] {
        // Any update judges the names; an empty one is enough once something has changed.
        let path = format!("{BASE}/{}", entry.name);
        call(api, Method::PUT, &path, Some(&definition)).await;
    }
}
