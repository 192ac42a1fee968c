//! Where a webhook is: a URL or a service. Shared by admission and conversion.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::{check, json, syntax};

/// The port of a service that does not say.
pub(crate) fn default_port(service: &mut Value) {
    json::fill(service, "port", 443);
}

/// Demands exactly one of `url` and `service`, and judges it.
pub(crate) fn validate_client(config: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match (json::text_at(config, "/url"), json::at(config, "/service")) {
        (Some(url), None) => validate_url(url, &path.field("url"), errors),
        (None, Some(service)) => validate_service(service, &path.field("service"), errors),
        _ => {
            let detail = "exactly one of url or service is required";
            errors.push(FieldError::required(path, detail));
        }
    }
}

fn validate_url(url: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let mut refuse = |value: &str, detail: String| {
        errors.push(FieldError::invalid(path, value, detail));
    };
    if scheme != "https" {
        refuse(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        refuse(host, format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        refuse(user, "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        refuse(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        refuse(query, "query parameters are not permitted in the URL".to_owned());
    }
}

fn validate_service(service: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    check::required(service, "name", path, errors);
    check::required(service, "namespace", path, errors);
    let port = json::int(service, "/port");
    let problems = syntax::port(port);
    if !problems.is_empty() {
        let detail = format!("port is not valid: {}", problems.join(", "));
        errors.push(FieldError::invalid(path.field("port"), port, detail));
    }
    let at = path.field("path");
    let text = json::text(service, "/path");
    if text.is_empty() || text == "/" {
        return;
    }
    let Some(steps) = text.strip_prefix('/') else {
        errors.push(FieldError::invalid(at, text, "must start with a '/'"));
        return;
    };
    for (index, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            let detail = format!("segment[{index}] may not be empty");
            errors.push(FieldError::invalid(at, text, detail));
            continue;
        }
        for problem in syntax::subdomain(step) {
            let detail = format!("segment[{index}]: {problem}");
            errors.push(FieldError::invalid(at, text, detail));
        }
    }
}

/// Demands versions of reviews, at least one of which the server speaks.
pub(crate) fn validate_review_versions(
    versions: &[&str],
    missing: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if versions.is_empty() {
        errors.push(FieldError::required(path, missing));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let at = path.index(index);
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(at, *version, "duplicate version"));
        } else {
            check::each(syntax::label_1035(version), version, &at, errors);
        }
    }
    if !versions.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(path, versions.to_vec(), detail));
    }
}
