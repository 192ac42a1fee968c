//! The record of a volume: which engine may write and which replicas have everything, in an
//! annotation of its Engine object.
//!
//! ```text
//!  sheaf.io/block-record: {"version":7,"record":{"generation":3,"isr":[…],…}}
//! ```
//!
//! It is replaced only where it is as it was when it was read: the version in it is compared, and
//! the object's resourceVersion makes comparing and writing one step. Status and the like may be
//! written between two changes of the record without disturbing them.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Chain, Stop};
use block::ids::{ReplicaId, VolumeId};
use block::repl::control::{Record, Version, Versioned};
use block::storage::{Answered, Question, RecordAnswer, RecordQuestion, StorageStatus};
use client::Fault;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hci::longhorn::{OLD_RECORD, RECORD};
use kube::Api;
use kube::api::DynamicObject;
use serde_json::json;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::attached::VolumeNumbers;
use super::link::{LinkError, StorageLink};
use super::longhorn;
use super::secret;
use crate::api::{is_conflict, merge};

/// Why a record was not read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("cannot read the engine {engine}")]
    Read { engine: String, source: Fault },
    #[error("cannot write the record of the engine {engine}")]
    Write { engine: String, source: Fault },
    #[error("the record of the engine {engine} cannot be understood")]
    Corrupt { engine: String, source: serde_json::Error },
    #[error(
        "the engine {engine} has no record although its replicas were written to: it is not \
         known which of them has everything"
    )]
    Lost { engine: String },
}

/// Writes records of engines.
#[derive(Clone)]
pub(super) struct EngineRecords {
    client: kube::Client,
}

impl EngineRecords {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    fn engines(&self) -> Api<DynamicObject> {
        longhorn(&self.client, "Engine", "engines")
    }

    async fn read(&self, engine: &str) -> Result<(DynamicObject, Option<Versioned>), RecordError> {
        let read = |source| RecordError::Read { engine: engine.into(), source: Fault(source) };
        let object = self.engines().get(engine).await.map_err(read)?;
        let annotations = object.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(RECORD).or_else(|| all.get(OLD_RECORD)));
        let corrupt = |source| RecordError::Corrupt { engine: engine.into(), source };
        let found = text.map(|text| serde_json::from_str(text)).transpose().map_err(corrupt)?;
        Ok((object, found))
    }

    /// Replaces the record if `change` makes another of what is there; answers what is there then.
    async fn update(
        &self,
        engine: &str,
        change: impl Fn(Option<&Versioned>) -> Result<Option<Record>, RecordError>,
    ) -> Result<Option<Versioned>, RecordError> {
        loop {
            let (object, found) = self.read(engine).await?;
            let Some(record) = change(found.as_ref())? else { return Ok(found) };
            let version = found.map_or(Version(1), |found| Version(found.version.0 + 1));
            let next = Versioned { version, record };
            let text = serde_json::to_string(&next).expect("a record is JSON");
            let patch = json!({"metadata": {
                "resourceVersion": object.metadata.resource_version,
                "annotations": {RECORD: text, OLD_RECORD: null},
            }});
            match merge(&self.engines(), engine, &patch).await {
                Ok(_) => return Ok(Some(next)),
                Err(failure) if is_conflict(&failure) => {}
                Err(failure) => {
                    let source = Fault(failure);
                    return Err(RecordError::Write { engine: engine.into(), source });
                }
            }
        }
    }

    /// Lets a node claim a volume that is attached elsewhere.
    pub(super) async fn admit(&self, engine: &str, node: &str) -> Result<(), RecordError> {
        let change = |found: Option<&Versioned>| match found {
            Some(found) if found.record.migration_target.as_deref() == Some(node) => Ok(None),
            Some(found) => {
                Ok(Some(Record { migration_target: Some(node.into()), ..found.record.clone() }))
            }
            None => Err(RecordError::Lost { engine: engine.into() }),
        };
        self.update(engine, change).await.map(drop)
    }

    /// Makes the record of a new volume, and gives the volume to a node. No other node may claim
    /// it from then on.
    pub(super) async fn attach(
        &self,
        engine: &str,
        node: &str,
        first: &BTreeSet<ReplicaId>,
        is_new: bool,
    ) -> Result<(), RecordError> {
        let change = |found: Option<&Versioned>| match found {
            Some(Versioned { record, .. })
                if record.attached.as_deref() == Some(node)
                    && record.migration_target.is_none() =>
            {
                Ok(None)
            }
            Some(found) => Ok(Some(Record {
                attached: Some(node.into()),
                migration_target: None,
                ..found.record.clone()
            })),
            None if is_new => {
                let record = Record::new(first.iter().copied());
                Ok(Some(Record { attached: Some(node.into()), ..record }))
            }
            None => Err(RecordError::Lost { engine: engine.into() }),
        };
        self.update(engine, change).await.map(drop)
    }

    /// The volume is not served by the node any more.
    pub(super) async fn detach(&self, engine: &str, node: &str) -> Result<(), RecordError> {
        let change = |found: Option<&Versioned>| {
            let found = found.filter(|found| found.record.attached.as_deref() == Some(node));
            Ok(found.map(|found| Record { attached: None, ..found.record.clone() }))
        };
        self.update(engine, change).await.map(drop)
    }

    async fn answer(
        &self,
        engine: &str,
        question: &RecordQuestion,
    ) -> Result<RecordAnswer, RecordError> {
        match question {
            RecordQuestion::Read => {
                let found = self.read(engine).await?.1;
                Ok(found.map_or(RecordAnswer::Unavailable, RecordAnswer::Read))
            }
            RecordQuestion::Swap { expect, record } => {
                let change = |found: Option<&Versioned>| {
                    let same = found.is_some_and(|found| found.version == *expect);
                    Ok(same.then(|| (**record).clone()))
                };
                let now = self.update(engine, change).await?;
                Ok(match now {
                    Some(now) if now.version.0 == expect.0 + 1 && now.record == **record => {
                        RecordAnswer::Swapped(now.version)
                    }
                    Some(now) => RecordAnswer::Conflict(now),
                    None => RecordAnswer::Unavailable,
                })
            }
            RecordQuestion::Passphrase => Ok(RecordAnswer::Unavailable),
        }
    }
}

