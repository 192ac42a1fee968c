//! The processes that serve volumes, as Longhorn shows them.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// Process of a node that runs engines and replicas.
    InstanceManager {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired state of the instance manager.
        spec: Option<InstanceManagerSpec>,
        /// Observed processes of the instance manager.
        status: Option<InstanceManagerStatus>,
    }

    InstanceManagerSpec {
        /// Container image of the instance manager.
        image: Option<String>,
        /// Node that the instance manager runs on.
        node_id as "nodeID": Option<String>,
        /// Type of the processes that it runs: aio (all in one), engine or replica.
        r#type: Option<String> = {"enum": ["aio", "engine", "replica"]},
        /// Data engine; only v1 is supported.
        data_engine: Option<String>,
    }

    InstanceManagerStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// State of the instance manager: running, stopped or error.
        current_state: Option<String>,
        /// Engine processes, by name.
        instance_engines: Map<Any> = {"nullable": true},
        /// Replica processes, by name.
        instance_replicas: Map<Any> = {"nullable": true},
        /// IP address of the instance manager.
        ip: Option<String>,
        /// Version of the API of the instance manager.
        api_version: Option<i32>,
        /// Oldest supported version of the API.
        api_min_version: Option<i32>,
        /// Version of the proxy API.
        proxy_api_version: Option<i32>,
        /// Oldest supported version of the proxy API.
        proxy_api_min_version: Option<i32>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }

    /// Program of the engines.
    EngineImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired engine image.
        spec: Option<EngineImageSpec>,
        /// Observed state of the engine image on the nodes.
        status: Option<EngineImageStatus>,
    }

    EngineImageSpec {
        /// Name of the container image of the engine.
        image: String,
    }

    EngineImageStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// State of the engine image, for example deployed or ready.
        state: Option<String>,
        /// Number of volumes that use the image.
        ref_count: Option<i32>,
        /// Time since which no volume uses the image.
        no_ref_since: Option<String>,
        /// Whether the image is incompatible with this version.
        incompatible: Option<bool>,
        /// When the image was built.
        build_date: Option<String>,
        /// Git commit that the image was built from.
        git_commit: Option<String>,
        /// Version of the engine.
        version: Option<String>,
        /// Whether the image is deployed on a node, by name of the node.
        node_deployment_map: Map<bool> = {"nullable": true},
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }

    /// Server of a volume that is shared as a file system.
    ShareManager {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired state of the share manager.
        spec: Option<ShareManagerSpec>,
        /// Observed state of the share.
        status: Option<ShareManagerStatus>,
    }

    ShareManagerSpec {
        /// Container image of the share manager.
        image: Option<String>,
    }

    ShareManagerStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// State of the share manager: starting, running, stopped or error.
        state: Option<String>,
        /// Endpoint of the NFS share.
        endpoint: Option<String>,
    }

    /// Data on a disk that belongs to no replica.
    Orphan {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Location and type of the orphaned data.
        spec: Option<OrphanSpec>,
        /// Observed state of the orphaned data.
        status: Option<OrphanStatus>,
    }

    OrphanSpec {
        /// Node that holds the orphaned data.
        node_id as "nodeID": Option<String>,
        /// Type of the orphaned data, for example replica-data.
        orphan_type: Option<String>,
        /// Data engine; only v1 is supported.
        data_engine: Option<String>,
        /// Location of the data, for example DataName and DiskPath.
        parameters: Map<String>,
    }

    OrphanStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }
}
