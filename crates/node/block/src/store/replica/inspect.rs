//! Reading without changing: the map of a range, and scrubbing a region.

use super::access::Lookup;
use super::gate::Side;
use super::read::{Resolving, Source};
use super::{OpStep, Parking, Purpose, Replica, own_data, own_map};
use crate::ids::SnapshotId;
use crate::store::cache::PageKey;
use crate::store::crc;
use crate::store::files::FileNo;
use crate::store::geometry::{BLOCK, Blocks, Region, Span, spans};
use crate::store::layer::{Content, Link};
use crate::store::map::Crcs;
use crate::store::request::{
    BadBlock, BlockInfo, IoFault, IoOp, IoResult, LayerRef, MapOf, Reply, RequestError, View,
};
use crate::store::slab::Key;

/// The longest range whose map is sent in one reply.
pub(super) const MAX_MAP: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct MapOp {
    of: MapOf,
    at: u64,
    end: u64,
    resolving: Option<Box<Resolving>>,
    infos: Vec<BlockInfo>,
}

impl MapOp {
    pub(super) fn new(of: MapOf, offset: u64, len: u64) -> Self {
        Self { of, at: offset, end: offset + len, resolving: None, infos: Vec::new() }
    }
}

impl Replica {
    pub(super) fn step_map(&mut self, key: Key, map: &mut MapOp) -> OpStep {
        map.infos.reserve(((map.end - map.at) / BLOCK) as usize);
        let mut parking = Parking::new(key);
        for span in spans(map.at, map.end - map.at) {
            let links = match self.links_of(map.of, span.region) {
                Ok(links) => links,
                Err(error) => return OpStep::Done(Err(error)),
            };
            if !self.ready_to_read(&mut parking, span.region) {
                return OpStep::Wait;
            }
            let resolved = match self.resolve(&mut parking, &links, span, &mut map.resolving) {
                Ok(Some(resolved)) => resolved,
                Ok(None) => return OpStep::Wait,
                Err(error) => return OpStep::Done(Err(error)),
            };
            map.at = span.start() + span.bytes();
            map.infos.extend((span.first..span.end()).map(|block| {
                match resolved.source(&links, block) {
                    Source::Nothing => BlockInfo::Vacant,
                    Source::Zero => BlockInfo::Zero,
                    Source::Lost => BlockInfo::Lost,
                    Source::File { .. } => {
                        BlockInfo::Data { crc: Some(resolved.crcs[block as usize]) }
                    }
                    Source::Image { .. } => BlockInfo::Data { crc: None },
                }
            }));
        }
        OpStep::Done(Ok(Reply::Map(std::mem::take(&mut map.infos))))
    }

    fn links_of(&self, of: MapOf, region: Region) -> Result<Vec<Link>, RequestError> {
        let layer = match of {
            MapOf::View(view) => {
                return Ok(match view {
                    View::Head => self.chain.clone(),
                    View::Snapshot(_) => self.view_links(view).unwrap_or_default(),
                });
            }
            MapOf::Layer(layer) => layer,
        };
        let file = match layer {
            LayerRef::Head => self.head_file(region),
            LayerRef::Snapshot(id) => {
                let layer = self.meta.body.layers.by_snapshot(id);
                layer.ok_or(RequestError::NoSuchSnapshot { id })?.file
            }
        };
        let map = Content::Map(own_map(file));
        Ok(vec![Link { data: own_data(file), map, from: Region(0) }])
    }
}

/// The layers that a scrub reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScrubScope {
    All,
    Snapshots,
}

/// Compares the data of a region in own layers with its checksums, each under the region's lock.
#[derive(Debug)]
pub(super) struct ScrubOp {
    pub(super) region: Region,
    layers: Vec<(Option<SnapshotId>, FileNo)>,
    locked: bool,
    /// Files stay while they are read, also those of a layer that is dropped meanwhile.
    entered: Option<Side>,
    reading: Option<Reading>,
    bad: Vec<BadBlock>,
}

#[derive(Debug)]
struct Reading {
    span: Span,
    data: Blocks,
    crcs: Box<Crcs>,
}

