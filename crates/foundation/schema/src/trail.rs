//! A path that is built while walking down and cut while coming back:
//! `spec.list[0].name`. Cheaper than [`Path`](crate::Path) where the walk mutates.

#[derive(Debug, Default)]
pub(crate) struct Trail {
    text: String,
}

/// Where to cut; returned by every push.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct TrailMark(usize);

impl Trail {
    pub(crate) fn push_field(&mut self, name: &str) -> TrailMark {
        let mark = TrailMark(self.text.len());
        if mark.0 > 0 {
            self.text.push('.');
        }
        self.text.push_str(name);
        mark
    }

    pub(crate) fn push_index(&mut self, index: usize) -> TrailMark {
        let mark = TrailMark(self.text.len());
        self.text.push_str(&format!("[{index}]"));
        mark
    }

    pub(crate) fn pop(&mut self, mark: TrailMark) {
        self.text.truncate(mark.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The path of a child, without going there.
    pub(crate) fn with_field(&self, name: &str) -> String {
        if self.text.is_empty() { name.to_owned() } else { format!("{}.{name}", self.text) }
    }
}
