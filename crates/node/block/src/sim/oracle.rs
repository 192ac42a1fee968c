//! The values that a guest may read: the oracle of a simulation.
//!
//! Every sector is a register. The oracle keeps, for each, the values that it may have: each
//! write since the last one that is certainly on all in-sync replicas, with when it was asked for
//! and when it was acknowledged. A read narrows them down. After a crash of the guest, values
//! that were not flushed may be gone if a disk lost power, and what is read first stays.

use std::collections::BTreeMap;

use super::Time;

pub(crate) const SECTOR: usize = 512;

/// Names a write; zero is a sector of zeroes.
pub(crate) type Tag = u64;

#[derive(Debug, Clone)]
struct Entry {
    tag: Tag,
    asked: Time,
    acked: Option<Time>,
    /// When the engine that was asked was gone: it takes effect before anything newer, or not at all.
    dead: Option<Time>,
    /// Since then something newer is certainly there; only a crash can bring it back.
    over: Option<Time>,
    /// Not even a crash can.
    gone: bool,
}

#[derive(Debug)]
struct Sector {
    log: Vec<Entry>,
    crash: Crash,
}

/// The effect of a crash of the guest on a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    None,
    /// The guest has crashed, and no engine serves the volume yet.
    Down {
        since: Time,
    },
    /// Served again, but not read since: the first value that is read stays.
    Unread {
        since: Time,
    },
}

/// The values that each sector may have had at one moment.
#[derive(Debug)]
pub(crate) struct View(Vec<Vec<Tag>>);

#[derive(Debug)]
pub(crate) struct Oracle {
    sectors: Vec<Sector>,
    /// When a disk last lost power.
    power_cut: Option<Time>,
    /// Writes under way: which sectors.
    writes: BTreeMap<Tag, (usize, usize)>,
    next: Tag,
}

impl Oracle {
    pub(crate) fn new(sectors: usize) -> Self {
        let base = Entry {
            tag: 0,
            asked: Time::ZERO,
            acked: Some(Time::ZERO),
            dead: None,
            over: None,
            gone: false,
        };
        let sectors = (0..sectors).map(|_| Sector { log: vec![base.clone()], crash: Crash::None });
        Self { sectors: sectors.collect(), power_cut: None, writes: BTreeMap::new(), next: 1 }
    }

    /// A write is asked for; returns its name and the bytes to write.
    pub(crate) fn write(&mut self, now: Time, first: usize, count: usize) -> (Tag, Vec<u8>) {
        let tag = self.begin(now, first, count, false);
        let mut data = vec![0; count * SECTOR];
        for (index, sector) in data.chunks_mut(SECTOR).enumerate() {
            fill(sector, tag, first + index);
        }
        (tag, data)
    }

    /// A discard or a write of zeroes is asked for.
    pub(crate) fn zero(&mut self, now: Time, first: usize, count: usize) -> Tag {
        self.begin(now, first, count, true)
    }

    fn begin(&mut self, now: Time, first: usize, count: usize, zero: bool) -> Tag {
        // The lowest bit says whether the sectors become zeroes.
        let tag = self.next << 1 | u64::from(zero);
        self.next += 1;
        for sector in &mut self.sectors[first..first + count] {
            let entry = Entry { tag, asked: now, acked: None, dead: None, over: None, gone: false };
            sector.log.push(entry);
        }
        self.writes.insert(tag, (first, count));
        tag
    }

    /// With `durable` nothing older of these sectors comes back.
    pub(crate) fn acked(&mut self, now: Time, tag: Tag, durable: bool) {
        let Some((first, count)) = self.writes.remove(&tag) else { return };
        for sector in &mut self.sectors[first..first + count] {
            let Some(asked) = sector.log.iter().find(|it| it.tag == tag).map(|it| it.asked) else {
                continue;
            };
            for entry in &mut sector.log {
                if entry.tag == tag {
                    entry.acked = Some(now);
                } else if entry.dead.is_some() && entry.asked < asked
                    || entry.acked.is_some_and(|acked| acked < asked)
                {
                    entry.over.get_or_insert(now);
                }
            }
            if durable {
                sector.forget_before(asked);
            }
        }
    }

    /// The first sector of a write that is under way, and how many it has.
    pub(crate) fn sectors(&self, tag: Tag) -> (usize, usize) {
        self.writes.get(&tag).copied().unwrap_or_default()
    }

    /// The write failed, or no engine will ever answer: it may have happened or not.
    pub(crate) fn unknown(&mut self, now: Time, tag: Tag) {
        let Some((first, count)) = self.writes.remove(&tag) else { return };
        for sector in &mut self.sectors[first..first + count] {
            sector.log.iter_mut().filter(|it| it.tag == tag).for_each(|it| it.dead = Some(now));
        }
    }

    /// A flush that was asked for at `asked` is acknowledged.
    pub(crate) fn flushed(&mut self, asked: Time) {
        for sector in &mut self.sectors {
            let newest = sector.log.iter().filter(|it| it.acked.is_some_and(|at| at < asked));
            let Some(newest) = newest.map(|it| it.asked).max() else { continue };
            sector.forget_before(newest);
        }
    }

