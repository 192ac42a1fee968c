//! Translation of requests of a session into operations of the store.

use bytes::Bytes;

use crate::checksum::{KeyedSum, SumKey};
use crate::ids::SnapshotId;
use crate::repl::disk::{Description, DiskReply, DiskRequest, DiskResult};
use crate::store::geometry::{BLOCK, REGION, Region};
use crate::store::layer::WorkKind;
use crate::store::{
    BadBlock, BlockInfo, LayerRef, MapOf, MetadataReport, Peers, Progress, ReadData, Replica,
    Reply, Request, RequestError, Status, View, crc,
};
use crate::wire::{
    self, BlockState, Crcs, DamagedBlock, MetadataDamage, Refusal, SnapshotInfo, Verify, Witnessed,
    Work, WorkProgress,
};

/// The most damaged blocks of a range that are reported. More are found when these are repaired.
const MAX_DAMAGE: usize = 1 << 16;

/// The handling of a request.
pub(super) enum RequestPlan {
    Answer(DiskResult),
    Submit { pending: StoreRequest, requests: Vec<Request> },
}

/// A request that the store works on.
#[derive(Debug)]
pub(super) enum StoreRequest {
    /// Any success is the answer.
    Done {
        tolerant: Tolerant,
        /// It changes what is read.
        changes: bool,
    },
    Close,
    Data,
    Dirty,
    /// Blocks of snapshots within a range.
    Damage {
        offset: u64,
        end: u64,
    },
    Metadata,
    /// The map, and the data to compare it with.
    Map {
        map: Option<Vec<BlockInfo>>,
        data: Option<ReadData>,
        both: bool,
        key: Option<SumKey>,
    },
}

/// Which refusal means that there is nothing left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tolerant {
    No,
    Exists,
    Missing,
    Stale,
}

pub(super) fn plan(request: DiskRequest, store: &Replica, inherited: &[Region]) -> RequestPlan {
    let request = match request {
        DiskRequest::Read { view, offset, length } => {
            let request = Request::Read { view: view_of(view), offset, len: length.into() };
            return RequestPlan::Submit { pending: StoreRequest::Data, requests: vec![request] };
        }
        DiskRequest::Write { offset, data, crcs, fua } => {
            Request::Write { offset, data, crcs: crcs.as_slice().to_vec(), fua }
        }
        DiskRequest::WriteZeroes { offset, length, fua } => {
            Request::WriteZeroes { offset, len: length.into(), fua }
        }
        DiskRequest::Discard { offset, length } => Request::Discard { offset, len: length.into() },
        DiskRequest::Flush { marks: None } => Request::Flush,
        DiskRequest::Flush { marks: Some(marks) } => Request::FlushMarked { marks },
        DiskRequest::Snapshot(info) => {
            let SnapshotInfo { id, name, created, labels, .. } = info;
            let Ok(created) = created.parse() else {
                return RequestPlan::Answer(Err(Refusal::Invalid));
            };
            return ask(Request::Snapshot { id, name, created, labels }, Tolerant::Exists);
        }
        DiskRequest::Prepare => Request::Prepare,
        DiskRequest::Seal => Request::Seal,
        DiskRequest::DeleteSnapshot { snapshot } => {
            return ask(Request::DeleteSnapshot { id: snapshot }, Tolerant::Missing);
        }
        DiskRequest::Revert { to: Some(to) } => Request::Revert { to },
        DiskRequest::Revert { to: None } => return empty(store),
        DiskRequest::Resize { size } => match size.cmp(&store.volume_size()) {
            std::cmp::Ordering::Less => return RequestPlan::Answer(Err(Refusal::Invalid)),
            std::cmp::Ordering::Equal => return RequestPlan::Answer(Ok(DiskReply::Done)),
            std::cmp::Ordering::Greater => Request::Expand { size },
        },
        DiskRequest::ReadMap { view, offset, length, verify } => {
            let unsummed = store.bases().iter().any(|it| it.is_image && it.sums.is_none());
            let key = verify.key();
            let deep = verify == Verify::Deep || unsummed || key.is_some();
            return map(view, offset, length, deep, key);
        }
        DiskRequest::Scrub { offset, length } => {
            let pending = StoreRequest::Damage { offset, end: offset + u64::from(length) };
            let request = Request::ScrubSnapshots { region: Region::of(offset) };
            return RequestPlan::Submit { pending, requests: vec![request] };
        }
        DiskRequest::ScrubMetadata { offset, length, alone } => {
            let requests = vec![metadata_request(offset, length, alone)];
            return RequestPlan::Submit { pending: StoreRequest::Metadata, requests };
        }
        DiskRequest::Repair { snapshot, offset, data, crcs } => {
            let layer = LayerRef::Snapshot(snapshot);
            Request::Repair { layer, offset, data, crcs: crcs.as_slice().to_vec() }
        }
        DiskRequest::Dirty => {
            return RequestPlan::Submit {
                pending: StoreRequest::Dirty,
                requests: vec![Request::DirtyRegions],
            };
        }
        DiskRequest::Settle { regions } => {
            Request::Settle { regions: regions.into_iter().map(Region).collect() }
        }
        DiskRequest::Promise { generation } => Request::Promise { generation },
        DiskRequest::SetEpoch { epoch } => {
            return ask(Request::SetEpoch { epoch }, Tolerant::Stale);
        }
        DiskRequest::Reconciled => Request::Reconciled { regions: inherited.to_vec() },
        DiskRequest::CloseClean => {
            return RequestPlan::Submit {
                pending: StoreRequest::Close,
                requests: vec![Request::CloseClean],
            };
        }
        DiskRequest::Describe => {
            return RequestPlan::Answer(Ok(DiskReply::Description(Box::new(describe(store)))));
        }
    };
    ask(request, Tolerant::No)
}

