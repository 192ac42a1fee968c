//! Validation of services.

use std::collections::BTreeSet;

use schema::{FieldError, Path};
use serde_json::Value;

use super::{is_external, needs_health_check};
use crate::check::{self, SPEC, STATUS};
use crate::core::endpoints::{PROTOCOLS, validate_ip};
use crate::{json, labels, syntax};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const FAMILY_POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    validate_type(spec, errors);
    ports(spec, errors);
    labels::validate(spec.get("selector"), &SPEC.field("selector"), errors);
    affinity(spec, errors);
    if json::text(spec, "/type") != "ExternalName" {
        addresses(spec, errors);
    }
    let list = SPEC.field("externalIPs");
    for (index, address) in json::texts(spec, "/externalIPs").iter().enumerate() {
        validate_ip(address, &list.index(index), errors);
    }
    check::required_one_of(spec, "type", TYPES, &SPEC, errors);
    balancer(object, spec, errors);
    traffic(spec, errors);
}

fn is_headless(spec: &Value) -> bool {
    json::texts(spec, "/clusterIPs") == ["None"]
}

fn validate_type(spec: &Value, errors: &mut Vec<FieldError>) {
    let kind = json::text(spec, "/type");
    if json::list(spec, "/ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.push(FieldError::required(SPEC.field("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let path = SPEC.field("clusterIPs");
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(path.index(0), "None", detail));
        }
        "ExternalName" => {
            for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !check::same(spec.get(key), None) {
                    let detail = "may not be set for ExternalName services";
                    errors.push(FieldError::forbidden(SPEC.field(key), detail));
                }
            }
            let path = SPEC.field("externalName");
            let name = json::text(spec, "/externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => errors.push(FieldError::required(path, "")),
                name => check::each(syntax::subdomain(name), name, &path, errors),
            }
        }
        _ => {}
    }
}

fn ports(spec: &Value, errors: &mut Vec<FieldError>) {
    let list = SPEC.field("ports");
    let ports = json::list(spec, "/ports");
    let (mut names, mut nodes, mut pairs) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = list.index(index);
        match json::text(port, "/name") {
            "" if ports.len() > 1 => errors.push(FieldError::required(path.field("name"), "")),
            "" => {}
            name => {
                check::each(syntax::label(name), name, &path.field("name"), errors);
                if !names.insert(name) {
                    errors.push(FieldError::duplicate(path.field("name"), name));
                }
            }
        }
        let number = json::int(port, "/port");
        for problem in syntax::port(number) {
            errors.push(FieldError::invalid(path.field("port"), number, problem));
        }
        check::required_one_of(port, "protocol", PROTOCOLS, &path, errors);
        port_or_name(port.get("targetPort"), &path.field("targetPort"), errors);
        if let Some(name) = json::text_at(port, "/appProtocol") {
            check::each(syntax::qualified_name(name), name, &path.field("appProtocol"), errors);
        }
        let (protocol, node) = (json::text(port, "/protocol"), json::int(port, "/nodePort"));
        if node != 0 && json::text(spec, "/type") == "ClusterIP" {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(path.field("nodePort"), detail));
        }
        if node != 0 && !nodes.insert((protocol, node)) {
            errors.push(FieldError::duplicate(path.field("nodePort"), node));
        }
        if !pairs.insert((protocol, number)) {
            let pair = serde_json::json!({"protocol": protocol, "port": number});
            errors.push(FieldError::duplicate(path, pair));
        }
    }
}

/// A port by number or by name.
pub(crate) fn port_or_name(value: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Some(Value::String(name)) => check::each(syntax::port_name(name), name, path, errors),
        value => {
            let number = value.and_then(Value::as_i64).unwrap_or_default();
            for problem in syntax::port(number) {
                errors.push(FieldError::invalid(path, number, problem));
            }
        }
    }
}

