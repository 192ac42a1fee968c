//! The clients of the controllers. In a cluster of its own each group of controllers is a user with
//! the rights that it needs; in another cluster all have the client that the operator gave.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube::Client;

/// A group of controllers with the same rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerGroup {
    /// The feed of changes and the election.
    Shared,
    /// Deliveries of alarms, which read the Secrets that name receivers.
    Alarms,
    Autoscaling,
    Certificates,
    /// Upstream's controllers without rights to objects of every kind.
    Cluster,
    Garbage,
    Machines,
    Namespaces,
    Operations,
    Projects,
    Quotas,
    /// The aggregation of roles.
    Roles,
    Storage,
    /// Tokens in secrets.
    Tokens,
}

impl ControllerGroup {
    pub const ALL: [Self; 14] = [
        Self::Shared,
        Self::Alarms,
        Self::Autoscaling,
        Self::Certificates,
        Self::Cluster,
        Self::Garbage,
        Self::Machines,
        Self::Namespaces,
        Self::Operations,
        Self::Projects,
        Self::Quotas,
        Self::Roles,
        Self::Storage,
        Self::Tokens,
    ];
}

/// The client of each group.
#[derive(Clone)]
pub struct ControllerClients(Arc<BTreeMap<ControllerGroup, Client>>);

impl ControllerClients {
    pub fn new(client_of: impl Fn(ControllerGroup) -> Client) -> Self {
        let clients = ControllerGroup::ALL.into_iter().map(|group| (group, client_of(group)));
        Self(Arc::new(clients.collect()))
    }

    pub fn of(&self, group: ControllerGroup) -> Client {
        self.0[&group].clone()
    }
}

impl From<Client> for ControllerClients {
    fn from(client: Client) -> Self {
        Self::new(|_| client.clone())
    }
}

impl fmt::Debug for ControllerClients {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ControllerClients")
    }
}
