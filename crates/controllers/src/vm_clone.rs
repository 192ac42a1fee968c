//! Clones of machines: a snapshot of the source, restored under another name and identity.
//!
//! ```text
//!  SnapshotInProgress ─► RestoreInProgress ─► CreatingTargetVM ─► Succeeded
//!          └──────────────────────┴──────────────────┴──► Failed
//! ```
//!
//! What was made on the way goes in the end. A clone whose machine is deleted goes as well.

mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use kube::Client;
use serde_json::Value;
use tracing::info;

use crate::condition;
use crate::event::{self, About, Tone};
use crate::key::{Dependents, Key};
use crate::object::{self, is_deleting, is_merged, is_true, text};
use crate::reconcile::{Doing, Failure, Interest, Next, Reconciler, State, Touch};
use crate::resource::{Objects, Resource, VM_CONTENTS, VM_RESTORES, VM_SNAPSHOTS, VMS, is_refused};

const CLONES: Resource = Resource::new("clone.kubevirt.io", "v1beta1", "virtualmachineclones");
const SOURCE: &str = "clone-controller";
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Clones, and the machines, snapshots and restores that they wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked(pub(crate) Dependents);

impl Interest for Asked {
    type Key = Key;

    fn keys(&mut self, touch: &Touch) -> Vec<Key> {
        let Touch::Object { kind, namespace, name, state } = touch else { return Vec::new() };
        let key = Key { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        if CLONES.is(kind) && *state == State::Live {
            vec![key]
        } else if VM_SNAPSHOTS.is(kind) || VM_RESTORES.is(kind) || VMS.is(kind) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct Cloner {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for Cloner {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let found = self.objects.get(CLONES, &key.namespace, &key.name).await;
        let clone = found.doing("get the clone")?;
        let Some(clone) = clone.filter(|own| !is_deleting(own)) else {
            self.waiting.forget(key);
            return Ok(Next::Done);
        };
        match text(&clone, "/status/phase") {
            "Succeeded" => self.follow(key, &clone).await,
            _ if plan::is_over(&clone) => {
                self.waiting.forget(key);
                Ok(Next::Done)
            }
            _ => self.proceed(key, &clone).await,
        }
    }
}

impl Cloner {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    async fn proceed(&self, key: &Key, clone: &Value) -> Result<Next, Failure> {
        let namespace = &*key.namespace;
        let source = text(clone, "/spec/source/name");
        let names = [source.to_owned(), plan::snapshot_name(clone), plan::restore_name(clone)];
        let needs: BTreeSet<Key> = names.iter().map(|name| Key::new(namespace, name)).collect();
        self.waiting.set(key, needs);
        let Some(snapshot) = self.snapshot(clone).await? else {
            return self.wait(clone, "SourceDoesNotExist", "Source doesnt exist").await;
        };
        if condition::is(&snapshot, "Failure", "True") {
            let why = format!("snapshot {} failed", object::name(&snapshot));
            return self.fail(clone, "SnapshotContentInvalid", &why).await;
        }
        if let Some(why) = plan::left_out(&snapshot) {
            return self.fail(clone, "VMVolumeSnapshotsInvalid", &why).await;
        }
        let content = text(&snapshot, "/status/virtualMachineSnapshotContentName");
        let content = self.objects.get(VM_CONTENTS, namespace, content).await;
        let content = content.doing("get the content of a snapshot")?;
        let Some(content) = content.filter(|_| is_true(&snapshot, "/status/readyToUse")) else {
            return self
                .say(clone, &plan::in_phase(clone, "SnapshotInProgress", clock::now()))
                .await;
        };
        self.restore(clone, &content).await
    }

    /// The snapshot that is cloned; nothing if there is nothing to take it of.
    async fn snapshot(&self, clone: &Value) -> Result<Option<Value>, Failure> {
        let namespace = object::namespace(clone);
        let name = plan::snapshot_name(clone);
        let found = self.objects.get(VM_SNAPSHOTS, namespace, &name).await;
        let found = found.doing("get the snapshot")?;
        if found.is_some() || !plan::is_of_machine(clone) {
            return Ok(found);
        }
        let source = text(clone, "/spec/source/name");
        let machine = self.objects.get(VMS, namespace, source).await.doing("get the machine")?;
        if machine.is_none() {
            return Ok(None);
        }
        match self.objects.create(VM_SNAPSHOTS, namespace, &plan::snapshot(clone)).await {
            Err(failure) if is_refused(&failure, 409) => {
                let made = self.objects.get(VM_SNAPSHOTS, namespace, &name).await;
                made.doing("get the snapshot")
            }
            made => {
                let made = made.doing("ask for a snapshot of the machine")?;
                let message = format!("created snapshot {name} for clone {}", object::name(clone));
                self.tell(clone, Tone::Normal, "SnapshotCreated", message).await;
                Ok(Some(made))
            }
        }
    }

    async fn restore(&self, clone: &Value, content: &Value) -> Result<Next, Failure> {
        let namespace = object::namespace(clone);
        let captured = &content["spec"]["source"]["virtualMachine"];
        let target = plan::target_name(clone, object::name(captured));
        let name = plan::restore_name(clone);
        let found = self.objects.get(VM_RESTORES, namespace, &name).await;
        let restore = match found.doing("get the restore")? {
            Some(restore) => restore,
            None => {
                let taken = self.objects.get(VMS, namespace, &target).await;
                if taken.doing("get the machine")?.is_some() {
                    let why = format!("target VM {target} exists already");
                    return self.fail(clone, "RestoreCreationFailed", &why).await;
                }
                let wanted = plan::restore(clone, captured, &target);
                match self.objects.create(VM_RESTORES, namespace, &wanted).await {
                    Err(failure) if is_refused(&failure, 409) => {
                        return Ok(Next::Again(LOOK_AGAIN));
                    }
                    made => {
                        let made = made.doing("ask for the machine to be restored")?;
                        let own = object::name(clone);
                        let message = format!("created restore {name} for clone {own}");
                        self.tell(clone, Tone::Normal, "RestoreCreated", message).await;
                        made
                    }
                }
            }
        };
        if condition::is(&restore, "Failure", "True") {
            let all = object::list(&restore, "/status/conditions");
            let why = condition::find(all, "Failure").map_or("", |own| text(own, "/message"));
            return self.fail(clone, "RestoreCreationFailed", why).await;
        }
        if !is_true(&restore, "/status/complete") {
            return self
                .say(clone, &plan::in_phase(clone, "RestoreInProgress", clock::now()))
                .await;
        }
        self.finish(clone, &restore, &target).await
    }

    /// Says it before it cleans up, since what is cleaned up would be made anew.
    async fn finish(&self, clone: &Value, restore: &Value, target: &str) -> Result<Next, Failure> {
        let own = object::name(clone);
        self.say(clone, &plan::succeeded(clone, target, clock::now())).await?;
        info!(namespace = object::namespace(clone), machine = target, "machine cloned");
        let message = format!("created target VM {target} for clone {own}");
        self.tell(clone, Tone::Normal, "TargetVMCreated", message).await;
        let (namespace, uid) = (object::namespace(restore), object::uid(restore));
        let deleted = self.objects.delete(VM_RESTORES, namespace, object::name(restore), uid).await;
        deleted.doing("delete a restore")?;
        Ok(Next::Again(Duration::ZERO))
    }

    /// What is left of a clone that is done.
    async fn follow(&self, key: &Key, clone: &Value) -> Result<Next, Failure> {
        let namespace = &*key.namespace;
        if plan::is_of_machine(clone) {
            let name = plan::snapshot_name(clone);
            let found = self.objects.get(VM_SNAPSHOTS, namespace, &name).await;
            if let Some(own) = found.doing("get the snapshot")?.filter(|own| !is_deleting(own)) {
                let uid = object::uid(&own);
                let deleted = self.objects.delete(VM_SNAPSHOTS, namespace, &name, uid).await;
                deleted.doing("delete a snapshot")?;
            }
        }
        let target = text(clone, "/status/targetName");
        self.waiting.set(key, [Key::new(namespace, target)].into());
        let machine = self.objects.get(VMS, namespace, target).await.doing("get the machine")?;
        if machine.is_none() {
            let deleted =
                self.objects.delete(CLONES, namespace, &key.name, object::uid(clone)).await;
            deleted.doing("delete a clone whose machine is gone")?;
        }
        Ok(Next::Done)
    }

    async fn wait(&self, clone: &Value, reason: &str, why: &str) -> Result<Next, Failure> {
        let patch = plan::pending(clone, why, clock::now());
        if !is_merged(clone, &patch) {
            self.tell(clone, Tone::Normal, reason, why.to_owned()).await;
        }
        self.say(clone, &patch).await?;
        Ok(Next::Again(LOOK_AGAIN))
    }

    async fn fail(&self, clone: &Value, reason: &str, why: &str) -> Result<Next, Failure> {
        self.tell(clone, Tone::Warning, reason, why.to_owned()).await;
        self.say(clone, &plan::failed(clone, why, clock::now())).await
    }

    async fn tell(&self, clone: &Value, tone: Tone, reason: &str, message: String) {
        let about = About {
            api_version: "clone.kubevirt.io/v1beta1",
            kind: "VirtualMachineClone",
            namespace: object::namespace(clone),
            name: object::name(clone),
            uid: object::uid(clone),
        };
        event::tell(&self.objects.0, SOURCE, &about, tone, reason, message).await;
    }

    async fn say(&self, clone: &Value, patch: &Value) -> Result<Next, Failure> {
        if is_merged(clone, patch) {
            return Ok(Next::Done);
        }
        let (namespace, name) = (object::namespace(clone), object::name(clone));
        match self.objects.merge_status(CLONES, namespace, name, patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(Next::Done),
            written => written.map(|_| Next::Done).doing("say how a clone is"),
        }
    }
}

#[cfg(test)]
mod tests;
