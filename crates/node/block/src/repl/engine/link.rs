//! Connections to replicas: greeting, opening, resuming, heartbeats.

use super::event::{Action, Connection, Time};
use super::member::{Link, Member, Role};
use super::notice::{Fault, MemberFault};
use super::{Engine, Phase};
use crate::ids::{Generation, ReplicaId, Seq};
use crate::repl::evidence::{self, Claim};
use crate::repl::sabotage::skips;
use crate::repl::slots::Slots;
use crate::repl::span::Span;
use crate::wire::{
    Answer, Call, Hello, HelloReply, Mode, Open, Opened, Pong, Refusal, Reply, Request, VERSIONS,
};

impl Engine {
    pub(super) fn connect(&mut self, slot: usize) {
        let connection = self.next_connection;
        self.next_connection += 1;
        let member = &mut self.members[slot];
        member.connection = connection;
        member.link = Link::Connecting { since: self.now };
        self.out.push(Action::Connect { replica: member.id, connection });
    }

    /// Ends the connection, if there is one, and does not count it as a loss.
    pub(super) fn disconnect(&mut self, slot: usize) {
        let member = &mut self.members[slot];
        if !matches!(member.link, Link::Down { .. }) {
            self.out.push(Action::Disconnect { replica: member.id, connection: member.connection });
        }
        member.link = Link::Down { retry: self.now + self.config.retry };
        member.ping = None;
    }

    pub(super) fn connected(&mut self, replica: ReplicaId, connection: Connection) {
        let Some(slot) = self.current(replica, connection) else { return };
        if !matches!(self.members[slot].link, Link::Connecting { .. }) {
            return;
        }
        let call = self.number();
        self.members[slot].link = Link::Greeting { since: self.now, call };
        let hello = Hello {
            oldest: VERSIONS.0,
            newest: VERSIONS.1,
            volume: self.config.volume,
            replica,
            engine: self.config.engine,
        };
        self.send(slot, call, Seq(0), Request::Hello(hello));
    }

    pub(super) fn disconnected(&mut self, replica: ReplicaId, connection: Connection) {
        if let Some(slot) = self.current(replica, connection) {
            self.members[slot].closed = true;
            self.link_lost(slot);
            self.retry_soon(slot);
        }
    }

    /// A process that is gone is noticed at once; one that restarts is back in a moment.
    fn retry_soon(&mut self, slot: usize) {
        let member = &mut self.members[slot];
        let recent = member.away.is_some_and(|since| self.now < since + self.config.member_timeout);
        if let (Role::InSync, true) = (&member.role, recent) {
            let retry = self.now + self.config.retry / 10;
            member.link = Link::Down { retry };
            self.next_tick = self.next_tick.min(retry);
        }
    }

    /// The connection is gone. An in-sync member may come back and resume.
    pub(super) fn link_lost(&mut self, slot: usize) {
        self.disconnect(slot);
        match self.members[slot].role {
            Role::InSync => {
                self.members[slot].away.get_or_insert(self.now);
                self.reroute(slot);
            }
            Role::Learner(_) | Role::Joining { .. } => self.learner_failed(slot, MemberFault::Away),
            Role::Outside | Role::Candidate | Role::Leaving => {}
        }
    }

    fn current(&self, replica: ReplicaId, connection: Connection) -> Option<usize> {
        let slot = self.slot(replica)?;
        let member = &self.members[slot];
        let live = !matches!(member.link, Link::Down { .. });
        (live && member.connection == connection).then_some(slot)
    }

    pub(super) fn send(&mut self, slot: usize, id: u64, seq: Seq, request: Request) {
        let member = &self.members[slot];
        let call = Call { id, generation: self.session_generation(), seq, request };
        self.out.push(Action::Send { replica: member.id, connection: member.connection, call });
    }

    /// A standby engine reads in the generation of the engine that writes.
    fn session_generation(&self) -> Generation {
        match self.phase {
            Phase::Standby => self.control.record().map_or(Generation(0), |it| it.generation),
            _ => self.generation,
        }
    }

