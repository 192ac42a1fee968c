//! Small sets of replicas, by their place in the engine's list.

/// How many replicas a volume may have.
pub(crate) const MAX_SLOTS: usize = 32;

/// A set of places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slots(u32);

impl Slots {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn one(slot: usize) -> Self {
        Self(1 << slot)
    }

    pub(crate) fn has(self, slot: usize) -> bool {
        self.0 & (1 << slot) != 0
    }

    pub(crate) fn add(&mut self, slot: usize) {
        self.0 |= 1 << slot;
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        self.0 &= !(1 << slot);
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_SLOTS).filter(move |slot| self.has(*slot))
    }
}

impl FromIterator<usize> for Slots {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        slots.into_iter().fold(Self::NONE, |set, slot| set.or(Self::one(slot)))
    }
}
