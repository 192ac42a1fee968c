//! The names of our keys in etcd.
//!
//! ```text
//! {prefix}/{table}//{name}     a value and its tag, see `value.rs`
//! {prefix}///offset            decimal: our revisions are etcd's plus this
//! {prefix}///copy              present while another store is being copied here
//! {prefix}///compact           "{done} {next}": see the module that compacts
//! {prefix}///marker            empty, written to make the watch report progress
//! ```
//!
//! Tables and names both contain slashes, so the two are separated by a double one,
//! which a table never has: the first `//` ends the table. Our own records are the
//! table with no name. Keys of others under the same prefix, which have no `//`, are
//! passed over.

use std::sync::Arc;

#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The prefix of every key, of ours and of the values.
    pub(super) fn root(&self) -> String {
        format!("{}/", self.prefix)
    }

    pub(super) fn value(&self, table: &str, name: &str) -> String {
        format!("{}/{table}//{name}", self.prefix)
    }

    pub(super) fn offset(&self) -> String {
        self.value("", "offset")
    }

    pub(super) fn copying(&self) -> String {
        self.value("", "copy")
    }

    pub(super) fn compaction(&self) -> String {
        self.value("", "compact")
    }

    pub(super) fn marker(&self) -> String {
        self.value("", "marker")
    }

    /// The table and name of a key that holds a value.
    pub(super) fn parse<'a>(&self, key: &'a [u8]) -> Option<(&'a str, &'a str)> {
        let key = std::str::from_utf8(key).ok()?;
        let key = key.strip_prefix(&*self.prefix)?.strip_prefix('/')?;
        let (table, name) = key.split_once("//")?;
        (!table.is_empty() && !name.is_empty()).then_some((table, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_again_under_their_key() {
        let keys = Keys::new("/registry");
        for (table, name) in [
            ("configmaps", "default/a"),
            ("kubevirt.io/virtualmachines", "default/a"),
            ("nodes", "a"),
            ("odd", "/a//b/"),
        ] {
            let key = keys.value(table, name);
            assert_eq!(keys.parse(key.as_bytes()), Some((table, name)), "{key}");
        }
    }

    #[test]
    fn other_keys_are_passed_over() {
        let keys = Keys::new("/registry");
        for key in [
            keys.offset(),
            keys.marker(),
            "/registry/pods/default/a".into(),
            "/registry/pods//".into(),
            "/registry".into(),
            "/other/pods//a".into(),
            "/registry2/pods//a".into(),
        ] {
            assert_eq!(keys.parse(key.as_bytes()), None, "{key}");
        }
    }
}
