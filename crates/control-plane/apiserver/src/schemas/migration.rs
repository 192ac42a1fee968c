//! StorageVersionMigrations: writes every object of a resource again, as it would be stored
//! now. That is how objects written before a key was added become encrypted while the server
//! runs.

use std::sync::Arc;
use std::time::Duration;

use base::{Tasks, clock};
use http::Method;
use serde_json::{Value, json};
use store::{Expect, Write, WriteChange, WriteError};
use tracing::{info, warn};

use crate::api::Api;
use crate::schemas::refresh;
use crate::setup::bootstrap::call;
use crate::verbs::item;
use crate::verbs::object;

const TABLE: &str = "storageversionmigrations";
const PATH: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
/// After a failure of the store, retry.
const AGAIN: Duration = Duration::from_secs(30);

pub(crate) fn start(api: &Api, tasks: &Tasks) {
    let (api, mut stop) = (api.clone(), tasks.stop_signal());
    tasks.spawn("storage migration", async move {
        loop {
            let from = api.store.revision();
            for entry in refresh::entries(&api, TABLE) {
                migrate(&api, &entry.item.to_value()).await;
            }
            let Ok(mut watcher) = api.store.watch(TABLE, from) else { continue };
            tokio::select! {
                () = stop.requested() => return,
                events = watcher.next(64) => if matches!(events, Err(store::WatchError::Closed)) {
                    return;
                },
                () = tokio::time::sleep(AGAIN), if unfinished(&api) => {}
            }
        }
    });
}

fn unfinished(api: &Api) -> bool {
    refresh::entries(api, TABLE).iter().any(|entry| !is_over(&entry.item.to_value()))
}

fn is_over(migration: &Value) -> bool {
    let conditions = migration["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| {
        condition["status"] == "True"
            && matches!(condition["type"].as_str(), Some("Succeeded" | "Failed"))
    })
}

async fn migrate(api: &Api, migration: &Value) {
    if is_over(migration) {
        return;
    }
    let resource = &migration["spec"]["resource"];
    let text = |field: &str| resource[field].as_str().unwrap_or("").to_owned();
    let (group, plural) = (text("group"), text("resource"));
    let table = {
        let catalog = api.catalog.load();
        let served = catalog.all().iter();
        let mut served =
            served.filter(|served| *served.group == *group && *served.plural == *plural);
        served.next().map(|served| served.table.clone())
    };
    let Some(table) = table else {
        let message = format!("resource {plural} of group {group:?} does not exist");
        return write_status(api, migration, "Failed", "ResourceNotFound", &message).await;
    };
    write_status(api, migration, "Running", "StorageVersionMigrationInProgress", "").await;
    let mut count = 0;
    for entry in refresh::entries(api, &table) {
        let value = item::encode(&entry.item.to_value());
        let write = Write {
            table: Arc::from(&*table),
            name: entry.name.clone(),
            expect: Expect::At(entry.revision),
            change: WriteChange::Put(value.into()),
        };
        match api.store.write(write).await {
            // After a conflict, the other writer has stored the object in the current version.
            Ok(_) | Err(WriteError::Conflict { .. }) => count += 1,
            Err(error) => {
                warn!(error = %base::Chain(&error), "cannot migrate, will try again");
                return;
            }
        }
    }
    info!(group, resource = plural, count, "all objects were rewritten");
    write_status(api, migration, "Succeeded", "StorageVersionMigrationSucceeded", "").await;
}

/// Says how far it is. A condition that was true before is not any more.
async fn write_status(api: &Api, migration: &Value, kind: &str, reason: &str, message: &str) {
    let path = format!("{PATH}/{}", object::name(migration));
    let (code, mut live) = call(api, Method::GET, &path, None).await;
    if !code.is_success() {
        return;
    }
    let now = clock::now_rfc3339();
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now})
    };
    let mut conditions = vec![condition(kind, "True")];
    if kind != "Running" {
        conditions.insert(0, condition("Running", "False"));
    }
    live["status"] = json!({
        "conditions": conditions, "resourceVersion": api.store.revision().to_string(),
    });
    let (code, answer) = call(api, Method::PUT, &format!("{path}/status"), Some(&live)).await;
    if !code.is_success() {
        warn!(%code, message = %answer["message"], "cannot query migration progress");
    }
}
