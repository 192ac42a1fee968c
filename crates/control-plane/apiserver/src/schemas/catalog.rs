//! The catalog: all kinds that are served now. It is replaced as a whole when a kind is added or
//! removed.

use std::collections::HashMap;
use std::sync::Arc;

use crate::http::respond::{self, HttpReply};
use crate::schemas::served::{KindOrigin, ServedKind};
use crate::status::{ApiError, ApiResult};

/// An immutable table of served kinds.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    by_path: HashMap<String, Arc<ServedKind>>,
    /// In the order of discovery: the first match of a bare plural wins in kubectl.
    all: Vec<Arc<ServedKind>>,
    /// Grows with each change; documents derived from the catalog are cached by it.
    pub generation: u64,
}

/// A group with its versions, the preferred first.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub name: Arc<str>,
    pub versions: Vec<Arc<str>>,
}

impl Catalog {
    pub(crate) fn new(all: Vec<Arc<ServedKind>>, generation: u64) -> Self {
        let by_path = all
            .iter()
            .map(|served| (path(&served.group, &served.version, &served.plural), served.clone()))
            .collect();
        Self { by_path, all, generation }
    }

    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<&Arc<ServedKind>> {
        self.by_path.get(&path(group, version, plural))
    }

    pub(crate) fn find_kind(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Option<&Arc<ServedKind>> {
        self.all.iter().find(|served| {
            &*served.group == group && &*served.version == version && &*served.kind == kind
        })
    }

    /// A kind at the version that clients prefer.
    pub(crate) fn preferred(&self, group: &str, plural: &str) -> Option<&Arc<ServedKind>> {
        self.all
            .iter()
            .filter(|served| &*served.group == group && &*served.plural == plural)
            .max_by_key(|served| priority(&served.version))
    }

    /// The answer to a path that no kind has. Upstream has no component that words it where
    /// there is no such group.
    pub(crate) fn nothing(&self, group: &str, version: &str) -> ApiResult<HttpReply> {
        if self.of(group, version).next().is_none() {
            return Ok(respond::nowhere());
        }
        Err(ApiError::unknown_resource())
    }

    pub(crate) fn all(&self) -> &[Arc<ServedKind>] {
        &self.all
    }

    pub(crate) fn of(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<ServedKind>> {
        self.all.iter().filter(move |served| &*served.group == group && &*served.version == version)
    }

    pub(crate) fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for served in &self.all {
            let known = groups.iter().position(|group| group.name == served.group);
            let group = match known {
                Some(at) => &mut groups[at],
                None => {
                    groups.push(Group { name: served.group.clone(), versions: Vec::new() });
                    groups.last_mut().expect("one was just pushed")
                }
            };
            if !group.versions.contains(&served.version) {
                group.versions.push(served.version.clone());
            }
        }
        for group in &mut groups {
            group.versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        }
        // A bare plural means the kind of the first group that has it: custom groups without any
        // stable version come last, so that they do not hide kinds of the same name.
        groups.sort_by_key(|group| self.is_experimental(&group.name));
        groups
    }
}

impl Catalog {
    /// Whether a group has only custom kinds in alpha versions.
    fn is_experimental(&self, group: &str) -> bool {
        let mut kinds = self.all.iter().filter(|served| &*served.group == group);
        kinds.all(|served| {
            matches!(served.origin, KindOrigin::Custom(_)) && priority(&served.version).0 == ALPHA
        })
    }
}

fn path(group: &str, version: &str, plural: &str) -> String {
    format!("{group}/{version}/{plural}")
}

/// The first part of the priority of an alpha version.
const ALPHA: u8 = 1;

/// Kubernetes' order of versions: GA above beta above alpha, then by number; others last.
pub(crate) fn priority(version: &str) -> (u8, u32, u32, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse::<u32>() else { return other };
    let (stability, minor) = match &rest[digits..] {
        "" => (3, Some(0)),
        tail => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor.parse().ok()),
            (_, Some(minor)) => (ALPHA, minor.parse().ok()),
            _ => (0, None),
        },
    };
    match minor {
        Some(minor) => (stability, major, minor, std::cmp::Reverse(String::new())),
        None => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_kubernetes_sorts_them() {
        let mut versions = ["v1alpha1", "foo1", "v2", "v1beta2", "v11beta2", "v10", "v1", "foo10"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v1beta2", "v1alpha1", "foo1", "foo10"]
        );
    }
}
