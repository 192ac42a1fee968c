//! Lists, now or in the past.
//!
//! A list of the past is the present with the later events undone. That costs memory
//! only while it runs, and nothing at all for lists of the present, which is why the
//! entries are a plain ordered map and not a persistent one.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::revision::Revision;
use crate::shape::{Event, Shape, StoredVersion};

/// Which entries of a table to list, in the bytewise order of their names.
#[derive(Debug, Clone, Copy, Default)]
pub struct Range<'a> {
    /// Only names that begin with this, like `namespace/`.
    pub prefix: &'a str,
    /// Only names after this one.
    pub after: Option<&'a str>,
    pub limit: Option<usize>,
    /// The state as of this revision instead of the present. A revision that is not
    /// reached yet gives the present; the page says which it is.
    pub at: Option<Revision>,
}

pub struct Page<S: Shape> {
    pub entries: Vec<Arc<StoredVersion<S::Item>>>,
    /// The exact revision of this state: a watch from here continues it.
    pub revision: Revision,
    /// How many more entries the range has after this page.
    pub remaining: usize,
}

impl<S: Shape> Page<S> {
    pub fn has_more(&self) -> bool {
        self.remaining > 0
    }
}

impl<S: Shape> fmt::Debug for Page<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Page")
            .field("entries", &self.entries.len())
            .field("revision", &self.revision)
            .field("remaining", &self.remaining)
            .finish()
    }
}

type Entries<I> = BTreeMap<Arc<str>, Arc<StoredVersion<I>>>;

/// Lists `entries` with the events of `undo` taken back.
pub(super) fn page<'a, S: Shape>(
    entries: &'a Entries<S::Item>,
    undo: impl DoubleEndedIterator<Item = &'a Arc<Event<S>>>,
    range: Range<'_>,
    revision: Revision,
) -> Page<S> {
    // From the newest event back, so that the oldest has the last word.
    let mut undone = BTreeMap::new();
    for event in undo.rev().filter(|event| holds(&range, &event.name)) {
        undone.insert(&*event.name, event.old.as_ref());
    }
    let present = entries
        .range::<str, _>((start(&range), Bound::Unbounded))
        .take_while(|(name, _)| name.starts_with(range.prefix))
        .map(|(name, entry)| (&**name, entry));
    let mut found = overlaid(present, undone.into_iter());
    let limit = range.limit.unwrap_or(usize::MAX);
    let entries = found.by_ref().take(limit).cloned().collect();
    Page { entries, revision, remaining: found.count() }
}

fn start<'a>(range: &Range<'a>) -> Bound<&'a str> {
    match range.after {
        Some(after) if after >= range.prefix => Bound::Excluded(after),
        _ => Bound::Included(range.prefix),
    }
}

fn holds(range: &Range<'_>, name: &str) -> bool {
    name.starts_with(range.prefix) && range.after.is_none_or(|after| name > after)
}

/// Merges two sequences in order; where both have a name, `over` decides, and its
/// `None` removes.
fn overlaid<'a, T: 'a>(
    base: impl Iterator<Item = (&'a str, &'a T)>,
    over: impl Iterator<Item = (&'a str, Option<&'a T>)>,
) -> impl Iterator<Item = &'a T> {
    let (mut base, mut over) = (base.peekable(), over.peekable());
    std::iter::from_fn(move || {
        loop {
            let Some(&(name, replacement)) = over.peek() else {
                return base.next().map(|(_, entry)| entry);
            };
            match base.peek() {
                Some((other, _)) if *other < name => return base.next().map(|(_, entry)| entry),
                Some((other, _)) if *other == name => drop(base.next()),
                _ => {}
            }
            over.next();
            if replacement.is_some() {
                return replacement;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlay_replaces_adds_and_removes_in_order() {
        let base = [("a", &1), ("c", &3), ("e", &5)];
        let over = [("b", Some(&20)), ("c", None), ("d", None), ("e", Some(&50)), ("f", Some(&60))];
        let merged: Vec<_> = overlaid(base.into_iter(), over.into_iter()).copied().collect();
        assert_eq!(merged, [1, 20, 50, 60]);
    }
}