fn ask(request: Request, tolerant: Tolerant) -> RequestPlan {
    let changes = matches!(
        request,
        Request::Write { .. }
            | Request::WriteZeroes { .. }
            | Request::Discard { .. }
            | Request::Snapshot { .. }
            | Request::DeleteSnapshot { .. }
            | Request::Revert { .. }
            | Request::Expand { .. }
    );
    RequestPlan::Submit {
        pending: StoreRequest::Done { tolerant, changes },
        requests: vec![request],
    }
}

fn view_of(view: Option<SnapshotId>) -> View {
    view.map_or(View::Head, View::Snapshot)
}

/// A head without anything in it, over nothing.
fn empty(store: &Replica) -> RequestPlan {
    match store.head_parent() {
        None => ask(
            Request::WriteZeroes { offset: 0, len: store.volume_size(), fua: false },
            Tolerant::No,
        ),
        Some(_) => RequestPlan::Answer(Err(Refusal::Busy)),
    }
}

/// A store sums blocks in suspect regions again by itself, and believes what it finds; only a
/// deep check, and an image that has no checksums, need the data.
fn map(
    view: Option<SnapshotId>,
    offset: u64,
    length: u32,
    both: bool,
    key: Option<SumKey>,
) -> RequestPlan {
    let (view, len) = (view_of(view), u64::from(length));
    let mut requests = vec![Request::ReadMap { of: MapOf::View(view), offset, len }];
    if both {
        requests.push(Request::Peek { view, offset, len });
    }
    RequestPlan::Submit {
        pending: StoreRequest::Map { map: None, data: None, both, key },
        requests,
    }
}

impl StoreRequest {
    pub(super) fn is_change(&self) -> bool {
        matches!(self, Self::Done { changes: true, .. })
    }

    pub(super) fn is_close(&self) -> bool {
        matches!(self, Self::Close)
    }

    /// Takes an answer of the store; gives the disk's when it is complete.
    pub(super) fn take(&mut self, result: Result<Reply, RequestError>) -> Option<DiskResult> {
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => return Some(self.refused(&error)),
        };
        Some(Ok(match (&mut *self, reply) {
            (Self::Data, Reply::Data(data)) => {
                let crcs: Crcs = data.crcs.iter().copied().collect();
                DiskReply::Data { data: data.into_bytes(), crcs }
            }
            (Self::Dirty, Reply::Regions(regions)) => {
                DiskReply::Dirty(regions.into_iter().map(|region| region.0).collect())
            }
            (Self::Damage { offset, end }, Reply::Scrubbed(bad)) => {
                DiskReply::Damage(damage(&bad, *offset..*end))
            }
            (Self::Metadata, Reply::Metadata(report)) => DiskReply::Metadata(metadata(&report)),
            (Self::Map { map, data, both, key }, reply) => {
                match reply {
                    Reply::Map(found) => *map = Some(found),
                    Reply::Data(found) => *data = Some(found),
                    _ => return Some(Err(Refusal::Io)),
                }
                if map.is_none() || (*both && data.is_none()) {
                    return None;
                }
                let infos = map.take().unwrap_or_default();
                let data = data.take().map(ReadData::into_bytes);
                DiskReply::Map(states(&infos, data, *key))
            }
            _ => DiskReply::Done,
        }))
    }

    fn refused(&self, error: &RequestError) -> DiskResult {
        let tolerant = match self {
            Self::Done { tolerant, .. } => *tolerant,
            _ => Tolerant::No,
        };
        match (tolerant, error) {
            (Tolerant::Exists, RequestError::SnapshotExists { .. })
            | (Tolerant::Missing, RequestError::NoSuchSnapshot { .. })
            | (Tolerant::Stale, RequestError::StaleEpoch { .. }) => Ok(DiskReply::Done),
            _ => Err(refusal(error)),
        }
    }
}

