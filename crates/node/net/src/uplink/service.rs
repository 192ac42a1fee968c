//! The uplinks of this node: creates and changes them, and reports changes of links.

use std::collections::BTreeMap;
use std::io;

use base::{Chain, Stop, Tasks};
use futures_util::StreamExt;
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::watch;
use tracing::{info, warn};

use super::apply::{UplinkError, apply};
use super::duplicate::{probe_address, wait_unique};
use super::interface::plan_host;
use super::observe::observe;
use super::plan::UplinkStep;
use super::{HostInterface, ObservedLinks, Uplink};
use crate::name::LinkName;
use crate::observe::ObserveError;

/// A handle to the uplinks of the node. They stay when it is dropped.
#[derive(Debug, Clone)]
pub struct Uplinks {
    netlink: Handle,
    changes: watch::Receiver<u64>,
}

/// The outcome for the desired uplinks.
#[derive(Debug, Clone, Default)]
pub struct UplinkReport {
    pub links: ObservedLinks,
    /// The reasons why an uplink is not as desired, by bridge.
    pub problems: BTreeMap<LinkName, Vec<String>>,
    /// How many steps were carried out.
    pub steps: usize,
    /// Steps that failed; these are among the problems, too.
    pub failed: Vec<String>,
}

impl Uplinks {
    /// Opens what is needed to read links and change them; changes nothing yet.
    pub fn start(tasks: &Tasks) -> io::Result<Self> {
        let (connection, netlink, _) = rtnetlink::new_connection()?;
        tasks.spawn("uplink netlink", until_stopped(connection, tasks.stop_signal()));
        let (events, _, mut messages) =
            rtnetlink::new_multicast_connection(&[MulticastGroup::Link])?;
        tasks.spawn("link events", until_stopped(events, tasks.stop_signal()));
        let (changed, changes) = watch::channel(0);
        let count = async move {
            while messages.next().await.is_some() {
                changed.send_modify(|count| *count += 1);
            }
        };
        tasks.spawn("link changes", until_stopped(count, tasks.stop_signal()));
        Ok(Self { netlink, changes })
    }

    /// Changes whenever the kernel reports a change of any link.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// All links of the node.
    pub async fn observe(&self) -> Result<ObservedLinks, ObserveError> {
        observe(&self.netlink).await
    }

    /// Brings the uplinks into the state that `want` describes. A step that fails holds up only the
    /// uplink that it is for.
    pub async fn apply(&self, want: &[Uplink]) -> Result<UplinkReport, ObserveError> {
        self.apply_host(want, &[]).await
    }

    /// The same with interfaces of the host on them.
    pub async fn apply_host(
        &self,
        want: &[Uplink],
        interfaces: &[HostInterface],
    ) -> Result<UplinkReport, ObserveError> {
        self.carry_out(want, interfaces, AddressCheck::None).await
    }

    /// The same; an address that another station has is not added, and counts as a step that failed.
    pub async fn try_host(
        &self,
        want: &[Uplink],
        interfaces: &[HostInterface],
    ) -> Result<UplinkReport, ObserveError> {
        self.carry_out(want, interfaces, AddressCheck::Duplicates).await
    }

    async fn carry_out(
        &self,
        want: &[Uplink],
        interfaces: &[HostInterface],
        check: AddressCheck,
    ) -> Result<UplinkReport, ObserveError> {
        let plan = plan_host(want, interfaces, &self.observe().await?);
        let mut report = UplinkReport::default();
        for (bridge, problem) in plan.problems {
            report.problems.entry(bridge).or_default().push(problem.to_string());
        }
        let mut failed = BTreeMap::<LinkName, UplinkError>::new();
        for step in &plan.steps {
            let bridge = owner(want, interfaces, step);
            if failed.contains_key(&bridge) {
                continue;
            }
            match self.take(step, check).await {
                Ok(()) => {
                    info!(%bridge, ?step, "changed an uplink");
                    report.steps += 1;
                }
                Err(error) => {
                    warn!(%bridge, ?step, error = %Chain(&error), "cannot change an uplink");
                    failed.insert(bridge, error);
                }
            }
        }
        for (bridge, error) in failed {
            report.failed.push(describe(&error));
            report.problems.entry(bridge).or_default().push(describe(&error));
        }
        report.links = self.observe().await?;
        Ok(report)
    }

    async fn take(&self, step: &UplinkStep, check: AddressCheck) -> Result<(), UplinkError> {
        match (step, check) {
            (UplinkStep::AddAddress { link, address }, AddressCheck::Duplicates) => {
                probe_address(&self.netlink, link, *address).await?;
                apply(&self.netlink, step).await?;
                wait_unique(&self.netlink, link, *address).await
            }
            _ => apply(&self.netlink, step).await,
        }
    }
}

/// The check of an address before it counts as added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressCheck {
    None,
    Duplicates,
}

/// In Harvester's format: the failed operation, then the reason.
fn describe(error: &UplinkError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}, error: {}", Chain(source)),
        None => error.to_string(),
    }
}

/// The bridge of the uplink that a step is for.
fn owner(want: &[Uplink], interfaces: &[HostInterface], step: &UplinkStep) -> LinkName {
    let link = match step {
        UplinkStep::CreateBridge { bridge, .. }
        | UplinkStep::FilterVlans { bridge }
        | UplinkStep::DeleteBridge { bridge }
        | UplinkStep::AddSelfVlan { bridge, .. }
        | UplinkStep::RemoveSelfVlan { bridge, .. }
        | UplinkStep::CreateInterface { bridge, .. }
        | UplinkStep::JoinBridge { bridge, .. } => bridge,
        UplinkStep::CreateBond { bond, .. }
        | UplinkStep::SetMode { bond, .. }
        | UplinkStep::SetMiimon { bond, .. }
        | UplinkStep::AddMember { bond, .. }
        | UplinkStep::RemoveMember { bond, .. }
        | UplinkStep::DeleteBond { bond } => bond,
        UplinkStep::SetMac { link, .. }
        | UplinkStep::SetTxQueueLen { link, .. }
        | UplinkStep::SetMtu { link, .. }
        | UplinkStep::AddAddress { link, .. }
        | UplinkStep::RemoveAddress { link, .. }
        | UplinkStep::DeleteInterface { link }
        | UplinkStep::SetUp { link } => link,
        UplinkStep::AddVlan { port, .. } | UplinkStep::RemoveVlan { port, .. } => port,
    };
    if let Some(interface) = interfaces.iter().find(|own| own.link == *link) {
        return interface.bridge.clone();
    }
    let has = |uplink: &&Uplink| {
        uplink.bridge == *link || uplink.bond == *link || uplink.nics.contains(link)
    };
    want.iter().find(has).map_or(link, |uplink| &uplink.bridge).clone()
}

async fn until_stopped(work: impl Future<Output = ()>, mut stop: Stop) {
    tokio::select! {
        () = work => {}
        () = stop.requested() => {}
    }
}