/// Answers the storage process, for as long as it runs and whenever it runs again.
pub(super) async fn serve(
    records: EngineRecords,
    link: StorageLink,
    names: VolumeNumbers,
    mut reported: watch::Receiver<Option<Arc<StorageStatus>>>,
    mut stop: Stop,
) {
    loop {
        tokio::select! {
            there = reported.wait_for(Option::is_some) => if there.is_err() { return },
            () = stop.requested() => return,
        }
        let failure = tokio::select! {
            failure = converse(&records, &link, &names) => failure,
            () = stop.requested() => return,
        };
        debug!(error = %Chain(&failure), "records are no longer requested");
        // Until the supervisor has seen that it is gone.
        tokio::select! {
            () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
            () = stop.requested() => return,
        }
    }
}

async fn converse(records: &EngineRecords, link: &StorageLink, names: &VolumeNumbers) -> LinkError {
    let offered = async {
        let mut conversation = link.connect().await?;
        conversation.offer_records().await?;
        Ok(conversation.split())
    };
    let (mut questions, mut answers) = match offered.await {
        Ok(both) => both,
        Err(failure) => return failure,
    };
    let mut answering = FuturesUnordered::new();
    let asked = futures_util::stream::unfold(&mut questions, |questions| async move {
        Some((questions.next().await, questions))
    });
    let mut asked = std::pin::pin!(asked);
    loop {
        tokio::select! {
            Some(question) = asked.next() => match question {
                Ok(question) => answering.push(answer(records, names, question)),
                Err(failure) => return failure,
            },
            Some(answered) = answering.next() => {
                if let Err(failure) = answers.say(&answered).await {
                    return failure;
                }
            }
        }
    }
}

async fn answer(records: &EngineRecords, names: &VolumeNumbers, question: Question) -> Answered {
    let Question { ask, volume, question } = question;
    let answer = match (&question, names.of(volume)) {
        (_, None) => RecordAnswer::Unavailable,
        (RecordQuestion::Passphrase, Some(known)) => {
            match secret::passphrase(&records.client, &known.persistent).await {
                Ok(secret) => RecordAnswer::Passphrase(secret),
                Err(failure) => {
                    warn!(%volume, error = %Chain(&failure), "cannot unlock volume");
                    RecordAnswer::Unavailable
                }
            }
        }
        (question, Some(known)) => match records.answer(&known.engine, question).await {
            Ok(answer) => answer,
            Err(failure) => {
                warn!(%volume, error = %Chain(&failure), "cannot get volume record");
                RecordAnswer::Unavailable
            }
        },
    };
    Answered { ask, answer }
}

/// The names of a volume, found by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownVolume {
    pub(super) engine: String,
    pub(super) persistent: String,
}

impl VolumeNumbers {
    fn of(&self, volume: VolumeId) -> Option<KnownVolume> {
        self.0.lock().get(&volume).cloned()
    }
}
