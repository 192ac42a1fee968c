//! The network of this node, kept as wanted by one task.
//!
//! Requests that arrive while the task is at work are taken together with the next one, so that
//! fifty guests that start at once cost a few transactions and not fifty. A request is answered
//! when what it asked for is in force.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

use base::{Chain, Stop, Tasks};
use rtnetlink::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, info, warn};

use crate::apply::{self, ApplyError};
use crate::conntrack;
use crate::learn::{self, Neighbour, Traffic};
use crate::name::LinkName;
use crate::nft::{self, NftError};
use crate::observe::{self, ObserveError};
use crate::obstacle::{self, NetworkObstacle};
use crate::overlay::{self, GuestOverlay};
use crate::plan::{Conflict, LinkKind, NetworkAction, plan, taps_to_remove};
use crate::policy::{GuestPolicies, Policies};
use crate::rules::Ruleset;
use crate::service::Service;
use crate::want::{Bridge, DesiredNetwork, Port, WantError};

/// Requests that may wait; beyond, callers wait to send theirs.
const QUEUE: usize = 256;

/// A handle to the network; cheap to clone. The links and rules stay when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Network {
    requests: mpsc::Sender<NetworkRequest>,
    netlink: Handle,
    bridge: Bridge,
    bridges_made: watch::Receiver<u64>,
}

/// Why the network is not as asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NetworkError {
    #[error("cannot open a netlink socket")]
    Netlink { source: std::sync::Arc<io::Error> },
    #[error(transparent)]
    Want(#[from] WantError),
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error("cannot configure the network of this node")]
    Apply { source: std::sync::Arc<ApplyError> },
    #[error("the network of this node has been stopped")]
    Stopped,
}

impl From<ApplyError> for NetworkError {
    fn from(source: ApplyError) -> Self {
        Self::Apply { source: source.into() }
    }
}

#[derive(Debug)]
struct NetworkRequest {
    change: NetworkChange,
    answer: oneshot::Sender<Result<(), NetworkError>>,
}

#[derive(Debug)]
enum NetworkChange {
    /// Adds a port, or changes it when there is one for the tap.
    Attach(Port),
    Detach(LinkName),
    /// Replaces all services.
    Services(Vec<Service>),
    /// Replaces the restrictions of all guests.
    Policies(Policies),
    /// Replaces what is known of guests on other nodes.
    Overlay(GuestOverlay),
    /// Replaces the ports whose DHCP requests are answered here, with the servers' addresses.
    Dhcp(BTreeMap<LinkName, Ipv4Addr>),
    /// Only looks whether all is as it should be.
    Resync,
    /// Takes everything away.
    Remove,
}

impl Network {
    /// Brings the network into the state that `want` describes, adopting what is there already
    /// and removing taps of ours that are not wanted any more, and keeps it so in a task.
    ///
    /// `want` names the ports of all guests that may be running: rules are replaced at once, and a
    /// guest that is missing in them is cut off. Its tap stays until nobody has it open.
    /// Ports that cannot be had now, because their bridge is missing, are logged and tried again
    /// on every later change.
    pub async fn start(want: DesiredNetwork, tasks: &Tasks) -> Result<Self, NetworkError> {
        want.check()?;
        let (connection, netlink, _) = rtnetlink::new_connection()
            .map_err(|source| NetworkError::Netlink { source: source.into() })?;
        tasks.spawn("netlink", until_stopped(connection, tasks.stop_signal()));
        let (requests, queue) = mpsc::channel(QUEUE);
        let (made, bridges_made) = watch::channel(0);
        let bridge = want.bridge.clone();
        let mut keeper = NetworkController { netlink: netlink.clone(), want, made };
        for conflict in keeper.converge().await?.conflicts {
            if let Conflict::ForeignBridge { .. } = conflict {
                return Err(conflict.into());
            }
            warn!(error = %conflict, "guest network differs from its configuration");
        }
        tasks.spawn("network", keeper.run(queue, tasks.stop_signal()));
        Ok(Self { requests, netlink, bridge, bridges_made })
    }

