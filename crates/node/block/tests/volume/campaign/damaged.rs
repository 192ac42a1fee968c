//! The damage of one round, and its consequences.

use std::collections::BTreeMap;

use crate::harm::{Damage, Done};
use crate::shadow::Blocks;

/// The damage of one round.
pub(super) struct Harm {
    /// For each damaged replica what was done.
    pub(super) victims: BTreeMap<usize, Vec<Done>>,
    /// Blocks of the volume whose data was damaged on some replica.
    pub(super) blocks: Blocks,
}

impl Harm {
    pub(super) fn done(&self) -> impl Iterator<Item = &Done> {
        self.victims.values().flatten()
    }

    /// Nothing but bytes of data files: no replica may lose more than these blocks.
    pub(super) fn is_data_only(&self) -> bool {
        let is = |it: &Done| it.file.ends_with(".data") && it.damage != Damage::Remove;
        self.done().all(|it| is(it) && !is_whole(it.damage))
    }
}

pub(super) fn is_whole(damage: Damage) -> bool {
    matches!(damage, Damage::OlderCopy | Damage::RemoveAll)
}

/// An older count of answered changes looks like an older copy of the whole directory.
pub(super) fn is_older(done: &Done) -> bool {
    let is_count = done.damage == Damage::OlderFile && done.file == "answered";
    is_count || done.damage == Damage::OlderCopy
}
