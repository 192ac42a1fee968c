//! The address claims of a guest or a node. Pure.

use std::net::Ipv4Addr;

use hci::Ipv4Net;
use hci::guest_network::{
    AddressClaim, AddressHolder, HOSTNAME, LOCATION, SUBDOMAIN, TARGET, is_assignable,
};
use serde_json::{Value, json};

use crate::object::{self, read};
use crate::record::instance::{InstanceFields, InstanceSpec, InstanceStatus};
use crate::record::metadata::OwnerFields;

/// One change of the claims of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AddressAction {
    /// It no longer has a holder.
    Release(Ipv4Addr),
    /// Gives an address that a guest already has to its holder.
    Adopt(Ipv4Addr, AddressHolder),
    /// Says where the guest is: the annotations to merge.
    Annotate(Ipv4Addr, Value),
}

/// Facts about a guest.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuestState<'a> {
    pub(super) has_machine: bool,
    pub(super) vmi: Option<&'a Value>,
    /// The network of the node that it runs on.
    pub(super) network: Option<Ipv4Net>,
}

/// Holder of the address of an instance.
pub(super) fn holder(vmi: &Value) -> AddressHolder {
    let (namespace, name) = (object::namespace(vmi).to_owned(), object::name(vmi).to_owned());
    let owner = object::controller(vmi).map(|owner| read::<OwnerFields<'_>>(owner).kind);
    match owner {
        Some("VirtualMachine") => AddressHolder::Machine { namespace, name },
        _ => AddressHolder::Instance { namespace, name },
    }
}

/// The name of the network on which an instance gets an address from us.
fn pod_network<'a>(spec: &InstanceSpec<'a>) -> Option<&'a str> {
    spec.networks.iter().find(|network| network.pod.is_some()).map(|network| network.name)
}

