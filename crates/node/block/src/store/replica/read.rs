//! Reading: for each block the topmost layer that has it, then one operation per run of blocks
//! from the same file.

use bytes::Bytes;

use super::access::Lookup;
use super::gate::Side;
use super::{OpStep, Parking, Purpose, Replica};
use crate::store::cache::{Page, PageKey};
use crate::store::crc;
use crate::store::files::FileId;
use crate::store::geometry::{BLOCK, Blocks, REGION_BLOCKS, Region, Span, spans};
use crate::store::image_sums::ImageSums;
use crate::store::layer::{Content, Link};
use crate::store::request::{IoFault, IoOp, IoResult, Part, ReadData, Reply, RequestError, View};
use crate::store::slab::Key;

#[derive(Debug)]
pub(super) struct ReadOp {
    view: View,
    /// Lost blocks are answered as zeroes.
    peeks: bool,
    offset: u64,
    len: u64,
    /// Bytes that are resolved.
    resolved: u64,
    resolving: Option<Box<Resolving>>,
    pieces: Vec<Piece>,
    crcs: Vec<u32>,
    /// Operations in flight; nothing before the first is issued.
    left: Option<u32>,
    /// Files that it has found stay until it leaves.
    entered: Option<Side>,
    failed: Option<RequestError>,
}

/// A run of bytes that come from one place.
#[derive(Debug)]
struct Piece {
    source: Source,
    offset: u64,
    len: u64,
    data: Bytes,
}

/// Where a block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// No layer has it.
    Nothing,
    Zero,
    /// The map is damaged.
    Lost,
    File {
        data: FileId,
    },
    /// An image without recorded checksums.
    Image {
        data: FileId,
    },
}

impl ReadOp {
    pub(super) fn new(view: View, offset: u64, len: u64) -> Self {
        Self {
            view,
            peeks: false,
            offset,
            len,
            resolved: 0,
            resolving: None,
            pieces: Vec::new(),
            crcs: Vec::new(),
            left: None,
            entered: None,
            failed: None,
        }
    }

    pub(super) fn peek(view: View, offset: u64, len: u64) -> Self {
        Self { peeks: true, ..Self::new(view, offset, len) }
    }

    fn add(&mut self, source: Source, offset: u64, len: u64) {
        match self.pieces.last_mut() {
            Some(last) if last.source == source => last.len += len,
            _ => self.pieces.push(Piece { source, offset, len, data: Bytes::new() }),
        }
    }
}

/// The blocks of a span, resolved.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) source: [u8; REGION_BLOCKS as usize],
    pub(super) crcs: [u32; REGION_BLOCKS as usize],
}

/// A lookup that waits for a page. It goes on where it was: a chain may need more pages than
/// fit into memory at once.
#[derive(Debug)]
pub(super) struct Resolving {
    region: Region,
    /// Of the links that it goes through.
    version: u64,
    /// The next link.
    at: usize,
    /// Blocks not yet found.
    left: Blocks,
    found: Resolved,
}

impl Resolved {
    const NOTHING: u8 = u8::MAX;
    const ZERO: u8 = u8::MAX - 1;
    const LOST: u8 = u8::MAX - 2;

    fn new() -> Self {
        Self {
            source: [Self::NOTHING; REGION_BLOCKS as usize],
            crcs: [crc::ZERO_BLOCK; REGION_BLOCKS as usize],
        }
    }

    fn take_page(&mut self, left: &mut Blocks, at: usize, page: &Page) {
        for (first, count) in page.current.data.and(left).runs() {
            let blocks = first as usize..(first + count) as usize;
            self.source[blocks.clone()].fill(at as u8);
            self.crcs[blocks.clone()].copy_from_slice(&page.crcs[blocks]);
        }
        for (first, count) in page.current.zero.and(left).runs() {
            self.source[first as usize..(first + count) as usize].fill(Self::ZERO);
        }
        for (first, count) in page.current.lost.and(left).runs() {
            self.source[first as usize..(first + count) as usize].fill(Self::LOST);
        }
        *left = left.without(&page.current.any());
    }

