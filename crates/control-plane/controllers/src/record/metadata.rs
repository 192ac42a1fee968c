//! The metadata of any object.

use serde_json::Value;

use crate::object::read;

fields! {
    pub(crate) struct MetadataFields<'a> {
        creation_timestamp: &'a str,
        resource_version: &'a str,
    }

    /// An object of any kind.
    pub(crate) struct AnyObject<'a> {
        metadata: MetadataFields<'a>,
    }

    /// A reference to an owner.
    pub(crate) struct OwnerFields<'a> {
        kind: &'a str,
        name: &'a str,
    }
}

pub(crate) fn metadata(object: &Value) -> MetadataFields<'_> {
    read::<AnyObject<'_>>(object).metadata
}