    pub(super) fn answer(&mut self, replica: ReplicaId, connection: Connection, answer: Answer) {
        let Some(slot) = self.current(replica, connection) else { return };
        if answer.generation > self.session_generation() {
            return match self.phase {
                // The engine beside which we read has been followed by another.
                Phase::Standby => self.reader_lost(slot),
                Phase::Opening { .. } => self.outrun_by(answer.generation),
                _ => self.fence(answer.generation),
            };
        }
        match (self.members[slot].link, answer.result) {
            (Link::Greeting { call, .. }, result) if call == answer.id => match result {
                Ok(Reply::Hello(hello)) => self.greeted(slot, &hello),
                // Its node does not know of this engine yet, or has an older view: tried again.
                Err(Refusal::NotGranted) => self.link_lost(slot),
                _ => self.rejected(slot, MemberFault::Refused(Refusal::Version)),
            },
            (Link::Opening { call, since }, result) if call == answer.id => match result {
                Ok(Reply::Opened(opened)) => self.opened(slot, opened, since),
                // Another engine has this very generation: the record was restored from a copy
                // that did not know of it.
                Err(Refusal::Fenced) if matches!(self.phase, Phase::Opening { .. }) => {
                    self.outrun_by(self.generation.next());
                }
                Err(refusal) => self.rejected(slot, MemberFault::Refused(refusal)),
                Ok(_) => self.rejected(slot, MemberFault::Refused(Refusal::Invalid)),
            },
            (Link::Up, Ok(Reply::Pong(stats))) => self.pong(slot, answer.id, stats),
            (Link::Up, Err(Refusal::NotOpen)) => self.link_lost(slot),
            (Link::Up, result) => self.op_answered(slot, answer.id, result),
            _ => {}
        }
    }

    /// The replica does not want a session with us; try again later.
    fn rejected(&mut self, slot: usize, why: MemberFault) {
        self.link_lost(slot);
        self.members[slot].retry_learning = self.now + self.config.member_timeout;
        if matches!(self.members[slot].role, Role::InSync) {
            self.member_fault(slot, why);
        }
    }

    fn greeted(&mut self, slot: usize, hello: &HelloReply) {
        let life = (hello.instance, hello.boot);
        self.members[slot].version = hello.version;
        self.members[slot].promised = hello.promised;
        if let (Role::Candidate, Some(record)) = (&self.members[slot].role, self.control.record())
            && let Some(why) = evidence::judge_promise(record, hello.promised)
            && !skips!(self.sabotage, TrustStale)
        {
            // Before it is opened: that would make it promise what it lacks.
            self.disconnect(slot);
            return self.found_stale(slot, why);
        }
        let is_outside = matches!(self.members[slot].role, Role::Outside);
        if is_outside
            && matches!(self.phase, Phase::Opening { .. })
            && hello.promised == self.generation
        {
            // This engine has not asked it for a promise: another one had the same generation
            // before the record was restored, and the replica refuses to be rebuilt by this one.
            return self.outrun_by(self.generation.next());
        }
        let mode = match (&self.members[slot].role, self.phase) {
            (_, Phase::Standby) | (Role::Outside, Phase::Opening { .. }) => Mode::ReadOnly,
            (Role::InSync, _) => match self.resumption(slot, life) {
                Ok(mode) => mode,
                Err(why) => {
                    self.members[slot].next_life = Some(life);
                    self.disconnect(slot);
                    return match why {
                        Resumption::Left(why) => self.member_fault(slot, why),
                        Resumption::Lost => self.fault(Fault::LostWrites),
                    };
                }
            },
            _ => Mode::Write,
        };
        let call = self.number();
        self.members[slot].link = Link::Opening { since: self.now, call };
        let open = Open { engine: self.config.engine, mode };
        self.send(slot, call, Seq(0), Request::Open(open));
    }

    /// Whether an in-sync member that was away may go on where it was.
    fn resumption(
        &self,
        slot: usize,
        life: (crate::ids::InstanceId, crate::ids::BootId),
    ) -> Result<Mode, Resumption> {
        let Some(known) = self.members[slot].life else { return Ok(Mode::Write) };
        if known == life {
            return Ok(Mode::Resume);
        }
        let sound = |(other, member): (usize, &Member)| {
            other != slot
                && matches!(member.role, Role::InSync)
                && member.fault.is_none_or(Member::is_curable)
        };
        let sound: Slots =
            self.members.iter().enumerate().filter(|it| sound(*it)).map(|(at, _)| at).collect();
        // Answered writes survive the end of the process, but not that of the kernel.
        let same_boot = known.1 == life.1;
        match (sound.iter().any(|other| self.members[other].is_up()), sound.is_empty()) {
            // The others go on without it, and it catches up beside them.
            (true, _) => Err(Resumption::Left(MemberFault::Restarted)),
            _ if same_boot => Ok(Mode::Write),
            (false, false) => Err(Resumption::Left(MemberFault::Restarted)),
            (false, true) => Err(Resumption::Lost),
        }
    }

