//! Rounds of random damage to the files of replicas, in processes that are stopped, killed or left
//! running, and the judgement of every read by a shadow copy of all acknowledged writes.
//!
//! 1. No read ever differs from the shadow.
//! 2. Reads fail only where no replica has the data.
//! 3. Damage that makes a replica unusable or a block unreadable is found by a check of its directory;
//!    after a scrub every replica is whole again, without help.
//!
//! Excepted are blocks that were written since the last flush, if their own data was damaged before
//! a killed process was started again, and fewer than two undamaged replicas are left: nothing says
//! what they held.

mod damaged;
mod judge;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use block::ids::{Epoch, SnapshotId};
use block::run::lab::{LabReply, LabRequest};
use block::run::{AdminReply, AdminRequest, MemberState};

use self::damaged::{Harm, is_older, is_whole};
use crate::harm::{
    Damage, DamageTarget, Done, Rng, changed_blocks, data_files, replace, replace_live,
};
use crate::killed::wait_for_end;
use crate::lab::{Lab, MIB};
use crate::nbd::Client;
use crate::shadow::{Blocks, Shadow, Violation};

const SIZE: u64 = 16 * MIB;

/// When files are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DamageTime {
    /// After a clean stop.
    Stopped,
    /// After all processes were killed.
    Killed,
    /// While the volume is served, which goes on.
    Live,
    /// While it is served; then the processes of the damaged replicas are killed.
    LiveThenVictimsKilled,
    /// While it is served; then all processes are killed.
    LiveThenKilled,
}

pub(crate) const MOMENTS: [DamageTime; 5] = [
    DamageTime::Stopped,
    DamageTime::Killed,
    DamageTime::Live,
    DamageTime::LiveThenVictimsKilled,
    DamageTime::LiveThenKilled,
];

struct Snapshot {
    id: SnapshotId,
    name: String,
    shadow: Shadow,
}

/// The kinds of damage of a campaign, and their number.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) replicas: usize,
    pub(crate) seed: u64,
    pub(crate) damages: u64,
    pub(crate) moments: &'static [DamageTime],
    /// Which files, by name.
    pub(crate) files: fn(&str) -> bool,
    /// Arguments of the laboratory.
    pub(crate) how: &'static [&'static str],
}

struct Campaign {
    plan: Plan,
    lab: Lab,
    shadow: Shadow,
    snapshots: Vec<Snapshot>,
    taken: u64,
    rng: Rng,
    /// Copies of all replicas, some rounds or some writes ago.
    older: PathBuf,
    /// How often each kind of damage was done at each moment.
    tally: BTreeMap<(DamageTime, Damage), u64>,
    context: String,
}

/// Runs rounds until so many damages were done.
pub(crate) fn run(plan: Plan) -> Result<(), Violation> {
    let Plan { replicas, seed, .. } = plan;
    eprintln!("{replicas} replicas, SHEAF_SEED={seed}");
    let mut campaign = Campaign::start(plan, Rng::new(seed * 4 + replicas as u64));
    let mut rounds = 0;
    while campaign.damages() < plan.damages {
        rounds += 1;
        if let Err(Violation(what)) = campaign.round() {
            let (context, log) = (&campaign.context, campaign.log());
            return Err(Violation(format!(
                "{replicas} replicas, SHEAF_SEED={seed}, round {rounds}, {context}: {what}\n{log}"
            )));
        }
    }
    let damages = campaign.damages();
    eprintln!("{replicas} replicas: {damages} damages in {rounds} rounds: {:?}", campaign.tally);
    campaign.lab.stop();
    Ok(())
}

impl Campaign {
    fn start(plan: Plan, rng: Rng) -> Self {
        let lab = Lab::start(SIZE, plan.replicas, plan.how);
        let older = lab.dir.path().join("older");
        let mut campaign = Self {
            plan,
            lab,
            shadow: Shadow::new(SIZE),
            snapshots: Vec::new(),
            taken: 0,
            rng,
            older,
            tally: BTreeMap::new(),
            context: String::new(),
        };
        campaign.write(16);
        campaign.flush();
        campaign.keep_older();
        campaign
    }

