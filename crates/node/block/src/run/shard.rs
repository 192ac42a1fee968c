//! One thread, everything that it serves, and its turns.
//!
//! ```text
//!  wait ─► read sockets, take completions, messages, timers ─► engines and sessions, until
//!   ▲      none has anything to send ─► one send per socket, one submission ─┐
//!   └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A shard owns engines, replicas and sockets alone: nothing in the path of a request takes a lock
//! or changes threads. Other threads use a [`Handle`]. Operations that it must not wait for
//! (syncs, cold reads, the control plane) are carried out elsewhere and return as an event.

mod addresses;
mod admin;
mod away;
mod client;
mod engine;
mod grant;
mod guest;
mod member_state;
mod outgoing;
mod parts;
mod peer;
mod sources;
mod stranger;
mod vault;
mod wait;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub use self::addresses::ListenFault;
use self::admin::Message;
pub use self::admin::{AdminError, AdminReply, AdminRequest, Handle, VolumeStatus};
use self::engine::Volume;
pub use self::engine::{Place, VolumeKey, VolumeOptions};
use self::grant::GrantState;
use self::guest::Guest;
pub use self::member_state::{MemberState, MemberStatus};
use self::peer::Link;
use self::sources::{Source, Sources};
pub use self::vault::{Encryption, KeyChange};
use super::certificates::{Certificates, TlsFiles, TlsFilesError};
use super::host::{Host, NotServed, Wanted, boot_id};
use super::listen::Listener;
use super::offload::{Done, Driver, Job, Offload};
use super::poll::{Poll, PollInterest, Ready, Token, Waker};
use super::tls::Tls;
use crate::ids::{BootId, ReplicaId};
use crate::repl::session::ConnectionId;
use crate::store::OpenError;
use crate::vhost::DeviceId;

/// How often replicas get to do background work while they have some.
const BUSY: Duration = Duration::from_millis(20);

/// How often they are checked otherwise.
const QUIET: Duration = Duration::from_secs(1);

/// How long an end may take. A volume whose replicas do not answer cannot be released; it is left
/// as a kill would leave it, which costs nothing that was promised.
const ENDING: Duration = Duration::from_secs(30);

/// A replica that was opened, to be served by a shard. Opening reads its log, which takes too
/// long for a thread that serves others.
#[derive(Debug)]
pub struct OpenReplica(Host);

impl OpenReplica {
    /// `boot` names this life of the kernel, and `witnesses` is a directory outside of the replica's
    /// that proves which changes it has answered.
    pub fn open(path: &Path, witnesses: &Path, boot: BootId) -> Result<Self, OpenError> {
        Host::open(path, witnesses, boot).map(Self)
    }

    pub fn replica(&self) -> ReplicaId {
        self.0.replica
    }
}

/// One thread's worth of volumes and replicas.
#[derive(Debug)]
pub struct Shard {
    poll: Poll,
    waker: Waker,
    inbox: mpsc::Receiver<Message>,
    handle: Handle,
    start: Instant,
    /// When this turn began. To ask for each event costs more than it is worth.
    now: Duration,
    offload: Offload,
    sources: Sources,
    volumes: Vec<Volume>,
    next_life: u64,
    hosts: BTreeMap<ReplicaId, Host>,
    /// The owners of operations that are carried out elsewhere.
    away: BTreeMap<u64, (ReplicaId, u64)>,
    next_away: u64,
    /// Long writes of this turn.
    long: Vec<Job>,
    /// In this turn a peer sent the beginning of something that is not complete.
    more: bool,
    /// Connections of engines in this shard to replicas in it.
    local: BTreeMap<ConnectionId, Link>,
    next_local: ConnectionId,
    /// Guests that share their memory.
    guests: BTreeMap<DeviceId, Guest>,
    next_device: DeviceId,
    /// Rings with answers that their guests were not notified of.
    rung: Vec<Token>,
    /// Rings that were emptied, whose guests do not know yet that they have to kick again.
    emptied: Vec<Token>,
    /// Rings with requests that no kick will announce.
    waiting_rings: Vec<Token>,
    /// Replicas elsewhere that have something to answer, or had in this turn.
    awaited: Vec<Token>,
    /// Which of them kept a lone request waiting.
    last_to_answer: Token,
    /// Sockets with something to send.
    dirty: Vec<Token>,
    /// Sockets that are not read until there is room.
    paused: Vec<Token>,
    next_tick: Duration,
    /// When the last connection of an engine to a replica here ended.
    idle_since: Option<Duration>,
    /// End when no engine has been connected for so long.
    idle_limit: Option<Duration>,
    /// Goes on when it has no volume, or none any more.
    resident: bool,
    /// It is to end, and when at the latest.
    stopping: Option<Duration>,
    /// For wires that leave the machine.
    tls: Option<Certificates>,
    /// Which nodes replicas here are for.
    granted: GrantState,
    /// How long a peer may take to say who it is.
    greeting: Duration,
}

