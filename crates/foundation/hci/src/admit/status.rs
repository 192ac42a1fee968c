//! The status of kinds that have no status subresource. Controllers act on it with their own
//! rights, so no other client writes it: what others send is replaced by what is stored, as the API
//! server does for kinds that have the subresource.

use serde_json::{Map, Value};

use super::{HARVESTER, Write, text};
use crate::address_pool::GROUP as LOAD_BALANCER;

fn is_kept(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        (
            HARVESTER,
            "schedulevmbackups"
                | "virtualmachinebackups"
                | "virtualmachineimages"
                | "virtualmachinerestores"
        ) | (LOAD_BALANCER, "loadbalancers")
    )
}

pub(super) fn keep(write: &Write<'_>, object: &mut Value) {
    if write.trusted || !is_kept(write.group, write.resource) {
        return;
    }
    let mut status = write.old.map_or(Value::Null, |old| old["status"].clone());
    // The cloud provider of a guest cluster reports the address that the guest cluster uses.
    let reports = write.resource == "loadbalancers"
        && text(object, "/spec/workloadType") == "cluster"
        && object["status"]["address"].is_string();
    if reports {
        if !status.is_object() {
            status = Value::Object(Map::new());
        }
        status["address"] = object["status"]["address"].clone();
    }
    let Some(fields) = object.as_object_mut() else { return };
    match status {
        Value::Null => drop(fields.remove("status")),
        status => drop(fields.insert("status".to_owned(), status)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, uuid};
    use super::super::{complete, concerns};
    use super::*;

    fn completed(kind: (&str, &str), new: &Value, old: Option<&Value>, trusted: bool) -> Value {
        let cluster = Cluster(Vec::new());
        let write = Write {
            group: kind.0,
            resource: kind.1,
            namespace: "team",
            name: "x",
            object: None,
            old,
            trusted,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        let mut object = new.clone();
        complete(&write, &mut object).unwrap();
        object["status"].clone()
    }

    #[test]
    fn only_controllers_write_a_status() {
        for kind in [
            (HARVESTER, "schedulevmbackups"),
            (HARVESTER, "virtualmachinebackups"),
            (HARVESTER, "virtualmachineimages"),
            (HARVESTER, "virtualmachinerestores"),
            (LOAD_BALANCER, "loadbalancers"),
        ] {
            assert!(concerns(kind.0, kind.1), "{kind:?}");
            let forged = json!({"metadata": {}, "spec": {}, "status": {"readyToUse": true}});
            let old = json!({"spec": {}, "status": {"readyToUse": false, "address": "1.2.3.4"}});
            let none = json!({"spec": {}});
            assert_eq!(completed(kind, &forged, None, false), Value::Null, "{kind:?}");
            assert_eq!(completed(kind, &forged, Some(&none), false), Value::Null, "{kind:?}");
            assert_eq!(completed(kind, &forged, Some(&old), false), old["status"], "{kind:?}");
            let bare = json!({"metadata": {}, "spec": {}});
            assert_eq!(completed(kind, &bare, Some(&old), false), old["status"], "{kind:?}");
            assert_eq!(completed(kind, &forged, Some(&old), true), forged["status"], "{kind:?}");
        }
    }

    #[test]
    fn a_cloud_provider_reports_the_address_of_its_cluster() {
        let kind = (LOAD_BALANCER, "loadbalancers");
        let balancer = |workload: &str| {
            json!({"metadata": {}, "spec": {"workloadType": workload},
                "status": {"address": "192.0.2.7", "allocatedAddress": {"ip": "192.0.2.8"}}})
        };
        let old = json!({"status": {"allocatedAddress": {"ip": "192.0.2.1"}}});
        for (workload, expected) in [
            ("cluster", json!({"allocatedAddress": {"ip": "192.0.2.1"}, "address": "192.0.2.7"})),
            ("vm", old["status"].clone()),
        ] {
            assert_eq!(completed(kind, &balancer(workload), Some(&old), false), expected);
        }
        assert_eq!(
            completed(kind, &balancer("cluster"), None, false),
            json!({"address": "192.0.2.7"})
        );
    }
}
