//! Files that are damaged in every way, in one replica or in all but one, compared with a copy of
//! everything that was written: no read may differ from it, and what one replica has lost the others
//! put right.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::crash::seeds;
use super::world::{options, reopen, reopen_in};
use crate::ids::{BootId, ReplicaId, SnapshotId};
use crate::store::drive::Driven;
use crate::store::files::sim::{Keep, Rng, SimFiles};
use crate::store::files::{FileId, Files};
use crate::store::geometry::{BLOCK, REGION_BLOCKS, Region};
use crate::store::sabotage::{Check, leave_out};
use crate::store::*;

const REGIONS: u64 = 5;
const SPOTS: [u64; 6] = [0, 1, 2, 63, 64, 511];

/// How the replicas stop before their files are damaged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    Clean,
    Kill,
    /// The power goes after everything was flushed.
    PowerCut,
}

impl Stop {
    /// The kernel that runs when the replicas are opened again.
    fn next_boot(self) -> BootId {
        BootId::from_u128(if self == Self::PowerCut { 2 } else { 1 })
    }
}

/// The expected content of every block.
type Shadow = BTreeMap<u64, u8>;

struct Group {
    replicas: Vec<SimFiles>,
    /// The files as they were at some moments.
    older: Vec<Vec<SimFiles>>,
    shadow: Shadow,
    /// Values of blocks since the last flush: a replica that lost writes may hold any of them.
    unflushed: BTreeMap<u64, BTreeSet<u8>>,
    snapshot: Option<Shadow>,
}

fn blocks() -> impl Iterator<Item = u64> {
    (0..REGIONS).flat_map(|region| SPOTS.map(|spot| region * u64::from(REGION_BLOCKS) + spot))
}

fn content(fill: u8) -> Bytes {
    vec![fill; BLOCK as usize].into()
}

fn write(block: u64, fill: u8) -> Request {
    let data = content(fill);
    let crcs = crc::of_blocks(&data).collect();
    Request::Write { offset: block * BLOCK, data, crcs, fua: false }
}

/// The content that a replica may have.
#[derive(Clone)]
struct Expected {
    shadow: Shadow,
    unflushed: BTreeMap<u64, BTreeSet<u8>>,
    snapshot: Option<Shadow>,
    /// The data of a killed replica was damaged: what was not flushed may be anything.
    taken: bool,
}

impl Group {
    fn change(&mut self, rng: &mut Rng, has_snapshot: bool) -> Vec<Request> {
        let before = self.shadow.clone();
        let requests = change(rng, &mut self.shadow, has_snapshot);
        for request in &requests {
            let block = match request {
                Request::Flush => {
                    self.unflushed.clear();
                    continue;
                }
                Request::Write { offset, .. } | Request::Discard { offset, .. } => offset / BLOCK,
                _ => continue,
            };
            let values = self.unflushed.entry(block).or_default();
            let value = |shadow: &Shadow| shadow.get(&block).copied().unwrap_or(0);
            values.extend([value(&before), value(&self.shadow)]);
        }
        requests
    }

    fn expected(&self) -> Expected {
        let (shadow, unflushed) = (self.shadow.clone(), self.unflushed.clone());
        Expected { shadow, unflushed, snapshot: self.snapshot.clone(), taken: false }
    }
}

/// One change of the volume, made in every replica.
fn change(rng: &mut Rng, shadow: &mut Shadow, has_snapshot: bool) -> Vec<Request> {
    let all: Vec<u64> = blocks().collect();
    let block = all[rng.below(all.len() as u64) as usize];
    match rng.below(12) {
        0 => vec![Request::Flush],
        1 => {
            let regions = (0..REGIONS as u32).map(Region).collect();
            vec![Request::Flush, Request::Settle { regions }]
        }
        2 => {
            shadow.remove(&block);
            vec![Request::Discard { offset: block * BLOCK, len: BLOCK }]
        }
        3 if !has_snapshot => {
            let (id, labels) = (SnapshotId::from_u128(1), BTreeMap::new());
            vec![Request::Snapshot { id, name: "one".into(), created: 0, labels }, Request::Seal]
        }
        _ => {
            let fill = 1 + rng.below(250) as u8;
            shadow.insert(block, fill);
            vec![write(block, fill)]
        }
    }
}

