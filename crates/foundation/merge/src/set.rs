//! Sets of fields: a tree whose nodes say whether the field itself belongs to
//! the set. Kept sorted, so that every operation is one pass over both sides.

use std::cmp::Ordering;
use std::fmt;

use crate::path::{Path, PathElement};

mod codec;

pub use codec::SetError;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// Sorted by element; every node is a member or has members below it.
    pub(crate) nodes: Vec<SetNode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetNode {
    pub(crate) element: PathElement,
    /// Whether the path that ends here belongs to the set.
    pub(crate) member: bool,
    pub(crate) below: Set,
}

impl SetNode {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl Set {
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// A set of plain field paths, such as `[&["status"], &["metadata", "name"]]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of paths.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.below.len()).sum()
    }

    /// Adds a path; its parents do not become members. The empty path, the whole
    /// object, is never a member.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.descend(first);
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    fn descend(&mut self, element: &PathElement) -> &mut SetNode {
        let at = match self.find(element) {
            Ok(at) => at,
            Err(at) => {
                let element = element.clone();
                self.nodes.insert(at, SetNode { element, member: false, below: Self::new() });
                at
            }
        };
        &mut self.nodes[at]
    }

    /// Adds a whole branch; branches that arrive in order cost nothing to place.
    pub(crate) fn graft(&mut self, element: PathElement, member: bool, below: Set) {
        if !member && below.is_empty() {
            return;
        }
        if self.nodes.last().is_none_or(|last| last.element < element) {
            self.nodes.push(SetNode { element, member, below });
            return;
        }
        match self.find(&element) {
            Ok(at) => {
                let node = &mut self.nodes[at];
                node.member |= member;
                node.below = std::mem::take(&mut node.below).union(&below);
            }
            Err(at) => self.nodes.insert(at, SetNode { element, member, below }),
        }
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    pub(crate) fn node(&self, element: &PathElement) -> Option<&SetNode> {
        self.find(element).ok().map(|at| &self.nodes[at])
    }

    /// The paths that begin with `element`, without it.
    pub fn below(&self, element: &PathElement) -> Option<&Set> {
        self.node(element).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    /// Whether the path itself belongs to the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.node(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.node(first).is_some_and(|node| node.below.has(rest)),
        }
    }

    /// Whether every path belongs to the other set as well.
    pub fn is_within(&self, other: &Set) -> bool {
        self.nodes.iter().all(|node| match other.node(&node.element) {
            Some(twin) => (twin.member || !node.member) && node.below.is_within(&twin.below),
            None => false,
        })
    }

    /// The paths of either set.
    pub fn union(mut self, other: &Set) -> Set {
        if other.is_empty() {
            return self;
        }
        if self.is_empty() {
            return other.clone();
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut right = other.nodes.iter().peekable();
        for mut node in self.nodes.drain(..) {
            while let Some(smaller) = right.next_if(|right| right.element < node.element) {
                nodes.push(smaller.clone());
            }
            if let Some(same) = right.next_if(|right| right.element == node.element) {
                node.member |= same.member;
                node.below = node.below.union(&same.below);
            }
            nodes.push(node);
        }
        nodes.extend(right.cloned());
        Set { nodes }
    }

    /// The paths that belong to both sets.
    pub fn intersection(&self, other: &Set) -> Set {
        let mut nodes = Vec::new();
        zip(self, other, |left, right| {
            if let (Some(left), Some(right)) = (left, right) {
                let node = SetNode {
                    member: left.member && right.member,
                    below: left.below.intersection(&right.below),
                    element: left.element.clone(),
                };
                nodes.extend(Some(node).filter(|node| !node.is_empty()));
            }
        });
        Set { nodes }
    }

    /// The paths of this set that are not in the other.
    pub fn difference(&self, other: &Set) -> Set {
        let mut set = self.clone();
        set.subtract(other);
        set
    }

    /// Removes the paths of the other set; whether any was there.
    pub(crate) fn subtract(&mut self, other: &Set) -> bool {
        let mut changed = false;
        for gone in &other.nodes {
            let Ok(at) = self.find(&gone.element) else { continue };
            let node = &mut self.nodes[at];
            changed |= node.member && gone.member;
            node.member &= !gone.member;
            changed |= node.below.subtract(&gone.below);
            if node.is_empty() {
                self.nodes.remove(at);
            }
        }
        changed
    }

    /// The paths of this set that neither are in the other nor lie below one of its paths.
    pub fn recursive_difference(mut self, other: &Set) -> Set {
        for gone in &other.nodes {
            let Ok(at) = self.find(&gone.element) else { continue };
            if gone.member {
                self.nodes.remove(at);
                continue;
            }
            let node = &mut self.nodes[at];
            node.below = std::mem::take(&mut node.below).recursive_difference(&gone.below);
            if node.is_empty() {
                self.nodes.remove(at);
            }
        }
        self
    }

    /// The members that have no members below them.
    pub fn leaves(&self) -> Set {
        let leaves = self.nodes.iter().map(|node| SetNode {
            element: node.element.clone(),
            member: node.member && node.below.is_empty(),
            below: node.below.leaves(),
        });
        Set { nodes: leaves.collect() }
    }

    /// Calls `see` with every path: the members of a level before what lies below it.
    pub fn for_each(&self, mut see: impl FnMut(&[PathElement])) {
        self.walk(&mut Vec::new(), &mut see);
    }

    fn walk(&self, prefix: &mut Vec<PathElement>, see: &mut dyn FnMut(&[PathElement])) {
        for node in self.nodes.iter().filter(|node| node.member) {
            prefix.push(node.element.clone());
            see(prefix);
            prefix.pop();
        }
        for node in self.nodes.iter().filter(|node| !node.below.is_empty()) {
            prefix.push(node.element.clone());
            node.below.walk(prefix, see);
            prefix.pop();
        }
    }

    /// Every path, in the order of [`Set::for_each`].
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.for_each(|path| paths.push(Path(path.to_vec())));
        paths
    }
}

impl FromIterator<Path> for Set {
    fn from_iter<T: IntoIterator<Item = Path>>(paths: T) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.0);
        }
        set
    }
}

impl fmt::Display for Set {
    /// One path per line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, path) in self.paths().iter().enumerate() {
            let newline = if at == 0 { "" } else { "\n" };
            write!(out, "{newline}{path}")?;
        }
        Ok(())
    }
}

/// Walks two sets together, in order.
fn zip<'a>(
    left: &'a Set,
    right: &'a Set,
    mut see: impl FnMut(Option<&'a SetNode>, Option<&'a SetNode>),
) {
    let (mut lefts, mut rights) = (left.nodes.iter().peekable(), right.nodes.iter().peekable());
    loop {
        let order = match (lefts.peek(), rights.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.element.cmp(&right.element),
        };
        match order {
            Ordering::Less => see(lefts.next(), None),
            Ordering::Greater => see(None, rights.next()),
            Ordering::Equal => see(lefts.next(), rights.next()),
        }
    }
}

#[cfg(test)]
mod tests;
