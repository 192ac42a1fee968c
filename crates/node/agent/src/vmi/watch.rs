//! Following the objects of this node and keeping one task for each of them, and for each
//! folder that was found.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop, Tasks};
use futures_util::StreamExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use qemu::RunDir;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::actor::VmiActor;
use crate::context::Context;
use crate::machine::{KnownMachine, MachineEntry, Machines, Vmi, VmiPhase};
use crate::order;

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_millis(500);

/// Runs until `stop`; guests live on.
pub(crate) async fn run(
    context: Arc<Context>,
    machines: Machines,
    found: Vec<String>,
    tasks: Tasks,
    mut stop: Stop,
) {
    let mut keeper = VmiWatcher { context, machines, tasks, listed: vec![], uids: BTreeSet::new() };
    for uid in found {
        keeper.start(uid, KnownMachine::Unknown);
    }
    let label = format!("kubevirt.io/nodeName={}", keeper.context.config.node_name);
    let api = crate::api::vmis(&keeper.context.client);
    let config = watcher::Config::default().labels(&label);
    let mut events = std::pin::pin!(watcher::watcher(api, config));
    let mut failing = false;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = stop.requested() => return,
        };
        match event {
            Some(Ok(event)) => {
                failing = false;
                keeper.apply(event);
            }
            Some(Err(failure)) => {
                if failing {
                    debug!(error = %Chain(&failure), "still cannot follow machines");
                } else {
                    warn!(error = %Chain(&failure), "cannot watch virtual machine instances");
                }
                failing = true;
                tokio::time::sleep(RETRY).await;
            }
            None => return,
        }
    }
}

struct VmiWatcher {
    context: Arc<Context>,
    machines: Machines,
    tasks: Tasks,
    /// The list that is being read. A part of it is not acted on: that an instance ran when the
    /// host went down is known from the list only, and no longer once one was touched.
    listed: Vec<Vmi>,
    /// The uids of all that it names, those that cannot be read included.
    uids: BTreeSet<String>,
}

impl VmiWatcher {
    fn apply(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => {
                self.listed.clear();
                self.uids.clear();
            }
            Event::InitApply(object) => {
                self.uids.extend(object.metadata.uid.clone());
                self.listed.extend(read(object));
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let was_here = |vmi: &&Vmi| {
                    matches!(vmi.phase(), VmiPhase::Scheduled | VmiPhase::Running)
                        && vmi.deleted.is_none()
                };
                self.context.order.expect(listed.iter().filter(was_here), order::uptime());
                for vmi in listed {
                    self.present(vmi);
                }
                for uid in self.machines.uids() {
                    if !self.uids.contains(&uid) {
                        self.machines.notify_watchers(&uid, KnownMachine::Gone);
                    }
                }
            }
            Event::Apply(object) => {
                if let Some(vmi) = read(object) {
                    self.present(vmi);
                }
            }
            Event::Delete(object) => {
                if let Some(uid) = object.metadata.uid {
                    self.machines.notify_watchers(&uid, KnownMachine::Gone);
                }
            }
        }
    }

    fn present(&mut self, vmi: Vmi) {
        let (uid, known) = (vmi.uid.clone(), KnownMachine::Present(Arc::new(vmi)));
        if !self.machines.notify_watchers(&uid, known.clone()) {
            self.start(uid, known);
        }
    }

    fn start(&self, uid: String, known: KnownMachine) {
        let (object, objects) = watch::channel(known);
        let (live, lives) = watch::channel(None);
        self.machines.insert(uid.clone(), MachineEntry { object, live: lives });
        let dir = RunDir::new(self.context.config.machines_dir().join(&uid));
        let actor =
            VmiActor::new(Arc::clone(&self.context), dir, objects, live, self.tasks.clone());
        let machines = self.machines.clone();
        self.tasks.spawn("vmi", async move {
            if actor.run().await {
                machines.remove(&uid);
            }
        });
    }
}

fn read(object: DynamicObject) -> Option<Vmi> {
    let name = object.metadata.name.clone();
    let read = Vmi::read(object);
    read.inspect_err(|failure| warn!(name, error = %Chain(failure), "cannot read an object")).ok()
}
