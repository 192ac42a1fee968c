//! Which machine has which address of a pool. Pure.
//!
//! An interface keeps its address for as long as its MAC address is claimed and nothing else is
//! wanted for it; then wanted addresses are given, and then any that are free. An address that
//! an interface has is never given to another, whatever is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::PoolLayout;

/// MAC addresses by address.
pub type Allocated = BTreeMap<Ipv4Addr, String>;

/// One interface that is to have an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressRequest {
    pub mac: String,
    /// The address that it is to have.
    pub wanted: Option<Ipv4Addr>,
    /// The address that it had before it was paused.
    pub previous: Option<Ipv4Addr>,
}

/// Why an interface does not have the address that it is to have, in upstream's words where it has
/// them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    #[error("designated ip {0} is not in subnet {1}")]
    Outside(Ipv4Addr, Ipv4Net),
    #[error("designated ip {0} is not in the pool's range {1}-{2}")]
    OutOfRange(Ipv4Addr, Ipv4Addr, Ipv4Addr),
    #[error("designated ip {0} is that of the DHCP server or the router")]
    Reserved(Ipv4Addr),
    #[error("designated ip {0} is excluded")]
    Excluded(Ipv4Addr),
    #[error("designated ip {0} is already allocated")]
    Taken(Ipv4Addr),
    #[error("another interface on the network has the mac address {0}")]
    DuplicateMac(String),
    #[error("no more ip addresses left in network {0} ipam")]
    Exhausted(String),
}

/// Result of a request. An interface whose wish failed keeps the address that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub address: Option<Ipv4Addr>,
    pub error: Option<AllocationError>,
}

/// Addresses of a pool after all requests, and what each request led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub allocated: Allocated,
    pub outcomes: Vec<Outcome>,
}

/// Gives addresses of the pool of `network`. Of two requests that exclude each other the first one
/// succeeds.
pub fn allocate(
    network: &str,
    layout: &PoolLayout,
    current: &Allocated,
    requests: &[AddressRequest],
) -> Allocation {
    let mut first_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, request) in requests.iter().enumerate() {
        first_of.entry(&request.mac).or_insert(index);
    }
    let mut allocated = Allocated::new();
    let mut held: BTreeMap<usize, Ipv4Addr> = BTreeMap::new();
    for (address, mac) in current.iter().filter(|(own, _)| layout.is_assignable(**own)) {
        if let Some(index) = first_of.get(mac.as_str())
            // Only the first one counts where the record has a MAC address twice.
            && !held.contains_key(index)
        {
            held.insert(*index, *address);
            allocated.insert(*address, mac.clone());
        }
    }
    let mut errors: BTreeMap<usize, AllocationError> = BTreeMap::new();
    for (index, request) in requests.iter().enumerate() {
        if first_of.get(request.mac.as_str()) != Some(&index) {
            errors.insert(index, AllocationError::DuplicateMac(request.mac.clone()));
            continue;
        }
        let Some(wanted) = request.wanted.filter(|own| held.get(&index) != Some(own)) else {
            continue;
        };
        match check(layout, &allocated, wanted) {
            Ok(()) => {
                if let Some(old) = held.insert(index, wanted) {
                    allocated.remove(&old);
                }
                allocated.insert(wanted, request.mac.clone());
            }
            Err(error) => drop(errors.insert(index, error)),
        }
    }
    give_free(network, layout, requests, &mut allocated, &mut held, &mut errors);
    let outcomes = (0..requests.len())
        .map(|index| Outcome { address: held.get(&index).copied(), error: errors.remove(&index) })
        .collect();
    Allocation { allocated, outcomes }
}

/// Whether an address can be assigned to the requester.
fn check(
    layout: &PoolLayout,
    allocated: &Allocated,
    wanted: Ipv4Addr,
) -> Result<(), AllocationError> {
    if !layout.subnet.contains(&wanted) {
        return Err(AllocationError::Outside(wanted, layout.subnet));
    }
    if layout.excluded.contains(&wanted) {
        return Err(AllocationError::Excluded(wanted));
    }
    if layout.mark(wanted).is_some() {
        return Err(AllocationError::Reserved(wanted));
    }
    if !layout.contains(wanted) {
        return Err(AllocationError::OutOfRange(wanted, layout.first, layout.last));
    }
    if allocated.contains_key(&wanted) {
        return Err(AllocationError::Taken(wanted));
    }
    Ok(())
}

/// Gives those without an address the one that they had before, or the lowest free one.
fn give_free(
    network: &str,
    layout: &PoolLayout,
    requests: &[AddressRequest],
    allocated: &mut Allocated,
    held: &mut BTreeMap<usize, Ipv4Addr>,
    errors: &mut BTreeMap<usize, AllocationError>,
) {
    let is_without = |index: &usize| !held.contains_key(index) && !errors.contains_key(index);
    let without: BTreeSet<usize> = (0..requests.len()).filter(is_without).collect();
    for index in &without {
        let request = &requests[*index];
        if let Some(previous) = request.previous
            && layout.is_assignable(previous)
            && !allocated.contains_key(&previous)
        {
            allocated.insert(previous, request.mac.clone());
            held.insert(*index, previous);
        }
    }
    let range = u32::from(layout.first)..=u32::from(layout.last);
    let mut free = range.map(Ipv4Addr::from).filter(|own| layout.is_assignable(*own));
    for index in without {
        if held.contains_key(&index) {
            continue;
        }
        match free.find(|address| !allocated.contains_key(address)) {
            Some(address) => {
                allocated.insert(address, requests[index].mac.clone());
                held.insert(index, address);
            }
            None => {
                errors.insert(index, AllocationError::Exhausted(network.to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
