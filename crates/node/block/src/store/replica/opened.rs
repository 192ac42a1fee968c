//! From what an open found to a replica that serves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::clean::Clean;
use super::control::{Change, Control};
use super::flush::Flush;
use super::gate::Gate;
use super::mark::LogMark;
use super::metadata::Verifying;
use super::trash::Trash;
use super::work::WorkState;
use super::{Life, Limits, Replica};
use crate::ids::BootId;
use crate::store::cache::{Cache, PageKey};
use crate::store::files::FileNo;
use crate::store::geometry::Region;
use crate::store::index::Index;
use crate::store::layer::Link;
use crate::store::log::LogWriter;
use crate::store::map::{MapPage, Presence};
use crate::store::open::BasePlace;
use crate::store::recent::stamp::RecentDamage;
use crate::store::recent::{self, Recent};
use crate::store::region::Regions;
use crate::store::slab::Slab;
use crate::store::sums::places::SumPlaces;
use crate::store::super_block::SuperBlock;

/// The state that [`super::open`] has read from a directory.
#[derive(Debug)]
pub(crate) struct Opened {
    pub meta: SuperBlock,
    pub bases: Vec<BasePlace>,
    pub base_links: Vec<Link>,
    pub counts: BTreeMap<FileNo, u64>,
    pub suspects: Vec<Region>,
    pub cursor: Region,
    pub index: Index,
    pub log: LogWriter,
    pub limits: Limits,
    pub boot: BootId,
    pub left: Left,
}

/// Data that an earlier process of the same boot left in the kernel's cache.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Places in the file of recent changes.
    pub places: usize,
    pub records: Vec<Option<recent::Record>>,
    /// Pages as the maps have them, with the presence that was recorded for them.
    pub pages: Vec<(PageKey, Option<MapPage>, Presence)>,
    /// Why some of it is lost.
    pub damage: Option<RecentDamage>,
    /// Data files that were not synced.
    pub unsynced: BTreeSet<FileNo>,
    pub sums: SumPlaces,
}

impl Replica {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened { meta, bases, base_links, counts, suspects, cursor, index, log, .. } = opened;
        let Opened { limits, boot, left, .. } = opened;
        let mut regions = Regions::new(limits.active_regions);
        if limits.settled_by_caller {
            regions.hold();
        }
        suspects.into_iter().for_each(|region| regions.inherit(region));
        let mut replica = Self {
            marks: meta.body.marks,
            meta,
            bases,
            base_links,
            chain: Vec::new(),
            chain_version: 0,
            counts,
            cache: Cache::new(limits.cache_pages.max(2 * limits.active_regions + 32)),
            index,
            boot,
            recent: Recent::new(&left.records, left.places),
            log_mark: LogMark::default(),
            record_waiters: Vec::new(),
            sums: left.sums,
            sum_waiters: Vec::new(),
            regions,
            log,
            log_waiters: VecDeque::new(),
            flush: Flush::default(),
            clean: Clean::default(),
            control: Control::default(),
            work: WorkState::new(cursor),
            trash: Trash::default(),
            gate: Gate::default(),
            unsynced: left.unsynced,
            super_unsynced: false,
            changed: Vec::new(),
            loading: BTreeMap::new(),
            allocating: BTreeMap::new(),
            index_places: BTreeSet::new(),
            room_waiters: Vec::new(),
            to_punch: BTreeSet::new(),
            punching: false,
            writes_in_flight: 0,
            verifying: Verifying::default(),
            ops: Slab::default(),
            ios: Slab::default(),
            ready: VecDeque::new(),
            out: VecDeque::new(),
            life: Life::Serving,
            rechecked: 0,
            issued: 0,
            summed_by_caller: limits.summed_by_caller,
        };
        for (key, page, presence) in left.pages {
            let index = replica.cache.insert(key, page);
            let page = replica.cache.page_mut(index);
            page.current = presence;
            page.changed = true;
            replica.changed.push(index);
        }
        if !replica.meta.body.layers.is_sealed() {
            replica.control.enqueue_own(Change::Seal);
        }
        replica.rebuild_chain();
        replica.settle();
        replica
    }
}
