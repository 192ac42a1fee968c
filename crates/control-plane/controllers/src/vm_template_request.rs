//! VirtualMachineTemplateRequests: a snapshot of a virtual machine becomes a
//! VirtualMachineTemplate with disks of its own.
//!
//! ```text
//!  snapshot of the machine ─► template ─► copies of the disks ─► Ready; the snapshot is deleted
//! ```

mod plan;

use std::collections::BTreeSet;
use std::time::Duration;

use base::clock;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::Value;
use virt::api::template::VirtualMachineTemplateRequest;

use self::plan::RequestProgress;
use crate::condition;
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_deleting, is_merged, is_true, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{
    DATA_VOLUMES, Objects, Resource, VM_CONTENTS, VM_SNAPSHOTS, VMS, is_refused,
};

const GROUP: &str = "template.kubevirt.io";
const REQUESTS: Resource = Resource::new(GROUP, "v1beta1", "virtualmachinetemplaterequests");
const TEMPLATES: Resource = Resource::new(GROUP, "v1beta1", "virtualmachinetemplates");

/// Requests, and the machines, snapshots and data volumes that they wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct TemplateRequests(pub(crate) Dependents);

impl EventMapper for TemplateRequests {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey::new(namespace, name);
        if REQUESTS.is(kind) {
            if *state == ObjectState::Gone {
                self.0.forget(&key);
                return Vec::new();
            }
            vec![key]
        } else if [VMS, VM_SNAPSHOTS, DATA_VOLUMES].iter().any(|own| own.is(kind)) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct TemplateRequestReconciler {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for TemplateRequestReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(REQUESTS, &key.namespace, &key.name).await;
        let request = found.doing("get the template request")?.filter(|own| !is_deleting(own));
        let Some(request) = request else {
            self.waiting.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let own: VirtualMachineTemplateRequest =
            serde_json::from_value(request.clone()).unwrap_or_default();
        if condition::is(&request, "Ready", "True") {
            self.waiting.forget(key);
            return self.expire(&request, &own, clock::now()).await;
        }
        let progress = self.proceed(key, &request, &own).await?;
        let patch = plan::status(&request, &progress, clock::now());
        if !is_merged(&request, &patch) {
            let written =
                self.objects.merge_status(REQUESTS, &key.namespace, &key.name, &patch).await;
            written.doing("write the status of a template request")?;
        }
        Ok(ReconcileResult::Done)
    }
}

impl TemplateRequestReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    async fn proceed(
        &self,
        key: &ObjectKey,
        request: &Value,
        own: &VirtualMachineTemplateRequest,
    ) -> Result<RequestProgress, ReconcileError> {
        let (namespace, machine) = (&*key.namespace, &own.spec.virtual_machine_ref);
        if machine.namespace != namespace {
            let why = "spec.virtualMachineRef.namespace must be the namespace of the request";
            return Ok(RequestProgress::Failed(why.to_owned()));
        }
        let mut needs: BTreeSet<ObjectKey> = [&machine.name, &plan::snapshot_name(request)]
            .map(|it| ObjectKey::new(namespace, it))
            .into();
        self.waiting.set(key, needs.clone());
        let Some(snapshot) = self.snapshot(request, &machine.name).await? else {
            let why = format!("VirtualMachine {namespace}/{} does not exist", machine.name);
            return Ok(RequestProgress::Waiting(why));
        };
        let name = object::name(&snapshot);
        if condition::is(&snapshot, "ReconcileError", "True") {
            return Ok(RequestProgress::Failed(format!("VirtualMachineSnapshot {name} failed")));
        }
        if let Some(left) =
            object::strings(&snapshot, "/status/snapshotVolumes/excludedVolumes").next()
        {
            let why = format!("volume {left} cannot be copied: snapshots of it are not supported");
            return Ok(RequestProgress::Failed(why));
        }
        let content = text(&snapshot, "/status/virtualMachineSnapshotContentName");
        let content = self.objects.get(VM_CONTENTS, namespace, content).await;
        let content = content.doing("get the content of a snapshot")?;
        let Some(content) = content.filter(|_| is_true(&snapshot, "/status/readyToUse")) else {
            return Ok(RequestProgress::Working(
                "a snapshot of the VirtualMachine is taken".to_owned(),
            ));
        };
        let Some(template) = self.template(request, own, &content).await? else {
            let name = plan::template_name(request, own);
            let why = format!("VirtualMachineTemplate {namespace}/{name} already exists");
            return Ok(RequestProgress::Failed(why));
        };
        let disks = plan::disks(&template, &content);
        needs.extend(disks.iter().map(ObjectKey::of));
        self.waiting.set(key, needs);
        for disk in &disks {
            if let Some(progress) = self.disk(disk).await? {
                return Ok(progress);
            }
        }
        self.finish(&template, &snapshot).await
    }

