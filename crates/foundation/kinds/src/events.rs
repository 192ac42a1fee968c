//! Events: one storage seen as core `v1` and as `events.k8s.io/v1`.
//!
//! They are stored as core events. The newer group is stricter about what may be
//! written through it, and about nothing else.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::resource::{Column, Conversion, Printer, Resource, Strategy};
use crate::{check, json, print, syntax};

pub(crate) const CORE: Resource = Resource {
    short_names: &["ev"],
    strategy: Strategy {
        validate: |object, errors| validate(object, "reportingComponent", errors),
        validate_update: |new, _, errors| validate(new, "reportingComponent", errors),
        create_on_update: true,
        ..Strategy::GENERIC
    },
    printer: Printer { columns: COLUMNS, cells },
    fields: &[
        ("involvedObject.apiVersion", |object| text(object, "/involvedObject/apiVersion")),
        ("involvedObject.fieldPath", |object| text(object, "/involvedObject/fieldPath")),
        ("involvedObject.kind", |object| text(object, "/involvedObject/kind")),
        ("involvedObject.name", |object| text(object, "/involvedObject/name")),
        ("involvedObject.namespace", |object| text(object, "/involvedObject/namespace")),
        ("involvedObject.resourceVersion", |object| {
            text(object, "/involvedObject/resourceVersion")
        }),
        ("involvedObject.uid", |object| text(object, "/involvedObject/uid")),
        ("reason", |object| text(object, "/reason")),
        ("reportingComponent", |object| text(object, "/reportingComponent")),
        ("source", |object| {
            print::or(
                json::text(object, "/source/component"),
                json::text(object, "/reportingComponent"),
            )
        }),
        ("type", |object| text(object, "/type")),
    ],
    ..Resource::namespaced("", "v1", "events", "event", "Event")
};

pub(crate) const EVENTS: Resource = Resource {
    group: "events.k8s.io",
    strategy: Strategy {
        validate: |object, errors| {
            let core = as_core(object);
            validate(&core, "reportingController", errors);
            validate_strictly(&core, errors);
        },
        validate_update: |new, old, errors| {
            let (new, old) = (as_core(new), as_core(old));
            validate(&new, "reportingController", errors);
            validate_unchanged(&new, &old, errors);
        },
        ..CORE.strategy
    },
    printer: Printer { columns: COLUMNS, cells: |object, now| cells(&as_core(object), now) },
    fields: &[
        ("reason", |object| text(object, "/reason")),
        ("regarding.apiVersion", |object| text(object, "/regarding/apiVersion")),
        ("regarding.fieldPath", |object| text(object, "/regarding/fieldPath")),
        ("regarding.kind", |object| text(object, "/regarding/kind")),
        ("regarding.name", |object| text(object, "/regarding/name")),
        ("regarding.namespace", |object| text(object, "/regarding/namespace")),
        ("regarding.resourceVersion", |object| text(object, "/regarding/resourceVersion")),
        ("regarding.uid", |object| text(object, "/regarding/uid")),
        ("reportingController", |object| text(object, "/reportingController")),
        ("type", |object| text(object, "/type")),
    ],
    conversion: Some(Conversion { stored: ("", "v1", "Event"), to_storage, from_storage }),
    ..CORE
};

/// The same things under their two names: core, events.k8s.io.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn text(object: &Value, pointer: &str) -> String {
    json::text(object, pointer).to_owned()
}

fn to_storage(object: &mut Value) {
    for (core, events) in RENAMED {
        rename(object, events, core);
    }
    json::set(object, "apiVersion", "v1");
}

fn from_storage(object: &mut Value) {
    for (core, events) in RENAMED {
        rename(object, core, events);
    }
    json::set(object, "apiVersion", "events.k8s.io/v1");
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(value) = json::remove(object, from) {
        json::set(object, to, value);
    }
}

fn as_core(object: &Value) -> Value {
    let mut core = object.clone();
    to_storage(&mut core);
    core
}

