//! The words in which machines and instances describe themselves: run strategies, phases,
//! and requests to start or stop.

use serde_json::Value;

/// When the guest of a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStrategy {
    Always,
    RerunOnFailure,
    Manual,
    Halted,
    Once,
    WaitAsReceiver,
}

impl RunStrategy {
    pub const ALL: [Self; 6] = [
        Self::Always,
        Self::RerunOnFailure,
        Self::Manual,
        Self::Halted,
        Self::Once,
        Self::WaitAsReceiver,
    ];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::RerunOnFailure => "RerunOnFailure",
            Self::Manual => "Manual",
            Self::Halted => "Halted",
            Self::Once => "Once",
            Self::WaitAsReceiver => "WaitAsReceiver",
        }
    }

    /// The run strategy of a machine; `None` if it is unknown. A machine without one is halted.
    pub fn of(vm: &Value) -> Option<Self> {
        match (&vm["spec"]["running"], &vm["spec"]["runStrategy"]) {
            (_, Value::String(strategy)) => Self::parse(strategy),
            (Value::Bool(true), _) => Some(Self::Always),
            _ => Some(Self::Halted),
        }
    }
}

impl std::fmt::Display for RunStrategy {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Where an instance is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstancePhase {
    Unset,
    Pending,
    Scheduling,
    Scheduled,
    Running,
    Succeeded,
    Failed,
    WaitingForSync,
    Unknown,
}

impl InstancePhase {
    pub fn of(vmi: &Value) -> Self {
        match vmi["status"]["phase"].as_str().unwrap_or_default() {
            "" => Self::Unset,
            "Pending" => Self::Pending,
            "Scheduling" => Self::Scheduling,
            "Scheduled" => Self::Scheduled,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "WaitingForSync" => Self::WaitingForSync,
            _ => Self::Unknown,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::WaitingForSync => "WaitingForSync",
            Self::Unknown => "Unknown",
        }
    }

    /// The guest has ended and will not come back in this instance.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The first request of a machine, which is the only one that is acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateChangeRequest {
    Start {
        paused: bool,
    },
    /// To stop the instance that exists. A request for another one is no request.
    Stop,
}

impl StateChangeRequest {
    pub fn of(vm: &Value, vmi: Option<&Value>) -> Option<Self> {
        let first = &vm["status"]["stateChangeRequests"][0];
        match first["action"].as_str()? {
            "Start" => Some(Self::Start { paused: first["data"]["paused"] == "true" }),
            "Stop" => {
                let uid = vmi?["metadata"]["uid"].as_str()?;
                (first["uid"] == uid).then_some(Self::Stop)
            }
            _ => None,
        }
    }
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether the guest is being moved: a migration began and has not ended.
pub fn is_migrating(vmi: &Value) -> bool {
    let state = &vmi["status"]["migrationState"];
    state["startTimestamp"].is_string() && !state["endTimestamp"].is_string()
}

/// Whether the guest ever ran in this instance.
pub fn has_run(vmi: &Value) -> bool {
    let transitions = vmi["status"]["phaseTransitionTimestamps"].as_array();
    transitions.into_iter().flatten().any(|transition| transition["phase"] == "Running")
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
