//! The little of an object's metadata that following the whole cluster needs.
//!
//! Reading it skips labels, annotations and managed fields, so that a large object costs
//! no more than a small one.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

/// Metadata of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    pub uid: Arc<str>,
    pub resource_version: String,
    /// Whether `deletionTimestamp` is set.
    #[serde(rename = "deletionTimestamp", deserialize_with = "present")]
    pub deleting: bool,
    #[serde(deserialize_with = "null_is_empty")]
    pub finalizers: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub owner_references: Vec<Owner>,
}

impl Meta {
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|own| own == finalizer)
    }
}

/// One owner reference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl Owner {
    /// Whether the owner, deleted in the foreground, has to wait for this dependent.
    pub fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}

/// Any object, of which only the metadata is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Partial {
    pub(crate) metadata: Meta,
}

/// One page of a list of anything.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetadataPage {
    pub(crate) metadata: PageMeta,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) items: Vec<Partial>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    pub(crate) r#continue: Option<String>,
}

fn present<'de, D: Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(input)?.is_some())
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(input)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_keeps_and_skips_the_rest() {
        let text = r#"{"kind":"PartialObjectMetadata","metadata":{"name":"a","namespace":"n",
            "uid":"u","resourceVersion":"7","deletionTimestamp":"2026-01-01T00:00:00Z",
            "finalizers":["x/y"],"labels":{"a":"b"},"managedFields":[{"fieldsV1":{}}],
            "ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"ou",
            "blockOwnerDeletion":true}]},"spec":{}}"#;
        let meta = serde_json::from_str::<Partial>(text).unwrap().metadata;
        assert_eq!((&*meta.name, &*meta.namespace, &*meta.uid), ("a", "n", "u"));
        assert!(meta.deleting && meta.has_finalizer("x/y"));
        assert!(meta.owner_references[0].blocks());
    }

    #[test]
    fn nulls_read_as_absent() {
        let text = r#"{"metadata":{"name":"a","uid":"u","deletionTimestamp":null,
            "finalizers":null,"ownerReferences":null}}"#;
        let meta = serde_json::from_str::<Partial>(text).unwrap().metadata;
        assert!(!meta.deleting && meta.finalizers.is_empty() && meta.owner_references.is_empty());
    }
}