    /// Whether the in-sync set has another member that may still come back.
    fn has_other_member(&self, slot: usize) -> bool {
        let hopeful =
            |fault: MemberFault| Member::is_curable(fault) || fault == MemberFault::Restarted;
        let others = self.slots(|member| {
            matches!(member.role, Role::InSync) && member.fault.is_none_or(hopeful)
        });
        !others.without(Slots::one(slot)).is_empty()
    }

    fn opened(&mut self, slot: usize, opened: Box<Opened>, asked: Time) {
        let member = &mut self.members[slot];
        let restarted = member.life.is_some_and(|(instance, _)| instance != opened.instance);
        if restarted && matches!(member.role, Role::InSync) {
            let alone = !self.has_other_member(slot);
            // A loss that was known before, and is not repaired yet, is no new fault after the end
            // of a process.
            let member = &self.members[slot];
            let known = member.opened.as_ref().is_some_and(|it| it.lost_writes)
                && member.life.is_some_and(|(_, boot)| boot == opened.boot);
            let lost = opened.lost_writes && !known;
            if lost && alone {
                return self.fault(Fault::LostWrites);
            }
            if lost {
                self.disconnect(slot);
                return self.member_fault(slot, MemberFault::Restarted);
            }
            let complete = self.complete_mark();
            let member = &mut self.members[slot];
            let (marks, witnessed) = (opened.marks, opened.witnessed);
            let claim = Claim { marks, witnessed, ..member.claim() };
            if let Some(why) = evidence::judge_return(&claim, self.generation, complete)
                && !skips!(self.sabotage, TrustStale)
            {
                if alone {
                    return self.fault(Fault::Stale(why));
                }
                self.disconnect(slot);
                self.found_stale(slot, why);
                return self.member_fault(slot, MemberFault::Stale(why));
            }
            // Its writes were interrupted, and may be half done.
            for region in &opened.dirty {
                let span = Span::new(u64::from(*region) * self.region, self.region);
                self.unreconciled.insert(span);
                self.flush.regions.note(self.region, span, self.now);
            }
        }
        let member = &mut self.members[slot];
        member.link = Link::Up;
        member.up_since = self.now;
        member.proof = Some(asked);
        member.last_ping = asked;
        member.life = Some((opened.instance, opened.boot));
        member.opened = Some(opened);
        if matches!((&member.role, self.phase), (Role::Outside, Phase::Active)) {
            return self.opened_outside(slot);
        }
        match (&member.role, self.phase) {
            (Role::InSync, _) => {
                member.away = None;
                member.closed = false;
                if member.fault.is_some_and(Member::is_curable) {
                    member.fault = None;
                }
                self.resend(slot);
            }
            (_, Phase::Standby) => self.can_read(slot),
            _ => {}
        }
    }

    /// A replica outside of the in-sync set can be brought into it.
    fn opened_outside(&mut self, slot: usize) {
        if self.may_rejoin(slot) {
            self.rejoin(slot);
        } else if self.barrier.is_some() || !self.unreconciled.is_empty() {
            self.disconnect(slot);
        } else {
            self.begin_learning(slot);
        }
    }

    pub(super) fn ping(&mut self, slot: usize) {
        if self.members[slot].ping.is_some() || !self.members[slot].is_up() {
            return;
        }
        let call = self.number();
        self.members[slot].ping = Some((call, self.now));
        self.members[slot].last_ping = self.now;
        self.send(slot, call, Seq(0), Request::Ping);
    }

    fn pong(&mut self, slot: usize, id: u64, stats: Pong) {
        let member = &mut self.members[slot];
        member.stats = Some(stats);
        if let Some((call, sent)) = member.ping
            && call == id
        {
            member.ping = None;
            member.proof = Some(sent);
        }
    }

    /// Whether everybody has lately proven that no other engine was promised anything. Asks
    /// those who have not.
    pub(super) fn has_lease(&mut self) -> bool {
        let lease = self.config.lease;
        let stale: Vec<usize> = self
            .required()
            .iter()
            .filter(|s| !self.members[*s].has_lease(self.now, lease))
            .collect();
        for slot in &stale {
            self.ping(*slot);
        }
        stale.is_empty()
    }
}

enum Resumption {
    Left(MemberFault),
    Lost,
}
