//! The real store in the simulated cluster, over files that forget as disks do.
//!
//! A request is carried out at one moment, all its operations on files at once: the store's own
//! tests cover interleaved operations. The process or the power may end in the middle of a
//! request.

use super::disk::{Blocks, Cell};
use super::rng::Rng;
use crate::ids::{BootId, ReplicaId, SnapshotId, VolumeId};
use crate::repl::disk::{Description, DiskReply, DiskRequest, DiskResult};
use crate::run::{damage, metadata, metadata_request, states};
use crate::store::files::perform;
use crate::store::files::sim::{Keep, Rng as FileRng, SimFiles};
use crate::store::geometry::{REGION, Region};
use crate::store::{
    Action, CreateOptions, LayerRef, Limits, MapOf, NoBases, OpenOptions, Replica, Reply, Request,
    RequestError, RequestId, View, create, open,
};
use crate::wire::{BLOCK, Refusal, SnapshotInfo, Verify, Witnessed};

#[derive(Debug)]
pub(crate) struct StoredDisk {
    files: SimFiles,
    boot: u128,
    replica: Option<Replica>,
    inherited: Vec<Region>,
    next: u64,
    size: u64,
}

impl StoredDisk {
    pub(crate) fn new(volume: VolumeId, replica: ReplicaId, size: u64) -> Self {
        let mut files = SimFiles::new();
        let options = CreateOptions::new(volume, replica, size);
        let options = CreateOptions { log_pages: 64, recent: 64, ..options };
        create(&mut files, &options).expect("an empty directory takes a replica");
        Self { files, boot: 1, replica: None, inherited: Vec::new(), next: 0, size }
    }

    /// The replica, opened if it is not.
    fn replica(&mut self) -> &mut Replica {
        if self.replica.is_none() {
            let limits = Limits { settled_by_caller: true, ..Limits::default() };
            let boot = Some(BootId::from_u128(self.boot));
            let options = OpenOptions { limits, boot, ..OpenOptions::default() };
            let replica = open(&mut self.files, &mut NoBases, options)
                .unwrap_or_else(|error| panic!("a replica must open after any crash: {error:?}"));
            self.inherited = replica.dirty_regions();
            self.replica = Some(replica);
        }
        self.replica.as_mut().expect("opened just now")
    }

    /// The files as they are; nothing of the process that has them open.
    pub(crate) fn copy(&self) -> Self {
        Self {
            files: self.files.clone(),
            boot: self.boot,
            replica: None,
            inherited: Vec::new(),
            next: self.next,
            size: self.size,
        }
    }

    pub(crate) fn set_full(&mut self, full: bool) {
        self.files.capacity = full.then(|| self.files.used());
    }

    pub(crate) fn describe(&mut self) -> Description {
        let replica = self.replica();
        let status = replica.status();
        let mut snapshots = status.snapshots;
        snapshots.sort_by_key(|it| replica.snapshot_order(it.info.id));
        Description {
            promised: status.promised,
            epoch: status.epoch,
            marks: status.marks,
            witnessed: Witnessed::Unknown,
            size: status.size,
            region: REGION,
            lost_writes: replica.has_lost_writes(),
            dirty: replica.dirty_regions().iter().map(|region| region.0).collect(),
            snapshots: snapshots
                .into_iter()
                .map(|it| SnapshotInfo {
                    id: it.info.id,
                    name: it.info.name,
                    parent: it.parent,
                    created: it.info.created.to_string(),
                    labels: it.info.labels,
                })
                .collect(),
            head_parent: replica.head_parent(),
        }
    }