/// Has a replica do something; nothing of it may fail.
fn carry_out(files: &mut SimFiles, replica: Replica, requests: &[Request]) -> Replica {
    let mut driven = Driven::new(replica, files);
    for request in requests {
        driven.request(request.clone()).unwrap();
    }
    driven.replica
}

fn make(rng: &mut Rng, count: u128, stop: Stop) -> Group {
    let mut replicas = Vec::new();
    for number in 0..count {
        let mut files = SimFiles::new();
        let replica = ReplicaId::from_u128(100 + number);
        create(&mut files, &CreateOptions { replica, ..options() }).unwrap();
        replicas.push(files);
    }
    let (shadow, unflushed) = (Shadow::new(), BTreeMap::new());
    let mut group = Group { replicas, older: Vec::new(), shadow, unflushed, snapshot: None };
    for session in 0..1 + rng.below(3) {
        let mut requests = Vec::new();
        for _ in 0..10 + rng.below(40) {
            let some = group.change(rng, group.snapshot.is_some());
            if matches!(some[0], Request::Snapshot { .. }) {
                group.snapshot = Some(group.shadow.clone());
            }
            requests.extend(some);
        }
        let save = rng.below(requests.len() as u64) as usize;
        let mut saved = Vec::new();
        let ends = session > 0 && rng.one_in(2);
        for files in &mut group.replicas {
            let replica = reopen(files).unwrap();
            let regions = replica.dirty_regions();
            let (before, after) = requests.split_at(save);
            let replica = carry_out(files, replica, &[Request::Reconciled { regions }]);
            let replica = carry_out(files, replica, before);
            saved.push(files.clone());
            let replica = carry_out(files, replica, after);
            if stop == Stop::Clean || ends {
                carry_out(files, replica, &[Request::CloseClean]);
                group.unflushed.clear();
            }
        }
        group.older.push(saved);
    }
    if stop != Stop::Clean {
        // Something that no clean close followed.
        let mut requests: Vec<_> = (0..6).flat_map(|_| group.change(rng, true)).collect();
        if stop == Stop::PowerCut {
            requests.push(Request::Flush);
            group.unflushed.clear();
        }
        for files in &mut group.replicas {
            let replica = reopen(files).unwrap();
            carry_out(files, replica, &requests);
            if stop == Stop::PowerCut {
                files.power_cut(Keep::Random(Rng::new(rng.draw())));
            }
        }
    }
    group
}

/// One way to damage a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip { offset: u64, bit: u8 },
    Garbage { offset: u64 },
    Zero { offset: u64, len: u64 },
    Truncate { len: u64 },
    Remove,
    Older { moment: usize },
    OfOther { replica: usize },
    Swap { with: FileId },
}

/// Data that was being written before a power cut is taken as it is.
fn is_taken(file: FileId, stop: Stop) -> bool {
    stop == Stop::PowerCut && matches!(file, FileId::Data(..))
}

fn pick_file(rng: &mut Rng, files: &mut SimFiles, stop: Stop) -> FileId {
    let names = files.list().unwrap();
    loop {
        let file = FileId::parse(&names[rng.below(names.len() as u64) as usize]).unwrap();
        if !is_taken(file, stop) {
            return file;
        }
    }
}

