//! The interfaces of a machine that is started: each gets a place in a network, which is written down
//! before anything is made of it.

use std::collections::BTreeMap;

use client::Fault;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use qemu::process::ProcessUser;
use serde_json::Value;

use super::StartError;
use crate::api::present;
use crate::machine::{ATTACHMENTS, Attachment, NetworkLocation, Vmi};
use crate::network::{InterfaceBackend, binding, definition_of};
use crate::vmi::actor::VmiActor;

impl VmiActor {
    /// Connects all interfaces. The chosen network is on disk before it is set up.
    pub(in crate::vmi) async fn connect(
        &self,
        vmi: &Vmi,
        identity: Option<&ProcessUser>,
    ) -> Result<BTreeMap<String, InterfaceBackend>, StartError> {
        let failed = |doing| {
            let path = self.dir.path().join(ATTACHMENTS);
            move |source| StartError::File { doing, path, source }
        };
        let known: Option<Vec<Attachment>> = self.dir.load(ATTACHMENTS).map_err(failed("read"))?;
        let mut attachments = known.unwrap_or_default();
        let owner = identity.map_or(0, |identity| identity.uid);
        let interfaces = vmi.spec.domain.devices.interfaces.iter();
        let wanted: Vec<_> =
            interfaces.filter(|each| each.state.as_deref() != Some("absent")).collect();
        for interface in &wanted {
            let known = attachments.iter().position(|each| each.interface == interface.name);
            if let Some(index) = known {
                // Which bridge a network means may have changed since the last attempt; an
                // address is kept.
                if !matches!(attachments[index].place, NetworkLocation::Bridge { .. }) {
                    attachments[index].owner = owner;
                    continue;
                }
                attachments.remove(index);
            }
            let definition = self.definition(vmi, &interface.name).await?;
            let binding = binding(vmi, interface, definition.as_ref())?;
            let chosen = self.context.networks.choose(vmi, interface, binding, owner).await?;
            attachments.push(chosen);
        }
        self.dir.store(ATTACHMENTS, &attachments).map_err(failed("write"))?;
        let mut outlets = BTreeMap::new();
        for interface in wanted {
            let attachment = attachments.iter().find(|each| each.interface == interface.name);
            let attachment = attachment.expect("one was chosen above for each");
            let outlet = self.context.networks.connect(vmi, interface, attachment).await?;
            outlets.insert(interface.name.clone(), outlet);
        }
        Ok(outlets)
    }

    /// The NetworkAttachmentDefinition that the network of this name refers to.
    pub(in crate::vmi) async fn definition(
        &self,
        vmi: &Vmi,
        network: &str,
    ) -> Result<Option<Value>, StartError> {
        let network = vmi.spec.networks.iter().find(|each| each.name == network);
        let Some(multus) = network.and_then(|network| network.multus.as_ref()) else {
            return Ok(None);
        };
        let (namespace, name) = definition_of(vmi, &multus.network_name);
        let gvk = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
        let kind = ApiResource::from_gvk_with_plural(&gvk, "network-attachment-definitions");
        let client = self.context.client.clone();
        let definitions = Api::<DynamicObject>::namespaced_with(client, namespace, &kind);
        let found = present(definitions.get(name).await).map_err(|source| {
            StartError::Definition { name: multus.network_name.clone(), source: Fault(source) }
        })?;
        Ok(found.map(|found| found.data))
    }
}
