//! Collects the descriptions of the built-in types from crate `k8s-openapi`, so that
//! `kubectl explain` explains, and writes them compressed for `openapi::describe`.
//!
//! The table of types itself holds no prose: facts live there, texts come from here.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use k8s_openapi::schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::Value;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = SchemaSettings::openapi3().into_generator();
    collect(&mut generator);
    let mut text = String::new();
    for (name, schema) in generator.take_definitions(true) {
        describe(&name, &schema, &mut text);
    }
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).expect("memory can be written to");
    let compressed = encoder.finish().expect("memory can be written to");
    let directory = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = Path::new(&directory).join("descriptions.deflate");
    fs::write(path, compressed).expect("OUT_DIR can be written to");
}

/// One line for the type, then one for each field, indented by a space: the name and
/// the text as a JSON string.
fn describe(name: &str, schema: &Value, out: &mut String) {
    let text = |schema: &Value| schema.get("description").cloned().unwrap_or_default();
    let _ = writeln!(out, "{name} {}", text(schema));
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (field, schema) in properties {
            let _ = writeln!(out, " {field} {}", text(schema));
        }
    }
}

/// Asks for the schemas of the kinds that the table holds; theirs bring along those of
/// all types that they refer to.
fn collect(generator: &mut SchemaGenerator) {
    macro_rules! kinds {
        ($($($module:ident)::+ { $($kind:ident),+ $(,)? })+) => {
            $({
                use k8s_openapi::$($module)::+ as module;
                $(generator.subschema_for::<module::$kind>();)+
            })+
        };
    }
    kinds! {
        api::admissionregistration::v1 {
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
        }
        api::apiserverinternal::v1alpha1 { StorageVersion }
        api::apps::v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
        api::authentication::v1 { SelfSubjectReview, TokenRequest, TokenReview }
        api::authorization::v1 {
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
        }
        api::autoscaling::v1 { HorizontalPodAutoscaler, Scale }
        api::autoscaling::v2 { HorizontalPodAutoscaler }
        api::batch::v1 { CronJob, Job }
        api::certificates::v1 { CertificateSigningRequest }
        api::certificates::v1beta1 { ClusterTrustBundle, PodCertificateRequest }
        api::coordination::v1 { Lease }
        api::coordination::v1beta1 { LeaseCandidate }
        api::core::v1 {
            Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret,
            Service, ServiceAccount,
        }
        api::discovery::v1 { EndpointSlice }
        api::events::v1 { Event }
        api::flowcontrol::v1 { FlowSchema, PriorityLevelConfiguration }
        api::networking::v1 { IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR }
        api::node::v1 { RuntimeClass }
        api::policy::v1 { Eviction, PodDisruptionBudget }
        api::resource::v1 { DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice }
        api::rbac::v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
        api::scheduling::v1 { PriorityClass }
        api::storage::v1 {
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
        }
        api::storagemigration::v1 { StorageVersionMigration }
        api::storagemigration::v1beta1 { StorageVersionMigration }
        apiextensions_apiserver::pkg::apis::apiextensions::v1 { CustomResourceDefinition }
        apimachinery::pkg::apis::meta::v1 { APIResourceList, DeleteOptions, Status }
        kube_aggregator::pkg::apis::apiregistration::v1 { APIService }
    }
}