pub(crate) fn metadata_request(offset: u64, length: u32, alone: bool) -> Request {
    let end = offset.saturating_add(length.into()).div_ceil(REGION);
    let regions = Region::of(offset).0..u32::try_from(end).unwrap_or(u32::MAX);
    let peers = if alone { Peers::Nobody } else { Peers::InSync };
    Request::ScrubMetadata { regions, peers }
}

/// A store's report, with names instead of files.
pub(crate) fn metadata(report: &MetadataReport) -> wire::MetadataReport {
    let left = report.left.iter();
    let left = left.map(|(file, fault)| MetadataDamage { file: file.to_string(), fault: *fault });
    wire::MetadataReport {
        repaired: report.repaired,
        lost_pages: report.lost_pages,
        left: left.collect(),
    }
}

/// The blocks of snapshots that a scrub found damaged within a range.
pub(crate) fn damage(bad: &[BadBlock], range: std::ops::Range<u64>) -> Vec<DamagedBlock> {
    let of_snapshot = |it: &BadBlock| Some(DamagedBlock { snapshot: it.layer?, offset: it.offset });
    let within = bad.iter().filter(|it| range.contains(&it.offset));
    within.filter_map(of_snapshot).take(MAX_DAMAGE).collect()
}

/// The reported state of each block, given its map entry and its stored data.
pub(crate) fn states(
    infos: &[BlockInfo],
    data: Option<Bytes>,
    key: Option<SumKey>,
) -> Vec<BlockState> {
    let keyed = key.map(KeyedSum::new);
    let mut blocks = data.as_ref().map(|data| data.chunks_exact(BLOCK as usize));
    let state = |info: &BlockInfo| {
        let block = blocks.as_mut().and_then(Iterator::next);
        let known = matches!(info, BlockInfo::Data { .. });
        let found = block.filter(|_| known).map(crc::crc32c);
        let sum = |crc: u32| match (&keyed, block) {
            (Some(keyed), Some(block)) => BlockState::Data(keyed.of(block)),
            _ => BlockState::Data(crc.into()),
        };
        match (info, found) {
            (BlockInfo::Vacant | BlockInfo::Zero, _) => BlockState::Zero,
            (BlockInfo::Data { crc: Some(crc) }, Some(found)) if *crc != found => BlockState::Bad,
            (BlockInfo::Data { crc: Some(crc) }, _) => sum(*crc),
            (BlockInfo::Data { crc: None }, Some(found)) => sum(found),
            (BlockInfo::Lost, _) => BlockState::Bad,
            // An image may have no checksums; without its data there is nothing to compare.
            (BlockInfo::Data { crc: None }, None) => BlockState::Bad,
        }
    };
    infos.iter().map(state).collect()
}

fn describe(store: &Replica) -> Description {
    let Status { promised, epoch, marks, size, snapshots, .. } = store.status();
    let mut snapshots = snapshots;
    snapshots.sort_by_key(|snapshot| store.snapshot_order(snapshot.info.id));
    let snapshots = snapshots.into_iter().map(|snapshot| SnapshotInfo {
        id: snapshot.info.id,
        name: snapshot.info.name,
        parent: snapshot.parent,
        created: snapshot.info.created.to_string(),
        labels: snapshot.info.labels,
    });
    Description {
        promised,
        epoch,
        marks,
        witnessed: Witnessed::Unknown,
        size,
        region: REGION,
        lost_writes: store.has_lost_writes(),
        dirty: store.dirty_regions().into_iter().map(|region| region.0).collect(),
        snapshots: snapshots.collect(),
        head_parent: store.head_parent(),
    }
}

/// How far background work is, as a heartbeat reports it.
pub(super) fn progress(work: &Progress) -> WorkProgress {
    WorkProgress {
        kind: match work.kind {
            WorkKind::MergeUp { .. } | WorkKind::MergeDown { .. } => Work::Merge,
            WorkKind::Hydrate { .. } => Work::Hydrate,
        },
        done_regions: work.done_regions,
        total_regions: work.total_regions,
        copied_bytes: work.copied_bytes,
        stalled: work.stalled.is_some(),
    }
}

fn refusal(error: &RequestError) -> Refusal {
    match error {
        RequestError::Checksum { .. } => Refusal::BadChecksum,
        RequestError::NoSpace => Refusal::NoSpace,
        RequestError::NoSuchSnapshot { .. } => Refusal::NoSnapshot,
        RequestError::SnapshotBusy { .. } => Refusal::Busy,
        RequestError::StaleGeneration { .. } => Refusal::Fenced,
        RequestError::Io { .. }
        | RequestError::Lost { .. }
        | RequestError::Stopped { .. }
        | RequestError::Closed => Refusal::Io,
        _ => Refusal::Invalid,
    }
}