    pub(crate) fn execute(&mut self, request: &DiskRequest) -> DiskResult {
        match request {
            DiskRequest::Describe => {
                return Ok(DiskReply::Description(Box::new(self.describe())));
            }
            DiskRequest::ReadMap { view, offset, length, verify } => {
                return self.map(*view, *offset, u64::from(*length), *verify);
            }
            DiskRequest::Resize { size } if *size == self.size => return Ok(DiskReply::Done),
            _ => {}
        }
        let Some(asked) = self.translate(request) else { return Err(Refusal::Busy) };
        let result = self.carry_out(asked, u64::MAX).expect("it is not interrupted");
        if matches!(request, DiskRequest::CloseClean) {
            self.replica = None;
        }
        match (request, result) {
            (DiskRequest::Snapshot(_), Err(RequestError::SnapshotExists { .. }))
            | (DiskRequest::DeleteSnapshot { .. }, Err(RequestError::NoSuchSnapshot { .. }))
            | (DiskRequest::SetEpoch { .. }, Err(RequestError::StaleEpoch { .. })) => {
                Ok(DiskReply::Done)
            }
            (_, Ok(Reply::Data(data))) => {
                let crcs = data.crcs.iter().copied().collect();
                Ok(DiskReply::Data { data: data.into_bytes(), crcs })
            }
            (DiskRequest::Scrub { offset, length }, Ok(Reply::Scrubbed(bad))) => {
                Ok(DiskReply::Damage(damage(&bad, *offset..*offset + u64::from(*length))))
            }
            (_, Ok(Reply::Metadata(report))) => Ok(DiskReply::Metadata(metadata(&report))),
            (_, Ok(Reply::Regions(regions))) => {
                Ok(DiskReply::Dirty(regions.iter().map(|region| region.0).collect()))
            }
            (_, Ok(_)) => Ok(DiskReply::Done),
            (_, Err(RequestError::NoSpace)) => Err(Refusal::NoSpace),
            (_, Err(RequestError::NoSuchSnapshot { .. })) => Err(Refusal::NoSnapshot),
            (_, Err(_)) => Err(Refusal::Io),
        }
    }

    fn translate(&mut self, request: &DiskRequest) -> Option<Request> {
        let regions = |list: &[u32]| list.iter().copied().map(Region).collect();
        Some(match request.clone() {
            DiskRequest::Read { view, offset, length } => {
                Request::Read { view: view_of(view), offset, len: u64::from(length) }
            }
            DiskRequest::Write { offset, data, crcs, fua } => {
                Request::Write { offset, data, crcs: crcs.as_slice().to_vec(), fua }
            }
            DiskRequest::WriteZeroes { offset, length, fua } => {
                Request::WriteZeroes { offset, len: u64::from(length), fua }
            }
            DiskRequest::Discard { offset, length } => {
                Request::Discard { offset, len: u64::from(length) }
            }
            DiskRequest::Flush { marks: None } => Request::Flush,
            DiskRequest::Flush { marks: Some(marks) } => Request::FlushMarked { marks },
            DiskRequest::Snapshot(info) => {
                let SnapshotInfo { id, name, labels, .. } = info;
                Request::Snapshot { id, name, created: 0, labels }
            }
            DiskRequest::Prepare => Request::Prepare,
            DiskRequest::Seal => Request::Seal,
            DiskRequest::DeleteSnapshot { snapshot } => Request::DeleteSnapshot { id: snapshot },
            DiskRequest::Revert { to } => Request::Revert { to: to? },
            DiskRequest::Resize { size } => Request::Expand { size },
            DiskRequest::Scrub { offset, .. } => {
                Request::ScrubSnapshots { region: Region::of(offset) }
            }
            DiskRequest::ScrubMetadata { offset, length, alone } => {
                metadata_request(offset, length, alone)
            }
            DiskRequest::Repair { snapshot, offset, data, crcs } => {
                let layer = LayerRef::Snapshot(snapshot);
                Request::Repair { layer, offset, data, crcs: crcs.as_slice().to_vec() }
            }
            DiskRequest::Dirty => Request::DirtyRegions,
            DiskRequest::Settle { regions: list } => Request::Settle { regions: regions(&list) },
            DiskRequest::Promise { generation } => Request::Promise { generation },
            DiskRequest::SetEpoch { epoch } => Request::SetEpoch { epoch },
            DiskRequest::Reconciled => {
                self.replica();
                Request::Reconciled { regions: self.inherited.clone() }
            }
            DiskRequest::CloseClean => Request::CloseClean,
            DiskRequest::ReadMap { .. } | DiskRequest::Describe => return None,
        })
    }

