//! Engines of a shard: their actions are carried out here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use super::Shard;
use super::admin::Message;
use super::client::Origin;
use super::parts::Whole;
use super::peer::Link;
use super::sources::Source;
use super::vault::Encryption;
use crate::ids::ReplicaId;
use crate::repl::control::{ControlError, ControlPlane, Record, Version};
use crate::repl::engine::{
    Action, Command, Config, Connection, ControlAnswer, Engine, Event, GuestId, Notice,
};
use crate::repl::session::ConnectionId;
use crate::run::listen::Listener;
use crate::run::poll::Token;
use crate::run::stream::Address;

/// Where a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this shard.
    Here,
    At(Address),
    /// At the node of this name, which its certificate has to show.
    OfNode(Address, String),
}

impl Place {
    /// Nothing for a replica in this shard.
    pub fn of(at: Option<Address>, node: Option<String>) -> Self {
        match (at, node) {
            (None, _) => Self::Here,
            (Some(address), None) => Self::At(address),
            (Some(address), Some(node)) => Self::OfNode(address, node),
        }
    }
}

/// A volume that a shard is to serve.
pub struct VolumeOptions {
    pub config: Config,
    pub replicas: Vec<(ReplicaId, Place)>,
    pub control: Box<dyn ControlPlane + Send>,
    /// The name of the export.
    pub name: String,
    /// Where clients connect; they are let in when the volume can be served.
    pub listeners: Vec<Listener>,
    /// Where guests that share their memory connect.
    pub guests: Vec<Listener>,
    /// Of an encrypted volume; `config` says so too.
    pub encryption: Option<Encryption>,
    /// Leaves the volume to the engine that has it until the first write, or
    /// [`AdminRequest::Switch`](super::AdminRequest::Switch).
    pub standby: bool,
    /// Is called with each event of the volume.
    pub notices: Box<dyn FnMut(&Notice) + Send>,
}

impl std::fmt::Debug for VolumeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeOptions")
            .field("volume", &self.config.volume)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

/// Names a volume of a shard; nothing else, once the volume has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeKey {
    pub(super) at: usize,
    pub(super) life: u64,
}

impl VolumeKey {
    /// The volume that a shard was given first.
    pub const FIRST: Self = Self { at: 0, life: 0 };
}

/// A volume that is served.
pub(super) struct Volume {
    pub(super) life: u64,
    /// Has left the shard: its place is free.
    pub(super) gone: bool,
    /// Is to leave the shard when it is over, and who waits for that.
    pub(super) leaving: Option<mpsc::Sender<()>>,
    pub(super) engine: Engine,
    pub(super) events: VecDeque<Event>,
    actions: Vec<Action>,
    pub(super) replicas: Vec<(ReplicaId, Place)>,
    /// When each replica was added, or left those in sync.
    pub(super) absent_since: BTreeMap<ReplicaId, Duration>,
    /// The connection to each replica, as the engine and as the shard call it.
    pub(super) links: BTreeMap<ReplicaId, (Connection, ConnectionId)>,
    control: Arc<Mutex<Box<dyn ControlPlane + Send>>>,
    pub(super) name: String,
    waiting: Vec<Listener>,
    waiting_guests: Vec<Listener>,
    encryption: Option<Encryption>,
    /// The origin of each request.
    pub(super) in_flight: BTreeMap<GuestId, Origin>,
    /// Requests that were cut.
    pub(super) wholes: BTreeMap<u64, Whole>,
    next_guest: GuestId,
    notices: Box<dyn FnMut(&Notice) + Send>,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A question to the control plane.
enum Ask {
    Read,
    Swap(Version, Box<Record>),
}

impl Shard {
    /// Takes a volume and serves it.
    pub fn add_volume(&mut self, options: VolumeOptions) -> VolumeKey {
        let VolumeOptions { mut config, replicas, control, name, .. } = options;
        let VolumeOptions { listeners, guests, encryption, standby, notices, .. } = options;
        config.encrypted |= encryption.is_some();
        let free = self.volumes.iter().position(|volume| volume.gone);
        let key = VolumeKey { at: free.unwrap_or(self.volumes.len()), life: self.next_life };
        self.next_life += 1;
        let here =
            |(replica, place): &(ReplicaId, Place)| (*place == Place::Here).then_some(*replica);
        let local = replicas.iter().find_map(here);
        let known = replicas.iter().map(|(replica, _)| *replica).collect();
        let command = match standby {
            true => Command::Standby { replicas: known, local },
            false => Command::Activate { replicas: known, local },
        };
        let volume = Volume {
            life: key.life,
            gone: false,
            leaving: None,
            engine: Engine::new(config),
            events: VecDeque::from([Event::Command(command)]),
            actions: Vec::new(),
            absent_since: replicas.iter().map(|(replica, _)| (*replica, self.now)).collect(),
            replicas,
            links: BTreeMap::new(),
            control: Arc::new(Mutex::new(control)),
            name,
            waiting: listeners,
            waiting_guests: guests,
            encryption,
            in_flight: BTreeMap::new(),
            wholes: BTreeMap::new(),
            next_guest: 1,
            notices,
        };
        match self.volumes.get_mut(key.at) {
            Some(place) => *place = volume,
            None => self.volumes.push(volume),
        }
        key
    }

