//! How rules of custom kinds look at other objects. Whoever asks them brings the objects.

use serde_json::Value;

/// Reads other objects that a rule looks at. Nothing means that there is none.
pub trait Objects {
    /// `namespace` is empty for objects of the cluster.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;

    /// All of a namespace, or of all if it is empty.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value>;
}
