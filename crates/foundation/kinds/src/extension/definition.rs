//! CustomResourceDefinitions, as objects; their schemas are judged in `schema`.
//!
//! Upstream moves what all versions share to the top before it validates, so errors in
//! shared columns and subresources name `spec.…` and not `spec.versions[…]`.

use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::check::{self, METADATA, SPEC, STATUS};
use crate::custom::{validate_column, validate_selectable, validate_simple_path};
use crate::resource::{Printer, Resource, Strategy, Subresource};
use crate::webhook::{default_port, validate_client, validate_review_versions};
use crate::{json, status, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    table: "apiextensions.k8s.io/customresourcedefinitions",
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        prepare_create: |object| {
            status::drop(object);
            remember_stored(object);
        },
        prepare_update: |new, old| {
            status::keep(new, old);
            remember_stored(new);
        },
        validate: |object, errors| {
            validate_name(object, errors);
            validate(object, errors);
            approval(object, None, errors);
            preserve(object, None, errors);
        },
        validate_update,
        validate_status: |new, _, errors| validate_status(new, errors),
        generation: true,
        unconditional_update: false,
        ..Strategy::WITH_STATUS
    },
    printer: Printer::CREATED,
    ..Resource::cluster(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "customresourcedefinition",
        "CustomResourceDefinition",
    )
};

const APPROVAL: &str = "api-approved.kubernetes.io";

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    let kind = json::text(spec, "/names/kind").to_owned();
    if let Some(names) = json::object(spec, "names") {
        json::fill_zero(names, "singular", kind.to_lowercase());
        if !kind.is_empty() {
            json::fill_zero(names, "listKind", format!("{kind}List"));
        }
    }
    json::fill(spec, "conversion", json!({"strategy": "None"}));
    if let Some(service) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        default_port(service);
    }
    if json::count(object, "/status/storedVersions") == 0 {
        remember_stored(object);
    }
}

/// Adds the storage version to those that objects may be stored in.
fn remember_stored(object: &mut Value) {
    let storage = json::list(object, "/spec/versions")
        .iter()
        .find(|version| json::flag(version, "/storage"))
        .map(|version| json::text(version, "/name").to_owned());
    if let Some(storage) = storage
        && let Some(status) = json::object(object, "status")
    {
        json::fill(status, "storedVersions", json!([]));
        if let Some(stored) = status.get_mut("storedVersions").and_then(Value::as_array_mut)
            && !stored.iter().any(|version| version == storage.as_str())
        {
            stored.push(storage.into());
        }
    }
}

fn validate_name(object: &Value, errors: &mut Vec<FieldError>) {
    let name = json::text(object, "/metadata/name");
    let wanted = format!(
        "{}.{}",
        json::text(object, "/spec/names/plural"),
        json::text(object, "/spec/group")
    );
    if name != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(METADATA.field("name"), name, detail));
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    group(spec, errors);
    check::required_one_of(spec, "scope", &["Cluster", "Namespaced"], &SPEC, errors);
    versions(spec, errors);
    shared(spec, errors);
    let path = SPEC.field("names");
    let names = spec.get("names").unwrap_or(&null);
    for key in ["plural", "singular", "kind", "listKind"] {
        check::required(names, key, &path, errors);
    }
    validate_names(names, &path, errors);
    conversion(spec, errors);
    validate_status(object, errors);
    stored_versions(object, errors);
}

fn group(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(group) = check::required(spec, "group", &SPEC, errors) else { return };
    let problems = syntax::subdomain(group);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(SPEC.field("group"), group, problems.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid(SPEC.field("group"), group, detail));
    }
}

