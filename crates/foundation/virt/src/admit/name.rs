//! Names on the network: host name, subdomain, resolvers.

use std::net::IpAddr;

use serde_json::Value;

use super::Causes;
use super::spec::CheckedSpec;
use crate::state::{list, text};

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let host = judged.spec.hostname.as_deref().unwrap_or_default();
    let subdomain = judged.spec.subdomain.as_deref().unwrap_or_default();
    if !host.is_empty() {
        conform(judged.field("hostname"), "DNS_LABEL", &kinds::syntax::label(host), causes);
    }
    if !subdomain.is_empty() {
        let problems = kinds::syntax::subdomain(subdomain);
        conform(judged.field("subdomain"), "DNS_SUBDOMAIN", &problems, causes);
    }
}

fn conform(field: String, rules: &str, problems: &[String], causes: &mut Causes) {
    if !problems.is_empty() {
        let problems = problems.join(", ");
        let message =
            format!("{field} does not conform to the kubernetes {rules} rules : {problems}");
        causes.invalid(field, message);
    }
}

const POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None", ""];

pub(super) fn check_dns(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let policy = judged.spec.dns_policy.as_deref().unwrap_or_default();
    if !POLICIES.contains(&policy) {
        let message =
            format!("DNSPolicy: {policy} is not supported, valid values: [{}]", POLICIES.join(" "));
        causes.unsupported(judged.field("dnsPolicy"), message);
    }
    let config = judged.spec.dns_config.as_ref().map(|config| &config.0);
    match (policy, config) {
        ("None", None) => causes.required(
            judged.field("dnsConfig"),
            "must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        ("None", Some(config)) if list(&config["nameservers"]).is_empty() => causes.required(
            "nameservers",
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        (_, Some(config)) => check_resolvers(config, causes),
        (_, None) => {}
    }
}

const MOST_SERVERS: usize = 3;
const MOST_SEARCHES: usize = 6;
const MOST_LETTERS: usize = 256;

fn check_resolvers(config: &Value, causes: &mut Causes) {
    let servers: Vec<&str> =
        list(&config["nameservers"]).iter().filter_map(Value::as_str).collect();
    if servers.len() > MOST_SERVERS {
        let message =
            format!("must not have more than {MOST_SERVERS} nameservers: [{}]", servers.join(" "));
        causes.invalid("nameservers", message);
    }
    for server in servers {
        if server.parse::<IpAddr>().is_err() {
            causes.invalid("nameservers", format!("must be valid IP address: {server}"));
        }
    }
    let searches: Vec<&str> = list(&config["searches"]).iter().filter_map(Value::as_str).collect();
    if searches.len() > MOST_SEARCHES {
        causes.invalid(
            "searchDomains",
            format!("must not have more than {MOST_SEARCHES} search paths"),
        );
    }
    if searches.join(" ").len() > MOST_LETTERS {
        let message = format!(
            "must not have more than {MOST_LETTERS} characters (including spaces) in the search list"
        );
        causes.invalid("searchDomains", message);
    }
    for search in searches {
        for problem in kinds::syntax::subdomain(search) {
            causes.invalid("searchDomains", problem);
        }
    }
    for option in list(&config["options"]) {
        if text(option, "/name").is_empty() {
            causes.invalid("options", "Option.Name must not be empty");
        }
    }
}
