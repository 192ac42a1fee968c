//! Alarms are sent to AlarmReceivers: when they begin, when they become critical and when they end.
//!
//! The controller decides and remembers what was delivered; requests to the outside are made by the
//! program, which knows the proxy and the certificates of the cluster ([`AlarmSender`]).

mod message;
mod plan;

use std::collections::BTreeSet;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;

use base::{Chain, clock};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hci::alarm::{
    Alarm, AlarmReceiver, AlarmReceiverSpec, AlarmReceiverStatus, DELIVERED, GROUP, PLURAL,
    RECEIVER_PLURAL, RECEIVER_SECRETS, TEST_ANNOTATION,
};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

pub use self::message::AlarmMessage;
use self::message::{AlarmReport, message, test_alarm};
use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object::{annotation, is_deleting, is_merged};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, Resource, SECRETS, is_refused};

const ALARMS: Resource = Resource::new(GROUP, "v1", PLURAL);
const RECEIVERS: Resource = Resource::new(GROUP, "v1", RECEIVER_PLURAL);

pub type DeliveryResult = Result<(), Box<dyn Error + Send + Sync>>;

/// Makes the requests to receivers.
pub trait AlarmSender: Send + Sync {
    /// Posts the message; an answer other than 2xx is an error.
    fn send(&self, message: AlarmMessage) -> Pin<Box<dyn Future<Output = DeliveryResult> + Send>>;
}

/// Receivers, all of them again when an alarm changes.
#[derive(Debug, Default)]
pub(crate) struct ReceiverMapper {
    known: BTreeSet<Arc<str>>,
}

impl EventMapper for ReceiverMapper {
    type Key = ObjectKey;

    fn keys(&mut self, change: &ObjectChange) -> Vec<ObjectKey> {
        match change {
            ObjectChange::Object { kind, name, state, .. } if RECEIVERS.is(kind) => {
                if *state == ObjectState::Gone {
                    self.known.remove(name);
                    return Vec::new();
                }
                self.known.insert(Arc::clone(name));
                vec![ObjectKey::new("", name)]
            }
            ObjectChange::Object { kind, .. } | ObjectChange::Missed(kind) if ALARMS.is(kind) => {
                self.known.iter().map(|name| ObjectKey::new("", name)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Why the address of a receiver cannot be used.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    #[error("there is no Secret {RECEIVER_SECRETS}/{name}")]
    SecretMissing { name: String },
    #[error("the Secret {RECEIVER_SECRETS}/{name} has no text at the key {key}")]
    KeyMissing { name: String, key: String },
    #[error("the address has to begin with http:// or https://")]
    NotHttp,
}

/// Why a receiver did not take a message.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    Send(Box<dyn Error + Send + Sync>),
}

pub(crate) struct ReceiverReconciler {
    objects: Objects,
    sender: Arc<dyn AlarmSender>,
}

impl Reconciler for ReceiverReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(RECEIVERS, "", &key.name).await;
        let Some(object) = found.doing("get an alarm receiver")?.filter(|own| !is_deleting(own))
        else {
            return Ok(ReconcileResult::Done);
        };
        let Some(receiver) = read::<AlarmReceiver>(&object) else {
            return Ok(ReconcileResult::Done);
        };
        if let Some(request) = wanted_test(&object, &receiver) {
            self.test(&object, &receiver.spec, request).await?;
        }
        let alarms = self.objects.list(ALARMS, "", "").await.doing("list alarms")?;
        let alarms: Vec<Alarm> = alarms.iter().filter_map(read).collect();
        let status = receiver.status.unwrap_or_default();
        let delivery = plan::delivery(&receiver.spec, &status.announced, &alarms, clock::now());
        if delivery.has_message() {
            let now = clock::now_rfc3339();
            let report = AlarmReport {
                receiver: &key.name,
                firing: &delivery.firing,
                resolved: &delivery.resolved,
                now: &now,
            };
            let sent = self.post(&receiver.spec, &report).await?;
            let mut patch = json!({"conditions": delivered(&object, &sent)});
            if sent.is_ok() {
                patch["announced"] = json!(delivery.announced);
                patch["lastDelivery"] = json!(now);
            }
            self.write(&object, patch).await?;
            if let Err(error) = sent {
                let reason = Chain(&error).to_string();
                warn!(receiver = %key.name, reason, "cannot deliver alarms");
                return Ok(ReconcileResult::Retry);
            }
        } else if delivery.announced != status.announced {
            self.write(&object, json!({"announced": delivery.announced})).await?;
        }
        Ok(delivery.recheck.map_or(ReconcileResult::Done, ReconcileResult::Again))
    }
}

impl ReceiverReconciler {
    pub(crate) fn new(client: Client, sender: Arc<dyn AlarmSender>) -> Self {
        Self { objects: Objects(client), sender }
    }