    /// The snapshot that the template is made of; nothing if there is no machine.
    async fn snapshot(
        &self,
        request: &Value,
        machine: &str,
    ) -> Result<Option<Value>, ReconcileError> {
        let (namespace, name) = (object::namespace(request), plan::snapshot_name(request));
        let found = self.objects.get(VM_SNAPSHOTS, namespace, &name).await;
        let found = found.doing("get the snapshot")?;
        if found.is_some() {
            return Ok(found);
        }
        let vm = self.objects.get(VMS, namespace, machine).await;
        if vm.doing("get the virtual machine")?.is_none() {
            return Ok(None);
        }
        let wanted = plan::snapshot(request, machine);
        match self.objects.create(VM_SNAPSHOTS, namespace, &wanted).await {
            Err(failure) if is_refused(&failure, 409) => {
                let made = self.objects.get(VM_SNAPSHOTS, namespace, &name).await;
                made.doing("get the snapshot")
            }
            made => made.map(Some).doing("create a snapshot of the virtual machine"),
        }
    }

    /// The template of a request; nothing if another one has its name.
    async fn template(
        &self,
        request: &Value,
        own: &VirtualMachineTemplateRequest,
        content: &Value,
    ) -> Result<Option<Value>, ReconcileError> {
        let (namespace, name) = (object::namespace(request), plan::template_name(request, own));
        let found = self.objects.get(TEMPLATES, namespace, &name).await;
        let found = match found.doing("get the template")? {
            Some(found) => found,
            None => {
                let wanted = plan::template(request, own, content);
                let made = self.objects.create(TEMPLATES, namespace, &wanted).await;
                made.doing("create the template")?
            }
        };
        let maker = found["metadata"]["labels"][plan::REQUEST_UID].as_str();
        let is_own = maker == Some(object::uid(request));
        Ok(is_own.then_some(found))
    }

    /// Creates a disk of a template if it is missing; returns the state that it waits for, if it
    /// is not complete.
    async fn disk(&self, wanted: &Value) -> Result<Option<RequestProgress>, ReconcileError> {
        let (namespace, name) = (object::namespace(wanted), object::name(wanted));
        let found = self.objects.get(DATA_VOLUMES, namespace, name).await;
        let phase = match found.doing("get a disk of the template")? {
            Some(found) => text(&found, "/status/phase").to_owned(),
            None => {
                match self.objects.create(DATA_VOLUMES, namespace, wanted).await {
                    Err(failure) if is_refused(&failure, 409) => {}
                    made => drop(made.doing("create a disk of the template")?),
                }
                String::new()
            }
        };
        Ok(match phase.as_str() {
            "Succeeded" => None,
            "Failed" => {
                Some(RequestProgress::Failed(format!("DataVolume {namespace}/{name} failed")))
            }
            _ => Some(RequestProgress::Working(format!(
                "DataVolume {namespace}/{name} is being copied"
            ))),
        })
    }