/// Whether an instance is on the guest network.
pub(super) fn wants_address(vmi: &Value) -> bool {
    pod_network(&read::<InstanceFields<'_>>(vmi).spec).is_some()
}

/// The address that the node gave to a running guest.
fn reported_address(vmi: &Value) -> Option<Ipv4Addr> {
    let InstanceFields { spec, status } = read(vmi);
    let network = pod_network(&spec)?;
    let own = status.interfaces.iter().find(|interface| interface.name == network)?;
    own.ip_address.parse().ok()
}

fn is_placed(status: &InstanceStatus<'_>) -> bool {
    !matches!(status.phase, "" | "Pending" | "Scheduling" | "Succeeded" | "Failed")
        && !status.node_name.is_empty()
}

/// Changes of the claims of one guest, all of which are `claims`.
pub(super) fn actions(guest: GuestState<'_>, claims: &[AddressClaim]) -> Vec<AddressAction> {
    let placed = guest.vmi.filter(|vmi| is_placed(&read::<InstanceFields<'_>>(vmi).status));
    let is_held = |claim: &&AddressClaim| match &claim.holder {
        AddressHolder::Machine { .. } => guest.has_machine || placed.is_some(),
        held => guest.vmi.is_some_and(|vmi| placed.is_some() || holder(vmi) == *held),
    };
    let (held, released): (Vec<_>, Vec<_>) = claims.iter().partition(is_held);
    let mut actions: Vec<_> =
        released.iter().map(|claim| AddressAction::Release(claim.address)).collect();
    // An address outside of the node's network is none that the guest has.
    let fits = |claim: &&&AddressClaim| {
        guest.network.is_none_or(|network| is_assignable(network, claim.address))
    };
    let current = held.iter().filter(fits).min_by_key(|claim| (&claim.holder, claim.address));
    match (placed, current) {
        (Some(vmi), None) => {
            let reported = reported_address(vmi).filter(|address| {
                guest.network.is_some_and(|network| is_assignable(network, *address))
            });
            let adopt = |address| AddressAction::Adopt(address, holder(vmi));
            actions.extend(reported.map(adopt));
        }
        (_, Some(current)) => {
            let wanted = annotations(placed);
            if !is_noted(current, &wanted) {
                actions.push(AddressAction::Annotate(current.address, wanted));
            }
        }
        (None, None) => {}
    }
    actions
}

/// Where the guest is, for the agents of all nodes.
fn annotations(placed: Option<&Value>) -> Value {
    let Some(vmi) = placed else {
        return json!({LOCATION: null, TARGET: null, HOSTNAME: null, SUBDOMAIN: null});
    };
    let some = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    let InstanceFields { spec, status } = read(vmi);
    let migration = status.migration_state;
    let is_moving = !migration.completed && !migration.failed;
    let target = if is_moving { migration.target_node } else { "" };
    let hostname = match spec.hostname {
        "" => object::name(vmi),
        hostname => hostname,
    };
    json!({
        LOCATION: status.node_name, TARGET: some(target),
        HOSTNAME: hostname, SUBDOMAIN: some(spec.subdomain),
    })
}

fn is_noted(claim: &AddressClaim, wanted: &Value) -> bool {
    let fields = [
        (LOCATION, &claim.node),
        (TARGET, &claim.target),
        (HOSTNAME, &claim.hostname),
        (SUBDOMAIN, &claim.subdomain),
    ];
    fields.iter().all(|(key, has)| wanted[*key].as_str() == has.as_deref())
}

#[cfg(test)]
mod tests {
    use hci::guest_network::claim_object;

    use super::*;

    fn vmi(phase: &str, owned: bool) -> Value {
        let owner = json!([{"kind": "VirtualMachine", "name": "a", "controller": true}]);
        json!({
            "metadata": {"namespace": "n", "name": "a",
                "ownerReferences": if owned { owner } else { json!([]) }},
            "spec": {"networks": [{"name": "default", "pod": {}}], "subdomain": "front"},
            "status": {"phase": phase, "nodeName": "n1",
                "interfaces": [{"name": "default", "ipAddress": "10.52.0.9"}]},
        })
    }

    fn claim(last: u8, machine: bool, notes: Value) -> AddressClaim {
        let (namespace, name) = ("n".to_owned(), "a".to_owned());
        let holder = if machine {
            AddressHolder::Machine { namespace, name }
        } else {
            AddressHolder::Instance { namespace, name }
        };
        let mut object = claim_object([10, 52, 0, last].into(), &holder);
        object["metadata"]["annotations"] = notes;
        AddressClaim::read(&object).unwrap()
    }

    fn said(has_machine: bool, vmi: Option<&Value>, claims: &[AddressClaim]) -> String {
        let network = Some("10.52.0.0/24".parse().unwrap());
        let all = actions(GuestState { has_machine, vmi, network }, claims);
        let say = |action: &AddressAction| match action {
            AddressAction::Release(address) => format!("release {address}"),
            AddressAction::Adopt(address, AddressHolder::Machine { .. }) => {
                format!("adopt {address} for the machine")
            }
            AddressAction::Adopt(address, _) => format!("adopt {address} for the instance"),
            AddressAction::Annotate(address, notes) => format!(
                "{address} at {} to {} as {}.{}",
                notes[LOCATION], notes[TARGET], notes[HOSTNAME], notes[SUBDOMAIN]
            ),
        };
        all.iter().map(say).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_machine_keeps_its_address_until_it_is_deleted() {
        let (bare, here) = (json!({}), json!({LOCATION: "n1", HOSTNAME: "a", SUBDOMAIN: "front"}));
        let running = vmi("Running", true);
        for (has_machine, vmi, claims, expected) in [
            (true, None, vec![claim(7, true, bare.clone())], ""),
            (
                true,
                Some(&running),
                vec![claim(7, true, bare.clone())],
                r#"10.52.0.7 at "n1" to null as "a"."front""#,
            ),
            (true, Some(&running), vec![claim(7, true, here.clone())], ""),
            (
                true,
                Some(&vmi("Failed", true)),
                vec![claim(7, true, here.clone())],
                "10.52.0.7 at null to null as null.null",
            ),
            (
                true,
                None,
                vec![claim(7, true, here.clone())],
                "10.52.0.7 at null to null as null.null",
            ),
            (false, None, vec![claim(7, true, here.clone())], "release 10.52.0.7"),
            // Its machine was deleted without it.
            (false, Some(&vmi("Running", false)), vec![claim(7, true, here.clone())], ""),
            // A guest from before addresses were claimed.
            (true, Some(&running), vec![], "adopt 10.52.0.9 for the machine"),
            (false, Some(&vmi("Running", false)), vec![], "adopt 10.52.0.9 for the instance"),
            (true, Some(&vmi("Pending", true)), vec![], ""),
            // An instance of its own, and what it leaves behind.
            (false, Some(&vmi("Pending", false)), vec![claim(7, false, bare.clone())], ""),
            (false, None, vec![claim(7, false, bare.clone())], "release 10.52.0.7"),
            (true, Some(&vmi("Pending", true)), vec![claim(7, false, bare)], "release 10.52.0.7"),
        ] {
            assert_eq!(said(has_machine, vmi, &claims), expected, "{vmi:?} {claims:?}");
        }
    }

    #[test]
    fn the_target_of_a_migration_is_known_while_it_goes_on() {
        let here = json!({LOCATION: "n1", HOSTNAME: "a", SUBDOMAIN: "front"});
        let mut moving = vmi("Running", true);
        moving["status"]["migrationState"] = json!({"targetNode": "n2"});
        let claims = [claim(7, true, here)];
        let expected = r#"10.52.0.7 at "n1" to "n2" as "a"."front""#;
        assert_eq!(said(true, Some(&moving), &claims), expected);
        moving["status"]["migrationState"]["failed"] = json!(true);
        assert_eq!(said(true, Some(&moving), &claims), "");
    }
}
