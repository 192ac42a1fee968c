//! The network of this node, kept as wanted by one task.
//!
//! Requests that arrive while the task is at work are taken together with the next one, so that
//! fifty guests that start at once cost a few transactions and not fifty. A request is answered
//! when what it asked for is in force.

mod controller;
mod failures;

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

use base::{Stop, Tasks};
use rtnetlink::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::warn;

use self::controller::NetworkController;
use crate::apply::ApplyError;
use crate::hosts::ClusterHosts;
use crate::learn::{self, Neighbour, Traffic};
use crate::name::LinkName;
use crate::nft::{self, NftError};
use crate::observe::ObserveError;
use crate::obstacle::{self, NetworkObstacle};
use crate::overlay::GuestOverlay;
use crate::plan::Conflict;
use crate::policy::Policies;
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
    /// Replaces the hosts that guests are kept from.
    Hosts(ClusterHosts),
    /// Replaces the restrictions of all guests.
    Policies(Policies),
    /// Replaces what is known of guests on other nodes.
    Overlay(GuestOverlay),
    /// Replaces the ports whose DHCP requests are answered here, with the servers' addresses.
    Dhcp(BTreeMap<LinkName, Ipv4Addr>),
    /// Only checks whether all is as it should be.
    Resync,
    /// Takes everything away.
    Remove,
}

impl Network {
    /// Brings the network into the state that `want` describes, adopting what is there already
    /// and removing taps of ours that are not wanted any more, and keeps it so in a task.
    ///
    /// `want` names the ports of all guests that may be running: rules are replaced at once, and a
    /// guest that is missing in them is cut off. Its tap stays until no process has it open.
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

    /// Makes these the hosts of which guests reach the API and node ports only, in place of all before.
    pub async fn guard_hosts(&self, hosts: ClusterHosts) -> Result<(), NetworkError> {
        self.ask(NetworkChange::Hosts(hosts)).await
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

    /// Repairs changes by others, a flushed firewall for instance.
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
    /// of the host are found, where another server assigns addresses.
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
