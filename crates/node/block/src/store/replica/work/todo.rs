//! The remaining background work in one region.

use super::super::access::Lookup;
use super::super::read::{Resolving, Source};
use super::super::{Parking, Replica, own_data, own_map};
use crate::store::cache::PageKey;
use crate::store::files::FileId;
use crate::store::geometry::{Blocks, REGION_BLOCKS, Region, Span};
use crate::store::layer::{Content, Link, WorkKind};
use crate::store::map::{Crcs, Presence};
use crate::store::request::RequestError;

/// Blocks to copy and to mark.
#[derive(Debug)]
pub(super) struct Todo {
    pub(super) pieces: Vec<Piece>,
    /// Become zeroes in the target.
    pub(super) zero: Blocks,
    /// Become nothing in the target, which has nothing below.
    pub(super) vacant: Blocks,
    pub(super) crcs: Box<Crcs>,
}

/// A run of blocks that come from one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) span: Span,
    pub(super) file: FileId,
    /// Whether the source has checksums.
    pub(super) recorded: bool,
}

impl Todo {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.zero.is_empty() && self.vacant.is_empty()
    }
}

impl Replica {
    /// Compares source and target. Nothing if a page must be loaded first.
    pub(super) fn todo(
        &mut self,
        parking: &mut Parking,
        region: Region,
        resolving: &mut Option<Box<Resolving>>,
    ) -> Result<Option<Todo>, RequestError> {
        if !self.ready_to_read(parking, region) {
            return Ok(None);
        }
        let kind = self.meta.body.work.as_ref().expect("there is work").kind;
        let layers = &self.meta.body.layers;
        let single = |no| {
            let file = layers.get(no).file;
            let map = Content::Map(own_map(file));
            vec![Link { data: own_data(file), map, from: Region(0) }]
        };
        let links = match kind {
            WorkKind::MergeUp { from, .. } | WorkKind::MergeDown { from, .. } => single(from),
            WorkKind::Hydrate { .. } => self.base_links.clone(),
        };
        let target = self.target_file();
        // In a merge down the source hides the target; in the others it is the other way round.
        let hidden = match kind {
            WorkKind::MergeDown { .. } => Presence::default(),
            WorkKind::MergeUp { .. } | WorkKind::Hydrate { .. } => {
                match self.look_up(parking, PageKey { file: own_map(target), region })? {
                    Lookup::Wait => return Ok(None),
                    Lookup::Blank => Presence::default(),
                    Lookup::Page(index) => self.cache.page(index).current,
                }
            }
        };
        let Some(resolved) = self.resolve(parking, &links, Span::whole(region), resolving)? else {
            return Ok(None);
        };
        let below = match kind {
            // Once the parent is gone the child is where the parent was.
            WorkKind::MergeUp { from, .. } => self.has_below(self.meta.body.layers.get(from).file),
            WorkKind::MergeDown { .. } => self.has_below(target),
            WorkKind::Hydrate { .. } => false,
        };
        let source = |block| resolved.source(&links, block);
        let visible = (0..REGION_BLOCKS).filter(|block| !hidden.any().contains(*block));
        if let Some(block) = visible.into_iter().find(|block| source(*block) == Source::Lost) {
            let offset = Span { region, first: block, count: 1 }.start();
            return Err(RequestError::Lost { offset });
        }
        Ok(Some(collect(region, kind, below, &hidden.any(), source, &resolved.crcs)))
    }
}

fn collect(
    region: Region,
    kind: WorkKind,
    below: bool,
    hidden: &Blocks,
    source: impl Fn(u32) -> Source,
    crcs: &Crcs,
) -> Todo {
    let mut todo = Todo {
        pieces: Vec::new(),
        zero: Blocks::NONE,
        vacant: Blocks::NONE,
        crcs: Box::new(*crcs),
    };
    for block in (0..REGION_BLOCKS).filter(|block| !hidden.contains(*block)) {
        let one = Blocks::of(block, 1);
        let (file, recorded) = match source(block) {
            Source::File { data } => (data, true),
            Source::Image { data } => (data, false),
            Source::Zero if below => {
                todo.zero = todo.zero.or(&one);
                continue;
            }
            // Only a merge down has something in the target that must go.
            Source::Zero if matches!(kind, WorkKind::MergeDown { .. }) => {
                todo.vacant = todo.vacant.or(&one);
                continue;
            }
            Source::Zero | Source::Nothing => continue,
            Source::Lost => unreachable!("lost blocks are not copied"),
        };
        match todo.pieces.last_mut() {
            Some(last) if last.file == file && last.span.end() == block => last.span.count += 1,
            _ => {
                let span = Span { region, first: block, count: 1 };
                todo.pieces.push(Piece { span, file, recorded });
            }
        }
    }
    todo
}
