//! Volumes that are replicated: this node's part in them.
//!
//! The data is in the hands of the storage process (`sheaf storage`, crate `block`), which
//! `process` starts and follows and which outlives us. Longhorn's objects say what it is to do:
//! `plan` compares both, `keep` carries it out, `status` reports the state, `record` answers
//! for who may write. `disk` reports the node's disks.
//!
//! Decides nothing about where replicas or engines belong; the objects say it.

mod act;
mod attached;
mod certificate_copies;
mod controller;
mod damage;
mod disk;
mod grant;
mod group_snapshot;
mod held;
mod link;
mod nbd;
mod object;
mod plan;
mod process;
mod record;
mod scrub;
mod secret;
mod status;
mod ticket;
mod user;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::Tasks;
use block::ids::VolumeId;
use block::storage::Request;
use hci::longhorn::NAMESPACE;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use tokio::sync::watch;

use self::act::ActionContext;
use self::attached::{AttachedEntry, VolumeNumbers};
use self::certificate_copies::CertificateCopies;
use self::controller::{ApiObjects, RunningJobs, StorageController};
use self::link::StorageLink;
use self::process::Supervisor;
use self::record::EngineRecords;
use crate::change_notifier::ChangeNotifier;
use crate::config::Config;
use crate::event::Reporter;
use crate::guard::GuestGuard;
use crate::machine::Machines;
use crate::own_addresses::OwnAddresses;

pub(crate) use held::{HeldError, HeldVolume};
pub(crate) use link::LinkError;
pub(crate) use nbd::NbdClient;
pub(crate) use secret::{SecretError, of_secret};
use ticket::Purpose;
pub(crate) use ticket::TicketError;
pub(crate) use user::StorageUser;
use user::passable;

/// The driver whose volumes these are.
pub(crate) const DRIVER: &str = "driver.longhorn.io";

/// For the replicas of a volume to promise themselves to this node.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(5);

/// A volume that can be used on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachedVolume {
    id: VolumeId,
    pub(crate) socket: PathBuf,
    pub(crate) size: u64,
    /// It can be written here, not only read.
    pub(crate) is_active: bool,
}

/// Why this node does not serve a volume that was served elsewhere.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeOverError {
    #[error("volume {volume} is not on this node")]
    NotHere { volume: String },
    #[error("volume {volume} cannot be claimed")]
    Link { volume: String, source: LinkError },
    #[error("volume {volume} was not granted within {} s", TAKE_OVER_TIMEOUT.as_secs())]
    NotGranted { volume: String },
}

/// Requests of the rest of the agent about replicated volumes.
#[derive(Clone)]
pub(crate) struct StorageHandle {
    client: Client,
    node: String,
    link: StorageLink,
    serving: AttachedEntry,
    notifier: ChangeNotifier,
}

impl StorageHandle {
    /// Begins to serve this node's volumes; the storage process does not end with `tasks`.
    ///
    /// The notifier is called when a volume can be used, has grown, or can no longer be used.
    pub(crate) fn start(
        client: Client,
        config: &Config,
        own_addresses: watch::Receiver<OwnAddresses>,
        machines: Machines,
        notifier: ChangeNotifier,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        let dir = config.data_dir.join("storage");
        let sockets = dir.join("nbd");
        passable(&dir)?;
        passable(&sockets)?;
        let dir = dir.canonicalize()?;
        let link = StorageLink::new(&dir);
        let (reported, reports) = watch::channel(None);
        let has_state = dir.join("state.json").exists();
        let (wanted, wanting) = watch::channel(has_state);
        let (names, serving) = (VolumeNumbers::default(), AttachedEntry::default());
        let log = dir.join("storage.log");
        let user = StorageUser::of_host();
        let copies =
            user.map(|user| CertificateCopies { dir: config.data_dir.join("storage-tls"), user });
        let supervisor = Supervisor {
            dir: dir.clone(),
            log,
            user,
            copies,
            wire: config.wire.storage.clone(),
            link: link.clone(),
            wanted: wanting,
            reported,
        };
        tasks.spawn("storage", supervisor.run(tasks.stop_signal()));
        let records = EngineRecords::new(client.clone());
        let answering = record::serve(
            records.clone(),
            link.clone(),
            names.clone(),
            reports.clone(),
            tasks.stop_signal(),
        );
        tasks.spawn("records", answering);
        let node = config.node_name.clone();
        let reporter = Reporter::new(client.clone(), &node);
        let guard = GuestGuard::new(machines.clone(), reporter.clone());
        tasks.spawn("guest-guard", guard.run(reports.clone(), tasks.stop_signal()));
        let hands = ActionContext {
            client: client.clone(),
            node: node.clone(),
            link: link.clone(),
            records,
            machines,
            reporter: reporter.clone(),
            agent_dir: config.agent_dir(),
        };
        let keeper = StorageController {
            hands,
            reporter,
            address: config.addresses.first().map(ToString::to_string).unwrap_or_default(),
            own_addresses,
            sockets: dir.join("nbd"),
            default_disk: dir.join("disk"),
            wanted,
            reported: reports,
            names,
            serving: serving.clone(),
            notifier: notifier.clone(),
            seen: ApiObjects::default(),
            work: RunningJobs::default(),
            scrubs: scrub::ScrubRuns::new(base::clock::now()),
        };
        tasks.spawn("replicas", keeper.run(tasks.stop_signal()));
        Ok(Self { client, node, link, serving, notifier })
    }

