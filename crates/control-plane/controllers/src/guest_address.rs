//! Addresses of the guest network: each machine and each node holds one, as an IPAddress object.
//!
//! An address is claimed when an instance is placed ([`claim`]), before its node sees it, and
//! stays with its machine until that is deleted. The reconciler says on each claim where the guest
//! runs, adopts addresses of guests that ran before, and releases those without a holder.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use hci::Ipv4Net;
use hci::guest_network::{
    AddressClaim, AddressHolder, SELECTOR, choose, claim_object, is_assignable, network_of,
};
use kube::Client;
use serde_json::{Value, json};
use tracing::warn;

use self::plan::{AddressAction, GuestState};
use crate::key::ObjectKey;
use crate::object::{self, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::instance::InstanceFields;
use crate::resource::{ADDRESSES, NODES, Objects, VMIS, VMS, is_refused};

/// Objects whose addresses are to be reconciled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressKey {
    /// The machine, the instance, or both of a name.
    Guest(ObjectKey),
    Node(Arc<str>),
    /// A claim, for any holder.
    Claim(Arc<str>),
    /// Changes may have been missed.
    Everything,
}

/// Holder of each address at the last reconciliation: a deleted claim does not name it.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownHolders(Arc<Mutex<BTreeMap<String, AddressKey>>>);

impl KnownHolders {
    fn note(&self, address: &str, key: AddressKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address.to_owned(), key);
    }

    fn forget(&self, address: &str) -> Option<AddressKey> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(address)
    }
}

#[derive(Debug, Default)]
pub(crate) struct AddressMapper(pub(crate) KnownHolders);

impl EventMapper for AddressMapper {
    type Key = AddressKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<AddressKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state } => {
                if VMIS.is(kind) || VMS.is(kind) {
                    let key =
                        ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
                    vec![AddressKey::Guest(key)]
                } else if NODES.is(kind) {
                    vec![AddressKey::Node(Arc::clone(name))]
                } else if ADDRESSES.is(kind) && *state == ObjectState::Gone {
                    self.0.forget(name).into_iter().collect()
                } else if ADDRESSES.is(kind) {
                    vec![AddressKey::Claim(Arc::clone(name))]
                } else {
                    vec![]
                }
            }
            ObjectChange::Missed(kind) => {
                let concerns = [VMIS, VMS, NODES, ADDRESSES];
                let is_ours = concerns.iter().any(|own| own.is(kind));
                is_ours.then_some(AddressKey::Everything).into_iter().collect()
            }
        }
    }
}

pub(crate) struct AddressReconciler {
    objects: Objects,
    holders: KnownHolders,
}

impl Reconciler for AddressReconciler {
    type Key = AddressKey;

    async fn reconcile(&self, key: &AddressKey) -> Result<ReconcileResult, ReconcileError> {
        match key {
            AddressKey::Guest(key) => self.guest(&key.namespace, &key.name).await?,
            AddressKey::Node(name) => self.node(name).await?,
            AddressKey::Claim(name) => {
                let found = self.objects.get(ADDRESSES, "", name).await.doing("get an address")?;
                if let Some(claim) = found.as_ref().and_then(AddressClaim::read) {
                    self.holder(&claim.holder).await?;
                }
            }
            AddressKey::Everything => self.everything().await?,
        }
        Ok(ReconcileResult::Done)
    }
}

impl AddressReconciler {
    pub(crate) fn new(client: Client, holders: KnownHolders) -> Self {
        Self { objects: Objects(client), holders }
    }

    async fn holder(&self, holder: &AddressHolder) -> Result<(), ReconcileError> {
        match holder {
            AddressHolder::Machine { namespace, name }
            | AddressHolder::Instance { namespace, name } => self.guest(namespace, name).await,
            AddressHolder::Node { name } => self.node(name).await,
        }
    }

    async fn everything(&self) -> Result<(), ReconcileError> {
        let claims = self.objects.list(ADDRESSES, "", SELECTOR).await.doing("list addresses")?;
        for claim in claims.iter().filter_map(AddressClaim::read) {
            self.holder(&claim.holder).await?;
        }
        for vmi in self.objects.list(VMIS, "", "").await.doing("list instances")? {
            self.guest(object::namespace(&vmi), object::name(&vmi)).await?;
        }
        for node in self.objects.list(NODES, "", "").await.doing("list nodes")? {
            self.node(object::name(&node)).await?;
        }
        Ok(())
    }

