//! Strings that many objects share, kept once.

use std::collections::BTreeSet;
use std::sync::Arc;

use client::Owner;

/// Makes equal strings one: there are few namespaces and kinds, and many objects.
#[derive(Debug, Default)]
pub(crate) struct StringInterner {
    known: BTreeSet<Arc<str>>,
    /// Size after the last sweep; at twice that, unused names are forgotten.
    swept: usize,
}

impl StringInterner {
    pub(crate) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        if self.known.len() > 64 + 2 * self.swept {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.swept = self.known.len();
        }
        let name: Arc<str> = name.into();
        self.known.insert(Arc::clone(&name));
        name
    }

    pub(crate) fn owner(&mut self, owner: &Owner) -> Owner {
        Owner {
            api_version: self.share(&owner.api_version),
            kind: self.share(&owner.kind),
            ..owner.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_one_and_unused_ones_are_forgotten() {
        let mut names = StringInterner::default();
        let kept = names.share("kept");
        assert!(Arc::ptr_eq(&kept, &names.share("kept")));
        for count in 0..10_000 {
            names.share(&count.to_string());
        }
        assert!(names.known.len() < 1000, "{}", names.known.len());
        assert!(Arc::ptr_eq(&kept, &names.share("kept")));
    }
}
