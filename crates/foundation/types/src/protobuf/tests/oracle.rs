//! The same messages through generated code of another project (crate `k8s-pb`): it must
//! understand what we write, and we what it writes.

use k8s_pb::api;
use prost::Message;

use super::*;

/// Fields that the generated types do not know yet.
const NEWER: &[&str] = &[
    ".httpGet.protocol",
    ".grpc.mode",
    ".emptyDir.mode",
    ".volumeMounts.bindMountOptions",
    ".volumeMounts.volumeStatus",
    ".resources.message",
    ".defaultUser",
    ".user",
    ".spec.evictionResponders",
    ".spec.podPreemptionPolicy",
    ".spec.scheduling",
    ".spec.schedulingGroup",
    ".status.conditions.observedGeneration",
    ".status.healthStatus",
    ".status.nodeAllocatableResourceClaimStatuses",
    ".status.nodeInfo.runningInUserNamespace",
    ".status.volumeHealth",
];

/// Writes the full object, lets the generated type read and write it, and reads that. The
/// generated types are those of an older release: fields that they do not know are lost.
fn check<T: Message + Default>(api_version: &str, kind: &str) {
    let kind = Kind::of(api_version, kind).unwrap();
    let object = Filler { count: 0, schemas: 0 }.object(kind.slot());
    let theirs = T::decode(kind.encode(&object).unwrap().as_slice()).unwrap();
    let back = kind.decode(&theirs.encode_to_vec()).unwrap();
    let mut lost = Vec::new();
    compare("", &object, &back, &mut lost);
    lost.retain(|path: &String| !NEWER.iter().any(|field| path.ends_with(field)));
    assert_eq!(lost, [""; 0], "{kind:?}");
}

/// Everything in `ours` must be the same in `back`, except what is reported as lost.
fn compare(at: &str, ours: &Value, back: &Value, lost: &mut Vec<String>) {
    match (ours, back) {
        (Value::Object(ours), Value::Object(back)) => {
            for (name, value) in ours {
                match back.get(name) {
                    Some(found) => compare(&format!("{at}.{name}"), value, found, lost),
                    None => lost.push(format!("{at}.{name}")),
                }
            }
        }
        (Value::Array(ours), Value::Array(back)) => {
            assert_eq!(ours.len(), back.len(), "{at}");
            for (ours, back) in ours.iter().zip(back) {
                compare(at, ours, back, lost);
            }
        }
        _ => assert_eq!(ours, back, "{at}"),
    }
}

#[test]
fn generated_code_reads_and_writes_the_same_messages() {
    check::<api::core::v1::ConfigMap>("v1", "ConfigMap");
    check::<api::core::v1::Secret>("v1", "Secret");
    check::<api::core::v1::Namespace>("v1", "Namespace");
    check::<api::core::v1::Event>("v1", "Event");
    check::<api::core::v1::ServiceAccount>("v1", "ServiceAccount");
    check::<api::core::v1::Service>("v1", "Service");
    check::<api::core::v1::PersistentVolumeClaim>("v1", "PersistentVolumeClaim");
    check::<api::core::v1::PersistentVolume>("v1", "PersistentVolume");
    check::<api::core::v1::Node>("v1", "Node");
    check::<api::core::v1::Pod>("v1", "Pod");
    check::<api::apps::v1::Deployment>("apps/v1", "Deployment");
    check::<api::batch::v1::Job>("batch/v1", "Job");
    check::<api::coordination::v1::Lease>("coordination.k8s.io/v1", "Lease");
    check::<api::discovery::v1::EndpointSlice>("discovery.k8s.io/v1", "EndpointSlice");
    check::<api::rbac::v1::ClusterRole>("rbac.authorization.k8s.io/v1", "ClusterRole");
    check::<api::storage::v1::StorageClass>("storage.k8s.io/v1", "StorageClass");
    check::<api::authorization::v1::SelfSubjectAccessReview>(
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview",
    );
    check::<api::authentication::v1::TokenReview>("authentication.k8s.io/v1", "TokenReview");
    check::<api::networking::v1::Ingress>("networking.k8s.io/v1", "Ingress");
    check::<api::autoscaling::v2::HorizontalPodAutoscaler>(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
    );
    check::<k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
    );
}