impl ScrubOp {
    pub(super) fn new(replica: &Replica, region: Region, scrubs: ScrubScope) -> Self {
        let table = &replica.meta.body.layers;
        let is_snapshot = |no| table.snapshots().any(|layer| layer.no == no);
        let layers = table.layers.iter();
        let layers = layers
            .filter(|layer| scrubs == ScrubScope::All || is_snapshot(layer.no))
            .map(|layer| (layer.snapshot.as_ref().map(|snapshot| snapshot.id), layer.file))
            .collect();
        Self { region, layers, locked: false, entered: None, reading: None, bad: Vec::new() }
    }
}

impl ScrubOp {
    fn report_lost(&mut self, lost: Blocks) {
        let layer = self.layers.last().and_then(|(layer, _)| *layer);
        let blocks = lost.runs().flat_map(|(first, count)| first..first + count);
        self.bad.extend(blocks.map(|block| {
            let offset = self.region.start() + u64::from(block) * BLOCK;
            BadBlock { layer, offset, expected: None, found: 0 }
        }));
    }
}

impl Replica {
    pub(super) fn step_scrub(&mut self, key: Key, scrub: &mut ScrubOp) -> OpStep {
        if scrub.reading.is_some() {
            return OpStep::Wait;
        }
        let mut parking = Parking::new(key);
        if !self.ready_to_read(&mut parking, scrub.region) {
            return OpStep::Wait;
        }
        if !scrub.locked {
            if !self.lock(&mut parking, scrub.region) {
                return OpStep::Wait;
            }
            scrub.locked = true;
            scrub.entered = Some(self.gate.enter());
        }
        while let Some((_, file)) = scrub.layers.last().copied() {
            // A merge may have ended since.
            let exists = self.meta.body.layers.by_file(file).is_some();
            let key_of = PageKey { file: own_map(file), region: scrub.region };
            let index = match self.look_up(&mut parking, key_of) {
                _ if !exists => None,
                Ok(Lookup::Wait) => return OpStep::Wait,
                Ok(Lookup::Blank) => None,
                Ok(Lookup::Page(index)) => Some(index),
                Err(error) => {
                    self.end_scrub(scrub);
                    return OpStep::Done(Err(error));
                }
            };
            let page = index.map(|index| self.cache.page(index));
            scrub.report_lost(page.map_or(Blocks::NONE, |page| page.current.lost));
            let run = page.and_then(|page| {
                let first = page.current.data.next(0)?;
                let (at, count) = page.current.data.runs().last()?;
                Some((page, Span { region: scrub.region, first, count: at + count - first }))
            });
            let Some((page, span)) = run else {
                scrub.layers.pop();
                continue;
            };
            let (data, crcs) = (page.current.data, page.crcs.clone());
            scrub.reading = Some(Reading { span, data, crcs });
            let op = IoOp::Read { offset: span.start(), len: span.bytes() };
            self.issue(Purpose::Op { op: key, part: 0 }, own_data(file), op);
            return OpStep::Wait;
        }
        self.end_scrub(scrub);
        OpStep::Done(Ok(Reply::Scrubbed(std::mem::take(&mut scrub.bad))))
    }

    pub(super) fn end_scrub(&mut self, scrub: &mut ScrubOp) {
        if scrub.locked {
            self.unlock(scrub.region);
        }
        scrub.locked = false;
        if let Some(side) = scrub.entered.take() {
            self.gate.leave(side);
        }
    }

    pub(super) fn scrub_io(&mut self, scrub: &mut ScrubOp, result: IoResult) -> OpStep {
        let Reading { span, data: present, crcs } =
            scrub.reading.take().expect("a read was issued");
        let (layer, file) = scrub.layers.pop().expect("the layer that was read");
        let data = match result {
            Ok(data) if data.len() as u64 == span.bytes() => data,
            other => {
                let errno = other.err().map_or(5, IoFault::errno);
                self.end_scrub(scrub);
                return OpStep::Done(Err(RequestError::Io { file: own_data(file), errno }));
            }
        };
        for (block, found) in (span.first..).zip(crc::of_blocks(&data)) {
            let expected = crcs[block as usize];
            if present.contains(block) && expected != found {
                let offset = scrub.region.start() + u64::from(block) * BLOCK;
                scrub.bad.push(BadBlock { layer, offset, expected: Some(expected), found });
            }
        }
        // Operations that wait for the region continue before the next layer is read.
        self.end_scrub(scrub);
        OpStep::Again
    }
}