    /// The bridge that the network was started with.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Makes the tap of a guest, or changes what is allowed on it. Afterwards its QEMU may start.
    pub async fn attach(&self, port: Port) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Attach(port)).await
    }

    /// Removes a tap and all that belongs to it, also while a guest uses it; one that is unknown
    /// is fine.
    pub async fn detach(&self, tap: LinkName) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Detach(tap)).await
    }

    /// Makes these the services that guests and the node can reach, in place of all before.
    pub async fn serve(&self, services: Vec<Service>) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Services(services)).await
    }

    /// Makes these the restrictions of guests, in place of all before.
    pub async fn restrict(&self, policies: Policies) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Policies(policies)).await
    }

    /// Makes guests of other nodes reachable, in place of all before.
    pub async fn connect(&self, overlay: GuestOverlay) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Overlay(overlay)).await
    }

    /// Keeps DHCP requests of these ports from the wire, and answers of others from their guests, in
    /// place of all before: this node answers them, from these addresses.
    pub async fn answer_dhcp(
        &self,
        ports: BTreeMap<LinkName, Ipv4Addr>,
    ) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Dhcp(ports)).await
    }

    /// Puts right what somebody else has changed, a flushed firewall for instance.
    pub async fn resync(&self) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Resync).await
    }

    /// Removes every tap, the bridge and the rules. IP forwarding stays on, since others may have
    /// come to need it.
    pub async fn remove(&self) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Remove).await
    }

    /// Changes whenever the bridge had to be made anew, so that sockets bound to it must be too.
    pub fn bridges_made(&self) -> watch::Receiver<u64> {
        self.bridges_made.clone()
    }

    /// The traffic of all guests, by tap.
    pub async fn traffic(&self) -> Result<Vec<(LinkName, Traffic)>, ObserveError> {
        learn::traffic(&self.netlink, &self.bridge.tap_prefix).await
    }

    /// Addresses that guests announced in the last half hour, by tap. That is how those on a bridge
    /// of the host are found, where somebody else gives out addresses.
    pub async fn seen_addresses(&self) -> Result<Vec<(LinkName, Ipv4Addr)>, NftError> {
        nft::seen(&self.bridge.table).await
    }

    /// Stations that the host itself has exchanged packets with over a bridge.
    pub async fn neighbours(&self, bridge: &LinkName) -> Result<Vec<Neighbour>, ObserveError> {
        learn::neighbours(&self.netlink, bridge).await
    }

    /// Firewall rules of this host that may drop packets of the `ports` although our rules accept
    /// them.
    pub async fn obstacles(&self, ports: &[Port]) -> Result<Vec<NetworkObstacle>, ObserveError> {
        let want = DesiredNetwork::new(self.bridge.clone(), ports.to_vec());
        obstacle::obstacles(&self.netlink, &want).await
    }

    async fn ask(&self, change: NetworkChange) -> Result<(), NetworkError> {
        let (answer, reply) = oneshot::channel();
        let sent = self.requests.send(NetworkRequest { change, answer }).await;
        sent.map_err(|_| NetworkError::Stopped)?;
        reply.await.map_err(|_| NetworkError::Stopped)?
    }
}

async fn until_stopped(work: impl Future<Output = ()>, mut stop: Stop) {
    tokio::select! {
        () = work => {}
        () = stop.requested() => {}
    }
}

/// Owns what is wanted.
struct NetworkController {
    netlink: Handle,
    want: DesiredNetwork,
    made: watch::Sender<u64>,
}

impl NetworkController {
    async fn run(mut self, mut queue: mpsc::Receiver<NetworkRequest>, mut stop: Stop) {
        let mut requests = Vec::new();
        loop {
            let count = tokio::select! {
                count = queue.recv_many(&mut requests, QUEUE) => count,
                () = stop.requested() => return,
            };
            if count == 0 {
                return;
            }
            self.serve(std::mem::take(&mut requests)).await;
        }
    }

