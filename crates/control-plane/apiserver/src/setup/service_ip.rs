//! Addresses of services: taken from a range, each held by an IPAddress object, so that
//! two servers can never give out the same one.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use base::clock;
use bytes::Bytes;
use serde_json::{Value, json};
use store::{Expect, Write, WriteChange, WriteError};

use crate::api::Api;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::item;
use crate::verbs::object;

/// Where services are stored.
pub(crate) const SERVICES: &str = "services/specs";
const ADDRESSES: &str = "ipaddresses";
/// How many random addresses are tried before the range is searched.
const DRAWS: u32 = 32;

/// A range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    network: u32,
    bits: u8,
}

/// Why a text is not a range of service addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an IPv4 range of 8 to 28 bits like 10.43.0.0/16")]
pub struct CidrError {
    text: String,
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let error = || CidrError { text: text.to_owned() };
        let (address, bits) = text.split_once('/').ok_or_else(error)?;
        let address: Ipv4Addr = address.parse().map_err(|_| error())?;
        let bits: u8 = bits.parse().map_err(|_| error())?;
        if !(8..=28).contains(&bits) {
            return Err(error());
        }
        let mask = u32::MAX << (32 - bits);
        Ok(Self { network: u32::from(address) & mask, bits })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", Ipv4Addr::from(self.network), self.bits)
    }
}

impl Cidr {
    fn size(self) -> u32 {
        1 << (32 - self.bits)
    }

    /// The first usable address, which is the API's own.
    pub fn first(self) -> IpAddr {
        Ipv4Addr::from(self.network + 1).into()
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.network);
        offset > 0 && offset < self.size() - 1
    }
}

/// Gives a service its address, if it wants one. Returns the address that was taken.
pub(crate) async fn assign(api: &Api, service: &mut Value) -> ApiResult<Option<String>> {
    has_families(service)?;
    let spec = &service["spec"];
    let wanted = spec["clusterIP"].as_str().unwrap_or("").to_owned();
    if spec["type"] == "ExternalName" || wanted == "None" {
        return Ok(None);
    }
    let name = object::name(service).to_owned();
    let subject = StatusSubject { group: "", resource: "Service", name: &name };
    let refuse = |why: String| {
        let error = schema::FieldError::invalid("spec.clusterIPs", vec![wanted.clone()], why);
        ApiError::invalid(subject, &[error])
    };
    let taken = if wanted.is_empty() {
        draw(api, service).await?
    } else {
        let range = api.settings.service_range;
        let address: Ipv4Addr = wanted.parse().map_err(|_| {
            refuse("failed to allocate IP: only IPv4 addresses are supported".to_owned())
        })?;
        if !range.contains(address) {
            return Err(refuse(format!(
                "failed to allocate IP {wanted}: the provided network does not match the current range"
            )));
        }
        match claim(api, address, service).await {
            Ok(()) => address,
            Err(WriteError::Conflict { .. }) => {
                return Err(refuse(format!(
                    "failed to allocate IP {wanted}: provided IP is already allocated"
                )));
            }
            Err(error) => return Err(crate::api::write_failure(&error, subject)),
        }
    };
    let text = taken.to_string();
    let spec = &mut service["spec"];
    spec["clusterIP"] = text.clone().into();
    spec["clusterIPs"] = json!([text]);
    Ok(Some(text))
}

/// Refuses what this cluster does not have: addresses are IPv4 here. A service without an
/// address and without a selector leads wherever its owner says.
fn has_families(service: &Value) -> ApiResult<()> {
    let spec = &service["spec"];
    let open =
        spec["clusterIP"] == "None" && spec["selector"].as_object().is_none_or(|s| s.is_empty());
    if open || spec["type"] == "ExternalName" {
        return Ok(());
    }
    let mut errors = Vec::new();
    if spec["ipFamilyPolicy"] == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(schema::FieldError::invalid("spec.ipFamilyPolicy", "RequireDualStack", why));
    }
    let families = spec["ipFamilies"].as_array().into_iter().flatten();
    for (index, family) in families.enumerate().filter(|(_, family)| **family != "IPv4") {
        let field = format!("spec.ipFamilies[{index}]");
        let why = "not configured on this cluster";
        errors.push(schema::FieldError::invalid(field, family.clone(), why));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let subject = StatusSubject { group: "", resource: "Service", name: object::name(service) };
    Err(ApiError::invalid(subject, &errors))
}

