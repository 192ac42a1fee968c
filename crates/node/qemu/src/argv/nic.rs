//! Network interfaces on the command line, and the same for plugging one in.

use std::os::fd::RawFd;

use serde_json::{Value, json};

use super::TapFds;
use super::line::{Line, escape, set_some};
use crate::machine::{Nic, NicBackend, NicModel, Protocol};

pub(super) fn plug(line: &mut Line, nic: &Nic, fds: &TapFds) {
    line.option("-netdev", netdev(nic, fds));
    let bus = line.port(&nic.id(), nic.pci_bus);
    line.device(&device(nic, &bus));
}

/// The host's side of an interface, in the syntax of `-netdev`.
fn netdev(nic: &Nic, fds: &TapFds) -> String {
    let id = nic.host_id();
    match &nic.backend {
        NicBackend::Tap { .. } => {
            let mut tap = format!("tap,id={id},fds={}", join(&fds.queues));
            if !fds.vhost.is_empty() {
                tap.push_str(&format!(",vhost=on,vhostfds={}", join(&fds.vhost)));
            }
            tap
        }
        NicBackend::User { network, hostname, forwards } => {
            let mut user = format!("user,id={id}");
            if let Some(network) = network {
                user.push_str(&format!(",net={}", escape(network)));
            }
            if let Some(hostname) = hostname {
                user.push_str(&format!(",hostname={}", escape(hostname)));
            }
            for forward in forwards {
                let rule = forward_rule(forward);
                user.push_str(&format!(",hostfwd={}", escape(&rule)));
            }
            user
        }
    }
}

fn forward_rule(forward: &crate::machine::Forward) -> String {
    let protocol = match forward.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    format!("{protocol}:{}:{}-:{}", forward.host, forward.host_port, forward.guest_port)
}

fn join(fds: &[RawFd]) -> String {
    fds.iter().map(ToString::to_string).collect::<Vec<_>>().join(":")
}

/// The host's side of an interface, as the argument of `netdev_add`. The descriptors of a tap
/// were sent before, under these names.
pub fn netdev_object(nic: &Nic, fd_names: &[String], vhost_names: &[String]) -> Value {
    match &nic.backend {
        NicBackend::Tap { .. } => {
            let mut tap = json!({
                "type": "tap", "id": nic.host_id(), "fds": fd_names.join(":"),
            });
            if !vhost_names.is_empty() {
                tap["vhost"] = json!(true);
                tap["vhostfds"] = json!(vhost_names.join(":"));
            }
            tap
        }
        NicBackend::User { network, hostname, forwards } => {
            let mut user = json!({ "type": "user", "id": nic.host_id() });
            set_some(&mut user, "net", network.clone());
            set_some(&mut user, "hostname", hostname.clone());
            let rules = forwards.iter().map(|forward| json!({ "str": forward_rule(forward) }));
            user["hostfwd"] = rules.collect();
            user
        }
    }
}

/// The device that the guest sees, behind the root port `bus`.
pub fn device(nic: &Nic, bus: &str) -> Value {
    let mut device = json!({
        "driver": nic.model.device(),
        "id": nic.id(),
        "bus": bus,
        "netdev": nic.host_id(),
        "mac": nic.mac,
    });
    match nic.boot_index {
        Some(index) => device["bootindex"] = json!(index),
        // Boot code costs time at every start; only who boots from the network wants it.
        None => device["romfile"] = json!(""),
    }
    set_some(&mut device, "acpi-index", nic.acpi_index);
    if nic.model == NicModel::Virtio {
        set_some(&mut device, "host_mtu", nic.mtu);
        if let NicBackend::Tap { queues, .. } = nic.backend
            && queues > 1
        {
            device["mq"] = json!(true);
            device["vectors"] = json!(2 * u32::from(queues) + 2);
        }
    }
    device
}
