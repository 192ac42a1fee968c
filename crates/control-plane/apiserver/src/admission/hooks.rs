//! The webhooks and policies that review writes. Their configurations are read by the first write
//! after they have changed, and not before.
//!
//! A write on a server without any costs two loads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use store::Revision;

use super::policy::{AdmissionPolicy, Binding, Mutations, ValidationRules};
use super::webhook::Webhook;
use crate::api::Api;
use crate::schemas::refresh;
use crate::verbs::object;

/// Where the configurations are stored.
pub(crate) const TABLES: [&str; 6] = [
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    MUTATING_POLICIES,
    MUTATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_BINDINGS,
];

const MUTATING_WEBHOOKS: &str = "mutatingwebhookconfigurations";
const VALIDATING_WEBHOOKS: &str = "validatingwebhookconfigurations";
const MUTATING_POLICIES: &str = "mutatingadmissionpolicies";
const MUTATING_BINDINGS: &str = "mutatingadmissionpolicybindings";
const VALIDATING_POLICIES: &str = "validatingadmissionpolicies";
const VALIDATING_BINDINGS: &str = "validatingadmissionpolicybindings";

#[derive(Debug)]
pub(crate) struct Hooks {
    current: ArcSwap<WebhookSnapshot>,
    /// Counts changes of configurations.
    changes: AtomicU64,
    /// The count that `current` was built at; moves only after it is in place.
    built: AtomicU64,
    building: Mutex<()>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            current: ArcSwap::default(),
            // The empty snapshot is out of date from the start.
            changes: AtomicU64::new(1),
            built: AtomicU64::new(0),
            building: Mutex::new(()),
        }
    }
}

/// All of them, in the order in which they are asked.
#[derive(Debug, Default)]
pub(crate) struct WebhookSnapshot {
    pub(super) mutating: Vec<Arc<Read<Vec<Webhook>>>>,
    pub(super) validating: Vec<Arc<Read<Vec<Webhook>>>>,
    pub(super) mutating_policies: Vec<Arc<Read<AdmissionPolicy<Mutations>>>>,
    pub(super) mutating_bindings: Vec<Arc<Read<Binding>>>,
    pub(super) validating_policies: Vec<Arc<Read<AdmissionPolicy<ValidationRules>>>>,
    pub(super) validating_bindings: Vec<Arc<Read<Binding>>>,
}

/// The parsed form of one version of one object.
#[derive(Debug)]
pub(super) struct Read<T> {
    revision: Revision,
    pub(super) name: String,
    pub(super) what: T,
}

impl WebhookSnapshot {
    /// No webhook or policy changes objects.
    pub(super) fn changes_nothing(&self) -> bool {
        self.mutating.is_empty() && self.mutating_bindings.is_empty()
    }

    /// There are no webhooks or policies.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes_nothing() && self.validating.is_empty() && self.validating_bindings.is_empty()
    }
}

/// Called when a configuration may have changed; costs nothing until the next write.
pub(crate) fn changed(api: &Api) {
    api.hooks.changes.fetch_add(1, Ordering::AcqRel);
}

/// All that were configured before this call.
pub(crate) fn current(api: &Api) -> Arc<WebhookSnapshot> {
    let hooks = &api.hooks;
    let wanted = hooks.changes.load(Ordering::Acquire);
    if hooks.built.load(Ordering::Acquire) < wanted {
        let _one_at_a_time = hooks.building.lock();
        if hooks.built.load(Ordering::Acquire) < wanted {
            let now = hooks.changes.load(Ordering::Acquire);
            let before = hooks.current.load();
            hooks.current.store(Arc::new(snapshot(api, &before)));
            hooks.built.store(now, Ordering::Release);
        }
    }
    hooks.current.load_full()
}

fn snapshot(api: &Api, before: &WebhookSnapshot) -> WebhookSnapshot {
    WebhookSnapshot {
        mutating: read(api, MUTATING_WEBHOOKS, &before.mutating, Webhook::list),
        validating: read(api, VALIDATING_WEBHOOKS, &before.validating, Webhook::list),
        mutating_policies: read(
            api,
            MUTATING_POLICIES,
            &before.mutating_policies,
            AdmissionPolicy::mutating,
        ),
        mutating_bindings: read(api, MUTATING_BINDINGS, &before.mutating_bindings, Binding::of),
        validating_policies: read(
            api,
            VALIDATING_POLICIES,
            &before.validating_policies,
            AdmissionPolicy::validating,
        ),
        validating_bindings: read(
            api,
            VALIDATING_BINDINGS,
            &before.validating_bindings,
            Binding::of,
        ),
    }
}

/// Reads a table, by name; unchanged objects are taken over, with their compiled expressions.
fn read<T>(
    api: &Api,
    table: &str,
    before: &[Arc<Read<T>>],
    make: impl Fn(&Value) -> T,
) -> Vec<Arc<Read<T>>> {
    let entries = refresh::entries(api, table);
    let items = entries.iter().map(|entry| {
        let known = before
            .iter()
            .find(|known| known.revision == entry.revision && known.name == *entry.name);
        known.cloned().unwrap_or_else(|| {
            let object = entry.item.to_value();
            Arc::new(Read {
                revision: entry.revision,
                name: object::name(&object).to_owned(),
                what: make(&object),
            })
        })
    });
    items.collect()
}
