//! Access to other objects for the rules of custom kinds. The caller provides the objects.

use serde_json::Value;

/// Reads other objects that a rule reads. Nothing means that there is none.
pub trait Objects {
    /// `namespace` is empty for objects of the cluster.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;

    /// All of a namespace, or of all if it is empty.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value>;
}