    /// The newest notices of the engine.
    fn log(&self) -> String {
        let log = self.lab.log();
        let lines: Vec<&str> = log.lines().filter(|it| !it.starts_with("Repaired")).collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn damages(&self) -> u64 {
        self.tally.values().sum()
    }

    fn client(&self) -> Client {
        Client::connect(&self.lab.socket()).unwrap()
    }

    fn dir(&self, index: usize) -> PathBuf {
        self.lab.volume_dir().join(format!("replica-{index}"))
    }

    fn write(&mut self, extents: u64) {
        let mut client = self.client();
        for _ in 0..extents {
            let first = self.rng.below(self.shadow.blocks() - 32);
            let count = 1 + self.rng.below(32);
            match self.rng.one_in(8) {
                true => self.shadow.zero(&mut client, first, count),
                false => self.shadow.write(&mut client, first, count),
            }
        }
    }

    fn flush(&mut self) {
        self.shadow.flush(&mut self.client());
    }

    /// A new snapshot, instead of the oldest if there are several.
    fn snapshot(&mut self) {
        self.taken += 1;
        let (name, labels) = (format!("s{}", self.taken), BTreeMap::new());
        let request = AdminRequest::Snapshot { name: name.clone(), created: 1, labels };
        let AdminReply::Snapshot { id } = self.lab.admin(request) else { panic!("no snapshot") };
        self.snapshots.push(Snapshot { id, name, shadow: self.shadow.clone() });
        if self.snapshots.len() > 2 {
            let Snapshot { name, .. } = self.snapshots.remove(0);
            self.lab.admin(AdminRequest::DeleteSnapshot { name });
        }
    }

    /// Keeps copies of the replicas as they are, in use or not.
    fn keep_older(&self) {
        fs::create_dir_all(&self.older).unwrap();
        for index in 0..self.plan.replicas {
            replace_live(&self.dir(index), &self.older.join(index.to_string()));
        }
    }

    fn traffic(&mut self) {
        if self.rng.one_in(4) {
            self.snapshot();
        }
        self.write(6);
        if self.rng.one_in(3) {
            self.keep_older();
        }
        self.write(6);
        self.flush();
        if self.rng.one_in(2) {
            self.write(3);
        }
        self.lab.wait_in_sync(self.plan.replicas);
    }

    /// Damages up to all replicas but one.
    fn harm(&mut self, moment: DamageTime) -> Harm {
        let first = self.rng.index(self.plan.replicas);
        let count = 1 + self.rng.index(self.plan.replicas.saturating_sub(1));
        let mut harm = Harm { victims: BTreeMap::new(), blocks: Blocks::new() };
        for index in (first..first + count).map(|it| it % self.plan.replicas) {
            let dir = self.dir(index);
            let mut victim = DamageTarget {
                peer: self.dir((index + 1) % self.plan.replicas),
                older: self.older.join(index.to_string()),
                runs: !matches!(moment, DamageTime::Stopped | DamageTime::Killed),
                only: self.plan.files,
                done: Vec::new(),
                dir: dir.clone(),
            };
            let before = data_files(&dir);
            victim.damage(&mut self.rng);
            while self.rng.one_in(3) && victim.has_files() {
                victim.damage(&mut self.rng);
            }
            harm.blocks.append(&mut changed_blocks(&before, &dir));
            harm.victims.insert(index, victim.done);
        }
        for done in harm.done() {
            *self.tally.entry((moment, done.damage)).or_default() += 1;
        }
        self.context = format!("{moment:?}, {:?}", harm.victims);
        eprintln!("{}", self.context);
        harm
    }

    /// Blocks that may be anything when killed processes are started again.
    fn taken(&self, harm: &Harm) -> Blocks {
        let forgotten = |it: &Done| it.file == "recent" || is_whole(it.damage);
        match self.plan.replicas - harm.victims.len() {
            // Unflushed writes are lost with the list of them.
            0 if harm.done().any(forgotten) => self.shadow.unflushed().clone(),
            0 | 1 => self.shadow.unflushed().intersection(&harm.blocks).copied().collect(),
            _ => Blocks::new(),
        }
    }

    fn round(&mut self) -> Result<(), Violation> {
        let moment = self.plan.moments[self.rng.index(self.plan.moments.len())];
        self.context = format!("{moment:?}");
        self.traffic();
        match moment {
            DamageTime::Stopped | DamageTime::Killed => self.at_rest(moment),
            _ => self.live(moment),
        }
    }

    fn at_rest(&mut self, moment: DamageTime) -> Result<(), Violation> {
        match moment {
            DamageTime::Stopped => self.lab.stop(),
            _ => self.lab.kill_all(self.plan.replicas),
        }
        let whole = self.lab.dir.path().join("whole");
        if self.plan.replicas == 1 {
            replace(&self.lab.volume_dir(), &whole);
        }
        let harm = self.harm(moment);
        let taken = match moment {
            DamageTime::Killed => self.taken(&harm),
            _ => Blocks::new(),
        };
        let mut healthy = true;
        for (index, done) in &harm.victims {
            healthy &= self.check_finds(*index, done, &taken)?;
        }
        if self.plan.replicas > 1 {
            self.lab.resume();
            return self.recover(&taken);
        }
        // Without a good copy there may be errors, or no volume at all.
        let copied = harm.done().any(is_older);
        match self.lab.try_resume() {
            true => {
                let before = self.shadow.clone();
                self.read_alone(&harm, &taken)?;
                self.lab.kill_all(1);
                self.shadow = before;
            }
            false if healthy && !copied => {
                return Err(Violation("nothing is found, and it is not served".to_owned()));
            }
            false => {}
        }
        replace(&whole, &self.lab.volume_dir());
        self.lab.resume();
        self.read_all(&Blocks::new())
    }

    fn live(&mut self, moment: DamageTime) -> Result<(), Violation> {
        let harm = self.harm(moment);
        if self.plan.replicas == 1 {
            return self.live_alone(moment, &harm);
        }
        self.read_all(&Blocks::new())?;
        self.write(2);
        let mut taken = Blocks::new();
        match moment {
            DamageTime::LiveThenVictimsKilled => {
                harm.victims.keys().for_each(|index| self.restart(*index));
            }
            DamageTime::LiveThenKilled => {
                taken = self.taken(&harm);
                self.lab.kill_all(self.plan.replicas);
                self.lab.resume();
            }
            _ => {}
        }
        self.recover(&taken)
    }

    /// The only replica is damaged while it is served.
    fn live_alone(&mut self, moment: DamageTime, harm: &Harm) -> Result<(), Violation> {
        if moment == DamageTime::Live {
            self.read_alone(harm, &Blocks::new())?;
            let lost = self.scrub();
            if lost == 0 && harm.blocks.is_empty() {
                return self.verify();
            }
        } else {
            let taken = self.taken(harm);
            self.lab.kill_all(1);
            if self.lab.try_resume() {
                self.read_alone(harm, &taken)?;
            }
        }
        // No copy of it is left.
        let (rng, tally) = (self.rng.clone(), std::mem::take(&mut self.tally));
        *self = Self { tally, ..Self::start(self.plan, rng) };
        Ok(())
    }

    fn rewrite(&mut self, blocks: &Blocks) {
        let mut client = self.client();
        blocks.iter().for_each(|block| self.shadow.write(&mut client, *block, 1));
    }

    /// With a good replica everything can be read, and is repaired without help.
    fn recover(&mut self, taken: &Blocks) -> Result<(), Violation> {
        self.read_all(taken)?;
        self.rewrite(taken);
        self.write(1);
        // A scrub repairs snapshots of replicas that are in sync all the while. On a busy machine one
        // that is slow may be left behind, and rejoins by a rebuild.
        for _ in 0..5 {
            self.lab.wait_in_sync(self.plan.replicas);
            let before = self.epoch();
            self.scrub();
            // As its supervisor does with files that cannot be used any more.
            let stopped = self.stopped();
            stopped.into_iter().for_each(|index| self.restart(index));
            self.lab.wait_in_sync(self.plan.replicas);
            if self.epoch() == before {
                break;
            }
        }
        self.read_all(&Blocks::new())?;
        self.verify()
    }

    /// Counts changes of the in-sync set.
    fn epoch(&self) -> Epoch {
        match self.lab.admin(AdminRequest::Status) {
            AdminReply::Status(status) => status.epoch,
            other => panic!("not a status: {other:?}"),
        }
    }

    /// Replicas that are not in sync any more.
    fn stopped(&self) -> Vec<usize> {
        let LabReply::Status { volume, replicas } = self.lab.ask(&LabRequest::Status) else {
            panic!("no status")
        };
        let gone = volume.replicas.iter().filter(|it| it.state != MemberState::InSync);
        let gone: Vec<_> = gone.map(|it| it.id).collect();
        replicas.iter().filter(|it| gone.contains(&it.id)).map(|it| it.index).collect()
    }

    /// Kills the process of a replica and starts another; one that cannot be opened is replaced.
    fn restart(&self, index: usize) {
        let LabReply::Status { replicas, .. } = self.lab.ask(&LabRequest::Status) else {
            panic!("no status")
        };
        self.lab.ask(&LabRequest::KillReplica { index });
        replicas[index].pid.into_iter().for_each(wait_for_end);
        self.lab.ask(&LabRequest::StartReplica { index });
    }
}
