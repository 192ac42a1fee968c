//! Migrations of running instances: their turn, their target and their phases.
//!
//! `status.migrationState` of the instance reports the progress on the nodes. An instance that was
//! marked by an eviction gets a migration of its own here.

mod annotations;
mod plan;
mod policy;

use std::collections::BTreeSet;
use std::time::Duration;

use base::clock;
use kube::Client;
use serde_json::{Value, json};
use virt::v1::{MigrationConfiguration, VirtualMachineInstanceMigration};

use self::annotations::MigrationAnnotations;
use self::plan::{MigrationInput, MigrationPhase, MigrationStep, ParallelLimits};
use self::policy::EffectiveConfiguration;
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{KUBEVIRTS, NAMESPACES, Objects, PODS, Resource, VMIS};
use crate::vmi::{TargetFinder, pod_name, pod_name_after};

const MIGRATIONS: Resource = Resource::new("kubevirt.io", "v1", "virtualmachineinstancemigrations");
const POLICIES: Resource = Resource::new("migrations.kubevirt.io", "v1alpha1", "migrationpolicies");
const SOURCE: &str = "migration-controller";
/// How often a migration checks whether its turn has come, or a target.
const QUEUE_INTERVAL: Duration = Duration::from_secs(2);
/// Finished migrations that are kept of each instance.
const KEPT: usize = 5;

/// The object to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MigrationKey {
    Migration(ObjectKey),
    /// An instance, which may have to leave its node.
    Instance(ObjectKey),
}

/// Migrations, and the instances that they are seen to wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Migrations(pub(crate) Dependents);

impl EventMapper for Migrations {
    type Key = MigrationKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<MigrationKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey::new(namespace, name);
        if MIGRATIONS.is(kind) {
            if *state == ObjectState::Gone {
                self.0.forget(&key);
                return Vec::new();
            }
            return vec![MigrationKey::Migration(key)];
        }
        if VMIS.is(kind) {
            let waiting = self.0.of(&key).into_iter().map(MigrationKey::Migration);
            return waiting.chain([MigrationKey::Instance(key)]).collect();
        }
        Vec::new()
    }
}

pub(crate) struct MigrationReconciler {
    objects: Objects,
    waiting: Dependents,
    targets: TargetFinder,
}

impl Reconciler for MigrationReconciler {
    type Key = MigrationKey;

    async fn reconcile(&self, key: &MigrationKey) -> Result<ReconcileResult, ReconcileError> {
        match key {
            MigrationKey::Migration(key) => self.migration(key).await,
            MigrationKey::Instance(key) => self.evacuate(key).await,
        }
    }
}

