//! Following claims and volumes, and doing what the plan says: one task owns what is known,
//! and one task per volume works on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain, Stop};
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, warn};

use super::clone::Copy;
use super::disk::Disks;
use super::fill::Job;
use super::mirror::Mirror;
use super::object::{self, Claim, Progress, Volume};
use super::plan::{Action, Doing, Found, World, plan};
use super::provision::{self, ProvisionError};
use super::readers::Readers;
use super::source::Source;
use super::tell::Teller;
use super::upload::{Arrival, UploadError, upload};
use crate::bell::Bell;
use crate::event::Reporter;
use crate::storage::Storage;

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_millis(500);
/// After a failure of one volume.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What all work on volumes needs.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) disks: Disks,
    pub(super) reporter: Reporter,
    pub(super) readers: Readers,
    pub(super) storage: Storage,
    /// The replicated volumes behind persistent ones, by the names of these.
    pub(super) handles: Handles,
    /// Rung when a disk has grown.
    pub(super) bell: Bell,
}

/// Clones know the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Handles(Arc<Mutex<BTreeMap<String, String>>>);

impl Handles {
    pub(super) fn of(&self, volume: &str) -> Option<String> {
        self.0.lock().get(volume).cloned()
    }
}

impl Shared {
    pub(super) fn clone_claim<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        volume: &'a str,
        size: u64,
    ) -> Copy<'a> {
        Copy { shared: self, namespace, name, volume, size }
    }
}

/// What some work has left of its objects: the watch tells of it later.
#[derive(Debug)]
enum Echo {
    Nothing,
    Claim(Box<PersistentVolumeClaim>),
    Volume(Box<PersistentVolume>),
    /// The volume of this work exists no more.
    Gone,
}

impl Echo {
    fn claim(claim: Option<PersistentVolumeClaim>) -> Self {
        claim.map_or(Self::Nothing, |claim| Self::Claim(Box::new(claim)))
    }
}

/// Some work on the volume has ended, well or with a complaint.
struct Done {
    volume: String,
    result: Result<Echo, String>,
}

/// What went wrong with a volume last, and how long to leave it alone.
struct Trouble {
    complaint: String,
    pauses: Backoff,
}

/// The task that owns what is known.
pub(super) struct Keeper {
    shared: Shared,
    claims: Mirror<Claim>,
    volumes: Mirror<Volume>,
    found: BTreeMap<String, Found>,
    jobs: JoinSet<Done>,
    under_way: BTreeMap<String, (Doing, AbortHandle)>,
    troubles: BTreeMap<String, Trouble>,
}

enum News {
    Claim(Box<Event<PersistentVolumeClaim>>),
    Volume(Box<Event<PersistentVolume>>),
    Upload(Arrival),
    /// Something on this node has changed.
    Bell,
    /// What was under way for some volume has ended.
    Ended(Result<Done, tokio::task::JoinError>),
    Stop,
}

impl Keeper {
    pub(super) fn new(shared: Shared, found: Vec<(String, Found)>) -> Self {
        Self {
            shared,
            claims: Mirror::default(),
            volumes: Mirror::default(),
            found: found.into_iter().collect(),
            jobs: JoinSet::new(),
            under_way: BTreeMap::new(),
            troubles: BTreeMap::new(),
        }
    }

    /// Runs until `stop`; what is under way is taken up again by the next process.
    pub(super) async fn run(mut self, mut uploads: mpsc::Receiver<Arrival>, mut stop: Stop) {
        let client = &self.shared.client;
        let claims = watcher::watcher(Api::all(client.clone()), watcher::Config::default());
        let volumes = watcher::watcher(Api::all(client.clone()), watcher::Config::default());
        let mut bell = self.shared.bell.listen();
        let mut claims = std::pin::pin!(steady(claims, "claims"));
        let mut volumes = std::pin::pin!(steady(volumes, "volumes"));
        loop {
            let news = tokio::select! {
                Some(event) = claims.next() => News::Claim(Box::new(event)),
                Some(event) = volumes.next() => News::Volume(Box::new(event)),
                Some(arrival) = uploads.recv() => News::Upload(arrival),
                Ok(()) = bell.changed() => News::Bell,
                Some(ended) = self.jobs.join_next() => News::Ended(ended),
                () = stop.requested() => News::Stop,
            };
            if matches!(news, News::Stop) {
                return;
            }
            self.apply(news);
            if self.claims.is_complete() && self.volumes.is_complete() {
                self.act();
            }
        }
    }

