//! The KubeVirt object: the installation, and the configuration of the whole cluster.

use super::cluster_option::KubeVirtConfiguration;
use crate::api::atom::{
    Affinity, Duration, LocalObjectReference, Map, ObjectMeta, Time, Toleration,
};
use crate::api::record::record;

record! {
    /// The configuration of virtual machines in this cluster. There is one.
    KubeVirt {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: KubeVirtSpec,
        status: Option<KubeVirtStatus>,
    }

    KubeVirtSelfSignConfiguration {
        ca_rotate_interval: Option<Duration>,
        cert_rotate_interval: Option<Duration>,
        ca_overlap_interval: Option<Duration>,
        ca: Option<CertConfig>,
        server: Option<CertConfig>,
    }

    CertConfig {
        /// How long a certificate is valid.
        duration: Option<Duration>,
        /// How long before its end a certificate is renewed.
        renew_before: Option<Duration>,
    }

    KubeVirtCertificateRotateStrategy {
        self_signed: Option<KubeVirtSelfSignConfiguration>,
    }

    KubeVirtWorkloadUpdateStrategy {
        workload_update_methods: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        batch_eviction_size: Option<i64>,
        batch_eviction_interval: Option<Duration>,
    }

    KubeVirtSpec {
        image_tag: Option<String>,
        image_registry: Option<String>,
        image_pull_policy: Option<String>,
        image_pull_secrets: Vec<LocalObjectReference> = {"x-kubernetes-list-type": "atomic"},
        monitor_namespace: Option<String>,
        service_monitor_namespace: Option<String>,
        monitor_account: Option<String>,
        workload_update_strategy: Option<KubeVirtWorkloadUpdateStrategy>,
        uninstall_strategy: Option<String>,
        certificate_rotate_strategy: Option<KubeVirtCertificateRotateStrategy>,
        product_version: Option<String>,
        product_name: Option<String>,
        product_component: Option<String>,
        synchronization_port: Option<String>,
        /// Everything that can be set for all machines.
        configuration: Option<KubeVirtConfiguration>,
        infra: Option<ComponentConfig>,
        workloads: Option<ComponentConfig>,
        customize_components: Option<CustomizeComponents>,
    }

    CustomizeComponents {
        /// Patches of the components' objects.
        patches: Vec<CustomizeComponentsPatch> = {"x-kubernetes-list-type": "atomic"},
        /// Command line flags of the components.
        flags: Option<Flags>,
    }

    Flags {
        /// Flags of the API server.
        api: Map<String>,
        /// Flags of the controller.
        controller: Map<String>,
        handler: Map<String>,
    }

    CustomizeComponentsPatch {
        /// Name of the object to patch.
        resource_name: String = {"minLength": 1},
        /// Kind of the object to patch.
        resource_type: String = {"minLength": 1},
        /// The patch, as JSON text.
        patch: String,
        r#type: String,
    }

    GenerationStatus {
        group: String,
        resource: String,
        namespace: Option<String>,
        name: String,
        last_generation: i64,
        hash: Option<String>,
    }

    KubeVirtStatus {
        phase: Option<String>,
        conditions: Vec<KubeVirtCondition>,
        operator_version: Option<String>,
        target_kube_virt_registry: Option<String>,
        target_kube_virt_version: Option<String>,
        target_deployment_config: Option<String>,
        target_deployment_id as "targetDeploymentID": Option<String>,
        observed_kube_virt_registry: Option<String>,
        observed_kube_virt_version: Option<String>,
        observed_deployment_config: Option<String>,
        observed_deployment_id as "observedDeploymentID": Option<String>,
        outdated_virtual_machine_instance_workloads: Option<i64>,
        observed_generation: Option<i64>,
        default_architecture: Option<String>,
        generations: Vec<GenerationStatus> = {"x-kubernetes-list-type": "atomic"},
        synchronization_addresses: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    KubeVirtCondition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }

    NodePlacement {
        /// Labels that nodes must have.
        node_selector: Map<String>,
        /// Affinity of the pods.
        affinity: Option<Affinity>,
        /// Taints of nodes that pods tolerate.
        tolerations: Vec<Toleration>,
    }

    ComponentConfig {
        node_placement: Option<NodePlacement>,
        replicas: Option<u8>,
    }
}
