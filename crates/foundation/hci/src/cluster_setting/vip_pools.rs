//! The rule for `vip-pools`: ranges of addresses by namespace. Pure.

use std::net::Ipv4Addr;

use ipnet::IpNet;
use serde_json::{Map, Value};

/// Each namespace has networks, or ranges from one address to another, separated by commas.
pub(super) fn vip_pools(pools: &Map<String, Value>) -> Result<(), String> {
    for (namespace, pool) in pools {
        let Some(pool) = pool.as_str() else {
            return Err(format!("the pool of {namespace} is {pool}: it has to be a text"));
        };
        if pool.contains('-') && pool.contains('/') {
            return Err(format!(
                "invalid Pool value {pool} of {namespace}, error: IP Range and CIDR cannot be used \
                 together"
            ));
        }
        pool.split(',').try_for_each(|part| check(part, pool, namespace))?;
    }
    Ok(())
}

fn check(part: &str, pool: &str, namespace: &str) -> Result<(), String> {
    let is_address = |text: &str| text.parse::<Ipv4Addr>().is_ok();
    match part.split_once('-') {
        None if part.parse::<IpNet>().is_ok() => Ok(()),
        None => Err(format!(
            "invalid CIDR value {pool} of {namespace}, error: invalid CIDR address: {part}"
        )),
        Some(("", _) | (_, "")) => Err(format!("invalid IP Range value {pool} of {namespace}")),
        Some((first, last)) if is_address(first) && is_address(last) => Ok(()),
        Some(_) => Err(format!("invalid IP value {pool} of {namespace}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pools_are_networks_or_ranges() {
        for (pool, expected) in [
            ("10.0.0.0/24,10.1.0.0/16", ""),
            ("10.0.0.1-10.0.0.9", ""),
            ("10.0.0.1", "invalid CIDR value"),
            ("x", "invalid CIDR value"),
            ("-10.0.0.1", "invalid IP Range value"),
            ("10.0.0.1-x", "invalid IP value"),
            ("10.0.0.1-10.0.0.9,10.1.0.0/16", "cannot be used together"),
        ] {
            let Value::Object(pools) = json!({"default": pool}) else {
                unreachable!("it is an object")
            };
            let message = vip_pools(&pools).err().unwrap_or_default();
            assert_eq!(message.is_empty(), expected.is_empty(), "{pool}: {message}");
            assert!(message.contains(expected), "{pool}: {message}");
        }
    }
}
