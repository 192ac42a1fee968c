//! The guest's own report, and whether its QEMU answers at all.
//!
//! One task per running machine asks; all others read the last answers. It asks seldom:
//! QEMU reports by events when the guest opens the agent's channel and when memory or
//! processors change, and what has not changed for a while is asked for less and less.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain, Stop};
use parking_lot::Mutex;
use qemu::RunningMachine;
use qemu::guest_agent::{AgentError, GuestAgent, Interface};
use qemu::qmp::{Event, Qmp, QmpError};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::debug;
use virt::v1::VirtualMachineInstanceGuestOSInfo as OsInfo;

use super::credential::Credentials;
use crate::context::Context;
use crate::machine::{AgentState, Attachment, CredentialsState, GuestInfo, KnownMachine, Topology};

/// How often QEMU is asked whether it is there: a stopped process reports nothing.
const PING: Duration = Duration::from_secs(15);
/// The same for one that did not answer.
const PING_SILENT: Duration = Duration::from_secs(2);
/// A QEMU that takes longer to answer is called silent.
const QMP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the agent is asked.
const AGENT_POLL_INTERVAL: Duration = Duration::from_secs(5);
const SELDOM: Duration = Duration::from_secs(60);
/// Commands that an agent must support to be of use; upstream requires these too.
const NEEDED: &[&str] = &["guest-ping", "guest-get-osinfo", "guest-network-get-interfaces"];
/// The id of the channel's device in QEMU.
const CHANNEL: &str = "agent";

/// Changes the answers and wakes those who wait, if there is a change.
pub(super) fn update(info: &watch::Sender<GuestInfo>, change: impl FnOnce(&mut GuestInfo)) {
    info.send_if_modified(|last| {
        let before = last.clone();
        change(last);
        *last != before
    });
}

pub(super) struct GuestMonitor {
    pub(super) context: Arc<Context>,
    pub(super) object: watch::Receiver<KnownMachine>,
    pub(super) running: RunningMachine,
    pub(super) agent: GuestAgent,
    pub(super) info: Arc<watch::Sender<GuestInfo>>,
    /// An event has reported that the answers have changed.
    pub(super) again: Arc<Notify>,
    pub(super) attachments: Arc<Mutex<Vec<Attachment>>>,
}

impl GuestMonitor {
    /// Asks until the machine or the agent of this node ends.
    pub(super) async fn run(self, mut stop: Stop) {
        tokio::select! {
            () = self.follow() => {}
            _ = self.running.exited() => {}
            () = self.info.closed() => {}
            () = stop.requested() => {}
        }
    }

