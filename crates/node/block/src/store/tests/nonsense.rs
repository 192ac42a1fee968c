//! Metadata whose checksums are right and whose content is not: a user wrote it on purpose, or
//! a version of this program had a mistake. It may be refused, and must never end in a panic.

use super::damage::{Stop, sample};
use super::world::{LIMITS, options, reopen};
use crate::ids::BootId;
use crate::store::crc::crc32c;
use crate::store::drive::Driven;
use crate::store::files::sim::{Rng, SimFiles};
use crate::store::files::{FileId, FileNo, Files, Place};
use crate::store::geometry::{BLOCK, Blocks, Region};
use crate::store::map::Presence;
use crate::store::recent::{self, PLACE, Ticket};
use crate::store::super_block::SLOT;
use crate::store::{Depth, NoBases, OpenOptions, Request, View, check, log, map, open};

/// How many of each are tried; more on demand.
fn rounds() -> u64 {
    std::env::var("STORE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(120)
}

/// Opens and checks the directory in every way that there is.
fn use_it(mut files: SimFiles) {
    drop(check(&mut files, Depth::Data, &mut |_| {}).to_string());
    let options =
        OpenOptions { limits: LIMITS, boot: Some(BootId::from_u128(1)), ..OpenOptions::default() };
    let Ok(replica) = open(&mut files, &mut NoBases, options) else { return };
    let size = replica.volume_size();
    let mut driven = Driven::new(replica, &mut files);
    let len = size.min(4 << 20);
    let _ = driven.request(Request::Read { view: View::Head, offset: 0, len });
    let data = vec![7; BLOCK as usize].into();
    let crcs = vec![crc32c(&[7; BLOCK as usize])];
    let _ = driven.request(Request::Write { offset: 0, data, crcs, fua: true });
    let _ = driven.request(Request::Scrub { region: Region(0) });
    let _ = driven.request(Request::CloseClean);
}

/// A number that is often near one that is possible.
fn number(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.below(8),
        1 => rng.below(64),
        2 => u64::MAX - rng.below(2),
        _ => rng.draw() >> rng.below(60),
    }
}

fn blocks(rng: &mut Rng) -> Blocks {
    Blocks(std::array::from_fn(|_| if rng.one_in(2) { 0 } else { rng.draw() }))
}

#[test]
fn a_super_block_that_makes_no_sense_is_no_reason_to_panic() {
    let good = sample(Stop::Kill);
    for round in 0..rounds() {
        let rng = &mut Rng::new(round);
        let mut files = good.clone();
        let slot = files.read(FileId::Super, 0, SLOT).unwrap();
        let length = u32::from_le_bytes(slot[72..76].try_into().unwrap()) as usize;
        let text = String::from_utf8(slot[4096..4096 + length].to_vec()).unwrap();
        let mut body: serde_json::Value = serde_json::from_str(&text).unwrap();
        let depth = 1 + rng.below(3);
        for _ in 0..depth {
            disturb(&mut body, rng);
        }
        let body = serde_json::to_vec(&body).unwrap();
        let mut slot = slot[..4096].to_vec();
        if rng.one_in(4) {
            slot[56..64].copy_from_slice(&number(rng).to_le_bytes());
        }
        slot[72..76].copy_from_slice(&(body.len() as u32).to_le_bytes());
        slot[76..80].copy_from_slice(&crc32c(&body).to_le_bytes());
        slot[12..16].fill(0);
        let crc = crc32c(&slot);
        slot[12..16].copy_from_slice(&crc.to_le_bytes());
        slot.extend(body);
        for at in [0, SLOT] {
            files.write(FileId::Super, at, &slot).unwrap();
        }
        use_it(files);
    }
}

