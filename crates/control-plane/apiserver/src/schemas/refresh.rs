//! The catalog follows the definitions in the store: it is rebuilt when those change, by any
//! writer.

use std::sync::Arc;

use base::Tasks;
use store::Range;

use crate::access::rights;
use crate::admission::hooks;
use crate::aggregation;
use crate::api::{Api, ObjectEntry};
use crate::fairness;
use crate::schemas::catalog::Catalog;
use crate::schemas::crd::{self, Document};
use crate::schemas::custom::Custom;
use crate::schemas::served::{KindOrigin, ServedKind, Subresource};

pub(crate) fn entries(api: &Api, table: &str) -> Vec<ObjectEntry> {
    api.store.list(table, Range::default()).map(|page| page.entries).unwrap_or_default()
}

/// Rebuilds the catalog, keeping what did not change.
pub(crate) fn catalog(api: &Api) {
    let _one_at_a_time = api.catalog_update.lock();
    let before = api.catalog.load();
    let mut all: Vec<Arc<ServedKind>> =
        before.all().iter().filter(|served| !served.is_custom()).cloned().collect();
    let built_in = all.len();
    for entry in entries(api, crd::TABLE) {
        let known: Vec<Arc<ServedKind>> = before
            .all()
            .iter()
            .filter(|served| {
                served.custom().is_some_and(|custom| custom.definition.revision == entry.revision)
            })
            .cloned()
            .collect();
        if known.is_empty() {
            all.extend(custom_kinds(&entry).into_iter().map(Arc::new));
        } else {
            all.extend(known);
        }
    }
    let same = all.len() == before.all().len()
        && all.iter().zip(before.all()).all(|(new, old)| Arc::ptr_eq(new, old));
    if !same {
        all[built_in..].sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
        api.catalog.store(Arc::new(Catalog::new(all, before.generation + 1)));
        api.catalog_changed.notify_one();
    }
}

/// The kinds that a definition brings, once its names are accepted.
fn custom_kinds(entry: &ObjectEntry) -> Vec<ServedKind> {
    let Some(document) = Document::read(&entry.item) else { return Vec::new() };
    if !document.is("Established") {
        return Vec::new();
    }
    let names = &document.status.accepted_names;
    let mut kinds = Vec::new();
    for version in document.spec.versions.iter().filter(|version| version.served) {
        let mut subresources = Vec::new();
        let verbs: &'static [&'static str] = &["get", "patch", "update"];
        if version.subresources.status.is_some() {
            subresources.push(Subresource { name: "status", kind: None, verbs });
        }
        if version.subresources.scale.is_some() {
            let kind = Some(("autoscaling", "v1", "Scale"));
            subresources.push(Subresource { name: "scale", kind, verbs });
        }
        let boxed = |names: &[String]| names.iter().map(|name| Box::from(&**name)).collect();
        kinds.push(ServedKind {
            group: document.spec.group.as_str().into(),
            version: version.name.as_str().into(),
            plural: names.plural.as_str().into(),
            singular: names.singular.as_str().into(),
            kind: names.kind.as_str().into(),
            list_kind: names.list_kind.as_str().into(),
            short_names: boxed(&names.short_names),
            categories: boxed(&names.categories),
            namespaced: document.spec.scope == "Namespaced",
            verbs: CUSTOM_VERBS,
            table: format!("{}/{}", document.spec.group, names.plural).into(),
            subresources: subresources.into(),
            origin: KindOrigin::Custom(Box::new(Custom::new(
                entry.clone(),
                &document,
                version.clone(),
            ))),
        });
    }
    kinds
}

/// The order in which upstream lists them for custom resources.
const CUSTOM_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Follows the tables, for changes that other servers make.
pub(crate) fn follow(api: &Api, tasks: &Tasks) {
    for table in rights::TABLES {
        follow_table(api, tasks, table, rights::changed);
    }
    for table in fairness::TABLES {
        follow_table(api, tasks, table, fairness::refresh);
    }
    for table in hooks::TABLES {
        follow_table(api, tasks, table, hooks::changed);
    }
    follow_table(api, tasks, aggregation::TABLE, aggregation::changed);
    follow_table(api, tasks, crd::TABLE, catalog);
}

fn follow_table(api: &Api, tasks: &Tasks, table: &'static str, rebuild: fn(&Api)) {
    let api = api.clone();
    let mut stop = tasks.stop_signal();
    tasks.spawn("refresh", async move {
        loop {
            let from = api.store.revision();
            rebuild(&api);
            let Ok(mut watcher) = api.store.watch(table, from) else { continue };
            loop {
                tokio::select! {
                    () = stop.requested() => return,
                    events = watcher.next(1024) => match events {
                        Ok(_) => rebuild(&api),
                        Err(store::WatchError::Lagged { .. }) => break,
                        Err(store::WatchError::Closed) => return,
                    },
                }
            }
        }
    });
}
