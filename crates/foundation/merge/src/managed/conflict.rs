//! Conflicts of an apply, in the words that clients know.

use std::fmt;

use super::entries::{ManagerEntry, Operation};
use crate::path::{GoQuoted, Path};
use crate::set::Set;

/// One field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as in `"kubectl-client-side-apply" using apps/v1`.
    pub manager: String,
    pub path: Path,
    /// By which managers are sorted.
    identifier: String,
}

impl Conflict {
    /// The message of the cause in a `Status`; its reason is `FieldManagerConflict`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }

    /// The field of the cause in a `Status`.
    pub fn field(&self) -> String {
        self.path.to_string()
    }
}

/// All conflicts of one apply, grouped by manager. Displayed as the message of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// Sorts what was found per manager.
    pub(super) fn new(found: Vec<(&ManagerEntry, Set)>) -> Self {
        let mut conflicts = Vec::new();
        for (entry, set) in found {
            let (manager, identifier) = (shown(entry), entry.identifier());
            for path in set.paths() {
                let (manager, identifier) = (manager.clone(), identifier.clone());
                conflicts.push(Conflict { manager, path, identifier });
            }
        }
        conflicts.sort_by(|left, right| left.identifier.cmp(&right.identifier));
        Self(conflicts)
    }

    /// The conflicts that are not allowed.
    pub(super) fn except(mut self, allowed: &Set) -> Self {
        self.0.retain(|conflict| !allowed.has(&conflict.path.0));
        self
    }
}

impl std::error::Error for Conflicts {}

impl fmt::Display for Conflicts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [conflict] = self.0.as_slice() {
            let Conflict { manager, path, .. } = conflict;
            return write!(out, "Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        write!(out, "Apply failed with {} conflicts: ", self.0.len())?;
        for (at, group) in
            self.0.chunk_by(|left, right| left.identifier == right.identifier).enumerate()
        {
            let newline = if at == 0 { "" } else { "\n" };
            write!(out, "{newline}conflicts with {}:", group[0].manager)?;
            for conflict in group {
                write!(out, "\n- {}", conflict.path)?;
            }
        }
        Ok(())
    }
}

fn shown(entry: &ManagerEntry) -> String {
    let mut text = GoQuoted(&entry.manager).to_string();
    if !entry.subresource.is_empty() {
        text = format!("{text} with subresource {}", GoQuoted(&entry.subresource));
    }
    if entry.operation == Operation::Update {
        text = format!("{text} using {}", entry.api_version);
    }
    text
}
