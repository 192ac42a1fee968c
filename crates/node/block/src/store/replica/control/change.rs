//! The requirements and effects of each change of the super block.

use super::Change;
use crate::ids::SnapshotId;
use crate::store::files::FileNo;
use crate::store::geometry::{BLOCK, MAX_VOLUME, Region};
use crate::store::index::LayerIndex;
use crate::store::layer::{LayerNo, MAX_SNAPSHOTS, SnapshotInfo, Work, WorkKind};
use crate::store::replica::{Replica, own_map};
use crate::store::request::{Pin, Request, RequestError};
use crate::store::super_block::{Pinned, SuperBlock};

/// The steps that a change takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangePlan {
    /// A new layer with this file.
    pub(super) creates: Option<FileNo>,
    /// Every page must be on disk first.
    pub(super) cleans: bool,
    /// No write may be in flight.
    pub(super) holds: bool,
    /// True as soon as the kernel has it, and durable with the next flush.
    pub(super) cuts: bool,
    /// The super block stays as it is.
    pub(super) prepares: bool,
    /// Files may be dropped.
    pub(super) drops: bool,
    /// Nothing comes after it.
    pub(super) closes: bool,
}

/// Effects in memory once the change is durable.
#[derive(Debug, Default)]
pub(super) struct Effect {
    created: Option<FileNo>,
    dropped: Vec<FileNo>,
    begins_work: bool,
    ends_base: bool,
}

impl Replica {
    /// Refuses what cannot be done; nothing has happened yet.
    pub(super) fn plan_change(&self, change: &Change) -> Result<ChangePlan, RequestError> {
        let body = &self.meta.body;
        let creates = Some(body.layers.next_file());
        match change {
            Change::Request(request) => match request {
                Request::Snapshot { id, .. } => {
                    if body.layers.by_snapshot(*id).is_some() {
                        return Err(RequestError::SnapshotExists { id: *id });
                    }
                    self.check_depth()?;
                    Ok(ChangePlan { creates, holds: true, cuts: true, ..ChangePlan::default() })
                }
                Request::Prepare => {
                    Ok(ChangePlan { creates, prepares: true, ..ChangePlan::default() })
                }
                Request::Revert { to } => {
                    self.layer_of(*to)?;
                    self.check_depth()?;
                    Ok(ChangePlan { creates, holds: true, ..ChangePlan::default() })
                }
                Request::DeleteSnapshot { id } => {
                    // Under a pin it is gone for people, and stays for the clone.
                    self.layer_of(*id)?;
                    Ok(ChangePlan::default())
                }
                Request::Expand { size } => self.check_size(*size).map(|()| ChangePlan::default()),
                Request::Promise { generation } if *generation < body.promised => {
                    Err(RequestError::StaleGeneration {
                        requested: *generation,
                        promised: body.promised,
                    })
                }
                Request::SetEpoch { epoch } if *epoch < body.epoch => {
                    Err(RequestError::StaleEpoch { requested: *epoch, recorded: body.epoch })
                }
                Request::Pin { snapshot, .. } => {
                    self.check_at_rest(*snapshot)?;
                    Ok(ChangePlan { cleans: true, ..ChangePlan::default() })
                }
                Request::SealLayer { id } => {
                    self.layer_of(*id)?;
                    Ok(ChangePlan { cleans: true, ..ChangePlan::default() })
                }
                Request::Hydrate if body.base.is_none() => Err(RequestError::NoBase),
                Request::CloseClean => {
                    Ok(ChangePlan { holds: true, closes: true, ..ChangePlan::default() })
                }
                _ => Ok(ChangePlan::default()),
            },
            Change::BeginWork(_) | Change::ForgetLoss | Change::Rewrite => {
                Ok(ChangePlan::default())
            }
            Change::Seal => Ok(ChangePlan { cleans: true, ..ChangePlan::default() }),
            Change::FinishWork => {
                Ok(ChangePlan { cleans: true, drops: true, ..ChangePlan::default() })
            }
            Change::DropLayer(_) => Ok(ChangePlan { drops: true, ..ChangePlan::default() }),
        }
    }

    /// Makes the change in a copy of the super block.
    pub(super) fn apply_change(
        &self,
        change: &Change,
        next: &mut SuperBlock,
    ) -> Result<Effect, RequestError> {
        let mut effect = Effect::default();
        match change {
            Change::Request(request) => self.apply_request(request, next, &mut effect)?,
            Change::BeginWork(kind) => {
                begin_work(next, *kind);
                effect.begins_work = true;
            }
            Change::FinishWork => {
                if let Some(work) = next.body.work.take() {
                    effect.dropped.extend(next.body.layers.finish(work.kind));
                    if let WorkKind::Hydrate { .. } = work.kind {
                        next.body.base = None;
                        effect.ends_base = true;
                    }
                }
            }
            Change::ForgetLoss => next.body.lost = false,
            Change::Rewrite => {}
            Change::Seal => next.body.layers.seal(),
            Change::DropLayer(no) => effect.dropped.push(next.body.layers.drop_layer(*no)),
        }
        Ok(effect)
    }