fn pick(rng: &mut Rng, group: &mut Group, at: usize, file: FileId, stop: Stop) -> Damage {
    let others = group.replicas.len();
    let files = &mut group.replicas[at];
    let len = files.len(file).unwrap().unwrap().max(1);
    // Mostly where something is.
    let near = if rng.one_in(3) { len } else { len.min(24 << 10) };
    match rng.below(10) {
        0 | 1 => Damage::Flip { offset: rng.below(near), bit: rng.below(8) as u8 },
        2 => Damage::Garbage { offset: rng.below(near) / BLOCK * BLOCK },
        3 => Damage::Zero { offset: 0, len },
        4 => Damage::Zero { offset: rng.below(near) / BLOCK * BLOCK, len: BLOCK },
        5 => Damage::Truncate { len: if rng.one_in(2) { 0 } else { rng.below(near) } },
        6 => Damage::Remove,
        7 if others > 1 => Damage::OfOther { replica: (at + 1) % others },
        8 => {
            let names = files.list().unwrap();
            let with = FileId::parse(&names[rng.below(names.len() as u64) as usize]).unwrap();
            Damage::Swap { with: if is_taken(with, stop) { file } else { with } }
        }
        _ => Damage::Older { moment: rng.below(group.older.len() as u64) as usize },
    }
}

fn apply(group: &mut Group, at: usize, file: FileId, damage: &Damage) {
    let before = group.replicas[at].clone();
    let files = &mut group.replicas[at];
    match *damage {
        Damage::Flip { offset, bit } => files.flip(file, offset, bit),
        Damage::Garbage { offset } => {
            let mut rng = Rng::new(offset);
            let bytes: Vec<u8> = (0..BLOCK).map(|_| rng.draw() as u8).collect();
            files.write(file, offset, &bytes).unwrap();
        }
        Damage::Zero { offset, len } => files.write(file, offset, &vec![0; len as usize]).unwrap(),
        Damage::Truncate { len } => files.truncate(file, len).unwrap(),
        Damage::Remove => files.remove(file).unwrap(),
        Damage::Older { moment } => {
            let older = group.older[moment][at].clone();
            group.replicas[at].replace(file, &older, file);
        }
        Damage::OfOther { replica } => {
            let other = group.replicas[replica].clone();
            group.replicas[at].replace(file, &other, file);
        }
        Damage::Swap { with } => {
            files.replace(file, &before, with);
            files.replace(with, &before, file);
        }
    }
}

/// The content of a block according to a replica: nothing if it reports an error or a wrong
/// checksum.
fn read(driven: &mut Driven<'_>, view: View, block: u64) -> Option<Bytes> {
    let request = Request::Read { view, offset: block * BLOCK, len: BLOCK };
    let Ok(Reply::Data(data)) = driven.request(request) else { return None };
    let crcs = data.crcs.clone();
    let bytes = data.into_bytes();
    crc::first_mismatch(&bytes, &crcs).is_none().then_some(bytes)
}

/// Reads everything. Gives the blocks of the head that the replica does not have, and those where
/// it says that it lost writes and has something older.
fn survey(driven: &mut Driven<'_>, group: &Expected) -> Result<Vec<u64>, String> {
    let Expected { shadow, unflushed, snapshot, taken } = group;
    let lost = driven.replica.has_lost_writes();
    let older = |block: u64, found: &Bytes| {
        let values = unflushed.get(&block).filter(|_| lost);
        values.is_some_and(|values| values.iter().any(|value| *found == content(*value)))
    };
    let mut bad = Vec::new();
    for block in blocks().chain(700..704) {
        let expected = content(shadow.get(&block).copied().unwrap_or(0));
        match read(driven, View::Head, block) {
            Some(_) if *taken && unflushed.contains_key(&block) => {}
            Some(found) if found != expected && older(block, &found) => bad.push(block),
            Some(found) if found != expected => {
                return Err(format!("block {block} is {} not {}", found[0], expected[0]));
            }
            Some(_) => {}
            None => bad.push(block),
        }
        if let Some(snapshot) = snapshot {
            let expected = content(snapshot.get(&block).copied().unwrap_or(0));
            let found = read(driven, View::Snapshot(SnapshotId::from_u128(1)), block);
            if found.is_some_and(|found| found != expected) {
                return Err(format!("block {block} of the snapshot is wrong"));
            }
        }
    }
    Ok(bad)
}

