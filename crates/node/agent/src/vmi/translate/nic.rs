//! Network interfaces: the guest's side, and the address each has unless it was given one.

use qemu::machine::{Accelerator, LinkState, Nic, NicBackend, NicModel};
use virt::v1::Interface;

use super::{TranslateContext, TranslateError};
use crate::machine::{Vmi, mac};
use crate::network::InterfaceBackend;

pub(super) fn nics(vmi: &Vmi, around: &TranslateContext<'_>) -> Result<Vec<Nic>, TranslateError> {
    let interfaces = vmi.spec.domain.devices.interfaces.iter();
    let present = interfaces.filter(|interface| interface.state.as_deref() != Some("absent"));
    present
        .map(|interface| {
            let Some(outlet) = around.outlets.get(&interface.name) else {
                let problem = "its network is not there".into();
                let interface = interface.name.clone();
                return Err(TranslateError::Interface { interface, problem });
            };
            nic(vmi, interface, outlet, around.host.accelerator)
        })
        .collect()
}

pub(crate) fn nic(
    vmi: &Vmi,
    spec: &Interface,
    outlet: &InterfaceBackend,
    accelerator: Accelerator,
) -> Result<Nic, TranslateError> {
    let mut nic = Nic::new(spec.name.clone(), mac(vmi, spec), outlet.backend.clone());
    nic.model = match spec.model.as_deref().unwrap_or_default() {
        "" | "virtio" => NicModel::Virtio,
        "e1000" => NicModel::E1000,
        "e1000e" => NicModel::E1000e,
        "rtl8139" => NicModel::Rtl8139,
        "pcnet" => NicModel::Pcnet,
        "ne2k_pci" => NicModel::Ne2kPci,
        other => {
            let problem = format!(
                "the model {other:?} is not one of virtio, e1000, e1000e, \
                                   rtl8139, pcnet, ne2k_pci"
            );
            return Err(TranslateError::Interface { interface: spec.name.clone(), problem });
        }
    };
    // The kernel moves packets only for guests whose processors it runs.
    if let NicBackend::Tap { vhost, .. } = &mut nic.backend {
        *vhost &= accelerator == Accelerator::Kvm;
    }
    nic.boot_index = spec.boot_order.and_then(|order| u32::try_from(order).ok());
    nic.link = if spec.state.as_deref() == Some("down") { LinkState::Down } else { LinkState::Up };
    nic.mtu = outlet.mtu;
    nic.acpi_index = spec.acpi_index.and_then(|index| u32::try_from(index).ok());
    nic.pci_bus = super::pci_bus(&spec.name, spec.pci_address.as_deref())?;
    Ok(nic)
}