    fn apply(&mut self, news: News) {
        match news {
            News::Claim(event) => self.claim_event(*event),
            News::Volume(event) => self.volume_event(*event),
            News::Upload(arrival) => self.receive(arrival),
            News::Ended(Ok(Done { volume, result })) => {
                self.under_way.remove(&volume);
                match result {
                    Ok(echo) => {
                        self.troubles.remove(&volume);
                        self.hear(&volume, echo);
                    }
                    Err(complaint) => self.trouble(&volume).complaint = complaint,
                }
                self.look(volume);
            }
            News::Ended(Err(failure)) => {
                if failure.is_panic() {
                    tracing::error!(error = %failure, "work on a volume panicked");
                }
                let ended: Vec<String> = self
                    .under_way
                    .iter()
                    .filter(|(_, (_, handle))| handle.is_finished())
                    .map(|(volume, _)| volume.clone())
                    .collect();
                for volume in ended {
                    self.under_way.remove(&volume);
                    self.look(volume);
                }
            }
            News::Bell | News::Stop => {}
        }
    }

    fn claim_event(&mut self, event: Event<PersistentVolumeClaim>) {
        self.claims.apply(event, |claim| Some((claim.metadata.uid.clone()?, object::claim(claim))));
    }

    fn volume_event(&mut self, event: Event<PersistentVolume>) {
        let node = &self.shared.node;
        self.volumes.apply(event, |volume| {
            Some((volume.metadata.name.clone()?, object::volume(volume, node)))
        });
        let handles = self.volumes.iter();
        let handles = handles.filter_map(|(name, it)| Some((name.clone(), it.replicated.clone()?)));
        *self.shared.handles.0.lock() = handles.collect();
    }

    fn hear(&mut self, volume: &str, echo: Echo) {
        match echo {
            Echo::Nothing => {}
            Echo::Claim(claim) => self.claim_event(Event::Apply(*claim)),
            Echo::Volume(volume) => self.volume_event(Event::Apply(*volume)),
            Echo::Gone => self.volumes.remove(volume),
        }
    }

    fn look(&mut self, volume: String) {
        if self.shared.disks.exists(&volume) {
            let found = self.shared.disks.look(&volume);
            self.found.insert(volume, found);
        } else {
            self.found.remove(&volume);
        }
    }

    fn act(&mut self) {
        let world = World {
            node: &self.shared.node,
            filled_here: self.shared.storage.filled_here(),
            claims: self.claims.iter().map(|(uid, claim)| (uid.as_str(), claim)).collect(),
            volumes: self.volumes.iter().map(|(name, volume)| (name.as_str(), volume)).collect(),
            found: self.found.iter().map(|(name, found)| (name.as_str(), *found)).collect(),
            under_way: self
                .under_way
                .iter()
                .map(|(name, (doing, _))| (name.as_str(), *doing))
                .collect(),
        };
        for action in plan(&world) {
            self.start(action);
        }
    }

    fn start(&mut self, action: Action) {
        let shared = self.shared.clone();
        let claim = |uid: &str| self.claims.get(uid).cloned();
        match action {
            Action::Provision { claim: uid } => {
                let Some(claim) = claim(&uid) else { return };
                let volume = claim.volume_name();
                let known = self.trouble(&volume).complaint.clone();
                self.spawn(volume, Doing::Other, |_| make(shared, claim, known));
            }
            Action::Fill { volume, claim: uid, source } => {
                let Some(claim) = claim(&uid) else { return };
                self.spawn(volume, Doing::Filling, |volume| async move {
                    Ok(Echo::claim(Job { shared, volume, claim, source }.run().await?))
                });
            }
            Action::Grow { volume, claim: uid, size } => {
                let Some(claim) = claim(&uid) else { return };
                self.spawn(volume, Doing::Other, move |volume| async move {
                    let grown = provision::grow(&shared, &volume, &claim, size).await?;
                    Ok(Echo::claim(Some(grown)))
                });
            }
            Action::Settle { volume } => self.spawn(volume, Doing::Other, |volume| async move {
                provision::settle(&shared, &volume).await.map(|()| Echo::Nothing)
            }),
            Action::Remove { volume } => self.spawn(volume, Doing::Other, |volume| async move {
                provision::remove(&shared, &volume).await.map(|()| Echo::Gone)
            }),
            Action::Release { volume } => self.spawn(volume, Doing::Other, |volume| async move {
                provision::release(&shared, &volume).await.map(|()| Echo::Gone)
            }),
            Action::Discard { volume } => self.spawn(volume, Doing::Other, |volume| async move {
                provision::discard(&shared, &volume).await.map(|()| Echo::Nothing)
            }),
            Action::Cancel { volume } => {
                if let Some((_, handle)) = self.under_way.get(&volume) {
                    debug!(volume, "filling is stopped");
                    handle.abort();
                }
            }
        }
    }