    fn apply_request(
        &self,
        request: &Request,
        next: &mut SuperBlock,
        effect: &mut Effect,
    ) -> Result<(), RequestError> {
        let body = &mut next.body;
        match request {
            Request::Snapshot { id, name, created, labels } => {
                effect.created = Some(body.layers.next_file());
                body.layers.snapshot(SnapshotInfo {
                    id: *id,
                    name: name.clone(),
                    created: *created,
                    labels: labels.clone(),
                });
            }
            Request::Revert { to } => {
                let to = self.layer_of(*to)?;
                effect.created = Some(body.layers.next_file());
                let old = body.layers.head;
                body.layers.revert(to);
                // The halves of a merge with the old head go with it.
                if body.work.as_ref().is_some_and(|work| work.kind.concerns(old)) {
                    body.work = None;
                }
            }
            Request::DeleteSnapshot { id } => {
                let no = self.layer_of(*id)?;
                body.layers.get_mut(no).removed = true;
            }
            Request::Expand { size } => next.size = *size,
            Request::Promise { generation } => body.promised = *generation,
            Request::SetEpoch { epoch } => body.epoch = *epoch,
            Request::Pin { snapshot, pin } => {
                self.check_at_rest(*snapshot)?;
                add_pin(&mut body.pins, *snapshot, pin);
            }
            Request::Unpin { replica } => body.pins.retain(|pin| pin.by.replica != *replica),
            Request::SealLayer { id } => {
                let no = self.layer_of(*id)?;
                body.layers.get_mut(no).filling = false;
            }
            Request::Hydrate => {
                let root = body.layers.chain(body.layers.head).last().map(|layer| layer.no);
                let into = root.expect("a chain has at least its head");
                if body.work.is_none() {
                    begin_work(next, WorkKind::Hydrate { into });
                    effect.begins_work = true;
                }
            }
            Request::CloseClean => {
                let rests = self.regions.active().next().is_none() && self.log.is_idle();
                body.clean = rests.then(|| self.log.next_seq());
                // Everything is durable.
                body.layers.seal();
            }
            other => unreachable!("{other:?} does not change the super block"),
        }
        Ok(())
    }

    pub(super) fn take_effect(&mut self, effect: Effect) {
        if let Some(file) = effect.created {
            self.cache.add_fresh(own_map(file));
            self.index.insert(own_map(file), LayerIndex::default());
            self.counts.insert(file, 0);
        }
        if effect.begins_work || self.meta.body.work.is_none() {
            self.work.restart();
        }
        if effect.ends_base {
            self.base_links.clear();
        }
        for file in effect.dropped {
            self.counts.remove(&file);
            self.forget_layer(file);
            self.index.forget(own_map(file));
            self.trash.throw(file);
        }
    }

    /// The file that a change will drop.
    pub(super) fn leaving_file(&self, change: &Change) -> Option<FileNo> {
        let body = &self.meta.body;
        match change {
            Change::FinishWork => match body.work.as_ref()?.kind {
                WorkKind::MergeUp { from, .. } | WorkKind::MergeDown { from, .. } => {
                    Some(body.layers.get(from).file)
                }
                WorkKind::Hydrate { .. } => None,
            },
            Change::DropLayer(no) => Some(body.layers.get(*no).file),
            Change::BeginWork(_)
            | Change::ForgetLoss
            | Change::Rewrite
            | Change::Seal
            | Change::Request(_) => None,
        }
    }

    fn layer_of(&self, id: SnapshotId) -> Result<LayerNo, RequestError> {
        let layer = self.meta.body.layers.by_snapshot(id);
        layer.map(|layer| layer.no).ok_or(RequestError::NoSuchSnapshot { id })
    }

    fn check_depth(&self) -> Result<(), RequestError> {
        let deep = self.chain.len() > MAX_SNAPSHOTS;
        let many = self.meta.body.layers.snapshots().count() >= MAX_SNAPSHOTS;
        if deep || many {
            return Err(RequestError::TooManySnapshots { count: MAX_SNAPSHOTS });
        }
        Ok(())
    }

    fn check_size(&self, size: u64) -> Result<(), RequestError> {
        let reason = if size < self.meta.size {
            "a volume cannot shrink"
        } else if !size.is_multiple_of(BLOCK) {
            "not a multiple of 4096"
        } else if size > MAX_VOLUME {
            "larger than 15 TiB"
        } else {
            return Ok(());
        };
        Err(RequestError::BadSize { size, reason })
    }

    /// Whether a snapshot and all below it stay as they are, and are as they say.
    fn check_at_rest(&self, id: SnapshotId) -> Result<(), RequestError> {
        let no = self.layer_of(id)?;
        let body = &self.meta.body;
        let busy = body.layers.chain(no).any(|layer| {
            layer.filling
                || (layer.unverified && self.is_in_doubt(layer.file))
                || body.work.as_ref().is_some_and(|work| work.kind.concerns(layer.no))
        });
        if busy { Err(RequestError::SnapshotBusy { id }) } else { Ok(()) }
    }
}

fn begin_work(next: &mut SuperBlock, kind: WorkKind) {
    // Layers and pieces of work share a counter: a number never comes back.
    let no = next.body.layers.next;
    next.body.layers.next += 1;
    next.body.work = Some(Work { no, kind, cursor: Region(0) });
}

fn add_pin(pins: &mut Vec<Pinned>, snapshot: SnapshotId, by: &Pin) {
    pins.retain(|pin| pin.by.replica != by.replica);
    pins.push(Pinned { snapshot, by: by.clone() });
}
