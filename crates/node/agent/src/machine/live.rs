//! A machine that runs, as others may use it: its monitor, its console, what its guest says.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use qemu::RunningMachine;
use qemu::console::Console;
use qemu::guest_agent::GuestAgent;
use qemu::machine::USB_SLOTS;
use qemu::qmp::{Event, RunState};
use tokio::sync::{Notify, broadcast, watch};

use super::attachment::Attachment;
use super::freeze::FreezeState;
use super::info::GuestInfo;

/// Handles to a running machine; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct LiveMachine {
    pub(crate) running: RunningMachine,
    pub(crate) console: Console,
    pub(crate) agent: GuestAgent,
    pub(crate) info: watch::Receiver<GuestInfo>,
    attachments: Arc<Mutex<Vec<Attachment>>>,
    again: Arc<Notify>,
    pub(crate) holding: FreezeState,
    pub(crate) usb_slots: UsbSlots,
}

impl LiveMachine {
    /// A machine whose guest has not been asked yet, and the end for its answers.
    pub(crate) fn new(
        running: RunningMachine,
        console: Console,
        agent: GuestAgent,
        attachments: Vec<Attachment>,
    ) -> (Self, watch::Sender<GuestInfo>) {
        let (sender, info) = watch::channel(GuestInfo::default());
        let live = Self {
            running,
            console,
            agent,
            info,
            attachments: Arc::new(Mutex::new(attachments)),
            again: Arc::new(Notify::new()),
            holding: FreezeState::default(),
            usb_slots: UsbSlots::default(),
        };
        (live, sender)
    }

    /// The attachments and the signal to ask now, for the task that asks the guest.
    pub(crate) fn asked(&self) -> (Arc<Mutex<Vec<Attachment>>>, Arc<Notify>) {
        (Arc::clone(&self.attachments), Arc::clone(&self.again))
    }

    /// Asks QEMU and the guest now, because something was done to them.
    pub(crate) fn ask_again(&self) {
        self.again.notify_one();
    }

    pub(crate) fn attachments(&self) -> Vec<Attachment> {
        self.attachments.lock().clone()
    }

    pub(crate) fn set_attachments(&self, attachments: Vec<Attachment>) {
        *self.attachments.lock() = attachments;
    }

    /// A way to wait for what is new.
    pub(crate) fn news(&self) -> MachineChanges {
        let running = self.running.clone();
        let (states, events) = (running.states(), running.events());
        MachineChanges { states, events, info: self.info.clone(), running }
    }
}

/// Which USB devices of a machine are taken by clients; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsbSlots(Arc<Mutex<BTreeSet<u8>>>);

/// One of them, taken until it is dropped.
#[derive(Debug)]
pub(crate) struct UsbSlot {
    pub(crate) number: u8,
    all: UsbSlots,
}

impl UsbSlots {
    /// A free device; nothing when all are in use.
    pub(crate) fn take(&self) -> Option<UsbSlot> {
        let mut taken = self.0.lock();
        let number = (0..USB_SLOTS).find(|slot| !taken.contains(slot))?;
        taken.insert(number);
        Some(UsbSlot { number, all: self.clone() })
    }
}

impl Drop for UsbSlot {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.number);
    }
}

/// Remembers what its owner has seen of a machine.
pub(crate) struct MachineChanges {
    running: RunningMachine,
    states: watch::Receiver<Option<RunState>>,
    events: broadcast::Receiver<Event>,
    info: watch::Receiver<GuestInfo>,
}

impl MachineChanges {
    /// Resolves when there is something that the last call did not report. Cancel-safe.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            // A sender that is gone says that the process is, or that the agent stops.
            Ok(()) = self.states.changed() => {}
            Ok(()) = self.info.changed() => {}
            _ = self.running.exited() => {}
            () = next_job_event(&mut self.events) => {}
        }
    }
}

/// Resolves when a job of QEMU has another status, or when it is not known whether one has.
/// Cancel-safe.
async fn next_job_event(events: &mut broadcast::Receiver<Event>) {
    loop {
        match events.recv().await {
            Ok(event) if event.name == "JOB_STATUS_CHANGE" => return,
            Ok(_) => {}
            Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usb_device_is_taken_by_one_client_at_a_time() {
        let slots = UsbSlots::default();
        let mut taken: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
        let numbers: Vec<_> = taken.iter().map(|slot| slot.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        drop(taken.remove(2));
        assert_eq!(slots.take().map(|slot| slot.number), Some(2));
    }
}