/// Puts the blocks right that a replica does not have, as the others would.
fn heal(driven: &mut Driven<'_>, shadow: &Shadow, bad: &[u64]) -> Result<(), String> {
    for block in bad {
        let request = match shadow.get(block) {
            Some(fill) => write(*block, *fill),
            None => Request::WriteZeroes { offset: block * BLOCK, len: BLOCK, fua: false },
        };
        driven.request(request).map_err(|error| format!("cannot heal {block}: {error}"))?;
    }
    driven.request(Request::Flush).map_err(|error| error.to_string())?;
    Ok(())
}

/// Whether a scrub finds something.
fn scrub(driven: &mut Driven<'_>) -> bool {
    (0..REGIONS as u32).any(|region| {
        let reply = driven.request(Request::Scrub { region: Region(region) });
        !matches!(reply, Ok(Reply::Scrubbed(bad)) if bad.is_empty())
    })
}

/// Damages one replica in one or a few ways, and checks it.
fn harm(rng: &mut Rng, group: &mut Group, at: usize, stop: Stop) -> Result<(), String> {
    let mut done = Vec::new();
    for _ in 0..if rng.one_in(3) { 2 } else { 1 } {
        let file = pick_file(rng, &mut group.replicas[at].clone(), stop);
        if group.replicas[at].len(file).unwrap().is_some() {
            let damage = pick(rng, group, at, file, stop);
            apply(group, at, file, &damage);
            done.push((file, damage));
        }
    }
    judge(group, at, stop, &done)
}

/// Checks a replica after damage: no read is wrong, a check finds what is lost and says what to
/// do, and what is put right stays so.
fn judge(
    group: &mut Group,
    at: usize,
    stop: Stop,
    done: &[(FileId, Damage)],
) -> Result<(), String> {
    let touches_data = |(file, damage): &(FileId, Damage)| {
        matches!(file, FileId::Data(..))
            || matches!(damage, Damage::Swap { with: FileId::Data(..) })
    };
    let taken = stop == Stop::Kill && done.iter().any(touches_data);
    let (boot, expected) = (stop.next_boot(), Expected { taken, ..group.expected() });
    let report = check_under(&mut group.replicas[at].clone(), Depth::Data, Some(boot), &mut |_| {});
    assert_eq!(report.remedy().is_none(), report.is_healthy() || !report.is_replica());
    let context = |error: String| format!("{error}, after {done:?}; the check said {report}");
    let files = &mut group.replicas[at];
    let Ok(replica) = reopen_in(files, boot) else {
        return match report.is_healthy() {
            true => Err(context("it does not open".into())),
            false => Ok(()),
        };
    };
    let mut driven = Driven::new(replica, files);
    let bad = survey(&mut driven, &expected).map_err(context)?;
    // A check does not read data that was being written; a scrub does.
    if !bad.is_empty() && report.is_healthy() && (stop == Stop::Clean || !scrub(&mut driven)) {
        return Err(context(format!("blocks {bad:?} are bad")));
    }
    heal(&mut driven, &expected.shadow, &bad).map_err(context)?;
    let left = survey(&mut driven, &expected).map_err(context)?;
    if !left.is_empty() {
        return Err(context(format!("blocks {left:?} could not be healed")));
    }
    drop(driven);
    // And it stays so.
    let replica =
        reopen_in(files, boot).map_err(|error| context(format!("not a second time: {error:?}")))?;
    let mut driven = Driven::new(replica, files);
    let left = survey(&mut driven, &expected).map_err(context)?;
    match left.is_empty() {
        true => Ok(()),
        false => Err(context(format!("blocks {left:?} are bad again"))),
    }
}

fn run(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ 0x0bad);
    let stop = [Stop::Clean, Stop::Kill, Stop::PowerCut][rng.below(3) as usize];
    let count = 1 + rng.below(3);
    let mut group = make(&mut rng, u128::from(count), stop);
    for at in 0..(count as usize).saturating_sub(1).max(1) {
        for _ in 0..4 {
            let whole = group.replicas.clone();
            harm(&mut rng, &mut group, at, stop).map_err(|error| format!("{stop:?}: {error}"))?;
            group.replicas = whole;
        }
    }
    Ok(())
}