fn versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let list = SPEC.field("versions");
    let versions = json::list(spec, "/versions");
    let name = |version| json::text(version, "/name");
    for (index, version) in versions.iter().enumerate() {
        let path = list.index(index);
        if !json::has(version, "/schema/openAPIV3Schema") {
            let schema = path.field("schema");
            errors.push(FieldError::required(schema.field("openAPIV3Schema"), ""));
        }
        let problems = syntax::label_1035(name(version));
        if !problems.is_empty() {
            errors.push(FieldError::invalid(path.field("name"), name(version), problems.join(",")));
        }
        deprecation(version, &path, errors);
        if !is_shared(versions, "subresources") {
            subresources(version, &path.field("subresources"), errors);
        }
        if !is_shared(versions, "additionalPrinterColumns") {
            columns(version, &path, errors);
        }
        if !is_shared(versions, "selectableFields") {
            validate_selectable(version, &path, errors);
        }
    }
    let given = || spec.get("versions").cloned().unwrap_or_default();
    let unique = (1..versions.len())
        .all(|index| !versions[..index].iter().any(|other| name(other) == name(&versions[index])));
    if !unique {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid(list, given(), detail));
    }
    if versions.iter().filter(|version| json::flag(version, "/storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(list, given(), detail));
    }
}

/// Whether all versions say the same of `key`, and something.
fn is_shared(versions: &[Value], key: &str) -> bool {
    let first = versions.first().and_then(|version| version.get(key));
    !check::same(first, None) && versions.iter().all(|version| check::same(version.get(key), first))
}

fn shared(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = json::list(spec, "/versions");
    let Some(first) = versions.first() else { return };
    if is_shared(versions, "subresources") {
        subresources(first, &SPEC.field("subresources"), errors);
    }
    if is_shared(versions, "additionalPrinterColumns") {
        columns(first, &SPEC, errors);
    }
    if is_shared(versions, "selectableFields") {
        validate_selectable(first, &SPEC, errors);
    }
}

fn deprecation(version: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(warning) = json::text_at(version, "/deprecationWarning") else { return };
    let mut refuse = |detail: String| {
        errors.push(FieldError::invalid(path.field("deprecationWarning"), warning, detail));
    };
    if !json::flag(version, "/deprecated") {
        refuse("can only be set for deprecated versions".to_owned());
        return;
    }
    if warning.len() > 256 {
        refuse("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        refuse("must not be an empty string".to_owned());
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, char)| char.is_control()) {
        refuse(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index \
             {index}"
        ));
    }
}

fn columns(version: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("additionalPrinterColumns");
    for (index, column) in json::list(version, "/additionalPrinterColumns").iter().enumerate() {
        validate_column(column, &list.index(index), errors);
    }
}

fn subresources(version: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(scale) = json::at(version, "/subresources/scale") else { return };
    for (key, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let name = format!("scale.{key}");
        let at = path.field(&name);
        let text = json::text(scale, &format!("/{key}"));
        if text.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if validate_simple_path(text, &at, errors) && !text.starts_with(root) {
            let detail = format!("should be a json path under {}", root.trim_end_matches('.'));
            errors.push(FieldError::invalid(at, text, detail));
        }
    }
    let text = json::text(scale, "/labelSelectorPath");
    let at = path.field("scale.labelSelectorPath");
    if !text.is_empty()
        && validate_simple_path(text, &at, errors)
        && !text.starts_with(".spec.")
        && !text.starts_with(".status.")
    {
        let detail = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(at, text, detail));
    }
}

fn validate_names(names: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut judge = |at: Path<'_>, text: &str, prefix: &str| {
        let problems = syntax::label_1035(&match prefix {
            "" => text.to_owned(),
            _ => text.to_lowercase(),
        });
        if !problems.is_empty() {
            let detail = format!("{prefix}{}", problems.join(","));
            errors.push(FieldError::invalid(at, text, detail));
        }
    };
    for key in ["plural", "singular", "kind", "listKind"] {
        let text = json::text(names, &format!("/{key}"));
        let mixed = "may have mixed case, but should otherwise match: ";
        let prefix = if key.to_lowercase().ends_with("kind") { mixed } else { "" };
        if !text.is_empty() {
            judge(path.field(key), text, prefix);
        }
    }
    for key in ["shortNames", "categories"] {
        let list = path.field(key);
        for (index, text) in json::texts(names, &format!("/{key}")).iter().enumerate() {
            judge(list.index(index), text, "");
        }
    }
    let (kind, list_kind) = (json::text(names, "/kind"), json::text(names, "/listKind"));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(path.field("listKind"), list_kind, detail));
    }
}

