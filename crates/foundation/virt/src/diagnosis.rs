//! Why a machine does not run as it should, and what to do: a pure function from the objects
//! around a machine to a list of findings. `sheaf vm why` prints them, and an API can serve them.

mod claim_fill;
mod event;
mod image;
mod instance;
mod machine;
mod migration;
mod object;
mod placement;
#[cfg(test)]
mod reason_tests;
mod storage;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use event::EventSummary;
pub use object::{Claim, Event, Image, Node, StorageVolume};

use crate::api::cdi::DataVolume;
use crate::api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};

/// The objects that a diagnosis examines. Lists may hold more than what concerns the machine.
#[derive(Clone, Debug, Default)]
pub struct DiagnosisInput {
    pub name: String,
    pub namespace: String,
    pub machine: Option<VirtualMachine>,
    pub instance: Option<VirtualMachineInstance>,
    /// Of the namespace.
    pub data_volumes: Vec<DataVolume>,
    pub claims: Vec<Claim>,
    pub events: Vec<Event>,
    pub migrations: Vec<VirtualMachineInstanceMigration>,
    /// Harvester's images, of any namespace.
    pub images: Vec<Image>,
    /// Longhorn's volumes.
    pub storage_volumes: Vec<StorageVolume>,
    pub nodes: Vec<Node>,
    /// Network policies that select the machine, as KIND NAME.
    pub policies: Vec<String>,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Keeps the guest from running or from being used.
    Error,
    /// The guest runs, but something has to be done.
    Warning,
    /// An expected state or something that is under way.
    Info,
}

/// One thing to know about a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiagnosisFinding {
    pub severity: Severity,
    /// The observation, as one sentence.
    pub what: String,
    /// The cause, as the component that noticed it reported it.
    pub why: String,
    /// A command that mends it, or that shows what is needed for that.
    pub fix: String,
}

/// The diagnosis of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The printable status of the machine, or the phase of its instance.
    pub state: String,
    pub ready: bool,
    /// The most severe first.
    pub findings: Vec<DiagnosisFinding>,
    /// The latest events about the machine, its instance and its volumes, each once.
    pub events: Vec<EventSummary>,
}

impl Diagnosis {
    /// Whether the guest runs, is ready, and nothing has to be done.
    pub fn is_healthy(&self) -> bool {
        ["Running", "Migrating"].contains(&self.state.as_str())
            && self.ready
            && self.findings.iter().all(|finding| finding.severity == Severity::Info)
    }
}

/// Reads an object of [`Facts`]; `None` for one that has another shape than ours.
pub fn read<T: DeserializeOwned>(object: Value) -> Option<T> {
    serde_json::from_value(object).ok()
}

/// Reads the objects of a list, and leaves out those that cannot be read.
pub fn read_all<T: DeserializeOwned>(objects: Vec<Value>) -> Vec<T> {
    objects.into_iter().filter_map(read).collect()
}

/// Explains the state of a machine.
pub fn diagnose(facts: &DiagnosisInput, now: Timestamp) -> Diagnosis {
    let state = facts.state().to_owned();
    let mut findings = Findings::new(facts);
    if let Some(machine) = &facts.machine {
        machine::examine(&mut findings, machine, facts.instance.is_some(), now);
    }
    storage::examine(&mut findings);
    if let Some(instance) = &facts.instance {
        instance::examine(&mut findings, instance);
        migration::examine(&mut findings, instance);
    }
    if !["Running", "Stopped"].contains(&state.as_str()) {
        placement::examine_nodes(&mut findings);
    }
    let ready = facts.is_ready();
    let mut found = findings.found;
    if found.is_empty() && !(state == "Running" && ready) {
        found.push(DiagnosisFinding {
            severity: Severity::Warning,
            what: format!("The machine is {state}, and no component has reported a cause yet."),
            why: "Its controller may not have processed it yet, or may not be running.".into(),
            fix: facts.kubectl("describe", "vm,vmi", &facts.name),
        });
    }
    // Stable: within a severity, causes come before what follows from them.
    found.sort_by_key(|finding| finding.severity);
    Diagnosis { state, ready, findings: found, events: event::summarize(facts) }
}

/// The findings so far, and the commands that they end with.
struct Findings<'a> {
    facts: &'a DiagnosisInput,
    found: Vec<DiagnosisFinding>,
}

impl<'a> Findings<'a> {
    fn new(facts: &'a DiagnosisInput) -> Self {
        Self { facts, found: Vec::new() }
    }

    fn add(
        &mut self,
        severity: Severity,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let finding =
            DiagnosisFinding { severity, what: what.into(), why: why.into(), fix: fix.into() };
        if !self.found.contains(&finding) {
            self.found.push(finding);
        }
    }

    fn error(&mut self, what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Error, what, why, fix);
    }

    fn warning(&mut self, what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Warning, what, why, fix);
    }

    fn info(&mut self, what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Info, what, why, fix);
    }
}

impl DiagnosisInput {
    fn state(&self) -> &str {
        let machine = self.machine.as_ref().and_then(|machine| machine.status.as_ref());
        let printable = machine.and_then(|status| status.printable_status.as_deref());
        let instance = self.instance.as_ref().and_then(|instance| instance.status.as_ref());
        let phase = instance.and_then(|status| status.phase.as_deref());
        printable.or(phase).filter(|state| !state.is_empty()).unwrap_or("Unknown")
    }

    fn is_ready(&self) -> bool {
        let status = self.instance.as_ref().and_then(|instance| instance.status.as_ref());
        status.is_some_and(|status| {
            status.conditions.iter().any(|own| own.r#type == "Ready" && own.status == "True")
        })
    }

    /// ` -n NAMESPACE`, where it is not the default one.
    fn place(&self) -> String {
        match self.namespace.as_str() {
            "" | "default" => String::new(),
            namespace => format!(" -n {namespace}"),
        }
    }

    /// `sheaf vm ACTION NAME`.
    fn sheaf(&self, action: &str) -> String {
        format!("sheaf vm {action} {}{}", self.name, self.place())
    }

    /// `kubectl VERB KIND NAME` in the namespace of the machine.
    fn kubectl(&self, verb: &str, kind: &str, name: &str) -> String {
        format!("kubectl {verb} {kind} {name}{}", self.place())
    }
}
