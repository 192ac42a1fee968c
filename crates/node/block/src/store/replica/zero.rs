//! Zeroes and discards: changes of the map only.
//!
//! The blocks become zeroes that hide what is below or, where nothing is below, nothing at all.
//! Their space is given back later, see [`super::verify::PunchOp`]. A request may be as long as
//! the volume: it is worked off region by region, and regions that have nothing are passed over.

use super::access::Lookup;
use super::flush::Waiter;
use super::record::Safe;
use super::{OpStep, Parking, Replica};
use crate::store::cache::{Known, PageKey};
use crate::store::files::FileNo;
use crate::store::geometry::{Blocks, Region, Span, spans};
use crate::store::layer::Content;
use crate::store::request::{LayerRef, Reply, RequestError};
use crate::store::slab::Key;

/// Regions that are made ready ahead, so that their records share a write of the log.
const AHEAD: usize = 32;

#[derive(Debug)]
pub(super) struct ZeroOp {
    layer: LayerRef,
    at: u64,
    end: u64,
    fua: bool,
    /// The blocks become nothing, and what is below shows through.
    pub(super) vacant: bool,
    flushing: bool,
    safe: Safe,
}

impl ZeroOp {
    pub(super) fn new(layer: LayerRef, offset: u64, len: u64, fua: bool) -> Self {
        Self {
            layer,
            at: offset,
            end: offset + len,
            fua,
            vacant: false,
            flushing: false,
            safe: Safe::Now,
        }
    }
}

impl Replica {
    pub(super) fn step_zero(&mut self, key: Key, zero: &mut ZeroOp) -> OpStep {
        if zero.flushing {
            return OpStep::Done(Ok(Reply::Done));
        }
        if zero.at == zero.end {
            return self.finish_zero(key, zero);
        }
        if self.is_held(key) {
            return OpStep::Wait;
        }
        let mut parking = Parking::new(key);
        let mut ahead = 0;
        for span in spans(zero.at, zero.end - zero.at) {
            match self.zero_span(&mut parking, zero, span) {
                Ok(true) if !parking.parked => zero.at = span.start() + span.bytes(),
                Ok(_) => ahead += 1,
                Err(error) => return OpStep::Done(Err(error)),
            }
            if ahead > AHEAD || (parking.parked && !self.regions.has_room()) {
                break;
            }
        }
        if parking.parked {
            return OpStep::Wait;
        }
        debug_assert_eq!(zero.at, zero.end);
        self.finish_zero(key, zero)
    }

    /// Everything is changed in memory: it is answered when it is safe.
    fn finish_zero(&mut self, key: Key, zero: &mut ZeroOp) -> OpStep {
        match zero.safe {
            Safe::Now if !zero.fua => OpStep::Done(Ok(Reply::Done)),
            Safe::Recorded(upto) if !zero.fua => {
                self.pump_records();
                match self.wait_recorded(upto, key) {
                    true => OpStep::Done(Ok(Reply::Done)),
                    false => OpStep::Wait,
                }
            }
            _ => {
                zero.flushing = true;
                self.want_flush(Waiter::Op(key));
                OpStep::Wait
            }
        }
    }

    /// Zeroes the blocks of one region, unless an earlier one still waits.
    fn zero_span(
        &mut self,
        parking: &mut Parking,
        zero: &mut ZeroOp,
        span: Span,
    ) -> Result<bool, RequestError> {
        let file = self.file_of(zero.layer, span.region);
        match self.is_nothing(parking, zero.layer, file, span)? {
            Some(true) => return Ok(true),
            Some(false) => {}
            None => return Ok(false),
        }
        let Some(index) = self.ready_to_write(parking, file, span.region, &Blocks::NONE)? else {
            return Ok(false);
        };
        if parking.parked {
            return Ok(false);
        }
        let blocks = Blocks::of(span.first, span.count);
        let below = self.has_below(file) && !zero.vacant;
        self.regions.touch(span.region);
        let page = self.cache.page_mut(index);
        let before = page.current;
        if below {
            page.current.set_zero(&blocks);
        } else {
            page.current.set_vacant(&blocks);
        }
        if page.current != before {
            zero.safe = zero.safe.and(self.mark_changed(index));
        }
        Ok(true)
    }

    /// Whether the range is zeroes already as far as is known. Nothing if a page must be loaded
    /// to know.
    fn is_nothing(
        &mut self,
        parking: &mut Parking,
        layer: LayerRef,
        file: FileNo,
        span: Span,
    ) -> Result<Option<bool>, RequestError> {
        if layer != LayerRef::Head {
            return Ok(Some(false));
        }
        // The own page is read; it is needed in any case.
        let own = PageKey { file: super::own_map(file), region: span.region };
        match self.look_up(parking, own)? {
            Lookup::Wait => return Ok(None),
            Lookup::Blank => {}
            Lookup::Page(index) => {
                let page = self.cache.page(index);
                let blocks = Blocks::of(span.first, span.count);
                let covered = page.current.zero.and(&blocks) == blocks;
                if covered || !page.current.any().is_empty() {
                    return Ok(Some(covered));
                }
            }
        }
        Ok(Some(self.is_blank_below(file, span.region)))
    }

    fn is_blank_below(&mut self, file: FileNo, region: Region) -> bool {
        let own = super::own_map(file);
        for at in 0..self.chain.len() {
            let link = self.chain[at];
            let blank = match link.map {
                Content::Map(map) if map == own => true,
                Content::Map(map) => {
                    self.cache.known(PageKey { file: map, region }) == Known::Blank
                }
                Content::Image { bytes, .. } => region.start() >= bytes,
            };
            if !blank {
                return false;
            }
        }
        true
    }
}
