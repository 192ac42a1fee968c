//! ConfigMaps.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::core::secret::{MAX_SIZE, decoded_size, validate_frozen};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{check, json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["cm"],
    strategy: Strategy {
        validate,
        validate_update: |new, old, errors| {
            validate_frozen(new, old, &["data", "binaryData"], errors);
            validate(new, errors);
        },
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[Column::NAME, Column::text("Data", "How many keys it has"), Column::AGE],
        cells: |object, now| {
            let keys = json::count(object, "/data") + json::count(object, "/binaryData");
            vec![print::name(object), keys.into(), print::age(object, now)]
        },
    },
    ..Resource::namespaced("", "v1", "configmaps", "configmap", "ConfigMap")
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    let root = Path::Root;
    let (data, binary) = (root.field("data"), root.field("binaryData"));
    for (key, value) in json::entries(object, "/data") {
        check::each(syntax::config_key(key), key, &data.key(key), errors);
        if object.get("binaryData").is_some_and(|binary| binary.get(key).is_some()) {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(data.key(key), key.as_str(), detail));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in json::entries(object, "/binaryData") {
        check::each(syntax::config_key(key), key, &binary.key(key), errors);
        size += decoded_size(value);
    }
    if size > MAX_SIZE {
        errors.push(FieldError::too_long("", MAX_SIZE));
    }
}
