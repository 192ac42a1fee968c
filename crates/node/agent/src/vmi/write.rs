//! The writes of a machine's task to the API: its object's status, its finalizer, events.

use std::sync::Arc;

use base::{Chain, clock};
use client::Fault;
use serde_json::json;
use tracing::{debug, warn};

use super::actor::{LoopControl, VmiActor};
use super::status::{self, View};
use crate::api;
use crate::event::EventNote;
use crate::machine::{FINALIZER, Vmi};

impl VmiActor {
    pub(super) async fn release(&mut self, vmi: &Arc<Vmi>) -> LoopControl {
        let rest: Vec<&String> = vmi.finalizers.iter().filter(|each| *each != FINALIZER).collect();
        let patch = json!({
            "metadata": {"resourceVersion": vmi.version, "finalizers": rest},
        });
        let vmis = api::vmis_in(&self.context.client, &vmi.namespace);
        match api::merge(&vmis, &vmi.name, &patch).await {
            Ok(object) => {
                self.remember(object);
                LoopControl::Wait(None)
            }
            Err(failure) => self.write_failed(failure),
        }
    }

    /// Writes what differs between the stored status and `view`.
    pub(super) async fn write(&mut self, vmi: &Arc<Vmi>, view: &View) -> Result<(), LoopControl> {
        let Some(patch) = status::patch(vmi, view, clock::now()) else { return Ok(()) };
        let vmis = api::vmis_in(&self.context.client, &vmi.namespace);
        match api::merge(&vmis, &vmi.name, &patch).await {
            Ok(object) => {
                self.remember(object);
                Ok(())
            }
            Err(failure) => Err(self.write_failed(failure)),
        }
    }

    pub(super) fn remember(&mut self, object: kube::api::DynamicObject) {
        match Vmi::read(object) {
            Ok(vmi) => self.written = Some(Arc::new(vmi)),
            Err(failure) => warn!(error = %Chain(&failure), "cannot read own output"),
        }
    }

    fn write_failed(&mut self, failure: kube::Error) -> LoopControl {
        self.written = None;
        if api::is_conflict(&failure) || matches!(&failure, kube::Error::Api(s) if s.code == 404) {
            // The watch reports what happened; the retry is for the case that it already did.
            debug!("the object changed meanwhile");
        } else {
            warn!(error = %Fault(failure), "cannot write the status");
        }
        self.later()
    }

    pub(super) fn report(&self, vmi: &Vmi, note: EventNote) {
        let (reporter, about) = (self.context.reporter.clone(), vmi.reference());
        self.tasks.spawn("event", async move { reporter.report(&about, note).await });
    }
}