    /// Carries a request out with at most so many operations on files. Work that follows a
    /// snapshot is left for the next request, so that some requests arrive before it is sealed.
    fn carry_out(&mut self, request: Request, most: u64) -> Option<Result<Reply, RequestError>> {
        let number = RequestId(self.next);
        self.next += 1;
        let mut left = most;
        let mut answer = None;
        let leaves = matches!(request, Request::Snapshot { .. });
        self.replica().submit(number, request);
        while let Some(action) = self.replica().next_action() {
            match action {
                Action::Reply { id, result } if id == number && leaves => return Some(result),
                Action::Reply { id, result } if id == number => answer = Some(result),
                Action::Reply { .. } => {}
                Action::Io(_) if left == 0 => return None,
                Action::Io(io) => {
                    left -= 1;
                    let result = perform(&mut self.files, io.file, &io.op);
                    self.replica().complete(io.id, result);
                }
            }
        }
        answer
    }

    fn map(
        &mut self,
        view: Option<SnapshotId>,
        offset: u64,
        len: u64,
        verify: Verify,
    ) -> DiskResult {
        let of = MapOf::View(view_of(view));
        let map = self.carry_out(Request::ReadMap { of, offset, len }, u64::MAX);
        let Some(Ok(Reply::Map(infos))) = map else { return Err(Refusal::Io) };
        let read = Request::Peek { view: view_of(view), offset, len };
        let data = match (verify, self.carry_out(read, u64::MAX)) {
            (Verify::Deep | Verify::Compare(_), Some(Ok(Reply::Data(data)))) => {
                Some(data.into_bytes())
            }
            _ => None,
        };
        Ok(DiskReply::Map(states(&infos, data, verify.key())))
    }

    /// The process ends somewhere in the middle.
    pub(crate) fn half_done(&mut self, request: &DiskRequest, rng: &mut Rng) {
        if matches!(request, DiskRequest::Describe | DiskRequest::ReadMap { .. }) {
            return;
        }
        let most = rng.below(6);
        if let Some(request) = self.translate(request) {
            self.carry_out(request, most);
        }
        // The store does not finish its remaining operations.
        self.stopped();
    }

    pub(crate) fn stopped(&mut self) {
        if let Some(replica) = self.replica.take() {
            self.inherited = replica.dirty_regions();
        }
    }

    pub(crate) fn power_cut(&mut self, rng: &mut Rng) {
        self.stopped();
        self.boot += 1;
        self.files.power_cut(match rng.below(4) {
            0 => Keep::Nothing,
            1 => Keep::Everything,
            2 => Keep::Alternate,
            _ => Keep::Random(FileRng::new(rng.draw())),
        });
    }

    /// Everything that a view shows.
    pub(crate) fn blocks(&mut self, view: Option<SnapshotId>) -> Blocks {
        let (offset, len) = (0, self.size);
        let read = Request::Read { view: view_of(view), offset, len };
        let Some(Ok(Reply::Data(data))) = self.carry_out(read, u64::MAX) else {
            panic!("a replica at rest can be read");
        };
        let crcs = data.crcs.clone();
        let bytes = data.into_bytes();
        let cell = |(at, crc): (usize, u32)| {
            let data = bytes.slice(at * BLOCK as usize..(at + 1) * BLOCK as usize);
            (at as u64, Cell { data, crc })
        };
        crcs.into_iter().enumerate().map(cell).collect()
    }
}

fn view_of(view: Option<SnapshotId>) -> View {
    view.map_or(View::Head, View::Snapshot)
}
