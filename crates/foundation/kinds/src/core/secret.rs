//! Secrets. Their data never appears in an error.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, METADATA};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy { default, prepare_update, validate, validate_update, ..Strategy::GENERIC },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Type", "What the secret is for"),
            Column::text("Data", "How many keys it has"),
            Column::AGE,
        ],
        cells: |object, now| {
            vec![
                print::name(object),
                json::text(object, "/type").into(),
                json::count(object, "/data").into(),
                print::age(object, now),
            ]
        },
    },
    fields: &[("type", |object| json::text(object, "/type").to_owned())],
    ..Resource::namespaced("", "v1", "secrets", "secret", "Secret")
};

/// The most bytes a Secret or ConfigMap may hold.
pub(crate) const MAX_SIZE: usize = 1024 * 1024;

const OPAQUE: &str = "Opaque";
const DATA: Path<'static> = Path::Field(&Path::Root, "data");

/// Folds `stringData`, which is write-only, into `data`; an absent type is `Opaque`.
fn default(object: &mut Value) {
    let plain = json::remove(object, "stringData");
    let plain: Vec<(String, String)> = plain
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), BASE64_STANDARD.encode(value.as_str()?))))
        .collect();
    if !plain.is_empty()
        && let Some(data) = json::object(object, "data")
    {
        for (key, value) in plain {
            json::set(data, &key, value);
        }
    }
    json::fill_zero(object, "type", OPAQUE);
}

fn prepare_update(new: &mut Value, old: &Value) {
    json::fill_zero(new, "type", json::text(old, "/type"));
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in json::entries(object, "/data") {
        check::each(syntax::config_key(key), key, &DATA.key(key), errors);
        size += decoded_size(value);
    }
    if size > MAX_SIZE {
        errors.push(FieldError::too_long(DATA, MAX_SIZE));
    }
    validate_type(object, errors);
}

fn validate_type(object: &Value, errors: &mut Vec<FieldError>) {
    let has = |key: &str| object.get("data").is_some_and(|data| data.get(key).is_some());
    let mut require = |key: &str| {
        if !has(key) {
            errors.push(FieldError::required(DATA.key(key), ""));
        }
    };
    match json::text(object, "/type") {
        "kubernetes.io/service-account-token" => {
            const KEY: &str = "kubernetes.io/service-account.name";
            if json::text(object, "/metadata/annotations/kubernetes.io~1service-account.name")
                .is_empty()
            {
                let annotations = METADATA.field("annotations");
                errors.push(FieldError::required(annotations.key(KEY), ""));
            }
        }
        "kubernetes.io/dockercfg" => validate_json(object, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_json(object, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if json::text(object, "/data/ssh-privatekey").is_empty() => {
            errors.push(FieldError::required(DATA.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        _ => {}
    }
}

fn validate_json(object: &Value, key: &str, errors: &mut Vec<FieldError>) {
    let Some(value) = object.get("data").and_then(|data| data.get(key)) else {
        errors.push(FieldError::required(DATA.key(key), ""));
        return;
    };
    let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
        // Only where the reading stopped, never what was read.
        let detail = match error.is_eof() {
            true => "unexpected end of JSON input".to_owned(),
            false => format!("invalid JSON at line {} column {}", error.line(), error.column()),
        };
        errors.push(FieldError::invalid(DATA.key(key), "<secret contents redacted>", detail));
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    check::immutable(new, old, "type", &Path::Root, errors);
    validate_frozen(new, old, &["data"], errors);
    validate(new, errors);
}

/// Once `immutable` is set, neither it nor the content changes any more.
pub(crate) fn validate_frozen(
    new: &Value,
    old: &Value,
    content: &[&str],
    errors: &mut Vec<FieldError>,
) {
    const FROZEN: &str = "field is immutable when `immutable` is set";
    if !json::flag(old, "/immutable") {
        return;
    }
    if !json::flag(new, "/immutable") {
        errors.push(FieldError::forbidden("immutable", FROZEN));
    }
    for key in content {
        if !check::same(new.get(key), old.get(key)) {
            errors.push(FieldError::forbidden(key, FROZEN));
        }
    }
}

/// The decoded size of a base64 text in bytes.
pub(crate) fn decoded_size(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.trim_end_matches('=').len() * 3 / 4
}
