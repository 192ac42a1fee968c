//! Engines of a shard: what they ask for is done here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc;

use super::Shard;
use super::admin::Message;
use super::client::Origin;
use super::parts::Whole;
use super::peer::Link;
use super::sources::Source;
use crate::ids::ReplicaId;
use crate::repl::control::{ControlError, ControlPlane, Record, Version};
use crate::repl::engine::{
    Action, Command, Config, Connection, ControlAnswer, Engine, Event, GuestId, Notice,
};
use crate::repl::session::ConnectionId;
use crate::run::listen::Listener;
use crate::run::stream::Address;

/// Where a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this shard.
    Here,
    At(Address),
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
    /// Is told what happens to the volume.
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

/// A volume that is served.
pub(super) struct Volume {
    pub(super) engine: Engine,
    pub(super) events: VecDeque<Event>,
    actions: Vec<Action>,
    pub(super) replicas: Vec<(ReplicaId, Place)>,
    /// The connection to each replica, as the engine and as the shard call it.
    pub(super) links: BTreeMap<ReplicaId, (Connection, ConnectionId)>,
    control: mpsc::Sender<Ask>,
    pub(super) name: String,
    waiting: Vec<Listener>,
    /// Who asked for what.
    pub(super) asked: BTreeMap<GuestId, Origin>,
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
    Swap(Version, Record),
}

impl Shard {
    /// Takes a volume and serves it.
    pub fn add_volume(&mut self, options: VolumeOptions) -> std::io::Result<usize> {
        let VolumeOptions { config, replicas, control, name, listeners, notices } = options;
        let at = self.volumes.len();
        let here =
            |(replica, place): &(ReplicaId, Place)| (*place == Place::Here).then_some(*replica);
        let command = Command::Activate {
            replicas: replicas.iter().map(|(replica, _)| *replica).collect(),
            local: replicas.iter().find_map(here),
        };
        let control = self.start_control(at, control)?;
        self.volumes.push(Volume {
            engine: Engine::new(config),
            events: VecDeque::from([Event::Command(command)]),
            actions: Vec::new(),
            replicas,
            links: BTreeMap::new(),
            control,
            name,
            waiting: listeners,
            asked: BTreeMap::new(),
            wholes: BTreeMap::new(),
            next_guest: 1,
            notices,
        });
        Ok(at)
    }

    /// The control plane is asked by a thread of its own: it syncs files, or crosses a network.
    fn start_control(
        &self,
        volume: usize,
        control: Box<dyn ControlPlane + Send>,
    ) -> std::io::Result<mpsc::Sender<Ask>> {
        let (sender, receiver) = mpsc::channel::<Ask>();
        let handle = self.handle.clone();
        let thread = std::thread::Builder::new().name("block-control".to_owned());
        thread.stack_size(256 << 10).spawn(move || {
            for ask in receiver {
                let answer = match &ask {
                    Ask::Read => control.read().map(ControlAnswer::Read),
                    Ask::Swap(expect, record) => {
                        control.compare_and_swap(*expect, record).map(ControlAnswer::Swapped)
                    }
                };
                let answer = answer.unwrap_or_else(|error| match error {
                    ControlError::Conflict(now) => ControlAnswer::Conflict(*now),
                    error => {
                        tracing::error!(%error, "the control plane does not answer");
                        ControlAnswer::Unavailable
                    }
                });
                handle.send(Message::Control { volume, answer });
            }
        })?;
        Ok(sender)
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
                    Some(Place::At(address)) => self.connect(link, Some(address)),
                    None => self.disconnected(link),
                }
            }
            Action::Disconnect { replica, connection } => {
                if let Some(to) = self.volumes[at].link(replica, connection) {
                    self.volumes[at].links.remove(&replica);
                    self.hang_up(to, replica);
                }
            }
            Action::ReadRecord => self.ask_control(at, Ask::Read),
            Action::Swap { expect, record } => self.ask_control(at, Ask::Swap(expect, record)),
            Action::Notice(notice) => self.noticed(at, &notice),
        }
    }

    fn ask_control(&mut self, at: usize, ask: Ask) {
        if self.volumes[at].control.send(ask).is_err() {
            let event = Event::Control(ControlAnswer::Unavailable);
            self.volumes[at].events.push_back(event);
        }
    }

    fn noticed(&mut self, at: usize, notice: &Notice) {
        (self.volumes[at].notices)(notice);
        if let Notice::Active { .. } = notice {
            for listener in std::mem::take(&mut self.volumes[at].waiting) {
                if let Err(error) = self.listen(Source::NbdListener { volume: at, listener }) {
                    tracing::error!(%error, "cannot listen for clients");
                }
            }
        }
    }
}

impl Volume {
    /// What the shard calls a connection of the engine, if it is the current one.
    fn link(&self, replica: ReplicaId, connection: Connection) -> Option<ConnectionId> {
        let (known, id) = self.links.get(&replica)?;
        (*known == connection).then_some(*id)
    }

    pub(super) fn guest_id(&mut self) -> GuestId {
        self.next_guest += 1;
        self.next_guest - 1
    }
}
