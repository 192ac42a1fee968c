//! CSIDrivers.

use jiff::Timestamp;
use schema::FieldError;
use serde_json::{Value, json};

use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, print};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        default,
        validate,
        validate_update,
        unconditional_update: false,
        returns_deleted: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::boolean("AttachRequired", "Whether volumes must be attached first"),
            Column::boolean("PodInfoOnMount", "Whether it receives the pod that mounts"),
            Column::boolean("StorageCapacity", "Whether it reports its capacity"),
            Column::text("TokenRequests", "Audiences of the tokens it is given"),
            Column::boolean("RequiresRepublish", "Whether mounts are repeated"),
            Column::text("Modes", "Kinds of volumes it serves"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::cluster("storage.k8s.io", "v1", "csidrivers", "csidriver", "CSIDriver")
};

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    json::fill(spec, "attachRequired", true);
    for key in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        json::fill(spec, key, false);
    }
    json::fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if json::count(spec, "/volumeLifecycleModes") == 0 {
        json::set(spec, "volumeLifecycleModes", json!(["Persistent"]));
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    let policies = &["File", "None", "ReadWriteOnceWithFSType"];
    check::one_of(spec, "fsGroupPolicy", policies, &SPEC, errors);
    token_requests(spec, errors);
    for mode in json::texts(spec, "/volumeLifecycleModes") {
        let modes = &["Persistent", "Ephemeral"];
        if !modes.contains(&mode) {
            let path = SPEC.field("volumeLifecycleModes");
            errors.push(FieldError::not_supported(path, mode, modes));
        }
    }
    if let Some(period) = json::int_at(spec, "/nodeAllocatableUpdatePeriodSeconds")
        && period < 10
    {
        let path = SPEC.field("nodeAllocatableUpdatePeriodSeconds");
        let detail = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid(path, period, detail));
    }
}

fn token_requests(spec: &Value, errors: &mut Vec<FieldError>) {
    let list = SPEC.field("tokenRequests");
    let requests = json::list(spec, "/tokenRequests");
    for (index, request) in requests.iter().enumerate() {
        let path = list.index(index);
        let audience = json::text(request, "/audience");
        if requests[..index].iter().any(|other| json::text(other, "/audience") == audience) {
            errors.push(FieldError::duplicate(path.field("audience"), audience));
            continue;
        }
        let Some(seconds) = json::int_at(request, "/expirationSeconds") else { continue };
        let detail = match seconds {
            ..600 => "may not specify a duration less than 10 minutes",
            4_294_967_297.. => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        errors.push(FieldError::invalid(path.field("expirationSeconds"), seconds, detail));
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    let null = Value::Null;
    let (spec, before) =
        (json::at(new, "/spec").unwrap_or(&null), json::at(old, "/spec").unwrap_or(&null));
    check::immutable(spec, before, "attachRequired", &SPEC, errors);
    check::immutable(spec, before, "volumeLifecycleModes", &SPEC, errors);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let audiences = match json::at(object, "/spec/tokenRequests") {
        None => "<unset>".to_owned(),
        Some(_) => {
            let requests = json::list(object, "/spec/tokenRequests").iter();
            requests.map(|request| json::text(request, "/audience")).collect::<Vec<_>>().join(",")
        }
    };
    let modes = json::texts(object, "/spec/volumeLifecycleModes");
    let attach = json::at(object, "/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true);
    vec![
        print::name(object),
        attach.into(),
        json::flag(object, "/spec/podInfoOnMount").into(),
        json::flag(object, "/spec/storageCapacity").into(),
        audiences.into(),
        json::flag(object, "/spec/requiresRepublish").into(),
        print::join_or(modes, ",", "<none>").into(),
        print::age(object, now),
    ]
}