fn conversion(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(conversion) = json::at(spec, "/conversion") else { return };
    let path = SPEC.field("conversion");
    check::required_one_of(conversion, "strategy", &["None", "Webhook"], &path, errors);
    let client = path.field("webhookClientConfig");
    let reviews = path.field("conversionReviewVersions");
    let versions = json::texts(conversion, "/webhook/conversionReviewVersions");
    let config = json::at(conversion, "/webhook/clientConfig");
    if json::text(conversion, "/strategy") == "Webhook" {
        match config {
            Some(config) => validate_client(config, &client, errors),
            None => {
                let detail = "required when strategy is set to Webhook";
                errors.push(FieldError::required(client, detail));
            }
        }
        validate_review_versions(&versions, "", &reviews, errors);
    } else {
        const UNUSED: &str = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.push(FieldError::forbidden(client, UNUSED));
        }
        if !versions.is_empty() {
            errors.push(FieldError::forbidden(reviews, UNUSED));
        }
    }
}

fn validate_status(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let names = json::at(object, "/status/acceptedNames").unwrap_or(&null);
    validate_names(names, &STATUS.field("acceptedNames"), errors);
}

fn stored_versions(object: &Value, errors: &mut Vec<FieldError>) {
    let path = STATUS.field("storedVersions");
    let stored = json::texts(object, "/status/storedVersions");
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid(path, stored, detail));
        return;
    }
    let versions = json::list(object, "/spec/versions");
    for version in versions.iter().filter(|version| json::flag(version, "/storage")) {
        let name = json::text(version, "/name");
        if !stored.contains(&name) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(path, stored.clone(), detail));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| json::text(version, "/name") == *name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must \
                 remain in spec.versions until a storage migration ensures no data remains \
                 persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(path.index(index), *name, detail));
        }
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    let null = Value::Null;
    let (spec, before) =
        (json::at(new, "/spec").unwrap_or(&null), json::at(old, "/spec").unwrap_or(&null));
    let names = |spec: &Value| spec.get("names").cloned().unwrap_or_default();
    let path = SPEC.field("names");
    if crate::print::condition(old, "Established") == Some("True") {
        check::immutable(spec, before, "scope", &SPEC, errors);
        check::immutable(&names(spec), &names(before), "kind", &path, errors);
    }
    check::immutable(spec, before, "group", &SPEC, errors);
    check::immutable(&names(spec), &names(before), "plural", &path, errors);
    approval(new, Some(old), errors);
    preserve(new, Some(old), errors);
}

/// Unknown fields are kept by the schema, not by a switch of old.
fn preserve(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let set = |object| json::flag(object, "/spec/preserveUnknownFields");
    if set(object) && !old.is_some_and(set) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid(SPEC.field("preserveUnknownFields"), true, detail));
    }
}

/// Groups below `k8s.io` and `kubernetes.io` need the word of their owners.
fn approval(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let group = json::text(object, "/spec/group");
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    let given = |object: &Value| -> String {
        json::text(object, "/metadata/annotations/api-approved.kubernetes.io").to_owned()
    };
    let text = given(object);
    let is_good = |text: &str| text.starts_with("unapproved") || text.contains("://");
    let unchanged = old.is_some_and(|old| {
        let before = given(old);
        before.is_empty() == text.is_empty() && is_good(&before) == is_good(&text)
    });
    if !protected || unchanged || is_good(&text) {
        return;
    }
    let annotations = METADATA.field("annotations");
    let path = annotations.key(APPROVAL);
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let rule = format!("protected groups must have approval annotation {APPROVAL:?}");
    errors.push(match text.as_str() {
        "" => FieldError::required(path, format!("{rule}, {SEE}")),
        _ => {
            let detail =
                format!("{rule} with either a URL or a reason starting with \"unapproved\", {SEE}");
            FieldError::invalid(path, text, detail)
        }
    });
}
