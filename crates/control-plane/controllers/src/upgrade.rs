//! Upgrades of the program: asks nodes for it by annotations, one after the other, and reports how
//! far that is in the status of the Upgrade. `plan` decides.
//!
//! Only the newest Upgrade of the namespace of the system is carried out.

mod plan;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::clock;
use hci::harvester::operation::{Upgrade, Version};
use hci::longhorn::NAMESPACE as LONGHORN_NAMESPACE;
use hci::upgrade::{FINALIZED, LATEST_LABEL, LEVEL, REQUEST, STATE_LABEL, lacks_copies};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use tracing::info;

use self::plan::{NodeView, UpgradeFacts, UpgradePlan, plan};
use crate::condition;
use crate::key::ObjectKey;
use crate::longhorn::LONGHORN_VOLUMES;
use crate::object::{self, is_merged};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::condition::condition;
use crate::record::fields;
use crate::record::metadata::metadata;
use crate::resource::{NODES, Objects, Resource};

const UPGRADES: Resource = Resource::new("harvesterhci.io", "v1beta1", "upgrades");
const VERSIONS: Resource = Resource::new("harvesterhci.io", "v1beta1", "versions");
const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps");
const NAMESPACE: &str = "harvester-system";
/// ConfigMap with the level of the cluster's data.
const LEVEL_NAME: &str = "sheaf-cluster-level";
/// A completed upgrade is final after this long without an abort.
const FINALIZE_DELAY: SignedDuration = SignedDuration::from_hours(24);
/// Nodes report by themselves; this is for those that cannot.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Upgrades, and the one that is under way when a node or a volume changes. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpgradeMapper(Arc<Mutex<Option<ObjectKey>>>);

impl UpgradeMapper {
    fn set(&self, active: Option<ObjectKey>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = active;
    }
}

impl EventMapper for UpgradeMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        if UPGRADES.is(kind) && &**namespace == NAMESPACE && *state == ObjectState::Live {
            return vec![ObjectKey::new(namespace, name)];
        }
        if NODES.is(kind) || LONGHORN_VOLUMES.is(kind) {
            let active = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            return active.iter().cloned().collect();
        }
        Vec::new()
    }
}

pub(crate) struct UpgradeReconciler {
    objects: Objects,
    active: UpgradeMapper,
}

impl UpgradeReconciler {
    pub(crate) fn new(client: Client, active: UpgradeMapper) -> Self {
        Self { objects: Objects(client), active }
    }