    async fn guest(&self, namespace: &str, name: &str) -> Result<(), ReconcileError> {
        let vmi = self.objects.get(VMIS, namespace, name).await.doing("get the instance")?;
        let machine = self.objects.get(VMS, namespace, name).await.doing("get the machine")?;
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let key = AddressKey::Guest(ObjectKey::new(&namespace, &name));
        let holders = [
            AddressHolder::Machine { namespace: namespace.clone(), name: name.clone() },
            AddressHolder::Instance { namespace, name },
        ];
        let mut claims = Vec::new();
        for holder in &holders {
            claims.extend(claims_of(&self.objects, holder).await?);
        }
        let node = match &vmi {
            Some(vmi) => {
                let node = self
                    .objects
                    .get(NODES, "", read::<InstanceFields<'_>>(vmi).status.node_name)
                    .await;
                node.doing("get the node")?
            }
            None => None,
        };
        for claim in &claims {
            self.holders.note(&claim.address.to_string(), key.clone());
        }
        let guest = GuestState {
            has_machine: machine.is_some(),
            vmi: vmi.as_ref(),
            network: node.as_ref().and_then(network_of),
        };
        for action in plan::actions(guest, &claims) {
            self.act(&action, &key).await?;
        }
        Ok(())
    }

    async fn act(&self, action: &AddressAction, key: &AddressKey) -> Result<(), ReconcileError> {
        match action {
            AddressAction::Release(address) => self.release(*address).await,
            AddressAction::Adopt(address, holder) => {
                if create(&self.objects, *address, holder).await? {
                    self.holders.note(&address.to_string(), key.clone());
                } else {
                    warn!(%address, ?holder, "address of a guest belongs to another; restart the guest");
                }
                Ok(())
            }
            AddressAction::Annotate(address, annotations) => {
                let patch = json!({"metadata": {"annotations": annotations}});
                let written = self.objects.merge(ADDRESSES, "", &address.to_string(), &patch).await;
                match written {
                    Err(failure) if is_refused(&failure, 404) => Ok(()),
                    written => written.map(drop).doing("write where a guest is"),
                }
            }
        }
    }

    async fn release(&self, address: Ipv4Addr) -> Result<(), ReconcileError> {
        let name = address.to_string();
        self.holders.forget(&name);
        let found = self.objects.get(ADDRESSES, "", &name).await.doing("get an address")?;
        let Some(claim) = found else { return Ok(()) };
        let deleted = self.objects.delete(ADDRESSES, "", &name, object::uid(&claim)).await;
        deleted.doing("release an address")
    }

    /// A node whose guests are on the guest network has an address there, too.
    async fn node(&self, name: &str) -> Result<(), ReconcileError> {
        let node = self.objects.get(NODES, "", name).await.doing("get the node")?;
        let network = node.as_ref().and_then(network_of);
        let holder = AddressHolder::Node { name: name.to_owned() };
        let claims = claims_of(&self.objects, &holder).await?;
        let fits = |address| network.is_some_and(|network| is_assignable(network, address));
        for claim in claims.iter().filter(|claim| !fits(claim.address)) {
            self.release(claim.address).await?;
        }
        let held = claims.iter().find(|claim| fits(claim.address)).map(|claim| claim.address);
        let address = match (held, network) {
            (None, Some(network)) => allocate(&self.objects, network, &holder).await?,
            (held, _) => held,
        };
        if let Some(address) = address {
            self.holders.note(&address.to_string(), AddressKey::Node(name.into()));
        }
        Ok(())
    }
}

/// Claims an address for an instance that starts next on `node`, unless it has one. Where all
/// are in use the agent says so.
pub(crate) async fn claim(
    objects: &Objects,
    vmi: &Value,
    node: &str,
) -> Result<(), ReconcileError> {
    if !plan::wants_address(vmi) {
        return Ok(());
    }
    let node = objects.get(NODES, "", node).await.doing("get the node")?;
    let Some(network) = node.as_ref().and_then(network_of) else { return Ok(()) };
    let holder = plan::holder(vmi);
    let claims = claims_of(objects, &holder).await?;
    if claims.iter().any(|claim| is_assignable(network, claim.address)) {
        return Ok(());
    }
    allocate(objects, network, &holder).await.map(drop)
}

async fn claims_of(
    objects: &Objects,
    holder: &AddressHolder,
) -> Result<Vec<AddressClaim>, ReconcileError> {
    let found = objects.list(ADDRESSES, "", &holder.selector()).await.doing("list addresses")?;
    let claims = found.iter().filter_map(AddressClaim::read);
    Ok(claims.filter(|claim| claim.holder == *holder).collect())
}

/// Claims any free address; none when all are in use.
async fn allocate(
    objects: &Objects,
    network: Ipv4Net,
    holder: &AddressHolder,
) -> Result<Option<Ipv4Addr>, ReconcileError> {
    let mut in_use = BTreeSet::new();
    while let Some(address) = choose(network, holder, &in_use) {
        if create(objects, address, holder).await? {
            return Ok(Some(address));
        }
        let taken = objects.list(ADDRESSES, "", "").await.doing("list addresses")?;
        in_use
            .extend(taken.iter().filter_map(|claim| object::name(claim).parse::<Ipv4Addr>().ok()));
        in_use.insert(address);
    }
    Ok(None)
}

/// Creates a claim; returns whether the address is the holder's now.
async fn create(
    objects: &Objects,
    address: Ipv4Addr,
    holder: &AddressHolder,
) -> Result<bool, ReconcileError> {
    match objects.create(ADDRESSES, "", &claim_object(address, holder)).await {
        Ok(_) => Ok(true),
        Err(failure) if is_refused(&failure, 409) => {
            let found = objects.get(ADDRESSES, "", &address.to_string()).await;
            let found = found.doing("get an address")?;
            let claim = found.as_ref().and_then(AddressClaim::read);
            Ok(claim.is_some_and(|claim| claim.holder == *holder))
        }
        Err(failure) => Err(failure).doing("claim an address"),
    }
}

#[cfg(test)]
mod tests;
