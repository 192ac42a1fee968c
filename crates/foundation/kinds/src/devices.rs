//! Group `resource.k8s.io`: devices that pods may claim, kept for clients that apply them.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print};

const GROUP: &str = "resource.k8s.io";

/// Devices of one sort, as administrators define them.
pub(crate) const CLASS: Resource = Resource {
    strategy: Strategy {
        validate: validate_class,
        validate_update: |new, _, errors| validate_class(new, errors),
        generation: true,
        ..Strategy::GENERIC
    },
    ..Resource::cluster(GROUP, "v1", "deviceclasses", "deviceclass", "DeviceClass")
};

/// A request for devices, and what was allocated for it.
pub(crate) const CLAIM: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default: |object| default_requests(object, "/spec/devices/requests"),
        validate: |object, errors| {
            validate_requests(object, "/spec/devices", &SPEC.field("devices"), errors);
        },
        validate_update: keeps_spec,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("State", "Whether devices are allocated and in use"),
            Column::AGE,
        ],
        cells: |object, now| {
            vec![print::name(object), state(object).into(), print::age(object, now)]
        },
    },
    ..Resource::namespaced(GROUP, "v1", "resourceclaims", "resourceclaim", "ResourceClaim")
};

/// The template of claims, of which each pod gets its own.
pub(crate) const TEMPLATE: Resource = Resource {
    strategy: Strategy {
        default: |object| default_requests(object, "/spec/spec/devices/requests"),
        validate: |object, errors| {
            let spec = SPEC.field("spec");
            validate_requests(object, "/spec/spec/devices", &spec.field("devices"), errors);
        },
        validate_update: keeps_spec,
        ..Strategy::GENERIC
    },
    ..Resource::namespaced(
        GROUP,
        "v1",
        "resourceclaimtemplates",
        "resourceclaimtemplate",
        "ResourceClaimTemplate",
    )
};

/// The devices that a driver offers.
pub(crate) const SLICE: Resource = Resource {
    strategy: Strategy {
        validate: validate_slice,
        validate_update: |new, old, errors| {
            validate_slice(new, errors);
            let null = Value::Null;
            let spec = |object| json::at(object, "/spec").unwrap_or(&null);
            for key in ["driver", "nodeName"] {
                check::immutable(spec(new), spec(old), key, &SPEC, errors);
            }
        },
        generation: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Node", "The node that has the devices"),
            Column::text("Driver", "Who offers them"),
            Column::text("Pool", "What the slice is a part of"),
            Column::AGE,
        ],
        cells: slice_cells,
    },
    fields: &[
        ("spec.driver", |object| json::text(object, "/spec/driver").to_owned()),
        ("spec.nodeName", |object| json::text(object, "/spec/nodeName").to_owned()),
    ],
    ..Resource::cluster(GROUP, "v1", "resourceslices", "resourceslice", "ResourceSlice")
};

fn default_requests(object: &mut Value, pointer: &str) {
    let requests = object.pointer_mut(pointer).and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly") {
            default_request(exactly);
        }
        for alternative in json::items_mut(request, "firstAvailable") {
            default_request(alternative);
        }
    }
}

fn default_request(request: &mut Value) {
    json::fill_zero(request, "allocationMode", "ExactCount");
    if json::text(request, "/allocationMode") == "ExactCount" {
        json::fill_zero(request, "count", 1);
    }
    for toleration in json::items_mut(request, "tolerations") {
        json::fill_zero(toleration, "operator", "Equal");
    }
}

fn validate_requests(object: &Value, pointer: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("requests");
    let requests = json::list(object, &format!("{pointer}/requests"));
    for (index, request) in requests.iter().enumerate() {
        let at = list.index(index);
        check::required(request, "name", &at, errors);
        match (json::at(request, "/exactly"), json::list(request, "/firstAvailable")) {
            (None, []) => {
                let detail = "exactly one of `exactly` or `firstAvailable` is required";
                errors.push(FieldError::required(at, detail));
            }
            (Some(_), [_, ..]) => {
                let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                errors.push(FieldError::invalid(at, Value::Null, detail));
            }
            (Some(exactly), []) => validate_request(exactly, &at.field("exactly"), errors),
            (None, alternatives) => {
                let list = at.field("firstAvailable");
                for (index, alternative) in alternatives.iter().enumerate() {
                    check::required(alternative, "name", &list.index(index), errors);
                    validate_request(alternative, &list.index(index), errors);
                }
            }
        }
    }
}

fn validate_request(request: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    check::required(request, "deviceClassName", path, errors);
    validate_selectors(request, path, errors);
    check::one_of(request, "allocationMode", &["All", "ExactCount"], path, errors);
    let exact = json::text(request, "/allocationMode") == "ExactCount";
    let count = json::int(request, "/count");
    if exact && count <= 0 {
        errors.push(FieldError::invalid(path.field("count"), count, "must be greater than zero"));
    }
    if !exact && count != 0 {
        let detail = "must not be specified when allocationMode is 'All'";
        errors.push(FieldError::invalid(path.field("count"), count, detail));
    }
}

fn validate_selectors(owner: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("selectors");
    for (index, selector) in json::list(owner, "/selectors").iter().enumerate() {
        let at = list.index(index);
        match selector.get("cel") {
            Some(cel) => {
                check::required(cel, "expression", &at.field("cel"), errors);
            }
            None => errors.push(FieldError::required(at.field("cel"), "")),
        }
    }
}