    /// Notified whenever volumes of this node changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.notifier.listen()
    }

    /// The volumes that are for this node to fill: of several with replicas, the first.
    pub(crate) fn filled_here(&self) -> BTreeSet<String> {
        self.serving.0.lock().filled.clone()
    }

    /// A volume by its name, if it is served now.
    pub(crate) fn served(&self, volume: &str) -> Option<AttachedVolume> {
        self.serving.0.lock().served.get(volume).cloned()
    }

    /// A volume that is here for `ticket`, and so stays until that is taken back. One that is
    /// served for another may be released at any moment.
    pub(crate) fn held(&self, volume: &str, ticket: &str) -> Option<AttachedVolume> {
        let board = self.serving.0.lock();
        board.satisfied.get(volume).filter(|tickets| tickets.contains(ticket))?;
        board.served.get(volume).cloned()
    }

    /// The same, when it is.
    pub(crate) async fn until_held(&self, volume: &str, ticket: &str) -> AttachedVolume {
        let mut changes = self.notifier.listen();
        loop {
            if let Some(served) = self.held(volume, ticket) {
                return served;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// A volume by its socket, if it can be used now.
    pub(crate) fn served_on(&self, socket: &Path) -> Option<AttachedVolume> {
        self.serving.0.lock().served.values().find(|it| it.socket == socket).cloned()
    }

    /// Asks for a volume here, in the name of `ticket`.
    pub(crate) async fn want(&self, volume: &str, ticket: &str) -> Result<(), TicketError> {
        ticket::put(&self.client, volume, &self.node, ticket, Purpose::Use).await
    }

    /// Asks for a volume that a machine brings along which runs elsewhere. Until it is taken
    /// over, it can be read here.
    pub(crate) async fn want_migrated(
        &self,
        volume: &str,
        ticket: &str,
    ) -> Result<(), TicketError> {
        ticket::put(&self.client, volume, &self.node, ticket, Purpose::Migration).await
    }

    /// Claims a volume whose machine has stopped elsewhere, and waits until that is granted.
    pub(crate) async fn take_over(&self, volume: &str) -> Result<(), TakeOverError> {
        let missing = || TakeOverError::NotHere { volume: volume.into() };
        let served = self.served(volume).ok_or_else(missing)?;
        let asked = self.link.ask_volume(served.id, block::run::AdminRequest::Switch).await;
        asked.map_err(|source| TakeOverError::Link { volume: volume.into(), source })?;
        let mut changes = self.notifier.listen();
        let active = async {
            while !self.served(volume).is_some_and(|served| served.is_active) {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let late = |_| TakeOverError::NotGranted { volume: volume.into() };
        tokio::time::timeout(TAKE_OVER_TIMEOUT, active).await.map_err(late)
    }

    /// `ticket` no longer needs the volume.
    pub(crate) async fn forgo(&self, volume: &str, ticket: &str) -> Result<(), TicketError> {
        ticket::take_back(&self.client, volume, ticket).await
    }

    /// Lets a user or a group connect to a volume, and no other user.
    pub(crate) async fn grant(
        &self,
        served: &AttachedVolume,
        user: Option<u32>,
        group: Option<u32>,
    ) -> Result<(), LinkError> {
        self.link.ask(&Request::Grant { volume: served.id, user, group }).await.map(drop)
    }

    /// Closes the connections of clients, which connect again and learn of another size.
    pub(crate) async fn close_connections(&self, served: &AttachedVolume) -> Result<(), LinkError> {
        self.link.ask(&Request::HangUp { volume: served.id }).await.map(drop)
    }
}

/// Longhorn's objects of one kind.
pub(crate) fn longhorn(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("longhorn.io", "v1beta2", kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}