    /// The guest lost everything that it did not flush, if a disk did.
    pub(crate) fn guest_crashed(&mut self, now: Time) {
        for sector in &mut self.sectors {
            sector.crash = Crash::Down { since: now };
        }
    }

    /// An engine serves the volume again. Writes that are lost by now stay lost.
    pub(crate) fn activated(&mut self) {
        let power_cut = self.power_cut;
        for sector in &mut self.sectors {
            let Crash::Down { since } = sector.crash else { continue };
            sector.crash = Crash::Unread { since };
            if let Some(cut) = power_cut.filter(|cut| sector.may_have_lost(*cut)) {
                sector.bring_back(cut);
            }
        }
    }

    /// The disk of an in-sync replica lost power. That of another holds nothing that counts.
    pub(crate) fn power_cut(&mut self, at: Time) {
        self.power_cut = self.power_cut.max(Some(at));
    }

    pub(crate) fn has_lost_power(&self) -> bool {
        self.power_cut.is_some()
    }

    /// A read that was asked for at `asked` returned `data`.
    pub(crate) fn read(
        &mut self,
        now: Time,
        asked: Time,
        first: usize,
        data: &[u8],
    ) -> Result<(), String> {
        for (index, bytes) in data.chunks(SECTOR).enumerate() {
            self.read_sector(now, asked, first + index, bytes)?;
        }
        Ok(())
    }

    fn read_sector(
        &mut self,
        now: Time,
        asked: Time,
        index: usize,
        bytes: &[u8],
    ) -> Result<(), String> {
        let sector = &mut self.sectors[index];
        let value = parse(bytes, index);
        let fits =
            |it: &Entry| Some(it.value()) == value && it.over.is_none_or(|since| asked <= since);
        let Some(found) = sector.log.iter().rposition(fits) else {
            let value = value.map_or("damaged".to_owned(), |value| value.to_string());
            return Err(format!("sector {index} reads {value}, may be {}", sector.describe()));
        };
        let seen = sector.log[found].clone();
        if seen.over.is_some() {
            // The read was slow, and shows nothing about now.
            return Ok(());
        }
        let crash = std::mem::replace(&mut sector.crash, Crash::None);
        // A value that a guest reads after a crash stays, also over the next crash.
        let settled = matches!(crash, Crash::Unread { since } if seen.asked < since);
        for entry in sector.log.iter_mut().filter(|it| it.value() != seen.value()) {
            let ended = entry.acked.is_some_and(|at| at < asked || at < seen.asked)
                || entry.dead.is_some_and(|dead| dead < asked);
            if ended || (settled && entry.acked.is_some() && entry.asked < asked) {
                entry.over.get_or_insert(now);
                entry.gone |= settled;
            }
        }
        Ok(())
    }

    /// The values that a read may return at any moment since `asked`.
    pub(crate) fn view(&self, asked: Time) -> View {
        let fits = |it: &&Entry| it.over.is_none_or(|since| asked <= since);
        let values = |it: &Sector| it.log.iter().filter(fits).map(Entry::value).collect();
        View(self.sectors.iter().map(values).collect())
    }

    /// The values that a sector may have now, for the final comparison.
    pub(crate) fn check_sector(&self, index: usize, bytes: &[u8]) -> Result<(), String> {
        let sector = &self.sectors[index];
        let value = parse(bytes, index);
        let fits = |it: &Entry| Some(it.value()) == value && it.over.is_none();
        match sector.log.iter().any(fits) {
            true => Ok(()),
            false => Err(format!("sector {index} holds {value:?}, may be {}", sector.describe())),
        }
    }
}

impl View {
    pub(crate) fn check_sector(&self, index: usize, bytes: &[u8]) -> Result<(), String> {
        let value = parse(bytes, index);
        match value.is_some_and(|value| self.0[index].contains(&value)) {
            true => Ok(()),
            false => Err(format!("sector {index} holds {value:?}, may be {:?}", self.0[index])),
        }
    }
}

impl Sector {
    /// Superseded values that ended before `time` are gone for good.
    fn forget_before(&mut self, time: Time) {
        for it in self.log.iter_mut().filter(|it| it.over.is_some()) {
            it.gone |=
                it.acked.is_some_and(|at| at < time) || (it.dead.is_some() && it.asked < time);
        }
    }

    /// After a crash of the guest, what was not flushed may be gone if power was lost after it
    /// had been asked for: a disk may have answered, and the answer come after the loss. One disk
    /// of several is enough: the guest has no promise that all are asked before it is served.
    fn may_have_lost(&self, cut: Time) -> bool {
        let oldest = self.log.iter().filter(|it| !it.gone).skip(1).map(|it| it.asked).min();
        oldest.is_some_and(|oldest| cut >= oldest)
    }

    /// Superseded values may return, except those that ended before a write that was requested
    /// after the power cut and acknowledged: that write was not lost.
    fn bring_back(&mut self, cut: Time) {
        let kept = self.log.iter().filter(|it| it.acked.is_some() && it.asked > cut);
        let kept = kept.map(|it| it.asked).max().unwrap_or(Time::ZERO);
        for it in self.log.iter_mut().filter(|it| !it.gone) {
            let before =
                it.acked.is_some_and(|at| at < kept) || (it.dead.is_some() && it.asked < kept);
            if !before {
                it.over = None;
            }
        }
    }