    /// Takes all changes together, and answers each with what became of it.
    async fn serve(&mut self, requests: Vec<NetworkRequest>) {
        let mut waiting = Vec::new();
        let mut remove = false;
        let services_before = self.want.services.clone();
        for NetworkRequest { change, answer } in requests {
            let subject = match &change {
                NetworkChange::Attach(port) => RequestSubject::Tap(port.tap.clone()),
                NetworkChange::Detach(tap) => RequestSubject::Tap(tap.clone()),
                NetworkChange::Services(_) => RequestSubject::Services,
                NetworkChange::Policies(_) => RequestSubject::Policies,
                NetworkChange::Overlay(_) => RequestSubject::Overlay,
                NetworkChange::Dhcp(_) | NetworkChange::Resync | NetworkChange::Remove => {
                    RequestSubject::Network
                }
            };
            remove |= matches!(change, NetworkChange::Remove);
            if let NetworkChange::Detach(tap) = &change
                && let Err(error) = self.delete(tap).await
            {
                let _ = answer.send(Err(error.into()));
                continue;
            }
            match self.accept(change) {
                Ok(before) => waiting.push((subject, before, answer)),
                Err(error) => {
                    let _ = answer.send(Err(error.into()));
                }
            }
        }
        let outcome = if remove { self.remove().await } else { self.converge().await };
        if outcome.as_ref().is_ok_and(|failures| failures.services.is_none()) {
            self.release_flows(services_before).await;
        }
        for (subject, before, answer) in waiting {
            let result = match &outcome {
                Ok(failures) => failures.of(&subject).map_or(Ok(()), Err),
                Err(error) => Err(error.clone()),
            };
            // A port that could not be made is the caller's to ask for again; one that could not be
            // changed stays what it was, since a guest may be using it.
            if result.is_err()
                && let RequestSubject::Tap(tap) = subject
            {
                self.want.ports.retain(|port| port.tap != tap);
                self.want.ports.extend(before);
            }
            let _ = answer.send(result);
        }
    }

    /// Lets UDP clients of endpoints that are gone find another one.
    async fn release_flows(&self, before: Option<Vec<Service>>) {
        if before == self.want.services {
            return;
        }
        let wanted = self.want.services.as_deref().unwrap_or_default();
        match conntrack::delete_stale(&before.unwrap_or_default(), wanted).await {
            Ok(0) => {}
            Ok(count) => debug!(count, "removed connection tracking entries of ended endpoints"),
            Err(error) => warn!(%error, "cannot remove connection tracking entries"),
        }
    }

    /// Records a change, if it is consistent with the rest; returns the port as it was before.
    fn accept(&mut self, change: NetworkChange) -> Result<Option<Port>, WantError> {
        match change {
            NetworkChange::Attach(port) => {
                port.check(&self.want.bridge)?;
                let others = self.want.ports.iter().filter(|other| other.tap != port.tap);
                for other in others {
                    port.check_beside(other)?;
                }
                let before = self.want.ports.iter().find(|old| old.tap == port.tap).cloned();
                self.want.ports.retain(|other| other.tap != port.tap);
                self.want.ports.push(port);
                return Ok(before);
            }
            // A tap that could not be removed is tried again with the next change.
            NetworkChange::Detach(tap) => self.want.ports.retain(|port| port.tap != tap),
            NetworkChange::Services(services) => self.want.services = Some(services),
            NetworkChange::Policies(policies) => {
                self.want.policies = GuestPolicies::Known(policies)
            }
            NetworkChange::Remove => {
                self.want.ports.clear();
                self.want.services = None;
                self.want.policies = GuestPolicies::Unenforced;
                self.want.overlay = GuestOverlay::Unknown;
                self.want.dhcp.clear();
            }
            NetworkChange::Overlay(overlay) => self.want.overlay = overlay,
            NetworkChange::Dhcp(ports) => self.want.dhcp = ports,
            NetworkChange::Resync => {}
        }
        Ok(None)
    }

    /// Does what is to be done. A step that concerns one tap and fails holds up only that one.
    async fn converge(&mut self) -> Result<Failures, NetworkError> {
        let seen = observe::observe(&self.netlink, &self.want).await.map_err(ApplyError::from)?;
        let (actions, conflicts) = plan(&self.want, &seen);
        let mut failures = Failures { conflicts, ..Failures::default() };
        let mut made = false;
        for action in &actions {
            let tap = action.tap();
            if tap.is_some_and(|tap| failures.of(&RequestSubject::Tap(tap.clone())).is_some()) {
                continue;
            }
            match (apply::apply(&self.netlink, &self.want.bridge, action).await, tap) {
                (Ok(()), _) => made |= matches!(action, NetworkAction::CreateBridge { .. }),
                (Err(error), Some(tap)) => {
                    warn!(%tap, error = %Chain(&error), "cannot configure tap");
                    failures.taps.push((tap.clone(), error.into()));
                }
                (Err(error), None) if action.is_about_services() => {
                    warn!(error = %Chain(&error), "services cannot be reached as wanted");
                    failures.services = Some(error.into());
                }
                // The rules in force stay, and those who are not in them are cut off.
                (Err(error), None) if matches!(action, NetworkAction::ReplacePolicies(_)) => {
                    warn!(error = %Chain(&error), "cannot replace the rules of network policies");
                    failures.policies = Some(error.into());
                }
                // Guests of this node do not depend on it.
                (Err(error), None) if matches!(action, NetworkAction::Overlay(_)) => {
                    warn!(error = %Chain(&error), "cannot connect to guests of other nodes");
                    failures.overlay = Some(error.into());
                }
                (Err(error), None) => return Err(error.into()),
            }
        }
        if made {
            info!(bridge = %self.want.bridge.name, "created guest network bridge");
            self.made.send_modify(|count| *count += 1);
        }
        Ok(failures)
    }