    async fn finish(
        &self,
        template: &Value,
        snapshot: &Value,
    ) -> Result<RequestProgress, ReconcileError> {
        let (namespace, name) = (object::namespace(template), object::name(template));
        let patch = plan::template_status(template, clock::now());
        let written = self.objects.merge_status(TEMPLATES, namespace, name, &patch).await;
        written.doing("write the status of the template")?;
        let (own, uid) = (object::name(snapshot), object::uid(snapshot));
        let deleted = self.objects.delete(VM_SNAPSHOTS, namespace, own, uid).await;
        deleted.doing("delete the snapshot of the template")?;
        Ok(RequestProgress::Ready(name.to_owned()))
    }

    /// Deletes a request some time after it has succeeded, if it says so.
    async fn expire(
        &self,
        request: &Value,
        own: &VirtualMachineTemplateRequest,
        now: Timestamp,
    ) -> Result<ReconcileResult, ReconcileError> {
        let Some(seconds) = own.spec.ttl_seconds_after_finished else {
            return Ok(ReconcileResult::Done);
        };
        let all = object::list(request, "/status/conditions");
        let since = condition::find(all, "Ready").map(|own| text(own, "/lastTransitionTime"));
        let since: Timestamp = since.and_then(|time| time.parse().ok()).unwrap_or(now);
        let age = now.duration_since(since);
        let left = SignedDuration::from_secs(seconds.into()) - age;
        if left.is_positive() {
            return Ok(ReconcileResult::Again(Duration::try_from(left).unwrap_or_default()));
        }
        let (namespace, name) = (object::namespace(request), object::name(request));
        let deleted = self.objects.delete(REQUESTS, namespace, name, object::uid(request)).await;
        deleted.map(|()| ReconcileResult::Done).doing("delete a template request that has expired")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn a_request_becomes_a_template_with_disks_and_leaves_no_snapshot() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let requests = "template.kubevirt.io/virtualmachinetemplaterequests";
        let request = json!({"metadata": {"name": "r"}, "spec": {"templateName": "t",
            "virtualMachineRef": {"namespace": "n", "name": "m"}}});
        fake.create(requests, "n", request);
        let reconciler = TemplateRequestReconciler::new(fake.client(), Dependents::default());
        let key = ObjectKey::new("n", "r");
        let message = || {
            let request = fake.get(requests, "n", "r").unwrap();
            request["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned()
        };
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(message(), "VirtualMachine n/m does not exist");
        fake.create("kubevirt.io/virtualmachines", "n", json!({"metadata": {"name": "m"}}));
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(message(), "a snapshot of the VirtualMachine is taken");
        let uid = fake.get(requests, "n", "r").unwrap()["metadata"]["uid"].clone();
        let name = format!("tmp-template-{}", uid.as_str().unwrap());
        let snapshots = "snapshot.kubevirt.io/virtualmachinesnapshots";
        let taken = json!({"status": {
            "readyToUse": true, "virtualMachineSnapshotContentName": "content"}});
        fake.merge(snapshots, "n", &name, &taken);
        let backup = json!({"volumeName": "root", "volumeSnapshotName": "s"});
        let content = json!({"metadata": {"name": "content"}, "spec": {"volumeBackups": [backup],
            "source": {"virtualMachine": {"metadata": {"name": "m"}, "spec": {}}}}});
        fake.create("snapshot.kubevirt.io/virtualmachinesnapshotcontents", "n", content);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(message(), "DataVolume n/t-root is being copied");
        let done = json!({"status": {"phase": "Succeeded"}});
        fake.merge("cdi.kubevirt.io/datavolumes", "n", "t-root", &done);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(message(), "VirtualMachineTemplate t was created");
        let template = fake.get("template.kubevirt.io/virtualmachinetemplates", "n", "t").unwrap();
        assert_eq!(template["status"]["conditions"][0]["status"], "True");
        assert_eq!(fake.get(snapshots, "n", &name), None);
    }
}
