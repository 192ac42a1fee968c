//! The processes that serve volumes, as Longhorn shows them.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    InstanceManager {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<InstanceManagerSpec>,
        /// What is observed.
        status: Option<InstanceManagerStatus>,
    }

    InstanceManagerSpec {
        /// Image of the engine.
        image: Option<String>,
        /// Node that the object belongs to.
        node_id as "nodeID": Option<String>,
        /// aio, engine or replica.
        r#type: Option<String> = {"enum": ["aio", "engine", "replica"]},
        /// Data engine: v1.
        data_engine: Option<String>,
    }

    InstanceManagerStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// State of the process: running, stopped or error.
        current_state: Option<String>,
        /// Engine processes, by name.
        instance_engines: Map<Any> = {"nullable": true},
        /// Replica processes, by name.
        instance_replicas: Map<Any> = {"nullable": true},
        /// Address of the process.
        ip: Option<String>,
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

    EngineImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<EngineImageSpec>,
        /// What is observed.
        status: Option<EngineImageStatus>,
    }

    EngineImageSpec {
        /// Image of the engine.
        image: String,
    }

    EngineImageStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// State of the object.
        state: Option<String>,
        /// How many volumes use the image.
        ref_count: Option<i32>,
        /// Since when no volume uses the image.
        no_ref_since: Option<String>,
        /// The image cannot be used by this version.
        incompatible: Option<bool>,
        /// When the image was built.
        build_date: Option<String>,
        /// Commit that the image was built from.
        git_commit: Option<String>,
        /// Version of the system.
        version: Option<String>,
        /// Whether the image is on a node, by node.
        node_deployment_map: Map<bool> = {"nullable": true},
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }

    ShareManager {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<ShareManagerSpec>,
        /// What is observed.
        status: Option<ShareManagerStatus>,
    }

    ShareManagerSpec {
        /// Image of the engine.
        image: Option<String>,
    }

    ShareManagerStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// State of the object.
        state: Option<String>,
        /// Address of the share.
        endpoint: Option<String>,
    }

    Orphan {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<OrphanSpec>,
        /// What is observed.
        status: Option<OrphanStatus>,
    }

    OrphanSpec {
        /// Node that the object belongs to.
        node_id as "nodeID": Option<String>,
        /// What was found: for example replica-data.
        orphan_type: Option<String>,
        /// Data engine: v1.
        data_engine: Option<String>,
        /// Parameters.
        parameters: Map<String>,
    }

    OrphanStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
    }
}
