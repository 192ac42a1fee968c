//! The task that keeps the network of this node as wanted: it takes waiting requests together, and
//! answers each of them.

use base::{Chain, Stop};
use rtnetlink::Handle;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::failures::{Failures, RequestSubject};
use super::{NetworkChange, NetworkError, NetworkRequest, QUEUE};
use crate::apply::{self, ApplyError};
use crate::conntrack;
use crate::hosts::HostGuard;
use crate::name::LinkName;
use crate::nft;
use crate::observe;
use crate::overlay::{self, GuestOverlay};
use crate::plan::{Conflict, LinkKind, NetworkAction, plan, taps_to_remove};
use crate::policy::GuestPolicies;
use crate::rules::Ruleset;
use crate::service::Service;
use crate::want::{DesiredNetwork, Port, WantError};

/// Owns what is wanted.
pub(super) struct NetworkController {
    pub(super) netlink: Handle,
    pub(super) want: DesiredNetwork,
    pub(super) made: watch::Sender<u64>,
}

impl NetworkController {
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<NetworkRequest>, mut stop: Stop) {
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
                NetworkChange::Hosts(_)
                | NetworkChange::Dhcp(_)
                | NetworkChange::Resync
                | NetworkChange::Remove => RequestSubject::Network,
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
            NetworkChange::Hosts(hosts) => self.want.hosts = HostGuard::Known(hosts),
            NetworkChange::Policies(policies) => {
                self.want.policies = GuestPolicies::Known(policies)
            }
            NetworkChange::Remove => {
                self.want.ports.clear();
                self.want.services = None;
                self.want.hosts = HostGuard::Unenforced;
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
    pub(super) async fn converge(&mut self) -> Result<Failures, NetworkError> {
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
