//! Ranges of a volume, and sets of equal pieces of it.

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    pub(crate) fn new(start: u64, length: u64) -> Self {
        Self { start, end: start.saturating_add(length) }
    }

    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The smallest range of whole blocks around this one.
    pub(crate) fn aligned(self, block: u64) -> Self {
        Self { start: self.start / block * block, end: self.end.div_ceil(block) * block }
    }

    pub(crate) fn clipped(self, end: u64) -> Self {
        Self { start: self.start.min(end), end: self.end.min(end) }
    }
}

/// A set of pieces of a volume: one bit for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    piece: u64,
    bits: Vec<u64>,
    count: u64,
}

impl Pieces {
    /// No piece of a volume that is cut into pieces of `piece` bytes.
    pub(crate) fn none(piece: u64) -> Self {
        Self { piece, bits: Vec::new(), count: 0 }
    }

    /// Every piece of a volume of `size` bytes.
    pub(crate) fn all(piece: u64, size: u64) -> Self {
        let mut all = Self::none(piece);
        all.insert(Span::new(0, size));
        all
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The range of one piece.
    pub(crate) fn span(&self, index: u64) -> Span {
        Span::new(index * self.piece, self.piece)
    }

    /// Adds every piece that `span` touches.
    pub(crate) fn insert(&mut self, span: Span) {
        for index in self.indices(span) {
            let (word, bit) = place(index);
            if self.bits.len() <= word {
                self.bits.resize(word + 1, 0);
            }
            self.count += u64::from(self.bits[word] & bit == 0);
            self.bits[word] |= bit;
        }
    }

    pub(crate) fn remove(&mut self, index: u64) {
        let (word, bit) = place(index);
        if let Some(bits) = self.bits.get_mut(word).filter(|bits| **bits & bit != 0) {
            *bits &= !bit;
            self.count -= 1;
        }
    }

    pub(crate) fn contains(&self, index: u64) -> bool {
        let (word, bit) = place(index);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Whether any piece that `span` touches is in the set.
    pub(crate) fn touches(&self, span: Span) -> bool {
        !self.is_empty() && self.indices(span).any(|index| self.contains(index))
    }

    pub(crate) fn first(&self) -> Option<u64> {
        let word = self.bits.iter().position(|bits| *bits != 0)?;
        Some(word as u64 * 64 + u64::from(self.bits[word].trailing_zeros()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.bits.iter().enumerate().filter(|(_, bits)| **bits != 0);
        words.flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| word as u64 * 64 + bit)
        })
    }

    /// Adds the pieces of another set, which may be cut differently.
    pub(crate) fn extend(&mut self, other: &Self) {
        for index in other.iter() {
            self.insert(other.span(index));
        }
    }

    fn indices(&self, span: Span) -> std::ops::Range<u64> {
        span.start / self.piece..span.end.div_ceil(self.piece)
    }
}

fn place(index: u64) -> (usize, u64) {
    (
        usize::try_from(index / 64).expect("volumes are smaller than memory can count"),
        1 << (index % 64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_those_a_range_touches() {
        let mut set = Pieces::none(100);
        set.insert(Span::new(250, 100));
        assert_eq!(set.iter().collect::<Vec<_>>(), [2, 3]);
        assert!(set.touches(Span::new(399, 1)) && !set.touches(Span::new(400, 100)));
        set.insert(Span::new(7000, 1));
        assert_eq!((set.len(), set.first()), (3, Some(2)));
        set.remove(2);
        set.remove(2);
        assert_eq!((set.len(), set.first()), (2, Some(3)));
        let mut coarse = Pieces::none(1000);
        coarse.extend(&set);
        assert_eq!(coarse.iter().collect::<Vec<_>>(), [0, 7]);
        assert_eq!(Pieces::all(100, 250).len(), 3);
    }
}