fn affinity(spec: &Value, errors: &mut Vec<FieldError>) {
    check::required_one_of(spec, "sessionAffinity", &["ClientIP", "None"], &SPEC, errors);
    let path = SPEC.field("sessionAffinityConfig");
    let config = json::at(spec, "/sessionAffinityConfig");
    match json::text(spec, "/sessionAffinity") {
        "None" if config.is_some() => {
            let detail = "must not be set when session affinity is None";
            errors.push(FieldError::forbidden(path, detail));
        }
        "ClientIP" => {
            let timeout = json::int(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds");
            if !(1..=86_400).contains(&timeout) {
                let path = path.field("clientIP").to_string() + ".timeoutSeconds";
                let detail = "must be greater than 0 and less than 86400";
                errors.push(FieldError::invalid(path, timeout, detail));
            }
        }
        _ => {}
    }
}

fn addresses(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("clusterIPs");
    let given = json::texts(spec, "/clusterIPs");
    let invalid = |detail: &str| FieldError::invalid(path, given.clone(), detail);
    match (json::text(spec, "/clusterIP"), given.first()) {
        ("", Some(_)) => errors.push(invalid("must be empty when `clusterIP` is not specified")),
        ("", None) => {}
        (_, None) => errors.push(FieldError::required(path, "")),
        (one, Some(first)) if one != *first => {
            errors.push(invalid("first value must match `clusterIP`"));
        }
        _ => {}
    }
    families(spec, errors);
    let before = errors.len();
    for (index, address) in given.iter().enumerate() {
        match (index, *address) {
            (0, "None") if given.len() > 1 => {
                errors.push(invalid("'None' must be the first and only value"));
            }
            (0, "None") => {}
            _ => check::each(syntax::ip(address), address, &path.index(index), errors),
        }
    }
    let readable = errors.len() == before;
    if given.len() > 2 {
        errors.push(invalid("may only hold up to 2 values"));
    }
    // Complaints about families would only confuse where addresses are not addresses.
    if !readable {
        return;
    }
    if given.len() > 1 && syntax::is_ipv4(given[0]) == syntax::is_ipv4(given[1]) {
        errors.push(invalid("may specify no more than one IP for each IP family"));
    }
    if is_headless(spec) {
        return;
    }
    let families = json::texts(spec, "/ipFamilies");
    for (index, (address, family)) in given.iter().zip(families).enumerate() {
        if FAMILIES.contains(&family) && (family == "IPv4") != syntax::is_ipv4(address) {
            let detail =
                format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(FieldError::invalid(path.index(index), *address, detail));
        }
    }
}

fn families(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("ipFamilies");
    for (index, family) in json::texts(spec, "/ipFamilies").iter().enumerate() {
        if !FAMILIES.contains(family) {
            errors.push(FieldError::not_supported(path.index(index), *family, FAMILIES));
        }
    }
    check::distinct(spec, "/ipFamilies", &path, errors);
    check::one_of(spec, "ipFamilyPolicy", FAMILY_POLICIES, &SPEC, errors);
}

fn balancer(object: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let balanced = json::text(spec, "/type") == "LoadBalancer";
    let ranges = json::texts(spec, "/loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = SPEC.field("LoadBalancerSourceRanges");
        if !balanced {
            errors.push(FieldError::forbidden(path, ONLY_BALANCED));
        }
        for (index, range) in ranges.iter().enumerate() {
            let range = range.trim();
            check::each(syntax::cidr(range), range, &path.index(index), errors);
        }
    } else if json::has(
        object,
        "/metadata/annotations/service.beta.kubernetes.io~1load-balancer-source-ranges",
    ) && !balanced
    {
        let annotations = check::METADATA.field("annotations");
        let path = annotations.key("service.beta.kubernetes.io/load-balancer-source-ranges");
        errors.push(FieldError::forbidden(path, ONLY_BALANCED));
    }
    if !balanced {
        for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if spec.get(key).is_some_and(|value| !value.is_null()) {
                errors.push(FieldError::forbidden(SPEC.field(key), ONLY_BALANCED));
            }
        }
    } else if let Some(class) = json::text_at(spec, "/loadBalancerClass") {
        let path = SPEC.field("loadBalancerClass");
        check::each(syntax::qualified_name(class), class, &path, errors);
    }
}