impl Shard {
    pub fn new(driver: Driver) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new()?;
        let offload = Offload::new(driver, &waker)?;
        let mut sources = Sources::default();
        let token = sources.insert(Source::Waker);
        poll.add(waker.fd(), token, PollInterest::READ)?;
        let (sender, inbox) = mpsc::channel();
        let handle = Handle::new(sender, waker.clone());
        Ok(Self {
            poll,
            waker,
            inbox,
            handle,
            start: Instant::now(),
            now: Duration::ZERO,
            offload,
            sources,
            volumes: Vec::new(),
            next_life: 0,
            hosts: BTreeMap::new(),
            away: BTreeMap::new(),
            next_away: 0,
            long: Vec::new(),
            more: false,
            local: BTreeMap::new(),
            next_local: sources::LOCAL,
            guests: BTreeMap::new(),
            next_device: 0,
            rung: Vec::new(),
            emptied: Vec::new(),
            waiting_rings: Vec::new(),
            awaited: Vec::new(),
            last_to_answer: 0,
            dirty: Vec::new(),
            paused: Vec::new(),
            next_tick: Duration::ZERO,
            idle_since: Some(Duration::ZERO),
            idle_limit: None,
            resident: false,
            stopping: None,
            tls: None,
            granted: GrantState::default(),
            greeting: stranger::GREETING,
        })
    }

    /// To speak to the shard from other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether files are served by io_uring.
    pub fn uses_uring(&self) -> bool {
        self.offload.uses_uring()
    }

    /// End by itself when no engine has been connected for so long.
    pub fn end_when_idle(&mut self, limit: Duration) {
        self.idle_limit = Some(limit);
    }

    /// Goes on until it is stopped, whatever becomes of its volumes.
    pub fn stay(&mut self) {
        self.resident = true;
    }

    /// From now on engines and replicas meet over TCP only with these certificates.
    pub fn secure(&mut self, tls: Tls) {
        self.tls = Some(Certificates::fixed(tls));
    }

    /// The same with those of files, which are read again when they were replaced.
    pub fn secure_from(&mut self, files: TlsFiles) -> Result<(), TlsFilesError> {
        self.tls = Some(Certificates::from_files(files)?);
        Ok(())
    }

    /// Closes connections of engines that do not say in time what they want.
    pub fn expect_greeting_within(&mut self, limit: Duration) {
        self.greeting = limit;
    }

    /// Serves the replica in a directory.
    pub fn add_replica(&mut self, path: &Path) -> Result<ReplicaId, OpenError> {
        let beside = path.parent().unwrap_or(path);
        let opened = OpenReplica::open(path, beside, boot_id())?;
        Ok(self.serve_replica(opened))
    }

    /// Serves a replica that was opened elsewhere.
    pub fn serve_replica(&mut self, opened: OpenReplica) -> ReplicaId {
        let replica = opened.0.replica;
        self.hosts.insert(replica, opened.0);
        replica
    }

    /// Serves a replica no more. Engines that use it find it gone.
    pub fn drop_replica(&mut self, replica: ReplicaId) {
        self.hosts.remove(&replica);
        self.drop_connections_to(replica);
    }

    /// The status of a replica; nothing if it is not here, or closed because no engine uses it.
    pub fn replica_status(&self, replica: ReplicaId) -> Option<crate::store::Status> {
        self.hosts.get(&replica)?.status()
    }

    /// Why a replica that is here could not be opened again when an engine came.
    pub fn replica_fault(&self, replica: ReplicaId) -> Option<NotServed> {
        self.hosts.get(&replica)?.fault().cloned()
    }

    /// Lets engines of other processes reach the replicas.
    pub fn listen_for_engines(&mut self, listener: Listener) -> io::Result<()> {
        self.listen(Source::EngineListener(listener))
    }

    fn listen(&mut self, source: Source) -> io::Result<()> {
        let token = self.sources.insert(source);
        let Some(source) = self.sources.get(token) else { return Ok(()) };
        self.poll.add(source, token, PollInterest::READ)
    }

    /// Serves until it is stopped, or until every volume that it had is over.
    pub fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut done = Vec::new();
        self.now = self.start.elapsed();
        self.settle();
        loop {
            self.send()?;
            if self.write_long(&mut done) {
                self.settle();
                continue;
            }
            if self.is_over() {
                return Ok(());
            }
            ready.clear();
            self.wait(&mut ready)?;
            self.now = self.start.elapsed();
            for event in &ready {
                self.ready(*event, &mut done);
            }
            self.tick();
            self.settle();
            self.sweep();
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    fn is_over(&self) -> bool {
        let volumes_over = self.volumes.iter().all(|volume| volume.engine.is_over());
        let idle = match (self.idle_limit, self.idle_since) {
            (Some(limit), Some(since)) => self.now() >= since + limit,
            _ => false,
        };
        let nothing_away = self.hosts.values().all(|host| !host.is_away());
        let wanted = self.stopping.is_some() || idle || !(self.resident || self.volumes.is_empty());
        if self.stopping.is_some_and(|limit| self.now() >= limit) {
            tracing::warn!("shutdown deadline reached; dropping unresponsive connections");
            return true;
        }
        wanted && volumes_over && nothing_away
    }

    fn patience(&self) -> Duration {
        let live = self.volumes.iter().filter(|volume| volume.is_live());
        let deadlines = live.map(|volume| volume.engine.deadline());
        let next = deadlines.chain(self.stopping).fold(self.next_tick, Duration::min);
        next.saturating_sub(self.now())
    }

    fn ready(&mut self, event: Ready, done: &mut Vec<Done>) {
        let Some(source) = self.sources.get_mut(event.token) else { return };
        match source {
            Source::Waker => {
                self.waker.rest();
                self.reap(done);
                self.messages();
            }
            Source::NbdListener { .. } | Source::EngineListener(_) => self.accept(event.token),
            Source::GuestListener { .. } => self.accept_guest(event.token),
            Source::Ring(source) => {
                source.ring.clear_kick();
                self.ring_ready(event.token);
            }
            Source::Client(_) => self.client_ready(event),
            Source::Engine(_) => self.engine_ready(event),
            Source::Replica(_) => self.replica_ready(event),
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        if now < self.next_tick {
            return;
        }
        let mut busy = false;
        let replicas: Vec<ReplicaId> = self.hosts.keys().copied().collect();
        for replica in replicas {
            let Some(host) = self.hosts.get_mut(&replica) else { continue };
            let mut wanted = Wanted::default();
            host.tick(&mut wanted);
            busy |= host.is_busy();
            self.wanted(replica, wanted);
        }
        self.enforce_grants(now);
        self.close_silent_peers(now);
        self.next_tick = now + if busy { BUSY } else { QUIET };
    }

    /// Lets engines and sessions send until none has anything to send.
    fn settle(&mut self) {
        let now = self.now();
        for at in 0..self.volumes.len() {
            let volume = &mut self.volumes[at];
            if volume.is_live() && volume.engine.deadline() <= now {
                volume.events.push_back(crate::repl::engine::Event::Timer);
            }
        }
        loop {
            let mut quiet = true;
            for at in 0..self.volumes.len() {
                while let Some(event) = self.volumes[at].events.pop_front() {
                    quiet = false;
                    self.engine_event(at, event);
                }
            }
            if quiet {
                self.resume();
            }
            if quiet && self.volumes.iter().all(|volume| volume.events.is_empty()) {
                return;
            }
        }
    }

    /// A connection has ended, for whatever reason.
    fn lose(&mut self, token: Token) {
        match self.sources.remove(token) {
            Some(Source::Client(client)) => self.client_lost(&client),
            Some(Source::Engine(inbound)) => self.inbound_lost(token, &inbound),
            Some(Source::Replica(outbound)) => self.outbound_lost(&outbound),
            _ => {}
        }
    }
}