/// Changes something somewhere.
fn disturb(value: &mut serde_json::Value, rng: &mut Rng) {
    match value {
        serde_json::Value::Array(list) if !list.is_empty() => {
            let at = rng.below(list.len() as u64) as usize;
            match rng.below(6) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                _ => disturb(&mut list[at], rng),
            }
        }
        serde_json::Value::Object(fields) if !fields.is_empty() => {
            let at = rng.below(fields.len() as u64) as usize;
            if let Some(field) = fields.values_mut().nth(at) {
                disturb(field, rng);
            }
        }
        serde_json::Value::Bool(flag) => *flag = !*flag,
        _ => *value = serde_json::Value::from(number(rng) as u32),
    }
}

#[test]
fn a_log_that_makes_no_sense_is_no_reason_to_panic() {
    let good = sample(Stop::Kill);
    for round in 0..rounds() {
        let rng = &mut Rng::new(round);
        let mut files = good.clone();
        let len = log::ring_bytes(options().log_pages);
        let tag = crate::store::super_block::tag(options().replica);
        let ring = files.read(FileId::Log, 0, len).unwrap();
        let Ok(replay) = log::replay(&ring, tag) else { panic!("the sample has a log") };
        let mut records = Vec::new();
        for _ in 0..1 + rng.below(20) {
            let (file, region) = (FileNo(number(rng) as u32), Region(number(rng) as u32));
            let presence = Presence::new(blocks(rng), blocks(rng));
            let work = number(rng) as u32;
            match rng.below(7) {
                0 => log::Record::Activate(region),
                1 => log::Record::Deactivate(region),
                2 => log::Record::Presence { file, region, delta: rng.draw() as i16, presence },
                3 => log::Record::Count { file, blocks: number(rng) },
                4 => log::Record::Cursor { work, region },
                5 => log::Record::Checkpoint { work, cursor: region },
                _ => log::Record::Activate(Region(rng.below(16) as u32)),
            }
            .encode(&mut records);
        }
        if rng.one_in(4) {
            records.truncate(rng.below(records.len() as u64) as usize);
        }
        let (seq, tail) = (replay.next, replay.tail);
        let header = log::Header { seq, batch: seq, tail, tag, before: replay.last };
        let mut page = vec![0; log::PAGE];
        records.truncate(log::ROOM);
        log::encode_page(header, &records, &mut page);
        let at = seq % u64::from(options().log_pages) * 2 * log::PAGE as u64;
        files.write(FileId::Log, at, &page.repeat(2)).unwrap();
        use_it(files);
    }
}

#[test]
fn maps_and_recent_changes_that_make_no_sense_are_no_reason_to_panic() {
    let good = sample(Stop::Kill);
    let tag = crate::store::super_block::tag(options().replica);
    for round in 0..rounds() {
        let rng = &mut Rng::new(round);
        let mut files = good.clone();
        for _ in 0..1 + rng.below(4) {
            let region = Region(rng.below(16) as u32);
            let file = FileNo(rng.below(3) as u32);
            let mut presence = Presence::new(blocks(rng), blocks(rng));
            presence.zero = presence.zero.without(&presence.data);
            let owner = map::Owner { tag, file, region };
            let seq = 1 + rng.below(4);
            let page = map::encode(owner, seq, rng.below(9), &presence, &[rng.draw() as u32; 512]);
            let id = FileId::Map(Place::Own, file);
            let _ = files.write(id, map::offset(region, seq), &page);
            let page = match rng.below(3) {
                0 => (FileNo(number(rng) as u32), Region(number(rng) as u32)),
                _ => (file, region),
            };
            let record = recent::Record { ticket: Ticket(number(rng) >> 1), page, presence };
            let bytes = recent::encode(BootId::from_u128(1), tag, &record, 12);
            files.write(FileId::Recent, rng.below(12) * PLACE, &bytes).unwrap();
        }
        use_it(files);
    }
}

#[test]
fn the_samples_that_are_disturbed_are_sound() {
    let mut files = sample(Stop::Kill);
    reopen(&mut files).unwrap();
}