fn validate_class(object: &Value, errors: &mut Vec<FieldError>) {
    validate_selectors(object.get("spec").unwrap_or(&Value::Null), &SPEC, errors);
}

fn validate_slice(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = object.get("spec").unwrap_or(&null);
    check::required(spec, "driver", &SPEC, errors);
    let pool = SPEC.field("pool");
    check::required(spec.get("pool").unwrap_or(&null), "name", &pool, errors);
    let per_device = json::flag(spec, "/perDeviceNodeSelection");
    let places = [
        !json::text(spec, "/nodeName").is_empty(),
        json::has(spec, "/nodeSelector"),
        json::flag(spec, "/allNodes"),
        per_device,
    ];
    let count = places.iter().filter(|given| **given).count();
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match count {
        1 => {}
        0 => errors.push(FieldError::required(SPEC, one)),
        _ => {
            let detail = format!("{one}, but multiple fields are set");
            errors.push(FieldError::invalid(SPEC, spec.clone(), detail));
        }
    }
    let devices = SPEC.field("devices");
    for (index, device) in json::list(spec, "/devices").iter().enumerate() {
        check::required(device, "name", &devices.index(index), errors);
    }
}

fn keeps_spec(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    check::immutable(new, old, "spec", &Path::Root, errors);
}

fn state(claim: &Value) -> String {
    let mut states = Vec::new();
    let deleted = json::has(claim, "/metadata/deletionTimestamp");
    let allocated = json::has(claim, "/status/allocation");
    if deleted {
        states.push("deleted");
    }
    if allocated {
        states.push("allocated");
    } else if !deleted {
        states.push("pending");
    }
    if allocated && json::count(claim, "/status/reservedFor") > 0 {
        states.push("reserved");
    }
    states.join(",")
}

fn slice_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        print::name(object),
        print::text_or(object, "/spec/nodeName", "<unset>"),
        json::text(object, "/spec/driver").into(),
        json::text(object, "/spec/pool/name").into(),
        print::age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(row: &Resource, mut object: Value) -> Vec<String> {
        let mut errors = Vec::new();
        (row.strategy.default)(&mut object);
        (row.strategy.validate)(&object, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_request_is_for_exactly_one_or_the_first_available() {
        let claim = |request: Value| json!({"spec": {"devices": {"requests": [request]}}});
        let at = "spec.devices.requests[0]";
        for (request, expected) in [
            (json!({"name": "gpu", "exactly": {"deviceClassName": "a"}}), vec![]),
            (
                json!({"name": "gpu", "firstAvailable": [{"name": "x", "deviceClassName": "a"}]}),
                vec![],
            ),
            (
                json!({"name": "gpu"}),
                vec![format!(
                    "{at}: Required value: exactly one of `exactly` or `firstAvailable` is required"
                )],
            ),
            (
                json!({"exactly": {}}),
                vec![
                    format!("{at}.name: Required value"),
                    format!("{at}.exactly.deviceClassName: Required value"),
                ],
            ),
            (
                json!({"name": "gpu", "exactly": {"deviceClassName": "a", "selectors": [{}]}}),
                vec![format!("{at}.exactly.selectors[0].cel: Required value")],
            ),
        ] {
            assert_eq!(problems(&CLAIM, claim(request.clone())), expected, "{request}");
            let template = json!({"spec": claim(request.clone())});
            let inner: Vec<String> =
                expected.iter().map(|text| text.replacen("spec.", "spec.spec.", 1)).collect();
            assert_eq!(problems(&TEMPLATE, template), inner, "{request}");
        }
    }

    #[test]
    fn requests_are_completed() {
        let mut claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "x", "tolerations": [{"key": "k"}]}},
            {"name": "b", "exactly": {"deviceClassName": "x", "allocationMode": "All"}},
        ]}}});
        (CLAIM.strategy.default)(&mut claim);
        assert_eq!(
            claim["spec"]["devices"]["requests"],
            json!([
                {"name": "a", "exactly": {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1,
                    "tolerations": [{"key": "k", "operator": "Equal"}]}},
                {"name": "b", "exactly": {"deviceClassName": "x", "allocationMode": "All"}},
            ])
        );
    }

    #[test]
    fn a_slice_says_where_its_devices_are() {
        let slice = |more: Value| {
            let mut spec = json!({"driver": "d", "pool": {"name": "p"}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            problems(&SLICE, json!({"spec": spec}))
        };
        assert!(slice(json!({"nodeName": "n"})).is_empty());
        assert!(slice(json!({"allNodes": true})).is_empty());
        assert_eq!(slice(json!({})).len(), 1);
        assert_eq!(slice(json!({"nodeName": "n", "allNodes": true})).len(), 1);
        assert_eq!(problems(&SLICE, json!({"spec": {"allNodes": true}})).len(), 2);
    }

    #[test]
    fn the_state_of_a_claim_is_shown() {
        for (claim, expected) in [
            (json!({}), "pending"),
            (json!({"status": {"allocation": {}}}), "allocated"),
            (json!({"status": {"allocation": {}, "reservedFor": [{}]}}), "allocated,reserved"),
            (json!({"metadata": {"deletionTimestamp": "t"}}), "deleted"),
        ] {
            assert_eq!(state(&claim), expected, "{claim}");
        }
    }
}
