//! The address that the cluster gave to a guest: see `hci::guest_network`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use client::Fault;
use hci::guest_network::{AddressClaim, AddressHolder, SELECTOR, is_assignable};
use ipnet::Ipv4Net;
use k8s_openapi::api::networking::v1::IPAddress;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::machine::Vmi;
use crate::overlay::read_claim;

/// All addresses of the guest network that are given. A server that has none, because it is older
/// or another one, gives none.
pub(super) async fn list(client: &Client) -> Result<Vec<AddressClaim>, Fault> {
    let addresses = Api::<IPAddress>::all(client.clone());
    match addresses.list(&ListParams::default().labels(SELECTOR)).await {
        Ok(found) => Ok(found.items.into_iter().filter_map(read_claim).collect()),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(vec![]),
        Err(failure) => Err(Fault(failure)),
    }
}

/// The address that the guest or its machine holds.
pub(super) fn own(vmi: &Vmi, network: Ipv4Net, claims: &[AddressClaim]) -> Option<Ipv4Addr> {
    let is_own = |claim: &&AddressClaim| match &claim.holder {
        AddressHolder::Machine { namespace, name }
        | AddressHolder::Instance { namespace, name } => {
            *namespace == vmi.namespace && *name == vmi.name
        }
        AddressHolder::Node { .. } => false,
    };
    let fitting = claims.iter().filter(|claim| is_assignable(network, claim.address));
    let first = fitting.filter(is_own).min_by_key(|claim| (&claim.holder, claim.address));
    first.map(|claim| claim.address)
}

/// A free address, for a guest without a claim. The controller adopts it.
pub(super) fn unclaimed(
    vmi: &Vmi,
    interface: &str,
    pool: &net::Pool,
    claims: &[AddressClaim],
    used: &BTreeSet<Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let key = format!("{}/{}/{interface}", vmi.namespace, vmi.name);
    let claimed = claims.iter().map(|claim| claim.address);
    pool.choose(&key, &claimed.chain(used.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use hci::guest_network::claim_object;
    use serde_json::json;

    use super::*;
    use crate::machine::fixture::vmi;

    #[test]
    fn a_guest_has_the_address_of_its_machine_and_never_one_of_others() {
        let vmi = vmi(json!({"domain": {}}));
        let network: Ipv4Net = "10.52.0.0/24".parse().unwrap();
        let (namespace, name) = (vmi.namespace.clone(), vmi.name.clone());
        let machine = AddressHolder::Machine { namespace: namespace.clone(), name: name.clone() };
        let instance = AddressHolder::Instance { namespace, name: name.clone() };
        let stranger = AddressHolder::Machine { namespace: "other".into(), name };
        let claim = |holder: &AddressHolder, address: [u8; 4]| {
            AddressClaim::read(&claim_object(address.into(), holder)).unwrap()
        };
        let theirs = claim(&stranger, [10, 52, 0, 2]);
        for (claims, expected) in [
            (vec![theirs.clone()], None),
            (vec![theirs.clone(), claim(&machine, [10, 52, 0, 9])], Some([10, 52, 0, 9])),
            (vec![claim(&instance, [10, 52, 0, 3])], Some([10, 52, 0, 3])),
            (
                vec![claim(&instance, [10, 52, 0, 3]), claim(&machine, [10, 52, 0, 9])],
                Some([10, 52, 0, 9]),
            ),
            (vec![claim(&machine, [10, 60, 0, 9])], None),
        ] {
            assert_eq!(own(&vmi, network, &claims), expected.map(Ipv4Addr::from), "{claims:?}");
        }
        let pool = net::Pool::new("10.52.0.0/29".parse().unwrap(), [[10, 52, 0, 1].into()]);
        let claims = [2, 3, 4].map(|last| claim(&stranger, [10, 52, 0, last]));
        let used = BTreeSet::from([[10, 52, 0, 5].into()]);
        let free = unclaimed(&vmi, "default", &pool, &claims, &used);
        assert_eq!(free, Some([10, 52, 0, 6].into()));
    }
}
