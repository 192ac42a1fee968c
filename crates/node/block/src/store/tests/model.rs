//! The allowed content of a volume: for each block the values it may have after a power cut, and
//! the one it has now. A value is the number of the write for each of its eight sectors.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::ids::SnapshotId;
use crate::store::geometry::BLOCK;

/// For each sector, which write it is from; zero for zeroes.
pub(super) type Value = [u32; 8];

pub(super) const ZERO: Value = [0; 8];

#[derive(Clone, Debug)]
pub(super) struct BlockModel {
    /// The last one that is durable for certain, then everything written since, in order.
    values: Vec<Value>,
    /// Values dropped from the front.
    dropped: usize,
    /// Position of the last one that was answered.
    current: usize,
}

impl BlockModel {
    fn certain(value: Value) -> Self {
        Self { values: vec![value], dropped: 0, current: 0 }
    }

    /// From now on it is this value for certain. Positions go on from where they were: a flush on
    /// its way names older ones.
    fn settle(&mut self, value: Value) {
        self.dropped += self.values.len();
        self.values = vec![value];
        self.current = self.dropped;
    }

    fn now(&self) -> Value {
        self.values[self.current - self.dropped]
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    blocks: BTreeMap<u64, BlockModel>,
    pub(super) snapshots: BTreeMap<SnapshotId, BTreeMap<u64, Value>>,
    /// Blocks of writes that failed: old or new, until they are read.
    pub(super) uncertain: BTreeSet<u64>,
    next: u32,
}

/// The writes that a submitted flush covers.
#[derive(Clone, Debug)]
pub(super) struct Covered(BTreeMap<u64, usize>);

impl Model {
    fn block(&mut self, block: u64) -> &mut BlockModel {
        self.blocks.entry(block).or_insert_with(|| BlockModel::certain(ZERO))
    }

    /// A number for a write.
    pub(super) fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(super) fn submitted(&mut self, block: u64, value: Value) -> usize {
        let model = self.block(block);
        model.values.push(value);
        model.dropped + model.values.len() - 1
    }

    pub(super) fn answered(&mut self, block: u64, position: usize) {
        self.block(block).current = position;
        self.uncertain.remove(&block);
    }

    pub(super) fn now(&self, block: u64) -> Value {
        self.blocks.get(&block).map_or(ZERO, BlockModel::now)
    }

    pub(super) fn cover(&self) -> Covered {
        Covered(self.blocks.iter().map(|(block, model)| (*block, model.current)).collect())
    }

    /// Everything covered is durable; older values cannot come back.
    pub(super) fn flushed(&mut self, covered: &Covered) {
        for (block, position) in &covered.0 {
            let model = self.block(*block);
            let old = position.saturating_sub(model.dropped);
            model.values.drain(..old);
            model.dropped += old;
        }
    }

    /// The content now, all of it certain.
    pub(super) fn content(&self) -> BTreeMap<u64, Value> {
        self.blocks.iter().map(|(block, model)| (*block, model.now())).collect()
    }

    /// The volume has exactly this content, durably.
    pub(super) fn become_certain(&mut self, content: &BTreeMap<u64, Value>) {
        for (block, model) in &mut self.blocks {
            model.settle(content.get(block).copied().unwrap_or(ZERO));
        }
        for (block, value) in content {
            self.block(*block).settle(*value);
        }
    }

    /// After the process was killed: each sector must be what was answered last, or of a write
    /// that was under way. A power cut may still bring back what was there before.
    pub(super) fn observe_killed(&mut self, block: u64, found: Value) -> Result<(), String> {
        let model = self.block(block);
        let possible = &model.values[model.current - model.dropped..];
        for (sector, number) in found.iter().enumerate() {
            if !possible.iter().any(|value| value[sector] == *number) {
                return Err(format!(
                    "block {block} sector {sector}: found {number}, answered was {possible:?}"
                ));
            }
        }
        if found != model.now() {
            model.values.push(found);
            model.current = model.dropped + model.values.len() - 1;
        }
        self.uncertain.remove(&block);
        Ok(())
    }

    /// After a power cut: each sector must be one of those it may be. It is certain from now on.
    pub(super) fn observe(&mut self, block: u64, found: Value) -> Result<(), String> {
        let model = self.block(block);
        for (sector, number) in found.iter().enumerate() {
            if !model.values.iter().any(|value| value[sector] == *number) {
                return Err(format!(
                    "block {block} sector {sector}: found {number}, possible are {:?}",
                    model.values.iter().map(|value| value[sector]).collect::<Vec<_>>()
                ));
            }
        }
        model.settle(found);
        self.uncertain.remove(&block);
        Ok(())
    }
}

/// The bytes of a block.
pub(super) fn encode(value: Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK as usize);
    for (sector, number) in (0u32..).zip(value) {
        if number == 0 {
            bytes.resize(bytes.len() + 512, 0);
        } else {
            let word = (u64::from(number) << 32 | u64::from(sector)).to_le_bytes();
            (0..64).for_each(|_| bytes.extend(word));
        }
    }
    bytes
}

/// Which writes the sectors of a block are from.
pub(super) fn decode(bytes: &Bytes) -> Result<Value, String> {
    let mut value = ZERO;
    for (sector, bytes) in bytes.chunks(512).enumerate() {
        let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        if bytes.chunks(8).any(|other| other != &bytes[..8])
            || (word != 0 && (word & 0xffff_ffff) != sector as u64)
        {
            return Err(format!("sector {sector} holds something that was never written"));
        }
        value[sector] = (word >> 32) as u32;
    }
    Ok(value)
}
