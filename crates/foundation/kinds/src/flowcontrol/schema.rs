//! FlowSchemas.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default: |object| {
            if let Some(spec) = json::object(object, "spec") {
                json::fill_zero(spec, "matchingPrecedence", 1000);
            }
        },
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        generation: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("PriorityLevel", "The level its requests belong to"),
            Column::text("MatchingPrecedence", "Which schema is asked first"),
            Column::text("DistinguisherMethod", "How flows are distinguished"),
            Column::AGE,
            Column::text("MissingPL", "Whether its level does not exist"),
        ],
        cells,
    },
    ..Resource::cluster(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "flowschemas",
        "flowschema",
        "FlowSchema",
    )
};

const MAX_PRECEDENCE: i64 = 10_000;
/// The verbs a rule may name, sorted.
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let precedence = json::int(object, "/spec/matchingPrecedence");
    let path = SPEC.field("matchingPrecedence");
    let detail = match precedence {
        ..=0 => Some("must be a positive value".to_owned()),
        1 if json::text(object, "/metadata/name") != "exempt" => {
            Some("only the schema named 'exempt' may have matchingPrecedence 1".to_owned())
        }
        _ if precedence > MAX_PRECEDENCE => {
            Some(format!("must not be greater than {MAX_PRECEDENCE}"))
        }
        _ => None,
    };
    errors.extend(detail.map(|detail| FieldError::invalid(path, precedence, detail)));
    if let Some(method) = json::at(object, "/spec/distinguisherMethod") {
        let methods = &["ByNamespace", "ByUser"];
        check::one_of(method, "type", methods, &SPEC.field("distinguisherMethod"), errors);
    }
    let level = json::text(object, "/spec/priorityLevelConfiguration/name");
    let path = SPEC.field("priorityLevelConfiguration");
    match level {
        "" => {
            let detail = "must reference a priority level";
            errors.push(FieldError::required(path.field("name"), detail));
        }
        _ => check::each(syntax::subdomain(level), level, &path.field("name"), errors),
    }
    let list = SPEC.field("rules");
    for (index, rule) in json::list(object, "/spec/rules").iter().enumerate() {
        validate_rule(rule, &list.index(index), errors);
    }
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("subjects");
    let subjects = json::list(rule, "/subjects");
    if subjects.is_empty() {
        errors.push(FieldError::required(list, "subjects must contain at least one value"));
    }
    for (index, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &list.index(index), errors);
    }
    let (resources, urls) =
        (json::list(rule, "/resourceRules"), json::list(rule, "/nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, detail));
    }
    let list = path.field("resourceRules");
    for (index, rule) in resources.iter().enumerate() {
        validate_resource_rule(rule, &list.index(index), errors);
    }
    let list = path.field("nonResourceRules");
    for (index, rule) in urls.iter().enumerate() {
        let at = list.index(index);
        validate_verbs(rule, &at, errors);
        let missing = "nonResourceURLs must contain at least one value";
        validate_list(rule, "nonResourceURLs", missing, "non-resource URLs", &at, errors);
    }
}

fn validate_subject(subject: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    const KINDS: [(&str, &str); 3] =
        [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
    let kind = json::text(subject, "/kind");
    let Some((_, wanted)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        let kinds = &["Group", "ServiceAccount", "User"];
        errors.push(FieldError::not_supported(path.field("kind"), kind, kinds));
        return;
    };
    let at = path.field(wanted);
    match json::at(subject, &format!("/{wanted}")) {
        None => {
            let detail = format!("{wanted} is required when subject kind is '{kind}'");
            errors.push(FieldError::required(at, detail));
        }
        Some(named) => {
            check::required(named, "name", &at, errors);
            if kind == "ServiceAccount" && json::text(named, "/namespace").is_empty() {
                let detail = "must specify namespace for service account";
                errors.push(FieldError::required(at.field("namespace"), detail));
            }
        }
    }
    for (other, key) in KINDS {
        if other != kind && json::has(subject, &format!("/{key}")) {
            let detail = format!("{key} is forbidden when subject kind is not '{other}'");
            errors.push(FieldError::forbidden(path.field(key), detail));
        }
    }
}

fn validate_resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    validate_verbs(rule, path, errors);
    let missing = "resource rules must supply at least one api group";
    validate_list(rule, "apiGroups", missing, "api groups", path, errors);
    let missing = "resource rules must supply at least one resource";
    validate_list(rule, "resources", missing, "resources", path, errors);
    if !json::flag(rule, "/clusterScope") || json::count(rule, "/namespaces") > 0 {
        let missing =
            "resource rules that are not cluster scoped must supply at least one namespace";
        validate_list(rule, "namespaces", missing, "namespaces", path, errors);
    }
    let list = path.field("namespaces");
    for (index, name) in json::texts(rule, "/namespaces").iter().enumerate() {
        if *name == "*" {
            continue;
        }
        for problem in syntax::label(name) {
            let detail =
                format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            errors.push(FieldError::invalid(list.index(index), *name, detail));
        }
    }
}

fn validate_verbs(rule: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let missing = "verbs must contain at least one value";
    validate_list(rule, "verbs", missing, "verbs", path, errors);
    let verbs = json::texts(rule, "/verbs");
    if !verbs.contains(&"*") && !verbs.iter().all(|verb| VERBS.contains(verb)) {
        errors.push(FieldError::not_supported(path.field("verbs"), verbs, VERBS));
    }
}

fn validate_list(
    rule: &Value,
    key: &str,
    missing: &str,
    words: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let items = json::texts(rule, &format!("/{key}"));
    if items.is_empty() {
        errors.push(FieldError::required(path.field(key), missing));
    } else if items.len() > 1 && items.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {words}");
        errors.push(FieldError::invalid(path.field(key), items, detail));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        print::name(object),
        json::text(object, "/spec/priorityLevelConfiguration/name").into(),
        json::int(object, "/spec/matchingPrecedence").into(),
        print::text_or(object, "/spec/distinguisherMethod/type", "<none>"),
        print::age(object, now),
        print::condition(object, "Dangling").unwrap_or("?").into(),
    ]
}
