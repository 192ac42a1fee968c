//! The objects that policies are evaluated from, as watches report them.

use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use hci::dhcp;
use hci::{cluster_network_policy as cluster_policy, multi_network_policy as multi_policy};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use super::bridged_object::{InstanceRecord, LeaseRecord, MultiPolicyRecord};
use super::cluster_object::ClusterPolicyRecord;
use super::object::{NamespaceRecord, PodRecord, PolicyRecord};
use crate::api::vmis;
use crate::known_objects::KnownObjects;

type Watched<Object> = Box<Result<Event<Object>, watcher::Error>>;

/// An event of one of the watches; boxed, since they differ much in size.
pub(super) enum PolicyChange {
    Policy(Watched<NetworkPolicy>),
    ClusterPolicy(Watched<DynamicObject>),
    MultiPolicy(Watched<DynamicObject>),
    Namespace(Watched<Namespace>),
    Pod(Watched<Pod>),
    Instance(Watched<DynamicObject>),
    Pool(Watched<DynamicObject>),
}

/// All changes, beginning with the objects that exist.
pub(super) fn changes(client: &Client) -> impl Stream<Item = PolicyChange> + use<> {
    let config = watcher::Config::default;
    let dynamic = |group: &str, version: &str, kind: &str, plural: &str| {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let kind = ApiResource::from_gvk_with_plural(&kind, plural);
        watcher(Api::<DynamicObject>::all_with(client.clone(), &kind), config())
    };
    let tiers = dynamic(
        cluster_policy::GROUP,
        cluster_policy::VERSION,
        cluster_policy::KIND,
        cluster_policy::PLURAL,
    );
    let multi = dynamic(
        multi_policy::GROUP,
        multi_policy::VERSION,
        multi_policy::KIND,
        multi_policy::PLURAL,
    );
    let pools = dynamic(dhcp::GROUP, dhcp::VERSION, "IPPool", dhcp::POOLS);
    let policies = watcher(Api::<NetworkPolicy>::all(client.clone()), config());
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), config());
    let pods = watcher(Api::<Pod>::all(client.clone()), config());
    let instances = watcher(vmis(client), config());
    stream::select_all([
        policies.map(|event| PolicyChange::Policy(Box::new(event))).boxed(),
        tiers.map(|event| PolicyChange::ClusterPolicy(Box::new(event))).boxed(),
        multi.map(|event| PolicyChange::MultiPolicy(Box::new(event))).boxed(),
        namespaces.map(|event| PolicyChange::Namespace(Box::new(event))).boxed(),
        pods.map(|event| PolicyChange::Pod(Box::new(event))).boxed(),
        instances.map(|event| PolicyChange::Instance(Box::new(event))).boxed(),
        pools.map(|event| PolicyChange::Pool(Box::new(event))).boxed(),
    ])
}

/// The known objects of the cluster.
#[derive(Default)]
pub(super) struct PolicyObjects {
    pub(super) policies: KnownObjects<PolicyRecord>,
    pub(super) cluster_policies: KnownObjects<ClusterPolicyRecord>,
    pub(super) multi_policies: KnownObjects<MultiPolicyRecord>,
    pub(super) namespaces: KnownObjects<NamespaceRecord>,
    pub(super) pods: KnownObjects<PodRecord>,
    pub(super) instances: KnownObjects<InstanceRecord>,
    pub(super) pools: KnownObjects<LeaseRecord>,
}

impl PolicyObjects {
    pub(super) fn take(&mut self, change: PolicyChange) -> Result<(), watcher::Error> {
        match change {
            PolicyChange::Policy(event) => self.policies.take((*event)?, PolicyRecord::read),
            PolicyChange::ClusterPolicy(event) => {
                self.cluster_policies.take((*event)?, ClusterPolicyRecord::read);
            }
            PolicyChange::MultiPolicy(event) => {
                self.multi_policies.take((*event)?, MultiPolicyRecord::read);
            }
            PolicyChange::Namespace(event) => {
                self.namespaces.take((*event)?, NamespaceRecord::read);
            }
            PolicyChange::Pod(event) => self.pods.take((*event)?, PodRecord::read),
            PolicyChange::Instance(event) => self.instances.take((*event)?, InstanceRecord::read),
            PolicyChange::Pool(event) => self.pools.take((*event)?, LeaseRecord::read),
        }
        Ok(())
    }
}
