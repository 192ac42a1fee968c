//! A VirtualMachineInstance as the agent works with it.
//!
//! The specification is typed; the status stays JSON, so that writing it back compares with
//! what is stored and loses nothing that this version does not know.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::DynamicObject;
use serde_json::Value;
use virt::v1::VirtualMachineInstanceSpec;

/// The finalizer that keeps the object until its guest is gone from the node.
pub(crate) const FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// How long a guest may take to shut down unless its specification says otherwise.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Vmi {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) generation: i64,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleted: Option<Timestamp>,
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
    pub(crate) finalizers: Vec<String>,
    /// The name of the VirtualMachine that controls it, if one does.
    pub(crate) machine: Option<String>,
    pub(crate) machine_uid: Option<String>,
    pub(crate) spec: VirtualMachineInstanceSpec,
    pub(crate) status: Value,
}

/// Where a VMI is in its life; the wire's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VmiPhase {
    /// Not handed over to a node yet.
    Early,
    Scheduled,
    Running,
    Succeeded,
    Failed,
}

impl VmiPhase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Early => "Pending",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Why an object of the watch cannot be worked with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the object has no {0}")]
    Missing(&'static str),
    #[error("cannot read the specification")]
    Spec(#[source] serde_json::Error),
}

impl Vmi {
    pub(crate) fn read(mut object: DynamicObject) -> Result<Self, ReadError> {
        let meta = object.metadata;
        let spec = object.data.get_mut("spec").map(Value::take).unwrap_or_default();
        let status = object.data.get_mut("status").map(Value::take).unwrap_or_default();
        let owners = meta.owner_references.unwrap_or_default();
        let machine = owners
            .into_iter()
            .find(|owner| owner.controller == Some(true) && owner.kind == "VirtualMachine");
        Ok(Self {
            namespace: meta.namespace.ok_or(ReadError::Missing("namespace"))?,
            name: meta.name.ok_or(ReadError::Missing("name"))?,
            uid: meta.uid.ok_or(ReadError::Missing("uid"))?,
            version: meta.resource_version.unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0),
            deleted: meta.deletion_timestamp.map(|time| time.0),
            labels: meta.labels.unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default(),
            finalizers: meta.finalizers.unwrap_or_default(),
            machine_uid: machine.as_ref().map(|owner| owner.uid.clone()),
            machine: machine.map(|owner| owner.name),
            spec: serde_json::from_value(spec).map_err(ReadError::Spec)?,
            status,
        })
    }

    pub(crate) fn phase(&self) -> VmiPhase {
        match self.status["phase"].as_str() {
            Some("Scheduled") => VmiPhase::Scheduled,
            Some("Running") => VmiPhase::Running,
            Some("Succeeded") => VmiPhase::Succeeded,
            Some("Failed") => VmiPhase::Failed,
            _ => VmiPhase::Early,
        }
    }

    pub(crate) fn grace(&self) -> Duration {
        self.spec
            .termination_grace_period_seconds
            .map_or(GRACE, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    /// When the guest has to be down because its launcher pod was deleted or evicted.
    pub(crate) fn shut_down_by(&self) -> Option<Timestamp> {
        self.annotations.get(virt::SHUT_DOWN_BY)?.parse().ok()
    }

    /// When the launcher pod was deleted or evicted, if its grace period was not changed.
    pub(crate) fn eviction_began(&self) -> Option<Timestamp> {
        let grace = jiff::SignedDuration::try_from(self.grace()).ok()?;
        self.shut_down_by()?.checked_sub(grace).ok()
    }

    pub(crate) fn holds_finalizer(&self) -> bool {
        self.finalizers.iter().any(|each| each == FINALIZER)
    }

    /// Whether the guest reacts to a power button.
    pub(crate) fn has_acpi(&self) -> bool {
        let features = self.spec.domain.features.as_ref();
        let acpi = features.and_then(|features| features.acpi.as_ref());
        acpi.is_none_or(|acpi| acpi.enabled != Some(false))
    }

    pub(crate) fn starts_paused(&self) -> bool {
        self.spec.start_strategy.as_deref() == Some("Paused")
    }

    /// The id of the virtual hardware over restarts: the BIOS' UUID, or our own.
    pub(crate) fn firmware_uuid(&self) -> &str {
        let firmware = self.spec.domain.firmware.as_ref();
        let uuid = firmware.and_then(|firmware| firmware.uuid.as_deref());
        uuid.filter(|uuid| !uuid.is_empty()).unwrap_or(&self.uid)
    }

    /// The name the guest goes by in the network.
    pub(crate) fn hostname(&self) -> &str {
        let name = self.spec.hostname.as_deref().filter(|name| !name.is_empty());
        name.unwrap_or(&self.name)
    }

    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("kubevirt.io/v1".into()),
            kind: Some("VirtualMachineInstance".into()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            resource_version: Some(self.version.clone()),
            ..ObjectReference::default()
        }
    }
}
