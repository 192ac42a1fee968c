//! CertificateSigningRequests.
//!
//! The API server fills in the requester (`spec.username` and so on), and checks that the request
//! is signed by its own key; here is everything that needs neither a session nor cryptography.

pub(crate) mod trust_bundle;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use schema::FieldError;
use serde_json::{Value, json};

use crate::check::{self, SPEC, STATUS};
use crate::resource::{Column, NameRule, Printer, Resource, Strategy, Subresource};
use crate::{duration, json, print, status, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["csr"],
    subresources: &[
        Subresource { name: "approval", kind: None, verbs: &["get", "patch", "update"] },
        Subresource::STATUS,
    ],
    strategy: Strategy {
        name: NameRule::PathSegment,
        prepare_create,
        prepare_update: |new, old| {
            json::restore(new, old, "spec");
            status::keep(new, old);
        },
        validate,
        validate_update: |new, old, errors| {
            validate(new, errors);
            keeps_verdicts(new, old, errors);
        },
        prepare_status,
        validate_status,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::AGE,
            Column::text("SignerName", "Who is to sign"),
            Column::text("Requestor", "Who asked"),
            Column::text("RequestedDuration", "How long it should be valid"),
            Column::text("Condition", "What became of it"),
        ],
        cells,
    },
    fields: &[("spec.signerName", |object| json::text(object, "/spec/signerName").to_owned())],
    ..Resource::cluster(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "certificatesigningrequest",
        "CertificateSigningRequest",
    )
};

/// The usages of a key, sorted.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// The two verdicts on a request.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

/// For `/approval`: only the conditions may change.
pub fn prepare_approval(new: &mut Value, old: &Value) {
    let conditions = json::at(new, "/status/conditions").cloned();
    json::restore(new, old, "spec");
    json::restore(new, old, "status");
    if let Some(status) = json::object(new, "status") {
        json::set(status, "conditions", conditions.unwrap_or_else(|| json!([])));
    }
}

/// For `/approval`: verdicts may be given but not taken back.
pub fn validate_approval(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    keeps_conditions(new, old, errors);
}

fn prepare_create(object: &mut Value) {
    if let Some(spec) = json::object(object, "spec") {
        for key in ["username", "uid", "groups", "extra"] {
            json::remove(spec, key);
        }
    }
    json::set(object, "status", json!({}));
}

fn prepare_status(new: &mut Value, old: &Value) {
    status::only(new, old);
    // A verdict that the client sends back reworded is still the old one.
    let Some(conditions) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut)
    else {
        return;
    };
    for condition in conditions {
        let kind = json::text(condition, "/type");
        if VERDICTS.contains(&kind)
            && let Some(before) = find(old, kind).first()
        {
            *condition = (*before).clone();
        }
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    validate_request(object, errors);
    if json::list(object, "/spec/usages").is_empty() {
        errors.push(FieldError::required(SPEC.field("usages"), ""));
    }
    let path = SPEC.field("usages");
    for (index, usage) in json::texts(object, "/spec/usages").iter().enumerate() {
        if !USAGES.contains(usage) {
            errors.push(FieldError::not_supported(path.index(index), *usage, USAGES));
        }
    }
    check::distinct(object, "/spec/usages", &path, errors);
    validate_signer(json::text(object, "/spec/signerName"), errors);
    if let Some(seconds) = json::int_at(object, "/spec/expirationSeconds")
        && seconds < 600
    {
        let path = SPEC.field("expirationSeconds");
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(path, seconds, detail));
    }
    validate_conditions(object, errors);
}

fn validate_request(object: &Value, errors: &mut Vec<FieldError>) {
    let request = json::text(object, "/spec/request");
    let bytes = BASE64_STANDARD.decode(request).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if !text.trim_start().starts_with("-----BEGIN CERTIFICATE REQUEST-----") {
        let detail = "PEM block type must be CERTIFICATE REQUEST";
        errors.push(FieldError::invalid(SPEC.field("request"), request, detail));
    }
}