async fn draw(api: &Api, service: &Value) -> ApiResult<Ipv4Addr> {
    let range = api.settings.service_range;
    let random = |round: u32| {
        let bytes = uuid::Uuid::new_v4().into_bytes();
        let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let usable = range.size() - 3;
        // After a few draws, walk: a nearly full range still has to give its last address.
        if round < DRAWS { number % usable } else { (round - DRAWS) % usable }
    };
    for round in 0..DRAWS + range.size() {
        let address = Ipv4Addr::from(range.network + 2 + random(round));
        if api.store.get(ADDRESSES, &address.to_string()).is_some() {
            continue;
        }
        match claim(api, address, service).await {
            Ok(()) => return Ok(address),
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => {
                let name = object::name(service);
                let subject = StatusSubject { group: "", resource: "services", name };
                return Err(crate::api::write_failure(&error, subject));
            }
        }
    }
    Err(ApiError::internal(format!("failed to allocate a serviceIP: range {range} is full")))
}

async fn claim(api: &Api, address: Ipv4Addr, service: &Value) -> Result<(), WriteError> {
    let claim = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": address.to_string(),
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": clock::now_rfc3339(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "resource": "services",
            "namespace": object::namespace(service),
            "name": object::name(service),
        }},
    });
    let write = Write {
        table: ADDRESSES.into(),
        name: address.to_string().into(),
        expect: Expect::Absent,
        change: WriteChange::Put(Bytes::from(item::encode(&claim))),
    };
    api.store.write(write).await.map(|_| ())
}

/// Frees the address of a service that is gone or was never made.
pub(crate) async fn release(api: &Api, service: &Value) {
    let Some(address) = service["spec"]["clusterIP"].as_str().filter(|ip| *ip != "None") else {
        return;
    };
    release_address(api, address).await;
}

pub(crate) async fn release_address(api: &Api, address: &str) {
    let write = Write {
        table: ADDRESSES.into(),
        name: address.into(),
        expect: Expect::Any,
        change: WriteChange::Delete,
    };
    match api.store.write(write).await {
        Ok(_) | Err(WriteError::Conflict { .. }) => {}
        Err(error) => {
            tracing::warn!(address, error = %base::Chain(&error), "cannot release service address");
        }
    }
}

const RANGE: std::ops::RangeInclusive<i64> = 30000..=32767;

/// Gives node ports to the ports of a service that want one.
pub(crate) fn assign_node_ports(api: &Api, service: &mut Value) -> ApiResult<()> {
    let ty = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
    let wants = ty == "NodePort"
        || (ty == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] != false);
    if !wants {
        return Ok(());
    }
    let own = object::key(object::namespace(service), object::name(service));
    let mut used: Vec<i64> = Vec::new();
    for entry in crate::schemas::refresh::entries(api, SERVICES) {
        if *entry.name != *own {
            let other = entry.item.to_value();
            let ports = other["spec"]["ports"].as_array().cloned().unwrap_or_default();
            used.extend(ports.iter().filter_map(|port| port["nodePort"].as_i64()));
            used.extend(other["spec"]["healthCheckNodePort"].as_i64());
        }
    }
    let name = object::name(service).to_owned();
    let subject = StatusSubject { group: "", resource: "Service", name: &name };
    for (index, port) in object::list_mut(service, "/spec/ports").enumerate() {
        let field = format!("spec.ports[{index}].nodePort");
        match port["nodePort"].as_i64().filter(|port| *port != 0) {
            Some(wanted) if !RANGE.contains(&wanted) => {
                let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                let error = schema::FieldError::invalid(field, wanted, why);
                return Err(ApiError::invalid(subject, &[error]));
            }
            Some(wanted) if used.contains(&wanted) => {
                let error = schema::FieldError::invalid(
                    field,
                    wanted,
                    "provided port is already allocated",
                );
                return Err(ApiError::invalid(subject, &[error]));
            }
            Some(_) => {}
            None => {
                port["nodePort"] = draw_port(&mut used)?.into();
            }
        }
    }
    // Load balancers check each node for pods of the service at this port.
    let checked = ty == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local";
    if checked && service["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0) == 0 {
        service["spec"]["healthCheckNodePort"] = draw_port(&mut used)?.into();
    }
    Ok(())
}

fn draw_port(used: &mut Vec<i64>) -> ApiResult<i64> {
    let free = RANGE.clone().find(|candidate| !used.contains(candidate));
    let free = free.ok_or_else(|| ApiError::internal("no node port is free"))?;
    used.push(free);
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_checked() {
        let range: Cidr = "10.43.7.0/16".parse().unwrap();
        assert_eq!(range.to_string(), "10.43.0.0/16");
        assert_eq!(range.first().to_string(), "10.43.0.1");
        assert!(range.contains("10.43.255.254".parse().unwrap()));
        assert!(!range.contains("10.43.255.255".parse().unwrap()));
        assert!(!range.contains("10.44.0.1".parse().unwrap()));
        for bad in ["10.0.0.0", "10.0.0.0/33", "x/16", "::/64", "10.0.0.0/30"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }
}
