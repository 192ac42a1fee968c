//! Begins to listen to a machine that runs: its console, its agent, its probes.

use std::sync::Arc;

use base::Tasks;
use qemu::RunningMachine;
use qemu::console::Console;
use qemu::guest_agent::GuestAgent;
use tokio::sync::watch;

use super::guest::GuestMonitor;
use super::probe;
use crate::context::Context;
use crate::machine::{Attachment, KnownMachine, LiveMachine};

pub(super) async fn attend(
    context: &Arc<Context>,
    running: RunningMachine,
    object: watch::Receiver<KnownMachine>,
    attachments: Vec<Attachment>,
    tasks: &Tasks,
) -> LiveMachine {
    let console = Console::open(running.dir().clone(), tasks).await;
    let agent = GuestAgent::open(running.dir().clone(), tasks);
    let (live, info) = LiveMachine::new(running.clone(), console, agent.clone(), attachments);
    let info = Arc::new(info);
    if let KnownMachine::Present(vmi) = object.borrow().clone() {
        probe::start(&live, &vmi, &info, tasks);
    }
    let context = Arc::clone(context);
    let (attachments, again) = live.asked();
    let monitor = GuestMonitor { context, object, running, agent, info, again, attachments };
    tasks.spawn("guest", monitor.run(tasks.stop_signal()));
    live
}