fn traffic(spec: &Value, errors: &mut Vec<FieldError>) {
    let policy = json::text(spec, "/externalTrafficPolicy");
    if is_external(spec) {
        check::required_one_of(spec, "externalTrafficPolicy", &["Cluster", "Local"], &SPEC, errors);
    } else if !policy.is_empty() {
        let path = SPEC.field("externalTrafficPolicy");
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(path, policy, detail));
    }
    let port = json::int(spec, "/healthCheckNodePort");
    let path = SPEC.field("healthCheckNodePort");
    if port != 0 && !needs_health_check(spec) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` \
                      is 'Local'";
        errors.push(FieldError::invalid(path, port, detail));
    } else if port != 0 {
        for problem in syntax::port(port) {
            errors.push(FieldError::invalid(path, port, problem));
        }
    }
    check::one_of(spec, "internalTrafficPolicy", &["Cluster", "Local"], &SPEC, errors);
    let distributions = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    check::one_of(spec, "trafficDistribution", distributions, &SPEC, errors);
}

pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let (spec, before) =
        (json::at(new, "/spec").unwrap_or(&null), json::at(old, "/spec").unwrap_or(&null));
    let named = |spec: &Value| json::text(spec, "/type") == "ExternalName";
    let headless = is_headless(spec) && is_headless(before);
    if !named(spec) && !named(before) && !headless {
        keeps(spec, before, "clusterIPs", "clusterIP", errors);
        if is_headless(spec) == is_headless(before) {
            keeps(spec, before, "ipFamilies", "ipFamily", errors);
        }
    }
    let balanced = |spec: &Value| json::text(spec, "/type") == "LoadBalancer";
    if balanced(spec)
        && balanced(before)
        && json::text_at(spec, "/loadBalancerClass") != json::text_at(before, "/loadBalancerClass")
    {
        let value = spec.get("loadBalancerClass").cloned().unwrap_or_default();
        let path = SPEC.field("loadBalancerClass");
        errors.push(FieldError::invalid(path, value, "may not change once set"));
    }
    if needs_health_check(spec)
        && needs_health_check(before)
        && json::int(spec, "/healthCheckNodePort") != json::int(before, "/healthCheckNodePort")
    {
        errors.push(FieldError::forbidden(SPEC.field("healthCheckNodePort"), check::IMMUTABLE));
    }
    validate(new, errors);
}

/// The first of a pair (address or family) stays; the second comes and goes with the policy.
fn keeps(spec: &Value, before: &Value, key: &str, word: &str, errors: &mut Vec<FieldError>) {
    let pointer = format!("/{key}");
    let (new, old) = (json::texts(spec, &pointer), json::texts(before, &pointer));
    let path = SPEC.field(key);
    let invalid =
        |index: usize, detail: String| FieldError::invalid(path.index(index), new.clone(), detail);
    if new.len() == old.len() {
        for (index, (new, old)) in new.iter().zip(&old).enumerate() {
            if new != old {
                errors.push(invalid(index, "may not change once set".to_owned()));
            }
        }
        return;
    }
    match (new.first(), old.first()) {
        (None, Some(_)) => errors.push(invalid(0, format!("primary {word} can not be unset"))),
        (Some(new), Some(old)) if new != old => {
            errors.push(invalid(0, "may not change once set".to_owned()));
        }
        _ => {}
    }
    if new.len() == 1 && old.len() == 2 && json::text(spec, "/ipFamilyPolicy") != "SingleStack" {
        let policy = spec.get("ipFamilyPolicy").cloned().unwrap_or_default();
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {word}");
        errors.push(FieldError::invalid(SPEC.field("ipFamilyPolicy"), policy, detail));
    }
}

pub(super) fn validate_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    let balancer = STATUS.field("loadBalancer");
    let path = balancer.field("ingress");
    let ingress = json::list(new, "/status/loadBalancer/ingress");
    if json::text(new, "/spec/type") != "LoadBalancer" && !ingress.is_empty() {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(path, detail));
        return;
    }
    load_balancer(ingress, &path, errors);
}

/// Judges where a load balancer says it answers.
pub(crate) fn load_balancer(ingress: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, ingress) in ingress.iter().enumerate() {
        let path = path.index(index);
        let address = json::text(ingress, "/ip");
        if !address.is_empty() {
            check::each(syntax::ip(address), address, &path.field("ip"), errors);
        } else if json::has(ingress, "/ipMode") {
            let detail = "may not be specified when `ip` is not set";
            errors.push(FieldError::forbidden(path.field("ipMode"), detail));
        }
        check::one_of(ingress, "ipMode", &["Proxy", "VIP"], &path, errors);
        let host = json::text(ingress, "/hostname");
        if !host.is_empty() {
            let path = path.field("hostname");
            check::each(syntax::subdomain(host), host, &path, errors);
            if syntax::ip(host).is_empty() {
                let detail = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(path, host, detail));
            }
        }
    }
}