    /// The volume that a key names, if it is still here.
    pub(super) fn place(&self, key: VolumeKey) -> Option<usize> {
        let volume = self.volumes.get(key.at)?;
        (volume.life == key.life && !volume.gone).then_some(key.at)
    }

    /// Finishes what is under way, releases a volume and forgets it; `left` is notified then.
    pub(super) fn release(&mut self, key: VolumeKey, left: mpsc::Sender<()>) {
        let Some(at) = self.place(key) else { return };
        self.volumes[at].leaving = Some(left);
        self.close(at);
    }

    /// Ends a volume. Its clients' sockets are not read any more: a client whose connection is
    /// closed reconnects and repeats unanswered requests, while one that gets an error reports it
    /// to its guest.
    pub(super) fn close(&mut self, at: usize) {
        for token in self.sources_of(at) {
            match self.sources.get_mut(token) {
                Some(Source::Client(client)) => client.close(),
                _ => drop(self.sources.remove(token)),
            }
            self.set_interest(token);
        }
        self.close_rings(at);
        let volume = &mut self.volumes[at];
        volume.waiting.clear();
        volume.waiting_guests.clear();
        volume.events.push_back(Event::Command(Command::Close));
    }

    /// Disconnects NBD clients. Those that connect again ask again for what was not answered, and
    /// learn how large the volume is now.
    pub fn disconnect_clients(&mut self, key: VolumeKey) {
        let Some(at) = self.place(key) else { return };
        for token in self.sources_of(at) {
            if matches!(self.sources.get_mut(token), Some(Source::Client(_))) {
                self.lose(token);
            }
        }
    }

    /// Forgets volumes that are over and were to leave.
    pub(super) fn sweep(&mut self) {
        for at in 0..self.volumes.len() {
            let volume = &mut self.volumes[at];
            if volume.gone || volume.leaving.is_none() || !volume.engine.is_over() {
                continue;
            }
            volume.gone = true;
            volume.in_flight.clear();
            volume.wholes.clear();
            volume.events.clear();
            let left = volume.leaving.take();
            for device in self.guests_of(at) {
                self.guest_gone(device);
            }
            for token in self.sources_of(at) {
                self.send_to(token);
                self.sources.remove(token);
            }
            drop(left);
        }
    }

    /// Clients of a volume, and where they come in.
    fn sources_of(&self, at: usize) -> Vec<Token> {
        let of = |source: &Source| match source {
            Source::Client(client) => client.volume == at,
            Source::NbdListener { volume, .. } | Source::GuestListener { volume, .. } => {
                *volume == at
            }
            _ => false,
        };
        let tokens = self.sources.tokens();
        tokens.filter(|(_, source)| of(source)).map(|(token, _)| token).collect()
    }

    pub(super) fn engine_event(&mut self, at: usize, event: Event) {
        let now = self.now();
        let volume = &mut self.volumes[at];
        let mut actions = std::mem::take(&mut volume.actions);
        volume.engine.on(now, event, &mut actions);
        for action in actions.drain(..) {
            self.engine_action(at, action);
        }
        self.volumes[at].actions = actions;
    }

    fn engine_action(&mut self, at: usize, action: Action) {
        match action {
            Action::Send { replica, connection, call } => {
                if let Some(to) = self.volumes[at].link(replica, connection) {
                    self.call(to, replica, call);
                }
            }
            Action::Reply { id, result } => self.guest_answered(at, id, result),
            Action::Connect { replica, connection } => {
                let place = self.volumes[at].replicas.iter().find(|(it, _)| *it == replica);
                let link = Link { volume: at, replica, connection };
                match place.map(|(_, place)| place.clone()) {
                    Some(Place::Here) => self.connect(link, None),
                    Some(Place::At(address)) => self.connect(link, Some((address, None))),
                    Some(Place::OfNode(address, node)) => {
                        self.connect(link, Some((address, Some(node))));
                    }
                    None => self.disconnected(link),
                }
            }
            Action::Disconnect { replica, connection } => {
                if let Some(to) = self.volumes[at].link(replica, connection) {
                    self.volumes[at].links.remove(&replica);
                    self.disconnect(to, replica);
                }
            }
            Action::ReadRecord => self.ask_control(at, Ask::Read),
            Action::Swap { expect, record } => {
                self.ask_control(at, Ask::Swap(expect, Box::new(record)));
            }
            Action::Notice(notice) => self.noticed(at, &notice),
        }
    }

