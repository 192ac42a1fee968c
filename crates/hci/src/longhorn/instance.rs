//! The processes that serve volumes, as Longhorn shows them.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    InstanceManager {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<InstanceManagerSpec>,
        status: Option<InstanceManagerStatus>,
    }

    InstanceManagerSpec {
        image: Option<String>,
        node_id as "nodeID": Option<String>,
        r#type: Option<String> = {"enum": ["aio", "engine", "replica"]},
        data_engine: Option<String>,
    }

    InstanceManagerStatus {
        owner_id as "ownerID": Option<String>,
        current_state: Option<String>,
        instance_engines: Map<Any> = {"nullable": true},
        instance_replicas: Map<Any> = {"nullable": true},
        ip: Option<String>,
        api_version: Option<i32>,
        api_min_version: Option<i32>,
        proxy_api_version: Option<i32>,
        proxy_api_min_version: Option<i32>,
        conditions: Vec<Condition> = {"nullable": true},
    }

    EngineImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<EngineImageSpec>,
        status: Option<EngineImageStatus>,
    }

    EngineImageSpec {
        image: String,
    }

    EngineImageStatus {
        owner_id as "ownerID": Option<String>,
        state: Option<String>,
        ref_count: Option<i32>,
        no_ref_since: Option<String>,
        incompatible: Option<bool>,
        build_date: Option<String>,
        git_commit: Option<String>,
        version: Option<String>,
        node_deployment_map: Map<bool> = {"nullable": true},
        conditions: Vec<Condition> = {"nullable": true},
    }

    ShareManager {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<ShareManagerSpec>,
        status: Option<ShareManagerStatus>,
    }

    ShareManagerSpec {
        image: Option<String>,
    }

    ShareManagerStatus {
        owner_id as "ownerID": Option<String>,
        state: Option<String>,
        endpoint: Option<String>,
    }

    Orphan {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<OrphanSpec>,
        status: Option<OrphanStatus>,
    }

    OrphanSpec {
        node_id as "nodeID": Option<String>,
        orphan_type: Option<String>,
        data_engine: Option<String>,
        parameters: Map<String>,
    }

    OrphanStatus {
        owner_id as "ownerID": Option<String>,
        conditions: Vec<Condition> = {"nullable": true},
    }
}
