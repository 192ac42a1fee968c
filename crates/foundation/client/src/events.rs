//! The event recorder of controllers and agents: writes Events beside the objects that they regard,
//! and raises the count of one that exists instead of writing the same again.
//!
//! `correlate.rs` decides what is written. An event that cannot be written is only logged: nothing
//! depends on it.

mod correlate;

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use base::clock;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::debug;

use self::correlate::{Correlator, Decision, Series};
use crate::fault::Fault;

/// Whether an event reports progress or a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    Normal,
    Warning,
}

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Occurrence {
    /// The object; events of cluster-scoped ones are kept in namespace `default`.
    pub about: ObjectReference,
    pub severity: Severity,
    /// In UpperCamelCase; clients select by it.
    pub reason: String,
    pub message: String,
    /// The controller or agent that reports it.
    pub component: String,
    /// The node that it reports from.
    pub host: Option<String>,
}

/// Remembers what was recorded about the objects of one cluster; clones share their memory.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Correlator>>);

impl Recorder {
    /// The recorder that all controllers of this process share.
    pub fn shared() -> Self {
        static SHARED: LazyLock<Recorder> = LazyLock::new(Recorder::default);
        SHARED.clone()
    }

    /// Records an occurrence, unless too many were recorded about the same object.
    pub async fn record(&self, client: &Client, occurrence: Occurrence) {
        let decision = {
            let mut correlator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            correlator.observe(&occurrence, clock::now())
        };
        let reason = occurrence.reason.clone();
        let written = match decision {
            Decision::Drop => return,
            Decision::Create(series) => create(client, occurrence, series).await,
            Decision::Update(series) => update(client, occurrence, series).await,
        };
        if let Err(failure) = written {
            debug!(reason, error = %Fault(failure), "cannot write event");
        }
    }
}

async fn update(
    client: &Client,
    occurrence: Occurrence,
    series: Series,
) -> Result<(), kube::Error> {
    let patch = json!({
        "count": series.count,
        "lastTimestamp": Time(series.last),
        "message": series.message,
    });
    let api = events(client, &occurrence);
    match api.patch(&series.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        // It expired, or was never written.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            create(client, occurrence, series).await
        }
        result => result.map(drop),
    }
}

async fn create(
    client: &Client,
    occurrence: Occurrence,
    series: Series,
) -> Result<(), kube::Error> {
    let api = events(client, &occurrence);
    match api.create(&PostParams::default(), &event(occurrence, series)).await {
        // The same occurrence was recorded twice at once, and the other one was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(drop),
    }
}

fn events(client: &Client, occurrence: &Occurrence) -> Api<Event> {
    Api::namespaced(client.clone(), namespace(&occurrence.about))
}

fn namespace(about: &ObjectReference) -> &str {
    about.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

fn event(occurrence: Occurrence, series: Series) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(series.name),
            namespace: Some(namespace(&occurrence.about).to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(match occurrence.severity {
            Severity::Normal => "Normal".to_owned(),
            Severity::Warning => "Warning".to_owned(),
        }),
        reason: Some(occurrence.reason),
        message: Some(series.message),
        source: Some(EventSource {
            component: Some(occurrence.component.clone()),
            host: occurrence.host.clone(),
        }),
        reporting_component: Some(occurrence.component),
        reporting_instance: occurrence.host,
        involved_object: occurrence.about,
        first_timestamp: Some(Time(series.first)),
        last_timestamp: Some(Time(series.last)),
        count: Some(series.count),
        ..Event::default()
    }
}
