//! Claims that machines bring along in Harvester's annotation: made when they are missing,
//! grown when more is asked for, never shrunk. They have no owner, so that data outlives the
//! machine; those that its deletion names go with it.

mod plan;

use kube::Client;
use serde_json::Value;

use crate::event::{self, Regarding};
use crate::key::ObjectKey;
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{CLAIMS, Objects, VMS, is_refused};

const SOURCE: &str = "harvester-vm-controller";

/// Every machine that changes or is deleted.
#[derive(Debug, Default)]
pub(crate) struct VmClaimsMapper;

impl EventMapper for VmClaimsMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object {
                kind,
                namespace,
                name,
                state: ObjectState::Live | ObjectState::Deleting,
            } if VMS.is(kind) => {
                vec![ObjectKey::new(namespace, name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct VmClaimsReconciler(Objects);

impl VmClaimsReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn make(&self, machine: &Value) -> Result<ReconcileResult, ReconcileError> {
        let namespace = object::namespace(machine);
        let templates = match hci::claim_templates(&machine["metadata"]) {
            Ok(templates) => templates,
            Err(complaint) => {
                self.complain(machine, "InvalidVolumeClaimTemplates", complaint).await;
                return Ok(ReconcileResult::Done);
            }
        };
        for template in &templates {
            let found = self.0.get(CLAIMS, namespace, &template.name).await.doing("get a claim")?;
            let Some(claim) = found else {
                let wanted = plan::claim(machine, template);
                match self.0.create(CLAIMS, namespace, &wanted).await {
                    Err(failure) if is_refused(&failure, 409) => {}
                    Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                        let message =
                            format!("cannot create claim {}: {}", template.name, refusal.message);
                        self.complain(machine, "FailedCreateClaim", message).await;
                    }
                    made => drop(made.doing("create a claim")?),
                }
                continue;
            };
            if let Some(patch) = plan::growth(&claim, template) {
                match self.0.merge(CLAIMS, namespace, &template.name, &patch).await {
                    Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                        let message =
                            format!("cannot grow claim {}: {}", template.name, refusal.message);
                        self.complain(machine, "FailedGrowClaim", message).await;
                    }
                    written => drop(written.doing("grow a claim")?),
                }
            }
        }
        self.hold(machine).await
    }

    /// Deletion waits for us where it names claims that go as well.
    async fn hold(&self, machine: &Value) -> Result<ReconcileResult, ReconcileError> {
        let Some(patch) = plan::hold(machine) else { return Ok(ReconcileResult::Done) };
        self.patch(machine, &patch, "hold the machine").await
    }

    /// A machine is released after its claims are gone, so that its end implies theirs: an image,
    /// for instance, can be deleted then.
    async fn release(&self, machine: &Value) -> Result<ReconcileResult, ReconcileError> {
        let namespace = object::namespace(machine);
        let Some(patch) = plan::release(machine) else { return Ok(ReconcileResult::Done) };
        let claims = self.0.list(CLAIMS, namespace, "").await.doing("list claims")?;
        let machines = self.0.list(VMS, namespace, "").await.doing("list machines")?;
        let (unwanted, waits) = plan::removal(machine, &claims, &machines);
        for claim in unwanted {
            let (name, uid) = (object::name(claim), object::uid(claim));
            self.0.delete(CLAIMS, namespace, name, uid).await.doing("delete a claim")?;
        }
        if waits {
            return Ok(ReconcileResult::Retry);
        }
        self.patch(machine, &patch, "release the machine").await
    }

    async fn patch(
        &self,
        machine: &Value,
        patch: &Value,
        doing: &'static str,
    ) -> Result<ReconcileResult, ReconcileError> {
        let (namespace, name) = (object::namespace(machine), object::name(machine));
        match self.0.merge(VMS, namespace, name, patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing(doing),
        }
    }

    async fn complain(&self, machine: &Value, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "kubevirt.io/v1",
            kind: "VirtualMachine",
            namespace: object::namespace(machine),
            name: object::name(machine),
            uid: object::uid(machine),
        };
        event::warn(&self.0.0, SOURCE, &regarding, reason, message).await;
    }
}

impl Reconciler for VmClaimsReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(VMS, &key.namespace, &key.name).await.doing("get the machine")?;
        match found {
            None => Ok(ReconcileResult::Done),
            Some(machine) if object::is_deleting(&machine) => self.release(&machine).await,
            Some(machine) => self.make(&machine).await,
        }
    }
}