impl MigrationReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        let targets = TargetFinder::new(client.clone());
        Self { objects: Objects(client), waiting, targets }
    }

    async fn migration(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(MIGRATIONS, &key.namespace, &key.name).await;
        let Some(object) = found.doing("get the migration")? else {
            self.waiting.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let migration: VirtualMachineInstanceMigration =
            serde_json::from_value(object.clone()).unwrap_or_default();
        let name = migration.spec.vmi_name.clone().unwrap_or_default();
        let instance = ObjectKey::new(&key.namespace, &name);
        self.waiting.set(key, BTreeSet::from([instance]));
        let vmi = self.objects.get(VMIS, &key.namespace, &name).await.doing("get the instance")?;
        let phase = MigrationPhase::of(&migration);
        let annotations = MigrationAnnotations {
            uid: object::uid(&object),
            phase,
            is_deleting: object::is_deleting(&object),
            target: plan::chosen_target(&migration),
        };
        if let Some(vmi) = &vmi
            && let Some(patch) = annotations.patch(vmi)
        {
            // The change of the instance brings the migration back here.
            self.write_vmi(vmi, &patch).await?;
            return Ok(ReconcileResult::Done);
        }
        let under_way = match phase {
            MigrationPhase::Pending => self.under_way(object::uid(&object)).await?,
            _ => Vec::new(),
        };
        let config = self.configuration().await?;
        let seen = MigrationInput {
            migration: &migration,
            uid: object::uid(&object),
            is_deleting: object::is_deleting(&object),
            vmi: vmi.as_ref(),
            under_way: &under_way,
            limits: ParallelLimits::of(&config),
        };
        let step = plan::next(&seen);
        self.act(&object, &migration, vmi.as_ref(), step).await
    }

    async fn act(
        &self,
        object: &Value,
        migration: &VirtualMachineInstanceMigration,
        vmi: Option<&Value>,
        step: MigrationStep,
    ) -> Result<ReconcileResult, ReconcileError> {
        match (step, vmi) {
            (MigrationStep::Queue, _) => Ok(ReconcileResult::Again(QUEUE_INTERVAL)),
            (MigrationStep::FindTarget, Some(vmi)) => {
                self.find_target(object, migration, vmi).await
            }
            (MigrationStep::Announce, Some(vmi)) => self.announce(object, migration, vmi).await,
            (MigrationStep::RequestAbort, Some(vmi)) => {
                let patch = plan::abort(vmi);
                self.write_vmi(vmi, &patch).await?;
                Ok(ReconcileResult::Done)
            }
            (MigrationStep::Enter(phase), _) => self.enter(object, phase, None).await,
            (MigrationStep::Fail { message }, _) => {
                self.record_event(object, EventType::Warning, "FailedMigration", &message).await;
                let state = vmi.and_then(|vmi| own_state(object, vmi));
                self.enter(object, MigrationPhase::Failed, state).await
            }
            (MigrationStep::Succeed, Some(vmi)) => self.succeed(object, vmi).await,
            (MigrationStep::Release, _) => {
                let mut meta = object::version(object);
                let rest = object::finalizers_without(object, &[plan::FINALIZER]);
                meta.insert("finalizers".into(), json!(rest));
                let (namespace, name) = (object::namespace(object), object::name(object));
                let patch = json!({"metadata": meta});
                let written = self.objects.merge(MIGRATIONS, namespace, name, &patch).await;
                written.doing("release the migration")?;
                Ok(ReconcileResult::Done)
            }
            _ => Ok(ReconcileResult::Done),
        }
    }

    async fn find_target(
        &self,
        object: &Value,
        migration: &VirtualMachineInstanceMigration,
        vmi: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let added = &migration.spec.added_node_selector;
        match self.targets.find(vmi, added).await? {
            Ok(target) => {
                let state = json!({"migrationUid": object::uid(object), "targetNode": target,
                    "sourceNode": text(vmi, "/status/nodeName")});
                self.enter(object, MigrationPhase::Scheduling, Some(state)).await
            }
            Err(reason) if plan::is_unschedulable(object, clock::now()) => {
                let message = format!("Migration failed because no target was found: {reason}");
                self.record_event(object, EventType::Warning, "FailedMigration", &message).await;
                self.enter(object, MigrationPhase::Failed, None).await
            }
            Err(reason) => {
                let reason = reason.to_string();
                self.record_event(object, EventType::Warning, "FailedScheduling", &reason).await;
                Ok(ReconcileResult::Again(QUEUE_INTERVAL * 5))
            }
        }
    }

    /// Announces the target to the instance's node.
    async fn announce(
        &self,
        object: &Value,
        migration: &VirtualMachineInstanceMigration,
        vmi: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let Some(target) = plan::chosen_target(migration) else {
            return self.enter(object, MigrationPhase::Pending, None).await;
        };
        let uid = object::uid(object);
        let config = self.configuration_of(vmi).await?;
        let (source_pod, target_pod) = (pod_name(vmi), pod_name_after(vmi, uid));
        let patch = plan::announced(vmi, uid, target, (&source_pod, &target_pod), &config);
        self.write_vmi(vmi, &patch).await?;
        self.enter(object, MigrationPhase::PreparingTarget, None).await
    }

    async fn succeed(
        &self,
        object: &Value,
        vmi: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let namespace = object::namespace(object);
        let source_pod = text(vmi, "/status/migrationState/sourcePod").to_owned();
        if source_pod != pod_name(vmi) {
            let pod = self.objects.get(PODS, namespace, &source_pod).await.doing("get a pod")?;
            if let Some(pod) = pod {
                let removed =
                    self.objects.remove(PODS, namespace, &source_pod, object::uid(&pod)).await;
                removed.doing("remove the pod of the source")?;
            }
        }
        if !text(vmi, "/status/evacuationNodeName").is_empty() {
            let patch = json!({"metadata": object::version(vmi),
                "status": {"evacuationNodeName": null}});
            self.write_vmi(vmi, &patch).await?;
        }
        let state = own_state(object, vmi);
        let result = self.enter(object, MigrationPhase::Succeeded, state).await?;
        self.remove_old(namespace, object::name(vmi)).await?;
        Ok(result)
    }

    /// Removes finished migrations of an instance but the last ones.
    async fn remove_old(&self, namespace: &str, vmi: &str) -> Result<(), ReconcileError> {
        let label = format!("{}={vmi}", plan::VMI_LABEL);
        let all = self.objects.list(MIGRATIONS, namespace, &label).await;
        let mut over: Vec<Value> = all
            .doing("list migrations")?
            .into_iter()
            .filter(|own| matches!(text(own, "/status/phase"), "Succeeded" | "Failed"))
            .collect();
        over.sort_by_key(|own| text(own, "/metadata/creationTimestamp").to_owned());
        let surplus = over.len().saturating_sub(KEPT);
        for old in over.iter().take(surplus) {
            let (name, uid) = (object::name(old), object::uid(old));
            let deleted = self.objects.delete(MIGRATIONS, namespace, name, uid).await;
            deleted.doing("delete an old migration")?;
        }
        Ok(())
    }

    async fn enter(
        &self,
        object: &Value,
        phase: MigrationPhase,
        state: Option<Value>,
    ) -> Result<ReconcileResult, ReconcileError> {
        let patch = plan::entered(object, phase, state.as_ref(), clock::now());
        let (namespace, name) = (object::namespace(object), object::name(object));
        let written = self.objects.merge_status(MIGRATIONS, namespace, name, &patch).await;
        written.doing("write the status of a migration")?;
        if let Some((kind, reason, message)) = plan::event(phase) {
            self.record_event(object, kind, reason, message).await;
        }
        Ok(ReconcileResult::Done)
    }

    /// The nodes that other migrations leave which are under way.
    async fn under_way(&self, own: &str) -> Result<Vec<String>, ReconcileError> {
        let all = self.objects.list(MIGRATIONS, "", "").await.doing("list migrations")?;
        let others = all.iter().filter(|other| object::uid(other) != own);
        let source = |other: &Value| {
            let typed: VirtualMachineInstanceMigration =
                serde_json::from_value(other.clone()).unwrap_or_default();
            let source = text(other, "/status/migrationState/sourceNode").to_owned();
            MigrationPhase::of(&typed).is_under_way().then_some(source)
        };
        Ok(others.filter_map(source).collect())
    }

    async fn configuration(&self) -> Result<MigrationConfiguration, ReconcileError> {
        let all = self.objects.list(KUBEVIRTS, "", "").await.doing("get the configuration")?;
        let config = all.first().map(|own| &own["spec"]["configuration"]["migrations"]);
        Ok(config.map(object::read).unwrap_or_default())
    }

    /// The configuration of the cluster, and of the policy that is for this instance.
    async fn configuration_of(
        &self,
        vmi: &Value,
    ) -> Result<EffectiveConfiguration, ReconcileError> {
        let cluster = self.configuration().await?;
        let policies = self.objects.list(POLICIES, "", "").await.doing("list policies")?;
        if policies.is_empty() {
            return Ok(EffectiveConfiguration { values: cluster, policy: None });
        }
        let namespace = self.objects.get(NAMESPACES, "", object::namespace(vmi)).await;
        let namespace = namespace.doing("get the namespace")?.unwrap_or_default();
        Ok(policy::effective(cluster, &policies, &namespace, vmi))
    }

    /// An instance that has to leave its node gets a migration.
    async fn evacuate(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let vmi = self.objects.get(VMIS, &key.namespace, &key.name).await;
        let Some(vmi) = vmi.doing("get the instance")? else { return Ok(ReconcileResult::Done) };
        if text(&vmi, "/status/evacuationNodeName").is_empty() {
            return Ok(ReconcileResult::Done);
        }
        let label = format!("{}={}", plan::VMI_LABEL, key.name);
        let all = self.objects.list(MIGRATIONS, &key.namespace, &label).await;
        let all = all.doing("list migrations")?;
        let is_over = |own: &&Value| matches!(text(own, "/status/phase"), "Succeeded" | "Failed");
        let active = all.iter().filter(|own| !is_over(own)).count();
        let Some(made) = plan::evacuation(&vmi, active) else { return Ok(ReconcileResult::Done) };
        if let Some(left) = plan::evacuation_delay(&all, clock::now()) {
            return Ok(ReconcileResult::Again(left));
        }
        let created = self.objects.create(MIGRATIONS, &key.namespace, &made).await;
        created.doing("create the migration of an evacuation")?;
        Ok(ReconcileResult::Done)
    }

    async fn write_vmi(&self, vmi: &Value, patch: &Value) -> Result<Value, ReconcileError> {
        let (namespace, name) = (object::namespace(vmi), object::name(vmi));
        self.objects.merge(VMIS, namespace, name, patch).await.doing("write the instance")
    }

    async fn record_event(&self, object: &Value, kind: EventType, reason: &str, message: &str) {
        let regarding = Regarding {
            api_version: "kubevirt.io/v1",
            kind: "VirtualMachineInstanceMigration",
            namespace: object::namespace(object),
            name: object::name(object),
            uid: object::uid(object),
        };
        event::record(&self.objects.0, SOURCE, &regarding, kind, reason, message.to_owned()).await;
    }
}

/// The instance's state of this migration and no other.
fn own_state(migration: &Value, vmi: &Value) -> Option<Value> {
    let state = &vmi["status"]["migrationState"];
    (state["migrationUid"] == object::uid(migration)).then(|| state.clone())
}