    /// Sends the test message that was requested, and writes how it went.
    async fn test(
        &self,
        object: &Value,
        spec: &AlarmReceiverSpec,
        request: &str,
    ) -> Result<(), ReconcileError> {
        let (name, now) = (crate::object::name(object), clock::now_rfc3339());
        let firing = [test_alarm(name, &now)];
        let report = AlarmReport { receiver: name, firing: &firing, resolved: &[], now: &now };
        let sent = self.post(spec, &report).await?;
        let error = sent.as_ref().err().map(|error| Chain(error).to_string());
        let patch = json!({
            "conditions": delivered(object, &sent), "test": {"request": request, "error": error},
        });
        self.write(object, patch).await
    }

    /// Whether the receiver has taken the message; if not, why.
    async fn post(
        &self,
        spec: &AlarmReceiverSpec,
        report: &AlarmReport<'_>,
    ) -> Result<Result<(), DeliveryError>, ReconcileError> {
        let url = match self.address(spec).await? {
            Ok(url) => url,
            Err(error) => return Ok(Err(error.into())),
        };
        let format = spec.format.as_deref().unwrap_or_default();
        let sent = self.sender.send(message(format, url, report)).await;
        Ok(sent.map_err(DeliveryError::Send))
    }

    async fn address(
        &self,
        spec: &AlarmReceiverSpec,
    ) -> Result<Result<String, AddressError>, ReconcileError> {
        let url = match &spec.url_secret {
            None => spec.url.clone().unwrap_or_default(),
            Some(secret) => {
                let name = secret.name.clone();
                let key = secret.key.clone().unwrap_or_else(|| "url".into());
                let found = self.objects.get(SECRETS, RECEIVER_SECRETS, &name).await;
                let Some(found) = found.doing("get the secret of an alarm receiver")? else {
                    return Ok(Err(AddressError::SecretMissing { name }));
                };
                match secret_text(&found, &key) {
                    Some(url) => url,
                    None => return Ok(Err(AddressError::KeyMissing { name, key })),
                }
            }
        };
        let is_url = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        Ok(if is_url { Ok(url) } else { Err(AddressError::NotHttp) })
    }

    async fn write(&self, object: &Value, status: Value) -> Result<(), ReconcileError> {
        let patch = json!({"status": status});
        if is_merged(object, &patch) {
            return Ok(());
        }
        let name = crate::object::name(object);
        match self.objects.merge_status(RECEIVERS, "", name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(()),
            written => written.map(drop).doing("write the status of an alarm receiver"),
        }
    }
}

fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object).ok()
}

/// The test message that was requested and not sent yet.
fn wanted_test<'a>(object: &'a Value, receiver: &AlarmReceiver) -> Option<&'a str> {
    let request = annotation(object, TEST_ANNOTATION).filter(|request| !request.is_empty())?;
    let done = receiver.status.as_ref().and_then(|AlarmReceiverStatus { test, .. }| test.as_ref());
    (done.is_none_or(|test| test.request != request)).then_some(request)
}

fn secret_text(secret: &Value, key: &str) -> Option<String> {
    let data = STANDARD.decode(secret.get("data")?.get(key)?.as_str()?).ok()?;
    Some(String::from_utf8(data).ok()?.trim().to_owned())
}

/// The conditions of the receiver after a delivery.
fn delivered(object: &Value, sent: &Result<(), DeliveryError>) -> Vec<Value> {
    let wanted = match sent {
        Ok(()) => Condition::new(DELIVERED, "True").because("Delivered", ""),
        Err(error) => {
            let reason = Chain(error).to_string();
            Condition::new(DELIVERED, "False").because("DeliveryFailed", &reason)
        }
    };
    let mut conditions = condition::of(object);
    condition::set(&mut conditions, &wanted, clock::now());
    conditions
}

#[cfg(test)]
mod tests;