    /// The control plane is asked by a thread of its own: it syncs files, or crosses a network.
    /// That is rare enough for the thread to end with the answer.
    fn ask_control(&mut self, at: usize, ask: Ask) {
        let volume = &mut self.volumes[at];
        let (key, control) = (VolumeKey { at, life: volume.life }, volume.control.clone());
        let handle = self.handle.clone();
        let thread = std::thread::Builder::new().name("block-control".to_owned());
        let started = thread.stack_size(256 << 10).spawn(move || {
            let answer = {
                let control = control.lock().unwrap_or_else(PoisonError::into_inner);
                answer(&**control, &ask)
            };
            handle.send(Message::Control { volume: key, answer });
        });
        if let Err(error) = started {
            tracing::error!(%error, "cannot ask the control plane");
            let event = Event::Control(ControlAnswer::Unavailable);
            self.volumes[at].events.push_back(event);
        }
    }

    fn noticed(&mut self, at: usize, notice: &Notice) {
        if let Notice::MemberFailed { replica, .. } = notice
            && let Some(since) = self.volumes[at].absent_since.get_mut(replica)
        {
            *since = self.now;
        }
        (self.volumes[at].notices)(notice);
        // An encrypted volume cannot be read before it is unlocked.
        if *notice == Notice::StandingBy && self.volumes[at].encryption.is_none() {
            self.let_in(at);
        }
        if let Notice::Active { .. } = notice {
            match self.volumes[at].encryption.take() {
                Some(encryption) => self.begin_unlock(at, encryption),
                None => self.let_in(at),
            }
        }
    }

    /// The volume can be served.
    pub(super) fn let_in(&mut self, at: usize) {
        let nbd = std::mem::take(&mut self.volumes[at].waiting).into_iter();
        let nbd = nbd.map(|listener| Source::NbdListener { volume: at, listener });
        let guests = std::mem::take(&mut self.volumes[at].waiting_guests).into_iter();
        let guests = guests.map(|listener| Source::GuestListener { volume: at, listener });
        for source in nbd.chain(guests) {
            if let Err(error) = self.listen(source) {
                tracing::error!(%error, "cannot listen for clients");
            }
        }
    }
}

fn answer(control: &dyn ControlPlane, ask: &Ask) -> ControlAnswer {
    let answer = match ask {
        Ask::Read => control.read().map(ControlAnswer::Read),
        Ask::Swap(expect, record) => {
            control.compare_and_swap(*expect, record).map(ControlAnswer::Swapped)
        }
    };
    answer.unwrap_or_else(|error| match error {
        ControlError::Conflict(now) => ControlAnswer::Conflict(*now),
        error => {
            tracing::error!(%error, "the control plane does not answer");
            ControlAnswer::Unavailable
        }
    })
}

impl Volume {
    /// The engine is to connect to a replica from now on.
    pub(super) fn know_replica(&mut self, replica: ReplicaId, place: Place, now: Duration) {
        // Only the place of a connected one may have changed.
        let is_absent =
            self.absent_since.contains_key(&replica) || !self.links.contains_key(&replica);
        self.forget_replica(replica);
        self.replicas.push((replica, place));
        if is_absent {
            self.absent_since.insert(replica, now);
        }
    }

    pub(super) fn forget_replica(&mut self, replica: ReplicaId) {
        self.replicas.retain(|(known, _)| *known != replica);
        self.absent_since.remove(&replica);
    }

    /// Serves, or will; nothing is asked of one that is over.
    pub(super) fn is_live(&self) -> bool {
        !self.gone && !self.engine.is_over()
    }

    /// The shard's id of a connection of the engine, if it is the current one.
    fn link(&self, replica: ReplicaId, connection: Connection) -> Option<ConnectionId> {
        let (known, id) = self.links.get(&replica)?;
        (*known == connection).then_some(*id)
    }

    pub(super) fn guest_id(&mut self) -> GuestId {
        self.next_guest += 1;
        self.next_guest - 1
    }
}