    fn take_image(
        &mut self,
        left: &mut Blocks,
        at: usize,
        bytes: u64,
        region: Region,
        sums: Option<&ImageSums>,
    ) {
        let end = bytes.saturating_sub(region.start()).div_ceil(BLOCK);
        let inside = Blocks::of(0, end.min(u64::from(REGION_BLOCKS)) as u32);
        let from = (region.start() / BLOCK) as usize;
        for (first, count) in left.and(&inside).runs() {
            let blocks = first as usize..(first + count) as usize;
            self.source[blocks.clone()].fill(at as u8);
            if let Some(sums) = sums {
                let known = &sums.blocks()[from + blocks.start..from + blocks.end];
                self.crcs[blocks].copy_from_slice(known);
            }
        }
        *left = left.without(&inside);
    }

    pub(super) fn source(&self, links: &[Link], block: u32) -> Source {
        match self.source[block as usize] {
            Self::NOTHING => Source::Nothing,
            Self::ZERO => Source::Zero,
            Self::LOST => Source::Lost,
            at => {
                let link = links[at as usize];
                match link.map {
                    Content::Map(_) => Source::File { data: link.data },
                    Content::Image { summed: true, .. } => Source::File { data: link.data },
                    Content::Image { summed: false, .. } => Source::Image { data: link.data },
                }
            }
        }
    }
}

impl Replica {
    pub(super) fn step_read(&mut self, key: Key, read: &mut ReadOp) -> OpStep {
        if read.left.is_some() {
            return OpStep::Wait;
        }
        if read.entered.is_none() {
            read.entered = Some(self.gate.enter());
            read.crcs.reserve((read.len / BLOCK) as usize);
        }
        let snapshot_links;
        let chain = std::mem::take(&mut self.chain);
        let links = match self.view_links(read.view) {
            None => &chain,
            Some(links) => {
                snapshot_links = links;
                &snapshot_links
            }
        };
        let mut parking = Parking::new(key);
        let found = self.resolve_read(&mut parking, links, read);
        self.chain = chain;
        match found {
            Ok(()) if parking.parked => OpStep::Wait,
            Ok(()) => self.issue_read(key, read),
            Err(error) => {
                self.leave(read);
                OpStep::Done(Err(error))
            }
        }
    }

    /// Files that the read has found may go from now on.
    pub(super) fn leave(&mut self, read: &mut ReadOp) {
        if let Some(side) = read.entered.take() {
            self.gate.leave(side);
        }
    }

    /// The links of a snapshot; the head's are at hand.
    pub(super) fn view_links(&self, view: View) -> Option<Vec<Link>> {
        let View::Snapshot(id) = view else { return None };
        let layer = self.meta.body.layers.by_snapshot(id).map(|layer| layer.no);
        // It may have been deleted while the read waited; then there is nothing to read.
        Some(layer.map_or_else(Vec::new, |no| self.links_from(no)))
    }

    fn resolve_read(
        &mut self,
        parking: &mut Parking,
        links: &[Link],
        read: &mut ReadOp,
    ) -> Result<(), RequestError> {
        if let View::Snapshot(id) = read.view
            && links.is_empty()
        {
            return Err(RequestError::NoSuchSnapshot { id });
        }
        for span in spans(read.offset + read.resolved, read.len - read.resolved) {
            if !self.ready_to_read(parking, span.region) {
                return Ok(());
            }
            let Some(resolved) = self.resolve(parking, links, span, &mut read.resolving)? else {
                return Ok(());
            };
            read.resolved += span.bytes();
            let mut first = span.first;
            while first < span.end() {
                let source = resolved.source(links, first);
                let mut end = first + 1;
                let same = resolved.source[first as usize];
                while end < span.end() && resolved.source[end as usize] == same {
                    end += 1;
                }
                let run = Span { region: span.region, first, count: end - first };
                if source == Source::Lost && !read.peeks {
                    return Err(RequestError::Lost { offset: run.start() });
                }
                read.add(source, run.start(), run.bytes());
                first = end;
            }
            read.crcs.extend(&resolved.crcs[span.first as usize..span.end() as usize]);
        }
        Ok(())
    }

