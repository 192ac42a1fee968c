//! Which machines there are now, found by the name of the object.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::live::LiveMachine;
use super::object::Vmi;
use crate::usage;

/// The known state of a machine's object.
#[derive(Debug, Clone)]
pub(crate) enum KnownMachine {
    /// The objects have not been listed yet.
    Unknown,
    Present(Arc<Vmi>),
    Gone,
}

/// The ends that others hold of a machine's task.
#[derive(Debug)]
pub(crate) struct MachineEntry {
    pub(crate) object: watch::Sender<KnownMachine>,
    pub(crate) live: watch::Receiver<Option<LiveMachine>>,
}

/// All machines of the node, by uid; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machines(Arc<Mutex<BTreeMap<String, MachineEntry>>>);

impl Machines {
    /// The running machine of this name, with its object.
    pub(crate) fn running_object(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<(LiveMachine, Arc<Vmi>)> {
        let machines = self.0.lock();
        machines.values().find_map(|entry| {
            let object = entry.object.borrow();
            let KnownMachine::Present(vmi) = &*object else { return None };
            let named = vmi.namespace == namespace && vmi.name == name;
            let live = entry.live.borrow().clone().filter(|_| named)?;
            Some((live, Arc::clone(vmi)))
        })
    }

    /// The running machine of this name.
    pub(crate) fn live(&self, namespace: &str, name: &str) -> Option<LiveMachine> {
        let machines = self.0.lock();
        machines.values().find_map(|entry| {
            let object = entry.object.borrow();
            let KnownMachine::Present(vmi) = &*object else { return None };
            let named = vmi.namespace == namespace && vmi.name == name;
            named.then(|| entry.live.borrow().clone()).flatten()
        })
    }

    /// The uid of the running machine of this name.
    pub(crate) fn uid(&self, namespace: &str, name: &str) -> Option<String> {
        let machines = self.0.lock();
        machines.iter().find_map(|(uid, entry)| {
            let object = entry.object.borrow();
            let KnownMachine::Present(vmi) = &*object else { return None };
            let named = vmi.namespace == namespace && vmi.name == name;
            (named && entry.live.borrow().is_some()).then(|| uid.clone())
        })
    }

    /// Machines whose processes run, and their objects as far as they are known.
    pub(crate) fn running(&self) -> Vec<(LiveMachine, Option<Arc<Vmi>>)> {
        let machines = self.0.lock();
        let running = machines.values().filter_map(|entry| {
            let live = entry.live.borrow().clone()?;
            let object = match &*entry.object.borrow() {
                KnownMachine::Present(vmi) => Some(Arc::clone(vmi)),
                KnownMachine::Unknown | KnownMachine::Gone => None,
            };
            Some((live, object))
        });
        running.collect()
    }

    /// The object of this name.
    pub(crate) fn object(&self, namespace: &str, name: &str) -> Option<Arc<Vmi>> {
        let named = |vmi: &Arc<Vmi>| vmi.namespace == namespace && vmi.name == name;
        self.present().into_iter().find(named)
    }

    /// Usage of the node and of its running machines.
    pub(crate) fn usage(&self) -> usage::Report {
        let running: Vec<(String, String, i32)> = {
            let machines = self.0.lock();
            let running = machines.values().filter_map(|entry| {
                let object = entry.object.borrow();
                let KnownMachine::Present(vmi) = &*object else { return None };
                let pid = entry.live.borrow().as_ref()?.running.process().pid;
                Some((vmi.namespace.clone(), vmi.name.clone(), pid))
            });
            running.collect()
        };
        let machines = running.into_iter().filter_map(|(namespace, name, pid)| {
            Some(usage::MachineUsage { namespace, name, usage: usage::process(pid)? })
        });
        usage::Report { node: usage::node(), machines: machines.collect() }
    }

    /// Sends a machine's task its object; false if there is no such task.
    pub(crate) fn notify_watchers(&self, uid: &str, object: KnownMachine) -> bool {
        let machines = self.0.lock();
        let Some(entry) = machines.get(uid) else { return false };
        entry.object.send_replace(object);
        true
    }

    pub(crate) fn insert(&self, uid: String, entry: MachineEntry) {
        self.0.lock().insert(uid, entry);
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// The objects that are known.
    fn present(&self) -> Vec<Arc<Vmi>> {
        let machines = self.0.lock();
        let known = machines.values().filter_map(|entry| match &*entry.object.borrow() {
            KnownMachine::Present(vmi) => Some(Arc::clone(vmi)),
            KnownMachine::Unknown | KnownMachine::Gone => None,
        });
        known.collect()
    }

    pub(crate) fn uids(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }
}