fn validate_signer(name: &str, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("signerName");
    if name == LEGACY_SIGNER {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid(path, name, detail));
        return;
    }
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let (domain, rest) = match name.split('/').collect::<Vec<_>>().as_slice() {
        [domain, rest] => (*domain, *rest),
        _ => {
            let detail = "must be a fully qualified domain and path of the form \
                          'example.com/signer-name'";
            errors.push(FieldError::invalid(path, name, detail));
            return;
        }
    };
    let halves: [(&str, syntax::SyntaxRule); 2] =
        [(domain, syntax::label), (rest, syntax::subdomain)];
    for (half, problems) in halves {
        let labels = half.split('.').map(|label| (label, problems(label)));
        if let Some((label, problems)) = labels.into_iter().find(|(_, it)| !it.is_empty()) {
            errors.extend(problems.into_iter().map(|problem| {
                FieldError::invalid(path, half, format!("validating label {label:?}: {problem}"))
            }));
        }
    }
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, domain, detail));
    }
}

fn validate_conditions(object: &Value, errors: &mut Vec<FieldError>) {
    let list = STATUS.field("conditions");
    let conditions = json::list(object, "/status/conditions");
    for (index, condition) in conditions.iter().enumerate() {
        let path = list.index(index);
        let kind = check::required(condition, "type", &path, errors).unwrap_or_default();
        let only_true = ["Approved", "Denied", "Failed"].contains(&kind);
        let valid: &[&str] = if only_true { &["True"] } else { &["False", "True", "Unknown"] };
        check::required_one_of(condition, "status", valid, &path, errors);
        let before = || conditions[..index].iter().map(|other| json::text(other, "/type"));
        let other =
            VERDICTS.into_iter().find(|verdict| VERDICTS.contains(&kind) && *verdict != kind);
        if other.is_some_and(|other| before().any(|before| before == other)) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(list, kind, detail));
        }
        if before().any(|before| before == kind) {
            errors.push(FieldError::duplicate(path.field("type"), kind));
        }
    }
}

fn validate_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    keeps_verdicts(new, old, errors);
    let before = json::text(old, "/status/certificate");
    if !before.is_empty() && before != json::text(new, "/status/certificate") {
        let detail = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden(STATUS.field("certificate"), detail));
    }
}

/// A decision cannot be removed.
fn keeps_conditions(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for kind in ["Approved", "Denied", "Failed"] {
        if find(new, kind).len() < find(old, kind).len() {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden(STATUS.field("conditions"), detail));
        }
    }
}

/// Outside `/approval`, verdicts do not change at all.
fn keeps_verdicts(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    keeps_conditions(new, old, errors);
    for kind in VERDICTS {
        let (now, before) = (find(new, kind), find(old, kind));
        let verb = match now.len().cmp(&before.len()) {
            std::cmp::Ordering::Greater => "add",
            std::cmp::Ordering::Equal if now != before => "modify",
            _ => continue,
        };
        let detail = format!("updates may not {verb} a condition of type {kind:?}");
        errors.push(FieldError::forbidden(STATUS.field("conditions"), detail));
    }
}

fn find<'a>(object: &'a Value, kind: &str) -> Vec<&'a Value> {
    let conditions = json::list(object, "/status/conditions").iter();
    conditions.filter(|condition| json::text(condition, "/type") == kind).collect()
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |kind: &str| !find(object, kind).is_empty();
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !json::text(object, "/status/certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let lifetime = json::int_at(object, "/spec/expirationSeconds");
    vec![
        print::name(object),
        print::age(object, now),
        print::or(json::text(object, "/spec/signerName"), "<none>").into(),
        json::text(object, "/spec/username").into(),
        lifetime.map_or("<none>".to_owned(), duration::human_duration).into(),
        condition.into(),
    ]
}