    async fn follow(&self) {
        let mut events = self.running.events();
        let mut credentials = Credentials::default();
        let mut open = self.query_board().await;
        let mut pace = Backoff::new(AGENT_POLL_INTERVAL, SELDOM);
        let mut ping_at = Instant::now() + PING;
        let mut ask_at = Instant::now();
        loop {
            if open && ask_at <= Instant::now() {
                let before = self.info.borrow().clone();
                self.ask(&mut credentials).await;
                if *self.info.borrow() != before {
                    pace.reset();
                }
                ask_at = Instant::now() + pace.delay();
            }
            let due = if open { ask_at.min(ping_at) } else { ping_at };
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => match channel(&event) {
                        Some(is_open) => {
                            open = is_open;
                            self.channel_changed(is_open);
                            pace.reset();
                            ask_at = Instant::now();
                        }
                        None if changes_board(&event) => open = self.query_board().await,
                        None => {}
                    },
                    Err(RecvError::Lagged(_)) => open = self.query_board().await,
                    Err(RecvError::Closed) => return,
                },
                () = self.again.notified() => {
                    open = self.query_board().await;
                    pace.reset();
                    ask_at = Instant::now();
                }
                () = tokio::time::sleep_until(due) => {
                    if ping_at <= Instant::now() {
                        if self.ping().await {
                            open = self.query_board().await;
                        }
                        let silent = self.info.borrow().silent;
                        ping_at = Instant::now() + if silent { PING_SILENT } else { PING };
                    }
                }
            }
        }
    }

    /// Asks QEMU for a sign of life; true if it is back and everything is to be asked again.
    async fn ping(&self) -> bool {
        let asked = tokio::time::timeout(QMP_TIMEOUT, async {
            self.running.qmp().await?.with_limit(QMP_TIMEOUT).run_state().await
        });
        let silent = !matches!(asked.await, Ok(Ok(_)));
        let was_silent = self.info.borrow().silent;
        update(&self.info, |info| info.silent = silent);
        self.learn().await;
        was_silent && !silent
    }

    fn channel_changed(&self, open: bool) {
        if !open {
            update(&self.info, |info| {
                info.agent = AgentState::Absent;
                info.interfaces.clear();
            });
        }
    }

    /// Asks QEMU about the board; returns whether the guest has the agent's channel open.
    async fn query_board(&self) -> bool {
        let mut board = self.info.borrow().clone();
        let queried = tokio::time::timeout(QMP_TIMEOUT, async {
            let qmp = self.running.qmp().await?.with_limit(QMP_TIMEOUT);
            query_board(&qmp, &mut board).await
        });
        let (silent, open) = match queried.await {
            Ok(Ok(open)) => (false, open),
            Ok(Err(failure)) => {
                debug!(error = %Chain(&failure), "cannot ask QEMU");
                (true, false)
            }
            Err(_) => (true, false),
        };
        update(&self.info, |info| {
            info.silent = silent;
            info.machine_type = board.machine_type;
            info.topology = board.topology;
            info.growth = board.growth;
        });
        if !silent {
            self.channel_changed(open);
        }
        self.learn().await;
        open
    }

    /// Queries the addresses of interfaces that get their addresses from another server.
    async fn learn(&self) {
        let attachments = self.attachments.lock().clone();
        let mut learned = BTreeMap::new();
        for attachment in attachments {
            if let Some(address) = self.context.networks.learned(&attachment).await {
                learned.insert(attachment.interface, address.to_string());
            }
        }
        update(&self.info, |info| info.learned = learned);
    }

    /// Asks the guest.
    async fn ask(&self, credentials: &mut Credentials) {
        match self.answers().await {
            Ok((agent, os, interfaces, frozen)) => update(&self.info, |info| {
                info.agent = agent;
                info.os = os;
                info.interfaces = interfaces;
                info.frozen = frozen;
            }),
            // It may be busy, or frozen: its earlier report stays until the channel closes.
            Err(failure) => {
                debug!(error = %Chain(&failure), "the guest agent does not answer");
                return;
            }
        }
        let KnownMachine::Present(vmi) = self.object.borrow().clone() else { return };
        let state = credentials.sync(&self.context, &vmi, &self.agent).await;
        if state != CredentialsState::Unused {
            update(&self.info, |info| info.credentials = state);
        }
    }

    async fn answers(&self) -> Result<(AgentState, OsInfo, Vec<Interface>, bool), AgentError> {
        let known = self.agent.info().await?;
        let lacks: Vec<&str> =
            NEEDED.iter().copied().filter(|command| !known.supports(command)).collect();
        let state = match lacks.as_slice() {
            [] => AgentState::Connected,
            lacks => AgentState::Unsupported(format!(
                "This guest agent doesn't support required basic commands: {}",
                lacks.join(", ")
            )),
        };
        let os = self.agent.os_info().await.map(os_info).unwrap_or_default();
        let interfaces = self.agent.interfaces().await.unwrap_or_default();
        let frozen = self.agent.is_frozen().await.unwrap_or(false);
        Ok((state, os, interfaces, frozen))
    }
}

/// The guest's answer in KubeVirt's type.
pub(crate) fn os_info(os: qemu::guest_agent::OsInfo) -> OsInfo {
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    OsInfo {
        name: text(os.name),
        kernel_release: text(os.kernel_release),
        version: text(os.version),
        pretty_name: text(os.pretty_name),
        version_id: text(os.version_id),
        kernel_version: text(os.kernel_version),
        machine: text(os.machine),
        id: text(os.id),
    }
}

/// Whether an event says that the guest opened or closed the agent's channel.
fn channel(event: &Event) -> Option<bool> {
    let ours = event.name == "VSERPORT_CHANGE" && event.data["id"] == CHANNEL;
    ours.then(|| event.data["open"].as_bool()).flatten()
}

fn changes_board(event: &Event) -> bool {
    const CHANGES: &[&str] =
        &["MEMORY_DEVICE_SIZE_CHANGE", "ACPI_DEVICE_OST", "RESET", "RESUME", "DEVICE_DELETED"];
    CHANGES.contains(&event.name.as_str())
}

async fn query_board(qmp: &Qmp, info: &mut GuestInfo) -> Result<bool, QmpError> {
    if info.machine_type.is_empty() {
        let arguments = json!({"path": "/machine", "property": "type"});
        let kind: Value = qmp.execute("qom-get", arguments).await?;
        let kind = kind.as_str().unwrap_or_default();
        info.machine_type = kind.strip_suffix("-machine").unwrap_or(kind).to_owned();
    }
    let slots = qmp.cpu_slots().await?;
    let filled: Vec<_> = slots.iter().filter(|slot| slot.is_filled()).collect();
    let count = |name: &str| {
        let mut seen: Vec<u64> =
            filled.iter().map(|slot| slot.props[name].as_u64().unwrap_or(0)).collect();
        seen.sort_unstable();
        seen.dedup();
        u32::try_from(seen.len()).unwrap_or(1)
    };
    info.topology = Some(Topology {
        sockets: count("socket-id"),
        cores: count("core-id"),
        threads: count("thread-id"),
    });
    // A machine that cannot grow has no such device.
    info.growth = qmp.growth().await.unwrap_or(0);
    let devices: Vec<Value> = qmp.execute("query-chardev", json!({})).await?;
    Ok(devices.iter().any(|each| each["label"] == "agent0" && each["frontend-open"] == true))
}