    /// Starts work on a volume; after a failure it rests before it counts as ended.
    fn spawn<F>(&mut self, volume: String, doing: Doing, work: impl FnOnce(String) -> F)
    where
        F: Future<Output = Result<Echo, ProvisionError>> + Send + 'static,
    {
        let trouble = self.trouble(&volume);
        let (pause, known) = (trouble.pauses.delay(), trouble.complaint.clone());
        let (name, work) = (volume.clone(), work(volume.clone()));
        let handle = self.jobs.spawn(async move {
            let result = match work.await {
                Ok(echo) => Ok(echo),
                Err(failure) => {
                    let complaint = Chain(&failure).to_string();
                    // What stays wrong is told once.
                    if complaint == known || failure.is_waiting() {
                        debug!(
                            volume = name,
                            error = complaint,
                            "volume is still not as it should be"
                        );
                    } else {
                        warn!(volume = name, error = complaint, "volume is not as it should be");
                    }
                    tokio::time::sleep(pause).await;
                    Err(complaint)
                }
            };
            Done { volume: name, result }
        });
        self.under_way.insert(volume, (doing, handle));
    }

    fn trouble(&mut self, volume: &str) -> &mut Trouble {
        self.troubles.entry(volume.to_owned()).or_insert_with(|| Trouble {
            complaint: String::new(),
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        })
    }

    /// An upload begins if its claim waits for one.
    fn receive(&mut self, arrival: Arrival) {
        let volume = arrival.volume.clone();
        let owner = self.volumes.get(&volume).map(|volume| volume.owner.clone());
        let claim = owner.and_then(|owner| self.claims.get(&owner)).filter(|claim| {
            claim.source == Some(Source::Upload)
                && claim.progress == Progress::Ready
                && claim.is_bound
                && claim.volume.as_deref() == Some(&volume)
                && !claim.is_deleting
        });
        let Some(claim) = claim.cloned() else {
            return arrival.refuse(UploadError::NotExpected { volume });
        };
        if self.under_way.contains_key(&volume) {
            return arrival.refuse(UploadError::Busy { volume });
        }
        let Arrival { body, answer, .. } = arrival;
        let shared = self.shared.clone();
        self.spawn(volume, Doing::Filling, |volume| async move {
            let mut teller = Teller::new(shared.client.clone(), &claim);
            let result = upload(&shared, &claim, &volume, body, &mut teller).await;
            let _ = answer.send(result);
            Ok(Echo::claim(teller.into_claim()))
        });
    }
}

/// `known` is what the claim was told already.
async fn make(shared: Shared, claim: Claim, known: String) -> Result<Echo, ProvisionError> {
    match Box::pin(provision::provision(&shared, &claim)).await {
        Ok(volume) => Ok(volume.map_or(Echo::Nothing, |volume| Echo::Volume(Box::new(volume)))),
        Err(failure) => {
            if Chain(&failure).to_string() != known {
                provision::complain(&shared, &claim, &failure).await;
            }
            Err(failure)
        }
    }
}

/// A watch that tells of its failures in the log and goes on.
pub(crate) fn steady<K: Send>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    what: &'static str,
) -> impl Stream<Item = Event<K>> + Send {
    let mut failing = false;
    events.filter_map(move |event| {
        let event = match event {
            Ok(event) => {
                failing = false;
                Some(event)
            }
            Err(failure) => {
                if failing {
                    debug!(error = %Chain(&failure), what, "still cannot follow");
                } else {
                    warn!(error = %Chain(&failure), what, "cannot follow");
                }
                failing = true;
                None
            }
        };
        async move {
            if event.is_none() {
                tokio::time::sleep(RETRY).await;
            }
            event
        }
    })
}
