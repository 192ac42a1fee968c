//! This node's observations of others, on request: the controller names observers in the Node of a
//! suspect, and each tries the suspect's ports every second and writes the result into its own Node,
//! with the time for which it has not reached the suspect.
//!
//! It also sees that this node itself was declared lost, and hands over to `rejoin`; and it hands
//! the addresses that the control plane gave this node to those that listen there.

mod suspect;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{Chain, Stop};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use hci::failover::{LOST, PortState, SIGHTINGS, STORAGE_PORT, SUSPECT, Sightings, Suspicion};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::suspect::{Question, Suspect};
use super::rejoin::Rejoin;
use crate::api::merge;
use crate::config::Config;
use crate::own_addresses::OwnAddresses;

/// How long a port has to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two attempts to follow nodes.
const RETRY: Duration = Duration::from_millis(500);

/// The task that watches Nodes.
pub(crate) struct NodeObserver {
    client: Client,
    node: String,
    rejoin: Rejoin,
    suspects: BTreeMap<String, Suspect>,
    /// The last observations of others.
    seen: Sightings,
    addresses: watch::Sender<OwnAddresses>,
}

impl NodeObserver {
    pub(crate) fn new(
        client: Client,
        config: &Config,
        addresses: watch::Sender<OwnAddresses>,
    ) -> Self {
        let node = config.node_name.clone();
        Self {
            rejoin: Rejoin::new(client.clone(), config),
            client,
            node,
            suspects: BTreeMap::new(),
            seen: Sightings::default(),
            addresses,
        }
    }

    pub(crate) async fn run(mut self, mut stop: Stop) {
        let api = Api::<Node>::all(self.client.clone());
        let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
        let mut failing = false;
        loop {
            let due = self.suspects.values().filter_map(Suspect::due).min();
            let event = tokio::select! {
                event = events.next() => event,
                () = self.rejoin.due() => {
                    self.rejoin.attempt().await;
                    continue;
                }
                () = sleep_until(due) => {
                    self.probe_suspects().await;
                    continue;
                }
                () = stop.requested() => return,
            };
            match event {
                Some(Ok(Event::Apply(node) | Event::InitApply(node))) => {
                    failing = false;
                    self.observe(&node);
                }
                Some(Ok(Event::Delete(node))) => self.forget(&node),
                Some(Ok(_)) => {}
                Some(Err(failure)) => {
                    if !failing {
                        warn!(error = %Chain(&failure), "cannot follow nodes");
                    }
                    failing = true;
                    tokio::time::sleep(RETRY).await;
                }
                None => return,
            }
        }
    }

    fn observe(&mut self, node: &Node) {
        if node.metadata.name.as_deref() == Some(&self.node) {
            let own = OwnAddresses::read(node);
            self.addresses.send_if_modified(|known| std::mem::replace(known, own) != own);
            return self.rejoin.observe(node);
        }
        let Some(question) = question(node, &self.node) else { return self.forget(node) };
        let now = Instant::now();
        match self.suspects.get_mut(&question.suspect) {
            Some(known) => known.asked(question, now),
            None => {
                self.suspects.insert(question.suspect.clone(), Suspect::new(question, now));
            }
        }
    }

    /// Tries to reach the suspects that are due, and reports the results.
    async fn probe_suspects(&mut self) {
        let started = Instant::now();
        let due = self.suspects.values_mut();
        let due = due.filter(|suspect| suspect.due().is_some_and(|at| at <= started));
        let attempts = due.map(async |suspect| {
            let (agent, storage) = (suspect.question.agent, suspect.question.storage);
            let (agent, storage) = tokio::join!(probe(agent), probe(storage));
            let seen = suspect.tried(started, Instant::now(), agent, storage);
            let name = suspect.question.suspect.clone();
            info!(suspect = name, ?agent, ?storage, unreached = seen.unreached, "probed a node");
            (name, seen)
        });
        let seen = join_all(attempts).await;
        self.seen.0.extend(seen);
        let patch = json!({"metadata": {"annotations": {SIGHTINGS: self.seen.encode()}}});
        let nodes = Api::<Node>::all(self.client.clone());
        if let Err(failure) = merge(&nodes, &self.node, &patch).await {
            debug!(error = %Chain(&failure), "cannot report observations of nodes");
            self.suspects.values_mut().for_each(|suspect| suspect.try_again(Instant::now()));
        }
    }

    /// Drops the observation of a node once the controller does not request it any more.
    fn forget(&mut self, node: &Node) {
        if let Some(name) = &node.metadata.name {
            self.suspects.remove(name);
            self.seen.0.remove(name);
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The controller's question to this node about another, if there is one.
fn question(node: &Node, own: &str) -> Option<Question> {
    let annotations = node.metadata.annotations.as_ref()?;
    let asked = Suspicion::parse(annotations.get(SUSPECT)?)?;
    if !asked.observers.iter().any(|name| name == own) || annotations.contains_key(LOST) {
        return None;
    }
    let status = node.status.as_ref()?;
    let mut addresses = status.addresses.iter().flatten();
    let address: Option<IpAddr> = addresses
        .find(|address| address.type_ == "InternalIP")
        .and_then(|address| address.address.parse().ok());
    let at = |port: Option<u16>| Some(SocketAddr::new(address?, port?));
    let endpoints = status.daemon_endpoints.as_ref();
    let agent = endpoints.and_then(|all| all.kubelet_endpoint.as_ref());
    let agent = agent.and_then(|endpoint| u16::try_from(endpoint.port).ok());
    let storage = annotations.get(STORAGE_PORT).and_then(|port| port.parse().ok());
    Some(Question {
        suspect: node.metadata.name.clone()?,
        token: asked.token,
        agent: at(agent),
        storage: at(storage),
    })
}

/// A node that does not say where it listens cannot be reached there.
async fn probe(address: Option<SocketAddr>) -> PortState {
    let Some(address) = address else { return PortState::Silent };
    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => PortState::Open,
        Ok(Err(failure)) if failure.kind() == std::io::ErrorKind::ConnectionRefused => {
            PortState::Refused
        }
        Ok(Err(_)) | Err(_) => PortState::Silent,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn suspect(observers: &[&str]) -> Node {
        let observers = observers.iter().map(|name| (*name).to_owned()).collect();
        let asked = Suspicion { token: "t".into(), observers };
        serde_json::from_value(json!({
            "metadata": {"name": "n2", "annotations": {
                SUSPECT: asked.encode(), STORAGE_PORT: "10270",
            }},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            },
        }))
        .unwrap()
    }

    #[test]
    fn only_named_observers_are_asked() {
        let asked = question(&suspect(&["n1", "n3"]), "n3").unwrap();
        assert_eq!((asked.suspect.as_str(), asked.token.as_str()), ("n2", "t"));
        assert_eq!(asked.agent, Some("10.0.0.2:10250".parse().unwrap()));
        assert_eq!(asked.storage, Some("10.0.0.2:10270".parse().unwrap()));
        assert_eq!(question(&suspect(&["n1"]), "n3"), None);
        assert_eq!(question(&Node::default(), "n3"), None);
        let mut lost = suspect(&["n3"]);
        lost.metadata.annotations.as_mut().unwrap().insert(LOST.into(), "t".into());
        assert_eq!(question(&lost, "n3"), None, "it is decided");
    }

    #[tokio::test]
    async fn a_port_is_open_or_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe(Some(address)).await, PortState::Open);
        drop(listener);
        assert_eq!(probe(Some(address)).await, PortState::Refused);
        assert_eq!(probe(None).await, PortState::Silent);
    }
}