    /// Deletes a tap of ours, whoever uses it. Its rules go afterwards, so that no guest is on the
    /// wire without them.
    async fn delete(&self, tap: &LinkName) -> Result<(), ApplyError> {
        let is_ours = tap.as_str().starts_with(self.want.bridge.tap_prefix.as_str());
        match observe::link(&self.netlink, tap).await? {
            Some(link) if is_ours && matches!(link.kind, LinkKind::Tap { .. }) => {
                apply::delete_link(&self.netlink, tap).await
            }
            _ => Ok(()),
        }
    }

    async fn remove(&mut self) -> Result<Failures, NetworkError> {
        let seen = observe::observe(&self.netlink, &self.want).await.map_err(ApplyError::from)?;
        let (_, conflicts) = plan(&self.want, &seen);
        let foreign = |conflict: &Conflict| matches!(conflict, Conflict::ForeignBridge { .. });
        if let Some(conflict) = conflicts.into_iter().find(foreign) {
            return Err(conflict.into());
        }
        for tap in taps_to_remove(&self.want, &seen) {
            apply::delete_link(&self.netlink, &tap).await?;
        }
        if seen.overlay.device.is_some() {
            apply::delete_link(&self.netlink, &overlay::device(&self.want.bridge)).await?;
        }
        apply::delete_link(&self.netlink, &self.want.bridge.name).await?;
        let removed = nft::transact(&Ruleset::removal(&self.want.bridge)).await;
        removed.map_err(|source| ApplyError::Rules { source })?;
        info!(bridge = %self.want.bridge.name, "removed guest network");
        Ok(Failures::default())
    }
}

/// Failed parts of the desired network, by tap.
#[derive(Debug, Default)]
struct Failures {
    conflicts: Vec<Conflict>,
    taps: Vec<(LinkName, NetworkError)>,
    services: Option<NetworkError>,
    policies: Option<NetworkError>,
    overlay: Option<NetworkError>,
}

/// The subject of a request.
#[derive(Debug)]
enum RequestSubject {
    Tap(LinkName),
    Services,
    Policies,
    Overlay,
    Network,
}

impl Failures {
    /// The error to report to a request about `subject`.
    fn of(&self, subject: &RequestSubject) -> Option<NetworkError> {
        let tap = match subject {
            RequestSubject::Tap(tap) => Some(tap),
            RequestSubject::Services
            | RequestSubject::Policies
            | RequestSubject::Overlay
            | RequestSubject::Network => None,
        };
        let concerns = |conflict: &&Conflict| match conflict {
            Conflict::ForeignBridge { .. } => true,
            Conflict::NotATap { name } | Conflict::InUse { tap: name } => Some(name) == tap,
            Conflict::NoBridge { tap: port, .. }
            | Conflict::NotABridge { tap: port, .. }
            | Conflict::Unfiltered { tap: port, .. } => Some(port) == tap,
        };
        let conflict = self.conflicts.iter().find(concerns).cloned().map(NetworkError::from);
        let of_services = match subject {
            RequestSubject::Services => self.services.clone(),
            RequestSubject::Policies => self.policies.clone(),
            RequestSubject::Overlay => self.overlay.clone(),
            RequestSubject::Tap(_) | RequestSubject::Network => None,
        };
        let failure = || self.taps.iter().find(|(name, _)| Some(name) == tap);
        conflict.or(of_services).or_else(|| failure().map(|(_, error)| error.clone()))
    }
}