fn validate(object: &Value, controller_field: &str, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    let namespace = json::text(object, "/metadata/namespace");
    let involved = json::text(object, "/involvedObject/namespace");
    let is_new = json::has(object, "/eventTime");
    let matches = match involved {
        "" if is_new => matches!(namespace, "default" | "kube-system"),
        "" => matches!(namespace, "" | "default"),
        _ => is_new || involved == namespace,
    };
    if !matches {
        let object = root.field("involvedObject");
        let detail = "does not match event.namespace";
        errors.push(FieldError::invalid(object.field("namespace"), involved, detail));
    }
    if !is_new {
        return;
    }
    let controller = json::text(object, "/reportingComponent");
    let path = root.field(controller_field);
    if controller.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    check::each(syntax::qualified_name(controller), controller, &path, errors);
    for (key, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        check::required(object, key, &root, errors);
        limit(object, key, most, errors);
    }
    limit(object, "message", 1024, errors);
}

fn limit(object: &Value, key: &str, most: usize, errors: &mut Vec<FieldError>) {
    if object.get(key).and_then(Value::as_str).is_some_and(|text| text.len() > most) {
        errors.push(FieldError::invalid(key, "", format!("can have at most {most} characters")));
    }
}

/// The stricter rules of the newer group for an event that it creates.
fn validate_strictly(object: &Value, errors: &mut Vec<FieldError>) {
    validate_series(object, errors);
    if !json::has(object, "/eventTime") {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = json::text(object, "/type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    for key in ["firstTimestamp", "lastTimestamp"] {
        if object.get(key).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::invalid(key, "", "needs to be unset"));
        }
    }
    if json::int(object, "/count") != 0 {
        errors.push(FieldError::invalid("count", "", "needs to be unset"));
    }
    if !json::text(object, "/source/component").is_empty()
        || !json::text(object, "/source/host").is_empty()
    {
        errors.push(FieldError::invalid("source", "", "needs to be unset"));
    }
}

fn validate_series(object: &Value, errors: &mut Vec<FieldError>) {
    if !json::has(object, "/series") {
        return;
    }
    if json::int(object, "/series/count") < 2 {
        errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
    }
    if !json::has(object, "/series/lastObservedTime") {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

/// Through the newer group only the series of an event moves on.
fn validate_unchanged(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if new.get("series") != old.get("series") {
        validate_series(new, errors);
    }
    for key in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
    ] {
        check::immutable(new, old, key, &Path::Root, errors);
    }
    for (core, shown) in
        [("reportingComponent", "reportingController"), ("reportingInstance", "reportingInstance")]
    {
        if new.get(core) != old.get(core) {
            let value = new.get(core).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(shown, value, check::IMMUTABLE));
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::text("Last Seen", "When it last happened"),
    Column::text("Type", "How serious it is"),
    Column::text("Reason", "What happened, in a word"),
    Column::text("Object", "What it happened to"),
    Column::text("Subobject", "Which part of that").wide(),
    Column::text("Source", "Who says so").wide(),
    Column::text("Message", "What happened"),
    Column::text("First Seen", "When it first happened").wide(),
    Column::text("Count", "How often it happened").wide(),
    Column::NAME.wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |pointer: &str| json::has(object, pointer);
    let first = match has("/firstTimestamp") {
        true => print::since(object, "/firstTimestamp", now),
        false => print::since(object, "/eventTime", now),
    };
    let last = if has("/series") {
        print::since(object, "/series/lastObservedTime", now)
    } else if has("/lastTimestamp") {
        print::since(object, "/lastTimestamp", now)
    } else {
        first.clone()
    };
    let count = match has("/series") {
        true => json::int(object, "/series/count"),
        false => json::int(object, "/count").max(1),
    };
    let kind = json::text(object, "/involvedObject/kind").to_lowercase();
    let target = match json::text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        json::text(object, "/type").into(),
        json::text(object, "/reason").into(),
        target.into(),
        json::text(object, "/involvedObject/fieldPath").into(),
        source(object).into(),
        json::text(object, "/message").trim().into(),
        first.into(),
        count.into(),
        print::name(object),
    ]
}

fn source(object: &Value) -> String {
    let either = |a: &str, b: &str| print::or(json::text(object, a), json::text(object, b));
    let component = either("/source/component", "/reportingComponent");
    match either("/source/host", "/reportingInstance") {
        host if host.is_empty() => component,
        host => format!("{component}, {host}"),
    }
}
