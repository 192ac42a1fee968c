//! Connections over networks beside the guest network, as MultiNetworkPolicies judge them. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use net::BridgedPacket;

use super::{TracePath, TraceQuery, TraceStep};
use crate::policy::{BridgedInterface, Ruling};

/// The ways of a machine over its interfaces on such networks. There is one for each interface that
/// reaches the destination itself; if none does and the machine is not on the guest network, or the
/// destination has IPv6, which the guest network has not, any interface may be used.
pub(super) fn paths(
    nics: &[BridgedInterface],
    query: &TraceQuery<'_>,
    is_on_guest_network: bool,
) -> Vec<TracePath> {
    let machine = format!("{}/{}", query.namespace, query.machine);
    let own: Vec<_> = nics.iter().filter(|nic| nic.machine == machine).collect();
    let is_direct = |nic: &&BridgedInterface| {
        receiver(nics, nic, query.to).is_some()
            || nic.subnets.iter().any(|subnet| subnet.contains(&query.to))
    };
    let mut ways: Vec<_> = own.iter().copied().filter(|nic| is_direct(nic)).collect();
    if ways.is_empty() && (!is_on_guest_network || query.to.is_ipv6()) {
        ways = own;
    }
    ways.into_iter().map(|nic| path(nics, nic, query)).collect()
}

/// The interface that has the address on the network of `sender`.
fn receiver<'a>(
    nics: &'a [BridgedInterface],
    sender: &BridgedInterface,
    to: IpAddr,
) -> Option<&'a BridgedInterface> {
    nics.iter().find(|nic| nic.network == sender.network && nic.addresses.contains(&to))
}

fn path(nics: &[BridgedInterface], nic: &BridgedInterface, query: &TraceQuery<'_>) -> TracePath {
    let BridgedInterface { machine, interface, network, addresses, .. } = nic;
    let known = addresses.iter().find(|own| own.is_ipv4() == query.to.is_ipv4());
    let place = format!("{machine}, interface {interface} on network {network}");
    let detail = match known {
        Some(address) => format!("{address} of {place}"),
        None => format!("no address is known of {place}: rules about peers do not allow it"),
    };
    let nowhere: IpAddr = match query.to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let packet = BridgedPacket {
        from: known.copied().unwrap_or(nowhere),
        to: query.to,
        protocol: query.protocol.into(),
        port: query.port,
    };
    let mut steps = vec![TraceStep { stage: "source", is_accepted: true, detail }];
    let Ruling { is_accepted, detail } = nic.egress(&packet);
    steps.push(TraceStep { stage: "egress", is_accepted, detail });
    if is_accepted {
        steps.push(match receiver(nics, nic, query.to) {
            Some(receiver) => {
                let Ruling { is_accepted, detail } = receiver.ingress(&packet);
                let detail = format!("{}: {detail}", receiver.machine);
                TraceStep { stage: "ingress", is_accepted, detail }
            }
            None => TraceStep {
                stage: "forward",
                is_accepted: true,
                detail: format!("no machine of the cluster is known to have {}", query.to),
            },
        });
    }
    TracePath { to: SocketAddr::from((query.to, query.port)).to_string(), steps }
}

#[cfg(test)]
mod tests;
