//! Recording checksums for the process that follows: [`crate::store::sums::places`] decides which.
//!
//! ```text
//! write ─► blocks opened ─► record written ─► data written ─► flush: blocks closed ─► record written
//! ```
//!
//! A block that is open already, because it was written since the last flush, waits for nothing.

use super::access::Parking;
use super::{Purpose, Replica, own_map};
use crate::store::cache::{Known, PageIndex, PageKey};
use crate::store::files::{FileId, FileNo, Place};
use crate::store::geometry::{Blocks, Region};
use crate::store::map::no_crcs;
use crate::store::recent::{PageName, Ticket};
use crate::store::request::{IoOp, IoResult};
use crate::store::sums::places::{Due, OTHERS};
use crate::store::sums::record;

/// The name of a page of an own layer.
pub(super) fn name_of(key: PageKey) -> PageName {
    let FileId::Map(Place::Own, file) = key.file else {
        unreachable!("pages of a base do not change");
    };
    (file, key.region)
}

impl Replica {
    /// Whether the data of a page's blocks may change. If not, the operation is parked until it
    /// may.
    pub(super) fn open_blocks(
        &mut self,
        parking: &mut Parking,
        index: PageIndex,
        blocks: &Blocks,
    ) -> bool {
        let name = name_of(self.cache.page(index).key);
        let Self { sums, cache, .. } = self;
        let is_clean =
            |(file, region): PageName| match cache.known(PageKey { file: own_map(file), region }) {
                Known::Cached(index) => !cache.page(index).is_dirty(),
                _ => true,
            };
        let open = sums.open(name, blocks, is_clean);
        self.cache.page_mut(index).unsummed = self.sums.needs(name);
        if !open {
            parking.at(&mut self.sum_waiters);
        }
        open
    }

    /// The data of a flush is durable: checksums of what no write has touched since are recorded.
    pub(super) fn close_blocks(&mut self) -> Ticket {
        let Self { sums, cache, regions, .. } = self;
        sums.close(|(file, region)| {
            let key = PageKey { file: own_map(file), region };
            !regions.is_suspect(region) && matches!(cache.known(key), Known::Cached(_))
        })
    }

    /// Writes the records that are due.
    pub(super) fn pump_sums(&mut self) {
        while let Some(Due { place, page, ticket, open }) = self.sums.next_due() {
            let key = PageKey { file: own_map(page.0), region: page.1 };
            let (boot, tag) = (self.boot, self.meta.tag());
            let data = match self.cache.known(key) {
                _ if page == OTHERS => record::encode(boot, tag, ticket, page, &open, &no_crcs()),
                Known::Cached(index) => {
                    let crcs = &self.cache.page(index).crcs;
                    record::encode(boot, tag, ticket, page, &open, crcs)
                }
                // The layer is gone, or the page is on disk as it was in memory.
                Known::Blank | Known::Unknown => {
                    self.sums.written(place);
                    self.sums.release(page);
                    self.sums_recorded();
                    continue;
                }
            };
            let op =
                IoOp::Write { offset: record::offset(place), data: data.into(), durable: false };
            self.issue(Purpose::Sum { place, page }, FileId::Sums, op);
        }
    }

    pub(super) fn sum_written(&mut self, place: u32, page: PageName, result: IoResult) {
        if let Err(fault) = result {
            self.cannot_write(FileId::Sums, fault);
            return;
        }
        self.sums.written(place);
        self.keep_page(page);
        self.sums_recorded();
    }

    fn sums_recorded(&mut self) {
        let waiting = std::mem::take(&mut self.sum_waiters);
        self.ready.extend(waiting);
        self.flush_recorded();
    }

    /// A page stays in memory while its record needs its checksums.
    pub(super) fn keep_page(&mut self, page: PageName) {
        let key = PageKey { file: own_map(page.0), region: page.1 };
        if page != OTHERS
            && let Known::Cached(index) = self.cache.known(key)
        {
            self.cache.page_mut(index).unsummed = self.sums.needs(page);
        }
    }

    /// A region becomes inactive: its pages are on disk as they are in memory.
    pub(super) fn release_region(&mut self, region: Region) {
        let layers = self.meta.body.layers.layers.iter();
        let pages: Vec<PageName> = layers.map(|layer| (layer.file, region)).collect();
        for page in pages {
            self.sums.release(page);
            self.keep_page(page);
        }
    }

    pub(super) fn forget_layer(&mut self, file: FileNo) {
        self.cache.forget(own_map(file));
        let pages: Vec<PageName> = self.sums.pages().filter(|page| page.0 == file).collect();
        pages.into_iter().for_each(|page| self.sums.release(page));
    }
}