    fn describe(&self) -> String {
        let entry = |it: &Entry| {
            let state = match (it.acked.is_some(), it.dead.is_some()) {
                (true, _) => "acked",
                (false, true) => "unknown",
                (false, false) => "under way",
            };
            format!("{}({state}{})", it.value(), if it.over.is_some() { ", over" } else { "" })
        };
        let all: Vec<String> = self.log.iter().filter(|it| !it.gone).map(entry).collect();
        format!("{} ({:?})", all.join(" "), self.crash)
    }
}

impl Entry {
    /// The value that the sector reads as; a write of zeroes has no tag.
    fn value(&self) -> Tag {
        if self.tag & 1 == 1 { 0 } else { self.tag }
    }
}

fn fill(sector: &mut [u8], tag: Tag, index: usize) {
    sector[..8].copy_from_slice(&tag.to_le_bytes());
    sector[8..16].copy_from_slice(&(index as u64).to_le_bytes());
    let end = sector.len() - 8;
    sector[end..].copy_from_slice(&tag.to_le_bytes());
}

/// The name of the write that a sector holds; none if it holds something that was never written.
fn parse(sector: &[u8], index: usize) -> Option<Tag> {
    let number = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().expect("8 bytes"));
    let tag = number(0);
    if tag == 0 {
        return sector.iter().all(|byte| *byte == 0).then_some(0);
    }
    let rest = sector[16..sector.len() - 8].iter().all(|byte| *byte == 0);
    (number(8) == index as u64 && number(sector.len() - 8) == tag && rest).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_read_of_something_old_or_strange_is_caught() {
        let mut oracle = Oracle::new(8);
        let zeroes = vec![0; SECTOR];
        let (first, one) = oracle.write(at(1), 0, 1);
        oracle.read(at(2), at(2), 0, &one).unwrap();
        // Seen once, it is there.
        oracle.read(at(3), at(3), 0, &zeroes).unwrap_err();
        oracle.acked(at(4), first, false);
        let (second, two) = oracle.write(at(5), 0, 1);
        oracle.read(at(6), at(6), 0, &one).unwrap();
        oracle.acked(at(7), second, false);
        oracle.read(at(8), at(8), 0, &one).unwrap_err();
        oracle.read(at(8), at(8), 0, &two).unwrap();
        oracle.read(at(9), at(9), 1, &two).unwrap_err();
        let mut torn = two.clone();
        torn[300] = 1;
        oracle.read(at(9), at(9), 0, &torn).unwrap_err();
    }

    #[test]
    fn a_read_beside_a_write_that_is_never_answered_does_not_end_it() {
        for (died, asked, ends) in [(3, 2, false), (3, 4, true)] {
            let mut oracle = Oracle::new(1);
            let (tag, one) = oracle.write(at(1), 0, 1);
            oracle.unknown(at(died), tag);
            oracle.read(at(5), at(asked), 0, &[0; SECTOR]).unwrap();
            assert_eq!(oracle.read(at(6), at(6), 0, &one).is_err(), ends, "asked at {asked}");
        }
    }

    #[test]
    fn a_crash_without_a_power_cut_loses_nothing() {
        let mut oracle = Oracle::new(1);
        let (tag, one) = oracle.write(at(1), 0, 1);
        oracle.acked(at(2), tag, false);
        oracle.guest_crashed(at(3));
        oracle.activated();
        oracle.read(at(3), at(3), 0, &[0; SECTOR]).unwrap_err();
        oracle.read(at(3), at(3), 0, &one).unwrap();
    }

    #[test]
    fn what_was_flushed_survives_a_power_cut_and_the_rest_may_not() {
        let mut oracle = Oracle::new(1);
        let (tag, one) = oracle.write(at(1), 0, 1);
        oracle.acked(at(2), tag, false);
        oracle.flushed(at(3));
        let (tag, two) = oracle.write(at(4), 0, 1);
        oracle.acked(at(5), tag, false);
        oracle.power_cut(at(6));
        oracle.guest_crashed(at(7));
        oracle.activated();
        oracle.read(at(7), at(7), 0, &[0; SECTOR]).unwrap_err();
        oracle.read(at(7), at(7), 0, &one).unwrap();
        // Once read, it is settled.
        oracle.read(at(8), at(8), 0, &two).unwrap_err();
    }

    #[test]
    fn what_was_written_after_a_power_cut_survives_the_guest() {
        let mut oracle = Oracle::new(1);
        let (tag, one) = oracle.write(at(1), 0, 1);
        oracle.acked(at(2), tag, false);
        oracle.power_cut(at(3));
        let (tag, two) = oracle.write(at(4), 0, 1);
        oracle.acked(at(5), tag, false);
        oracle.guest_crashed(at(6));
        oracle.activated();
        oracle.read(at(7), at(7), 0, &one).unwrap_err();
        oracle.read(at(7), at(7), 0, &two).unwrap();
    }
}