    /// Looks the blocks of a span up. Nothing if a page must be loaded first; the blocks known by
    /// then are kept in `resolving`.
    pub(super) fn resolve(
        &mut self,
        parking: &mut Parking,
        links: &[Link],
        span: Span,
        resolving: &mut Option<Box<Resolving>>,
    ) -> Result<Option<Resolved>, RequestError> {
        debug_assert!(links.len() < Resolved::LOST as usize);
        let version = self.chain_version;
        let (mut at, mut left, mut found) = match resolving.take() {
            Some(kept) if kept.region == span.region && kept.version == version => {
                (kept.at, kept.left, kept.found)
            }
            _ => (0, Blocks::of(span.first, span.count), Resolved::new()),
        };
        while at < links.len() && !left.is_empty() {
            let link = links[at];
            if span.region >= link.from {
                match link.map {
                    Content::Image { bytes, .. } => {
                        let sums = self.image_sums(link.data);
                        found.take_image(&mut left, at, bytes, span.region, sums);
                    }
                    Content::Map(file) => {
                        let key = PageKey { file, region: span.region };
                        match self.look_up(parking, key)? {
                            Lookup::Blank => {}
                            Lookup::Page(page) => {
                                found.take_page(&mut left, at, self.cache.page(page));
                            }
                            Lookup::Wait => {
                                let region = span.region;
                                *resolving =
                                    Some(Box::new(Resolving { region, version, at, left, found }));
                                return Ok(None);
                            }
                        }
                    }
                }
            }
            at += 1;
        }
        Ok(Some(found))
    }

    /// The checksums of a base that is an image.
    fn image_sums(&self, image: FileId) -> Option<&ImageSums> {
        let FileId::Image(base) = image else { return None };
        self.bases.get(usize::from(base))?.sums.as_ref()
    }

    fn issue_read(&mut self, key: Key, read: &mut ReadOp) -> OpStep {
        let mut left = 0;
        for (part, piece) in (0u32..).zip(&read.pieces) {
            if let Source::File { data } | Source::Image { data } = piece.source {
                let op = IoOp::Read { offset: piece.offset, len: piece.len };
                self.issue(Purpose::Op { op: key, part }, data, op);
                left += 1;
            }
        }
        if left == 0 {
            self.leave(read);
            return OpStep::Done(Ok(read.reply()));
        }
        read.left = Some(left);
        OpStep::Wait
    }

    pub(super) fn read_io(&mut self, read: &mut ReadOp, part: u32, result: IoResult) -> OpStep {
        let piece = &mut read.pieces[part as usize];
        let (Source::File { data: file } | Source::Image { data: file }) = piece.source else {
            unreachable!("zeroes are not read");
        };
        match result {
            Ok(data) if data.len() as u64 == piece.len => piece.data = data,
            other => {
                let errno = other.err().map_or(5, IoFault::errno);
                read.failed.get_or_insert(RequestError::Io { file, errno });
            }
        }
        let left = read.left.as_mut().expect("reads are in flight");
        *left -= 1;
        if *left > 0 {
            return OpStep::Wait;
        }
        self.leave(read);
        match read.failed.take() {
            Some(error) => OpStep::Done(Err(error)),
            None => OpStep::Done(Ok(read.reply())),
        }
    }
}

impl ReadOp {
    fn reply(&mut self) -> Reply {
        let mut parts = Vec::with_capacity(self.pieces.len());
        let mut crcs = std::mem::take(&mut self.crcs);
        for piece in self.pieces.drain(..) {
            if let Source::Image { .. } = piece.source {
                let first = ((piece.offset - self.offset) / BLOCK) as usize;
                for (crc, found) in crcs[first..].iter_mut().zip(crc::of_blocks(&piece.data)) {
                    *crc = found;
                }
            }
            parts.push(match piece.source {
                Source::Nothing | Source::Zero | Source::Lost => Part::Zeroes(piece.len),
                Source::File { .. } | Source::Image { .. } => Part::Data(piece.data),
            });
        }
        Reply::Data(ReadData { parts, crcs })
    }
}
