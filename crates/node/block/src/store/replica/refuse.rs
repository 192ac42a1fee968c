//! Which requests are refused before anything happens, and which operation carries out the others.

use super::inspect::{self, MapOp, ScrubOp, ScrubScope};
use super::metadata::MetadataOp;
use super::read::ReadOp;
use super::repair::RepairOp;
use super::write::WriteOp;
use super::zero::ZeroOp;
use super::{OpKind, Replica};
use crate::store::crc;
use crate::store::geometry::{BLOCK, MAX_REQUEST};
use crate::store::request::{LayerRef, MapOf, Request, RequestError, View};

impl Replica {
    /// Why a request cannot even begin.
    pub(super) fn refusal(&self, request: &Request) -> Option<RequestError> {
        match request {
            Request::Read { offset, len, .. } | Request::Peek { offset, len, .. } => {
                self.bad_range(*offset, *len, MAX_REQUEST)
            }
            Request::Write { offset, data, crcs, .. }
            | Request::Fill { offset, data, crcs, .. }
            | Request::Repair { offset, data, crcs, .. } => {
                let len = data.len() as u64;
                self.bad_range(*offset, len, MAX_REQUEST).or_else(|| {
                    if crcs.len() as u64 != len / BLOCK {
                        return Some(RequestError::CrcCount {
                            blocks: len / BLOCK,
                            crcs: crcs.len(),
                        });
                    }
                    if self.summed_by_caller && matches!(request, Request::Write { .. }) {
                        return None;
                    }
                    let bad = crc::first_mismatch(data, crcs)?;
                    Some(RequestError::Checksum { offset: offset + bad as u64 * BLOCK })
                })
            }
            Request::WriteZeroes { offset, len, .. }
            | Request::Discard { offset, len }
            | Request::FillZeroes { offset, len, .. } => self.bad_range(*offset, *len, u64::MAX),
            Request::ReadMap { offset, len, .. } => self.bad_range(*offset, *len, inspect::MAX_MAP),
            Request::Scrub { region } | Request::ScrubSnapshots { region } => {
                self.bad_range(region.start(), 0, 0)
            }
            _ => None,
        }
        .or_else(|| self.bad_layer(request))
    }

    fn bad_range(&self, offset: u64, len: u64, most: u64) -> Option<RequestError> {
        let size = self.meta.size;
        if !offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
            Some(RequestError::Unaligned { offset, len })
        } else if offset.checked_add(len).is_none_or(|end| end > size) {
            Some(RequestError::OutOfRange { offset, len, size })
        } else if len > most {
            Some(RequestError::TooLong { len })
        } else {
            None
        }
    }

    fn bad_layer(&self, request: &Request) -> Option<RequestError> {
        let named = match request {
            Request::Read { view: View::Snapshot(id), .. }
            | Request::Peek { view: View::Snapshot(id), .. }
            | Request::ReadMap { of: MapOf::View(View::Snapshot(id)), .. }
            | Request::ReadMap { of: MapOf::Layer(LayerRef::Snapshot(id)), .. }
            | Request::Repair { layer: LayerRef::Snapshot(id), .. } => *id,
            Request::Fill { layer: LayerRef::Snapshot(id), .. }
            | Request::FillZeroes { layer: LayerRef::Snapshot(id), .. } => {
                let layer = self.meta.body.layers.by_snapshot(*id);
                if layer.is_some_and(|layer| !layer.filling) {
                    return Some(RequestError::SnapshotSealed { id: *id });
                }
                *id
            }
            _ => return None,
        };
        let missing = self.meta.body.layers.by_snapshot(named).is_none();
        missing.then_some(RequestError::NoSuchSnapshot { id: named })
    }
}

impl OpKind {
    /// The operation for a request, or the request back if it changes the super block.
    pub(super) fn for_request(replica: &Replica, request: Request) -> Result<Self, Request> {
        Ok(match request {
            Request::Read { view, offset, len } => Self::Read(ReadOp::new(view, offset, len)),
            Request::Peek { view, offset, len } => Self::Read(ReadOp::peek(view, offset, len)),
            Request::Write { offset, data, crcs, fua } => {
                Self::Write(WriteOp::new(LayerRef::Head, offset, data, crcs, fua))
            }
            Request::Fill { layer, offset, data, crcs } => {
                Self::Write(WriteOp::new(layer, offset, data, crcs, false))
            }
            Request::Repair { layer, offset, data, crcs } => {
                Self::Repair(RepairOp::new(layer, offset, data, crcs))
            }
            Request::WriteZeroes { offset, len, fua } => {
                Self::Zero(ZeroOp::new(LayerRef::Head, offset, len, fua))
            }
            Request::Discard { offset, len } => {
                Self::Zero(ZeroOp::new(LayerRef::Head, offset, len, false))
            }
            Request::FillZeroes { layer, offset, len, vacant } => {
                let mut zero = ZeroOp::new(layer, offset, len, false);
                zero.vacant = vacant;
                Self::Zero(zero)
            }
            Request::ReadMap { of, offset, len } => Self::Map(MapOp::new(of, offset, len)),
            Request::Scrub { region } => {
                Self::Scrub(ScrubOp::new(replica, region, ScrubScope::All))
            }
            Request::ScrubSnapshots { region } => {
                Self::Scrub(ScrubOp::new(replica, region, ScrubScope::Snapshots))
            }
            Request::ScrubMetadata { regions, peers } => {
                Self::Metadata(MetadataOp::new(replica, &regions, peers))
            }
            other => return Err(other),
        })
    }
}