/// Every way to damage a file as a whole, or where something is.
fn whole_damages(group: &mut Group, at: usize, file: FileId) -> Vec<Damage> {
    let len = group.replicas[at].len(file).unwrap().unwrap();
    let names = group.replicas[at].list().unwrap();
    let others = names.iter().filter_map(|name| FileId::parse(name)).filter(|it| *it != file);
    let mut all: Vec<Damage> = others.map(|with| Damage::Swap { with }).collect();
    all.extend((0..group.older.len()).map(|moment| Damage::Older { moment }));
    all.extend(
        [0, 40, 5000]
            .map(|offset| Damage::Flip { offset: offset.min(len.saturating_sub(1)), bit: 3 }),
    );
    all.extend([
        Damage::Garbage { offset: 0 },
        Damage::Zero { offset: 0, len: BLOCK },
        Damage::Zero { offset: 0, len },
        Damage::Truncate { len: len / 2 },
        Damage::Truncate { len: 0 },
        Damage::Remove,
        Damage::OfOther { replica: 1 - at },
    ]);
    all
}

#[test]
fn every_damage_of_every_file_is_found_by_a_check() {
    for (seed, stop) in (0..).zip([Stop::Clean, Stop::Kill, Stop::PowerCut].repeat(2)) {
        let mut group = make(&mut Rng::new(seed), 2, stop);
        let names = group.replicas[0].list().unwrap();
        for file in names.iter().filter_map(|name| FileId::parse(name)) {
            for damage in whole_damages(&mut group, 0, file) {
                let taken = is_taken(file, stop)
                    || matches!(damage, Damage::Swap { with } if is_taken(with, stop));
                if taken {
                    continue;
                }
                let whole = group.replicas.clone();
                apply(&mut group, 0, file, &damage);
                let done = [(file, damage)];
                judge(&mut group, 0, stop, &done)
                    .unwrap_or_else(|error| panic!("{stop:?}: {error}"));
                group.replicas = whole;
            }
        }
    }
}

#[test]
fn recent_changes_that_are_lost_after_a_kill_are_found() {
    for damage in [
        Damage::Remove,
        Damage::Truncate { len: 0 },
        Damage::Zero { offset: 0, len: BLOCK },
        Damage::Flip { offset: 60, bit: 1 },
        Damage::Older { moment: 0 },
        Damage::OfOther { replica: 1 },
    ] {
        let mut group = make(&mut Rng::new(5), 2, Stop::Kill);
        let files = &mut group.replicas[0];
        let replica = reopen(files).unwrap();
        carry_out(files, replica, &[write(700, 7), write(701, 8)]);
        apply(&mut group, 0, FileId::Recent, &damage);
        let boot = Some(Stop::Kill.next_boot());
        let files = &mut group.replicas[0];
        let report = check_under(files, Depth::Data, boot, &mut |_| {});
        assert!(!report.is_healthy() && report.remedy().is_some(), "{damage:?}: {report}");
        let replica = reopen(files).unwrap();
        assert!(replica.has_lost_writes(), "{damage:?}");
        // It is said once, and what follows is kept as ever.
        drop(replica);
        let report = check_under(files, Depth::Data, boot, &mut |_| {});
        assert!(report.is_healthy(), "{damage:?}: {report}");
    }
}

#[test]
fn no_damage_of_any_file_is_read_as_data() {
    super::crash::all(seeds(60), run);
}

/// Leaves one check out and says which seed notices it.
fn noticed(check: Check) -> Option<u64> {
    leave_out(Some(check));
    let fails = |seed: &u64| std::panic::catch_unwind(|| run(*seed)).map_or(true, |it| it.is_err());
    let found = (0..2000).find(fails);
    leave_out(None);
    found
}

#[test]
fn a_check_that_is_left_out_is_noticed() {
    for check in [Check::Root, Check::Index, Check::Ages, Check::Sums] {
        assert!(noticed(check).is_some(), "{check:?} is not needed");
    }
}
