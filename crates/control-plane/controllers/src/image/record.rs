//! Images of disks.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::read;
use crate::record::fields;

fields! {
    pub(super) struct ImageFields<'a> {
        spec: ImageSpec<'a>,
        status: ImageStatusFields<'a>,
    }

    pub(super) struct ImageSpec<'a> {
        backend: &'a str,
        source_type: &'a str,
        url: Option<&'a str>,
        checksum: &'a str,
        pvc_namespace: &'a str,
        pvc_name: &'a str,
        retry: Option<i64>,
        target_storage_class_name: Option<&'a str>,
        storage_class_parameters: BTreeMap<&'a str, &'a str>,
        security_parameters: SecurityParameters<'a>,
    }

    /// The source of an image that is a clone of another.
    pub(super) struct SecurityParameters<'a> {
        crypto_operation: &'a str,
        source_image_namespace: &'a str,
        source_image_name: &'a str,
    }

    pub(super) struct ImageStatusFields<'a> {
        failed: Option<i64>,
        last_failed_time: &'a str,
    }
}

impl<'a> ImageSpec<'a> {
    /// A parameter of the storage class, empty if there is none.
    pub(super) fn parameter(&self, key: &str) -> &'a str {
        self.storage_class_parameters.get(key).copied().unwrap_or_default()
    }
}

pub(super) fn spec(image: &Value) -> ImageSpec<'_> {
    read::<ImageFields<'_>>(image).spec
}

pub(super) fn status(image: &Value) -> ImageStatusFields<'_> {
    read::<ImageFields<'_>>(image).status
}
