//! Starting all controllers, in one place at a time. Which ones there are is listed by subject in
//! the modules below.

mod clients;
mod cluster;
mod machines;
mod storage;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Stop, Tasks, Workloads};
use client::{Catalog, Election, Term, Timing};
use tokio::sync::{mpsc, watch};

pub use self::clients::{ControllerClients, ControllerGroup};
use crate::alarm_receiver::AlarmSender;
use crate::certificate::CertificateSigner;
use crate::hub::{self, ChangeHub, ChangeOutlet};
use crate::installation::UploadProxy;
use crate::reconcile::{self, EventMapper, ObjectChange, Reconciler};
use crate::service_account::TokenMinter;

/// Changes on their way to one reader.
const QUEUE: usize = 256;
/// How long the controllers may take to end.
const STOP_LIMIT: Duration = Duration::from_millis(1500);

/// The configuration of the controllers.
#[derive(Clone)]
pub struct Config {
    pub leadership: Leadership,
    pub duties: ControllerSet,
    /// Where images are uploaded to, if these controllers are to report it.
    pub uploads: Option<UploadProxy>,
    /// Delivers alarms to their receivers, if these controllers are to.
    pub alarm_sender: Option<Arc<dyn AlarmSender>>,
    /// Where the work done is counted.
    pub loads: Workloads,
}

impl fmt::Debug for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("Config");
        out.field("leadership", &self.leadership).field("duties", &self.duties);
        out.field("uploads", &self.uploads).finish_non_exhaustive()
    }
}

/// How much of a cluster is left to these controllers.
#[derive(Clone)]
pub enum ControllerSet {
    /// All that upstream's controller manager does for a cluster without pods, and virtual
    /// machines.
    Cluster {
        /// The bundle that clients inside the cluster trust the server by, PEM.
        root_ca: String,
        minter: Arc<dyn TokenMinter>,
        signer: Arc<dyn CertificateSigner>,
    },
    /// Virtual machines only: the cluster has controllers of its own for the rest.
    Machines,
}

impl fmt::Debug for ControllerSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cluster { .. } => "Cluster",
            Self::Machines => "Machines",
        })
    }
}

/// The choice of the server that runs the controllers when there are several.
#[derive(Debug, Clone)]
pub enum Leadership {
    /// There is only this one; nothing has to be written to know that.
    Sole,
    /// The holder of the lease `kube-system/sheaf-controllers`. The identity must be unique among
    /// the servers and should survive a restart, which then costs no pause.
    Lease { identity: String },
}

/// Runs the controllers as tasks of `tasks` until those are stopped.
pub fn start(clients: impl Into<ControllerClients>, config: Config, tasks: &Tasks) {
    let clients = clients.into();
    let mut stop = tasks.stop_signal();
    match config.leadership.clone() {
        Leadership::Sole => tasks.spawn("controllers", async move {
            let running = run_all(&clients, &config);
            stop.requested().await;
            running.stop(STOP_LIMIT).await;
        }),
        Leadership::Lease { identity } => {
            let election = Election {
                namespace: "kube-system".into(),
                name: "sheaf-controllers".into(),
                identity,
                timing: Timing::default(),
            };
            let lead = {
                let clients = clients.clone();
                move |mut term: Term| {
                    // A leader that was stopped for a while writes nothing afterwards.
                    let fenced = ControllerClients::new(|group| term.fenced(clients.of(group)));
                    let running = run_all(&fenced, &config);
                    async move {
                        term.over().await;
                        running.stop(STOP_LIMIT).await;
                    }
                }
            };
            let client = clients.of(ControllerGroup::Shared);
            tasks.spawn("controllers", client::campaign(client, election, stop, lead));
        }
    }
}

/// Starts everything once; the tasks end together.
fn run_all(clients: &ControllerClients, config: &Config) -> Tasks {
    let tasks = Tasks::default();
    let (updates, received) = mpsc::channel(QUEUE);
    let (catalog_sender, catalog) = watch::channel(Arc::<Catalog>::default());
    let mut outlets = Vec::new();

    let started = Started { clients, catalog: &catalog, tasks: &tasks, loads: &config.loads };
    let collector = match &config.duties {
        ControllerSet::Cluster { root_ca, minter, signer } => {
            started.cluster(root_ca, minter, &mut outlets);
            started.certificates(signer, &mut outlets);
            started.storage(&mut outlets);
            Some(started.collector())
        }
        ControllerSet::Machines => None,
    };
    started.machines(config.uploads.clone(), &mut outlets);
    if let Some(sender) = &config.alarm_sender {
        started.alarm_receivers(sender, &mut outlets);
    }
    let hub = ChangeHub { updates: received, collector, outlets };
    tasks.spawn("hub", hub.run(tasks.stop_signal()));
    let (client, mut stop) = (clients.of(ControllerGroup::Shared), tasks.stop_signal());
    tasks.spawn("feed", async move {
        tokio::select! {
            () = client::feed(client, updates, catalog_sender) => {}
            () = stop.requested() => {}
        }
    });
    tasks
}

/// Arguments that all controllers share.
struct Started<'a> {
    clients: &'a ControllerClients,
    catalog: &'a watch::Receiver<Arc<Catalog>>,
    tasks: &'a Tasks,
    loads: &'a Workloads,
}

impl Started<'_> {
    fn add<I, R>(&self, name: &'static str, interest: I, reconciler: R) -> ChangeOutlet
    where
        I: EventMapper + Send + 'static,
        I::Key: 'static,
        R: Reconciler<Key = I::Key> + Send + Sync + 'static,
    {
        let (touches, received) = mpsc::channel::<ObjectChange>(QUEUE);
        let stop: Stop = self.tasks.stop_signal();
        let load = self.loads.of(name);
        let run = reconcile::run(name, interest, reconciler, received, load, stop);
        self.tasks.spawn(name, run);
        ChangeOutlet { touches, wants: hub::everything }
    }
}
