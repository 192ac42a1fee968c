//! PriorityLevelConfigurations.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        generation: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Type", "Whether it is limited"),
            Column::text("NominalConcurrencyShares", "Its share of the server"),
            Column::text("Queues", "How many queues it has"),
            Column::text("HandSize", "How many queues a flow may use"),
            Column::text("QueueLengthLimit", "How long a queue may grow"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::cluster(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "prioritylevelconfigurations",
        "prioritylevelconfiguration",
        "PriorityLevelConfiguration",
    )
};

const EXEMPT: &str = "exempt";
const QUEUES_MAX: i64 = 10_000_000;

fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    if let Some(exempt) = spec.get_mut("exempt") {
        json::fill(exempt, "nominalConcurrencyShares", 0);
        json::fill(exempt, "lendablePercent", 0);
    }
    if let Some(limited) = spec.get_mut("limited") {
        json::fill(limited, "nominalConcurrencyShares", 30);
        json::fill(limited, "lendablePercent", 0);
        if let Some(queuing) = limited.pointer_mut("/limitResponse/queuing") {
            json::fill_zero(queuing, "handSize", 8);
            json::fill_zero(queuing, "queues", 64);
            json::fill_zero(queuing, "queueLengthLimit", 50);
        }
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    let kind = json::text(spec, "/type");
    if (json::text(object, "/metadata/name") == EXEMPT) != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid(SPEC.field("type"), kind, detail));
    }
    let (limited, exempt) = (json::at(spec, "/limited"), json::at(spec, "/exempt"));
    match kind {
        "Exempt" => {
            if limited.is_some() {
                let detail = "must be nil if the type is not Limited";
                errors.push(FieldError::forbidden(SPEC.field("limited"), detail));
            }
            if let Some(exempt) = exempt {
                validate_shares(exempt, &SPEC.field("exempt"), errors);
            }
        }
        "Limited" => {
            if exempt.is_some() {
                let detail = "must be nil if the type is Limited";
                errors.push(FieldError::forbidden(SPEC.field("exempt"), detail));
            }
            match limited {
                Some(limited) => validate_limited(limited, &SPEC.field("limited"), errors),
                None => {
                    let detail = "must not be empty when type is Limited";
                    errors.push(FieldError::required(SPEC.field("limited"), detail));
                }
            }
        }
        _ => check::required_one_of(spec, "type", &["Exempt", "Limited"], &SPEC, errors),
    }
}

fn validate_shares(level: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(shares) = json::int_at(level, "/nominalConcurrencyShares")
        && shares < 0
    {
        let detail = "must be a non-negative integer";
        errors.push(FieldError::invalid(path.field("nominalConcurrencyShares"), shares, detail));
    }
    if let Some(percent) = json::int_at(level, "/lendablePercent") {
        for problem in syntax::in_range(percent, 0, 100) {
            errors.push(FieldError::invalid(path.field("lendablePercent"), percent, problem));
        }
    }
}

fn validate_limited(limited: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    validate_shares(limited, path, errors);
    if let Some(percent) = json::int_at(limited, "/borrowingLimitPercent")
        && percent < 0
    {
        let detail = "if specified, must be a non-negative integer";
        errors.push(FieldError::invalid(path.field("borrowingLimitPercent"), percent, detail));
    }
    let at = path.field("limitResponse");
    let null = Value::Null;
    let response = limited.get("limitResponse").unwrap_or(&null);
    check::required_one_of(response, "type", &["Queue", "Reject"], &at, errors);
    match (json::text(response, "/type"), json::at(response, "/queuing")) {
        ("Reject", Some(_)) => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            errors.push(FieldError::forbidden(at.field("queuing"), detail));
        }
        ("Queue", None) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(FieldError::required(at.field("queuing"), detail));
        }
        ("Queue", Some(queuing)) => validate_queuing(queuing, &at.field("queuing"), errors),
        _ => {}
    }
}

fn validate_queuing(queuing: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let get = |key: &str| json::int(queuing, &format!("/{key}"));
    for key in ["queueLengthLimit", "queues", "handSize"] {
        if get(key) <= 0 {
            errors.push(FieldError::invalid(path.field(key), get(key), "must be positive"));
        }
    }
    let (queues, hand) = (get("queues"), get("handSize"));
    if queues > QUEUES_MAX {
        let detail = format!("must not be greater than {QUEUES_MAX}");
        errors.push(FieldError::invalid(path.field("queues"), queues, detail));
    }
    if hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.push(FieldError::invalid(path.field("handSize"), hand, detail));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let show = |pointer: &str| -> Value {
        json::int_at(object, pointer).map_or("<none>".into(), Value::from)
    };
    let queuing = "/spec/limited/limitResponse/queuing";
    vec![
        print::name(object),
        json::text(object, "/spec/type").into(),
        show("/spec/limited/nominalConcurrencyShares"),
        show(&format!("{queuing}/queues")),
        show(&format!("{queuing}/handSize")),
        show(&format!("{queuing}/queueLengthLimit")),
        print::age(object, now),
    ]
}
