//! The interfaces of a running guest: hot plug and unplug, and the reconnection of a guest that was
//! adopted after a restart of the agent.

use std::sync::Arc;

use base::Chain;
use qemu::machine::{Nic, NicBackend};
use qemu::process::{open_tap, open_vhost_net};
use qemu::qmp::Qmp;
use tracing::warn;

use super::actor::VmiActor;
use super::running::{ChangeError, RELEASE, record};
use super::translate;
use crate::machine::{ATTACHMENTS, Attachment, LiveMachine, NetworkLocation, Vmi};
use crate::network::{InterfaceBackend, binding};

impl VmiActor {
    /// Restores the DNS name, the DHCP lease and the open ports of an adopted guest: of these only
    /// its tap survived the restart of the agent.
    pub(super) async fn reconnect(&mut self, vmi: &Arc<Vmi>, live: &LiveMachine) {
        self.process.unknown_to_networks = false;
        let machine = live.running.spec().machine;
        let has = |attachment: &Attachment| {
            machine.nics.iter().any(|nic| nic.name == attachment.interface)
        };
        for attachment in live.attachments().into_iter().filter(has) {
            let interfaces = &vmi.spec.domain.devices.interfaces;
            let interface = interfaces.iter().find(|each| each.name == attachment.interface);
            let Some(interface) = interface else { continue };
            let connected = self.context.networks.connect(vmi, interface, &attachment).await;
            if let Err(failure) = connected {
                warn!(error = %Chain(&failure), "cannot reconnect guest network");
            }
        }
    }

    pub(super) async fn plug_nic(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        qmp: &Qmp,
        name: &str,
    ) -> Result<(), ChangeError> {
        let interfaces = &vmi.spec.domain.devices.interfaces;
        let Some(interface) = interfaces.iter().find(|each| each.name == name) else {
            return Ok(());
        };
        let outlet = self.connect_further(vmi, live, interface).await?;
        let accelerator = live.running.spec().machine.accelerator;
        let nic = translate::nic(vmi, interface, &outlet, accelerator)?;
        let (taps, vhosts) = match &nic.backend {
            NicBackend::Tap { ifname, queues, vhost } => {
                let failed = |source| ChangeError::Tap { ifname: ifname.clone(), source };
                let (tap, count) = (ifname.clone(), *queues);
                let opened = tokio::task::spawn_blocking(move || open_tap(&tap, count)).await;
                let taps = opened.map_err(std::io::Error::other).flatten().map_err(failed)?;
                let vhosts = if *vhost { open_vhost_net(*queues) } else { Ok(Vec::new()) };
                (taps, vhosts.map_err(failed)?)
            }
            NicBackend::User { .. } => (Vec::new(), Vec::new()),
        };
        qmp.plug_nic(&nic, taps, vhosts).await?;
        let nic = qemu::machine::Nic { hot_plugged: true, ..nic };
        record(live, |machine| machine.nics.push(nic))
    }

    /// Connects a new interface. The chosen network is written to disk before it is set up, and
    /// removed if that fails: the network may have changed by the next attempt.
    async fn connect_further(
        &self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        interface: &virt::v1::Interface,
    ) -> Result<InterfaceBackend, ChangeError> {
        let owner = live.running.spec().confinement.identity.map_or(0, |identity| identity.uid);
        let mut attachments = live.attachments();
        let known = attachments.iter().position(|each| each.interface == interface.name);
        let known = known.map(|index| attachments.remove(index));
        let networks = &self.context.networks;
        let chosen =
            match known.filter(|known| !matches!(known.place, NetworkLocation::Bridge { .. })) {
                Some(known) => known,
                None => {
                    let definition = self.definition(vmi, &interface.name).await?;
                    let binding = binding(vmi, interface, definition.as_ref())?;
                    networks.choose(vmi, interface, binding, owner).await?
                }
            };
        attachments.push(chosen.clone());
        self.dir.store(ATTACHMENTS, &attachments).map_err(ChangeError::Record)?;
        live.set_attachments(attachments.clone());
        match networks.connect(vmi, interface, &chosen).await {
            Ok(outlet) => Ok(outlet),
            Err(failure) => {
                networks.disconnect(&chosen).await;
                attachments.pop();
                self.dir.store(ATTACHMENTS, &attachments).map_err(ChangeError::Record)?;
                live.set_attachments(attachments);
                Err(failure.into())
            }
        }
    }

    pub(super) async fn unplug_nic(
        &mut self,
        live: &LiveMachine,
        qmp: &Qmp,
        nic: &Nic,
    ) -> Result<(), ChangeError> {
        qmp.unplug_nic(nic, RELEASE).await?;
        record(live, |machine| machine.nics.retain(|each| each.name != nic.name))?;
        let (gone, rest): (Vec<_>, Vec<_>) =
            live.attachments().into_iter().partition(|each| each.interface == nic.name);
        for attachment in &gone {
            self.context.networks.disconnect(attachment).await;
        }
        self.dir.store(ATTACHMENTS, &rest).map_err(ChangeError::Record)?;
        live.set_attachments(rest);
        Ok(())
    }
}
