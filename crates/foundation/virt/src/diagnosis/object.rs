//! The parts of built-in and Longhorn objects that a diagnosis reads.

use crate::api::atom::{Map, ObjectMeta, Quantity, Time};
use crate::api::record::record;

record! {
    /// A PersistentVolumeClaim.
    Claim {
        metadata: ObjectMeta,
        spec: ClaimSpec,
        status: ClaimStatus,
    }

    ClaimSpec {
        volume_name: Option<String>,
        storage_class_name: Option<String>,
    }

    ClaimStatus {
        phase: Option<String>,
    }

    /// A VirtualMachineImage.
    Image {
        metadata: ObjectMeta,
        spec: ImageSpec,
        status: ImageStatus,
    }

    ImageSpec {
        display_name: Option<String>,
        source_type: Option<String>,
        url: Option<String>,
    }

    ImageStatus {
        progress: Option<i64>,
        storage_class_name: Option<String>,
        conditions: Vec<StatusCondition>,
    }

    /// A Node.
    Node {
        metadata: ObjectMeta,
        spec: NodeSpec,
        status: NodeStatus,
    }

    NodeSpec {
        unschedulable: Option<bool>,
        taints: Vec<Taint>,
    }

    Taint {
        key: String,
        value: Option<String>,
        effect: String,
    }

    NodeStatus {
        allocatable: Map<Quantity>,
        conditions: Vec<StatusCondition>,
    }

    /// A condition of a node or of a volume of Longhorn.
    StatusCondition {
        r#type: String,
        status: String,
        reason: Option<String>,
        message: Option<String>,
    }

    /// A volume of Longhorn.
    StorageVolume {
        metadata: ObjectMeta,
        status: StorageVolumeStatus,
    }

    StorageVolumeStatus {
        robustness: Option<String>,
        conditions: Vec<StatusCondition>,
    }

    /// An Event of the core group.
    Event {
        metadata: ObjectMeta,
        involved_object: InvolvedObject,
        r#type: Option<String>,
        reason: Option<String>,
        message: Option<String>,
        count: Option<i64>,
        last_timestamp: Option<Time>,
        event_time: Option<Time>,
    }

    InvolvedObject {
        kind: Option<String>,
        name: Option<String>,
        uid: Option<String>,
    }
}

impl Claim {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl Node {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn ready(&self) -> Option<&StatusCondition> {
        self.status.conditions.iter().find(|own| own.r#type == "Ready")
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready().is_some_and(|own| own.status == "True")
    }
}
