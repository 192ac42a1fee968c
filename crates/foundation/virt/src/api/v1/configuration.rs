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
        /// How long a certificate is valid.
        duration: Option<Duration>,
        /// How long before its end a certificate is renewed.
        renew_before: Option<Duration>,
    }

    KubeVirtCertificateRotateStrategy {
        /// Certificates are signed by an authority of the cluster itself.
        self_signed: Option<KubeVirtSelfSignConfiguration>,
    }

    KubeVirtWorkloadUpdateStrategy {
        /// How running guests get a new version, by preference: LiveMigrate or Evict.
        workload_update_methods: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// How many guests are evicted at a time.
        batch_eviction_size: Option<i64>,
        /// Time between two batches.
        batch_eviction_interval: Option<Duration>,
    }

    KubeVirtSpec {
        /// Tag of the images of the components; this server has none.
        image_tag: Option<String>,
        /// Registry of the images of the components; this server has none.
        image_registry: Option<String>,
        /// When images of the components are pulled: Always, IfNotPresent or Never.
        image_pull_policy: Option<String>,
        /// Secrets for the registry of the components.
        image_pull_secrets: Vec<LocalObjectReference> = {"x-kubernetes-list-type": "atomic"},
        /// Namespace of Prometheus.
        monitor_namespace: Option<String>,
        /// Namespace for ServiceMonitor objects.
        service_monitor_namespace: Option<String>,
        /// Service account of Prometheus.
        monitor_account: Option<String>,
        /// How running guests are updated.
        workload_update_strategy: Option<KubeVirtWorkloadUpdateStrategy>,
        /// What happens to guests when KubeVirt is removed: RemoveWorkloads or
        /// BlockUninstallIfWorkloadsExist.
        uninstall_strategy: Option<String>,
        /// How certificates are renewed.
        certificate_rotate_strategy: Option<KubeVirtCertificateRotateStrategy>,
        /// Version of the product that contains KubeVirt.
        product_version: Option<String>,
        /// Product that contains KubeVirt.
        product_name: Option<String>,
        /// Component of the product.
        product_component: Option<String>,
        /// Port for migrations between clusters.
        synchronization_port: Option<String>,
        /// Everything that can be set for all machines.
        configuration: Option<KubeVirtConfiguration>,
        /// Placement of the components that serve the API.
        infra: Option<ComponentConfig>,
        /// Placement of the components that run guests.
        workloads: Option<ComponentConfig>,
        /// Changes of the objects of the components.
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
        /// Flags of the node agent.
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
        /// Resource of the object.
        resource: String,
        /// Namespace of the object.
        namespace: Option<String>,
        /// Name of the object.
        name: String,
        /// Generation that was last applied.
        last_generation: i64,
        /// Checksum of the object without a generation.
        hash: Option<String>,
    }

    KubeVirtStatus {
        /// Deploying, Deployed, Deleting, Deleted or an error.
        phase: Option<String>,
        conditions: Vec<KubeVirtCondition>,
        /// Version of the operator.
        operator_version: Option<String>,
        /// Registry that is being deployed.
        target_kube_virt_registry: Option<String>,
        /// Version that is being deployed.
        target_kube_virt_version: Option<String>,
        /// Options that are being deployed.
        target_deployment_config: Option<String>,
        /// Identity of what is being deployed.
        target_deployment_id as "targetDeploymentID": Option<String>,
        /// Registry that is deployed.
        observed_kube_virt_registry: Option<String>,
        /// Version that is deployed.
        observed_kube_virt_version: Option<String>,
        /// Options that are deployed.
        observed_deployment_config: Option<String>,
        /// Identity of what is deployed.
        observed_deployment_id as "observedDeploymentID": Option<String>,
        /// Guests that run with an older version.
        outdated_virtual_machine_instance_workloads: Option<i64>,
        /// Generation that the status belongs to.
        observed_generation: Option<i64>,
        /// Processor architecture of guests that name none.
        default_architecture: Option<String>,
        /// Generations of the objects that were deployed.
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
        /// Taints of nodes that pods tolerate.
        tolerations: Vec<Toleration>,
    }

    ComponentConfig {
        /// Nodes of the component.
        node_placement: Option<NodePlacement>,
        /// How many instances of the component run.
        replicas: Option<u8>,
    }
}
