//! The KubeVirt object: the installation, and the configuration of the whole cluster.

use super::cluster_option::KubeVirtConfiguration;
use crate::api::atom::{
    Affinity, Duration, LocalObjectReference, Map, ObjectMeta, Time, Toleration,
};
use crate::api::record::record;

record! {
    /// Configuration of virtual machines in the cluster. Only one object of this kind exists.
    KubeVirt {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: KubeVirtSpec,
        status: Option<KubeVirtStatus>,
    }

    KubeVirtSelfSignConfiguration {
        /// Deprecated: use `ca.duration`.
        ca_rotate_interval: Option<Duration>,
        /// Deprecated: use `server.duration`.
        cert_rotate_interval: Option<Duration>,
        /// Deprecated: use `ca.renewBefore`.
        ca_overlap_interval: Option<Duration>,
        /// Lifetime of the certificate authority.
        ca: Option<CertConfig>,
        /// Lifetime of serving certificates.
        server: Option<CertConfig>,
    }

    CertConfig {
        /// Validity period of a certificate.
        duration: Option<Duration>,
        /// Time before its expiry at which a certificate is renewed.
        renew_before: Option<Duration>,
    }

    KubeVirtCertificateRotateStrategy {
        /// Options of certificates that are signed by an authority of the cluster.
        self_signed: Option<KubeVirtSelfSignConfiguration>,
    }

    KubeVirtWorkloadUpdateStrategy {
        /// Methods to update the workload of running guests, in order of preference: LiveMigrate
        /// or Evict.
        workload_update_methods: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Number of guests that are evicted in one batch.
        batch_eviction_size: Option<i64>,
        /// Time between batches of evictions.
        batch_eviction_interval: Option<Duration>,
    }

    KubeVirtSpec {
        /// Tag of the component images; ignored, the components have no images.
        image_tag: Option<String>,
        /// Registry of the component images; ignored, the components have no images.
        image_registry: Option<String>,
        /// Pull policy for the images of the components: Always, IfNotPresent or Never.
        image_pull_policy: Option<String>,
        /// Secrets with credentials for the registry of the component images.
        image_pull_secrets: Vec<LocalObjectReference> = {"x-kubernetes-list-type": "atomic"},
        /// Namespace that Prometheus runs in.
        monitor_namespace: Option<String>,
        /// Namespace of the ServiceMonitor objects.
        service_monitor_namespace: Option<String>,
        /// ServiceAccount that Prometheus uses.
        monitor_account: Option<String>,
        /// Strategy to update running guests after an update of the components.
        workload_update_strategy: Option<KubeVirtWorkloadUpdateStrategy>,
        /// Whether KubeVirt can be removed while guests exist: RemoveWorkloads or
        /// BlockUninstallIfWorkloadsExist.
        uninstall_strategy: Option<String>,
        /// Lifetime and rotation of certificates.
        certificate_rotate_strategy: Option<KubeVirtCertificateRotateStrategy>,
        /// Version of the product that contains KubeVirt.
        product_version: Option<String>,
        /// Name of the product that contains KubeVirt.
        product_name: Option<String>,
        /// Name of the component in the product.
        product_component: Option<String>,
        /// Port for migrations between clusters.
        synchronization_port: Option<String>,
        /// Configuration that applies to all virtual machines.
        configuration: Option<KubeVirtConfiguration>,
        /// Placement of the control plane components.
        infra: Option<ComponentConfig>,
        /// Placement of the components that run guests.
        workloads: Option<ComponentConfig>,
        /// Patches and flags of the components.
        customize_components: Option<CustomizeComponents>,
    }

    CustomizeComponents {
        /// Patches of the objects of the components.
        patches: Vec<CustomizeComponentsPatch> = {"x-kubernetes-list-type": "atomic"},
        /// Command line flags of the components.
        flags: Option<Flags>,
    }

    Flags {
        /// Flags of the API server.
        api: Map<String>,
        /// Flags of the controller.
        controller: Map<String>,
        /// Flags of the node agents.
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
        /// API group of the object.
        group: String,
        /// Resource name of the object.
        resource: String,
        /// Namespace of the object.
        namespace: Option<String>,
        /// Name of the object.
        name: String,
        /// Generation of the object that was last applied.
        last_generation: i64,
        /// Hash of the object, if it has no generation.
        hash: Option<String>,
    }

    KubeVirtStatus {
        /// Phase of the deployment: Deploying, Deployed, Deleting, Deleted or Error.
        phase: Option<String>,
        conditions: Vec<KubeVirtCondition>,
        /// Version of the operator.
        operator_version: Option<String>,
        /// Registry of the version that is being deployed.
        target_kube_virt_registry: Option<String>,
        /// Version that is being deployed.
        target_kube_virt_version: Option<String>,
        /// Configuration that is being deployed.
        target_deployment_config: Option<String>,
        /// Identifier of the deployment that is in progress.
        target_deployment_id as "targetDeploymentID": Option<String>,
        /// Registry of the deployed version.
        observed_kube_virt_registry: Option<String>,
        /// Version of the deployed components.
        observed_kube_virt_version: Option<String>,
        /// Configuration of the deployed components.
        observed_deployment_config: Option<String>,
        /// Identifier of the completed deployment.
        observed_deployment_id as "observedDeploymentID": Option<String>,
        /// Number of guests that run with an outdated version.
        outdated_virtual_machine_instance_workloads: Option<i64>,
        /// Generation of the object that the status was computed from.
        observed_generation: Option<i64>,
        /// CPU architecture for guests that set none.
        default_architecture: Option<String>,
        /// Generations of the deployed objects.
        generations: Vec<GenerationStatus> = {"x-kubernetes-list-type": "atomic"},
        /// Addresses for migrations between clusters.
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
        /// Taints that the pods tolerate.
        tolerations: Vec<Toleration>,
    }

    ComponentConfig {
        /// Placement of the component on nodes.
        node_placement: Option<NodePlacement>,
        /// Number of replicas of the component.
        replicas: Option<u8>,
    }
}
