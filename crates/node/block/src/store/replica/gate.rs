//! Which reads may still use the files of a layer that is being dropped.

/// Knows when every read that may still use a file has ended, while others go on.
///
/// Reads enter on the open side. To wait, the sides are changed when the other one is empty;
/// then the side that was open runs empty.
#[derive(Debug, Default)]
pub(super) struct Gate {
    reads: [u32; 2],
    open: Side,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Side {
    #[default]
    A,
    B,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl Gate {
    pub(super) fn enter(&mut self) -> Side {
        self.reads[self.open as usize] += 1;
        self.open
    }

    pub(super) fn leave(&mut self, side: Side) {
        self.reads[side as usize] -= 1;
    }

    /// Changes sides if that is possible. Gives the side that must run empty.
    pub(super) fn change(&mut self) -> Option<Side> {
        let old = self.open;
        (self.reads[old.other() as usize] == 0).then(|| {
            self.open = old.other();
            old
        })
    }

    pub(super) fn is_empty(&self, side: Side) -> bool {
        self.reads[side as usize] == 0
    }
}