    async fn level(&self) -> Result<u32, ReconcileError> {
        let found = self.objects.get(CONFIG_MAPS, NAMESPACE, LEVEL_NAME).await;
        let found = found.doing("get the level of the cluster")?.unwrap_or_default();
        Ok(object::read::<LevelFields<'_>>(&found).data.level.parse().unwrap_or(LEVEL))
    }

    async fn write(&self, upgrade: &Value, plan: &UpgradePlan) -> Result<(), ReconcileError> {
        for (node, request) in &plan.requests {
            let text = request.as_ref().map(|request| json!(request).to_string());
            let patch = json!({"metadata": {"annotations": {REQUEST: text}}});
            info!(node, request = text.as_deref().unwrap_or("none"), "upgrade: node asked");
            self.objects.merge(NODES, "", node, &patch).await.doing("write the node")?;
        }
        let patch = patch_of(upgrade, plan, clock::now());
        if !is_merged(upgrade, &patch) {
            let name = object::name(upgrade);
            let written = self.objects.merge(UPGRADES, NAMESPACE, name, &patch).await;
            written.doing("write the upgrade")?;
        }
        Ok(())
    }

    async fn finalize(&self, upgrade: &Value, level: u32) -> Result<(), ReconcileError> {
        let data = json!({"metadata": {"name": LEVEL_NAME}, "data": {"level": level.to_string()}});
        let found = self.objects.get(CONFIG_MAPS, NAMESPACE, LEVEL_NAME).await;
        match found.doing("get the level of the cluster")? {
            Some(_) => self.objects.merge(CONFIG_MAPS, NAMESPACE, LEVEL_NAME, &data).await,
            None => self.objects.create(CONFIG_MAPS, NAMESPACE, &data).await,
        }
        .doing("write the level of the cluster")?;
        let patch = json!({"metadata": {"annotations": {FINALIZED: clock::now_rfc3339()}}});
        let name = object::name(upgrade);
        let written = self.objects.merge(UPGRADES, NAMESPACE, name, &patch).await;
        written.doing("write the upgrade")?;
        info!(upgrade = name, level, "upgrade is final");
        Ok(())
    }
}

impl Reconciler for UpgradeReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let all = self.objects.list(UPGRADES, NAMESPACE, "").await.doing("list upgrades")?;
        let age = |upgrade: &&Value| {
            let created = metadata(upgrade).creation_timestamp.to_owned();
            (created, object::name(upgrade).to_owned())
        };
        let newest = all.iter().max_by_key(age);
        let newest = newest.filter(|upgrade| object::name(upgrade) == &*key.name);
        let Some(raw) = newest.filter(|upgrade| !object::is_deleting(upgrade)) else {
            return Ok(ReconcileResult::Done);
        };
        let upgrade: Upgrade = serde_json::from_value(raw.clone()).unwrap_or_default();
        let wanted = upgrade.spec.as_ref().and_then(|spec| spec.version.clone());
        let version = self.objects.get(VERSIONS, NAMESPACE, &wanted.unwrap_or_default()).await;
        let version = version.doing("get the version")?;
        let version: Option<Version> = version.and_then(|it| serde_json::from_value(it).ok());
        let nodes = self.objects.list(NODES, "", "").await.doing("list nodes")?;
        let nodes: Vec<NodeView> = nodes.iter().map(NodeView::of).collect();
        let volumes = self.objects.list(LONGHORN_VOLUMES, LONGHORN_NAMESPACE, "").await;
        let degraded = degraded(&volumes.doing("list volumes")?);
        let facts = UpgradeFacts {
            upgrade: &upgrade,
            version: version.as_ref(),
            nodes: &nodes,
            degraded: &degraded,
            cluster_level: self.level().await?,
        };
        let Some(mut plan) = plan(&facts) else {
            self.active.set(None);
            return Ok(ReconcileResult::Done);
        };
        self.active.set(Some(key.clone()));
        self.write(raw, &plan).await?;
        let due = finalized_in(raw, clock::now());
        if due.is_some_and(|left| left.is_zero()) {
            plan.finalize.get_or_insert(facts.final_level());
        }
        if let Some(level) = plan.finalize {
            self.finalize(raw, level).await?;
        }
        Ok(ReconcileResult::Again(due.filter(|left| !left.is_zero()).unwrap_or(CHECK_INTERVAL)))
    }
}

fields! {
    /// The ConfigMap with the level of the cluster.
    struct LevelFields<'a> {
        data: LevelData<'a>,
    }

    struct LevelData<'a> {
        level: &'a str,
    }
}

/// How long until a completed upgrade is final; nothing for others.
fn finalized_in(upgrade: &Value, now: Timestamp) -> Option<Duration> {
    let completed = condition(upgrade, "Completed")?;
    let is_open = completed.status == "True" && object::annotation(upgrade, FINALIZED).is_none();
    let since: Timestamp = completed.last_transition_time.parse().ok()?;
    let left = FINALIZE_DELAY.saturating_sub(now.duration_since(since));
    is_open.then(|| Duration::try_from(left).unwrap_or_default())
}

fn degraded(volumes: &[Value]) -> Vec<String> {
    let degraded = volumes.iter().filter(|volume| lacks_copies(volume));
    degraded.map(|volume| object::name(volume).to_owned()).collect()
}

/// The patch of the Upgrade's status.
fn patch_of(upgrade: &Value, plan: &UpgradePlan, now: Timestamp) -> Value {
    let mut conditions = condition::of(upgrade);
    for wanted in &plan.conditions {
        condition::set(&mut conditions, wanted, now);
    }
    let nodes = plan.nodes.iter().map(|(node, (state, message))| {
        (node.clone(), json!({"state": state, "message": message}))
    });
    let nodes: serde_json::Map<String, Value> = nodes.collect();
    json!({
        "metadata": {"labels": {STATE_LABEL: plan.state, LATEST_LABEL: "true"}},
        "status": {"conditions": conditions, "nodeStatuses": nodes},
    })
}
