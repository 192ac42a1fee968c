//! Services: addresses outside the cluster are an administrator's to give.
//!
//! Every node sends connections to `spec.externalIPs` to the guests of the service, whatever the
//! address is: that of another tenant, of a node, of the API. A right to write services alone must
//! therefore not be enough (CVE-2020-8554).

use serde_json::Value;

use super::{AdmissionResult, Refusal, Write};

const FIELD: &str = "spec.externalIPs";
/// The subresource whose creation represents the right to name such addresses.
const RIGHT: &str = "services/externalips";

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object.filter(|_| !write.trusted) else { return Ok(()) };
    let known = write.old.map(external_addresses).unwrap_or_default();
    let added = external_addresses(object).into_iter().find(|address| !known.contains(address));
    let Some(address) = added else { return Ok(()) };
    if write.writer.may_create("", RIGHT, write.namespace, write.name) {
        return Ok(());
    }
    let user = write.writer.name();
    let message = format!(
        "{FIELD} may not contain {address}: user {user} cannot create {RIGHT} in namespace {}; \
         an address of a pool is given to a load balancer",
        write.namespace
    );
    Err(Refusal::new(403, FIELD, message))
}

fn external_addresses(service: &Value) -> Vec<&str> {
    let list = service.pointer("/spec/externalIPs").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, Tenant, uuid};
    use super::*;

    #[test]
    fn external_addresses_need_a_right_of_their_own() {
        let service = |addresses: &[&str]| json!({"spec": {"externalIPs": addresses}});
        let admin = Cluster(Vec::new());
        for (old, new, is_admin, trusted, refused) in [
            (None, service(&["192.0.2.1"]), false, false, Some("192.0.2.1")),
            (None, service(&[]), false, false, None),
            (None, service(&["192.0.2.1"]), true, false, None),
            (None, service(&["192.0.2.1"]), false, true, None),
            // An edit of a service that has one keeps it, and adds none.
            (Some(service(&["192.0.2.1"])), service(&["192.0.2.1"]), false, false, None),
            (Some(service(&["192.0.2.1"])), service(&[]), false, false, None),
            (
                Some(service(&["192.0.2.1"])),
                service(&["192.0.2.1", "10.53.0.1"]),
                false,
                false,
                Some("10.53.0.1"),
            ),
        ] {
            let write = Write {
                group: "",
                resource: "services",
                namespace: "team",
                name: "x",
                object: Some(&new),
                old: old.as_ref(),
                trusted,
                objects: &admin,
                writer: if is_admin { &admin } else { &Tenant },
                uuid: &uuid,
            };
            let judged = validate(&write).map_err(|refusal| (refusal.code, refusal.message));
            match (judged, refused) {
                (Ok(()), None) => {}
                (Err((403, message)), Some(address)) if message.contains(address) => {}
                (judged, refused) => panic!("{new}: {judged:?}, expected {refused:?}"),
            }
        }
    }
}
