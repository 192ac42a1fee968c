//! Admission of VirtualMachineClones.

use serde_json::Value;

use super::network::mac_problem;
use super::{Causes, Denial, Write, patch};
use crate::state::text;

pub(super) fn validate(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    if write.old.is_none() && !write.config.has("Snapshot") {
        return Err(Denial::bad_request("snapshot feature gate is not enabled"));
    }
    let spec = &write.object["spec"];
    let mut causes = Causes::default();
    for (pointer, field) in [
        ("/annotationFilters", "spec.annotations"),
        ("/labelFilters", "spec.labels"),
        ("/template/annotationFilters", "spec.template.annotations"),
        ("/template/labelFilters", "spec.template.labels"),
    ] {
        let filters = spec.pointer(pointer).and_then(Value::as_array);
        for filter in filters.into_iter().flatten().filter_map(Value::as_str) {
            validate_filter(filter, field, &mut causes);
        }
    }
    validate_ends(spec, &mut causes);
    for (name, mac) in spec["newMacAddresses"].as_object().into_iter().flatten() {
        let mac = mac.as_str().unwrap_or_default();
        if mac_problem(mac).is_some() {
            let message = format!("interface {name} has malformed MAC address ({mac}).");
            causes.invalid(format!("spec.newMacAddresses.{name}"), message);
        }
    }
    patch::validate(write, &mut causes);
    causes.finish()?;
    Ok(Vec::new())
}

fn validate_filter(filter: &str, field: &str, causes: &mut Causes) {
    let mut characters = filter.chars();
    let (Some(_), Some(last)) = (characters.next(), filter.chars().next_back()) else { return };
    if filter == "!" {
        causes.invalid(field, "a negation character is not a valid filter");
    }
    if filter.chars().count() == 1 {
        return;
    }
    let refuse = |what: &str, character: char, rule: &str| {
        format!(
            "{field} filter {filter} is invalid: cannot contain a {what} character \
             ({character}); FilterRules: {rule}"
        )
    };
    if characters.as_str().contains('!') {
        let rule = "NegationChar can be only used at the beginning of the filter";
        causes.invalid(field, refuse("negation", '!', rule));
    }
    if filter.strip_suffix(last).is_some_and(|rest| rest.contains('*')) {
        let rule = "WildcardChar can be only at the end of the filter";
        causes.invalid(field, refuse("wildcard", '*', rule));
    }
}

fn validate_ends(spec: &Value, causes: &mut Causes) {
    let (source, target) = (&spec["source"], &spec["target"]);
    let kind = text(source, "/kind");
    if !matches!(kind, "VirtualMachine" | "VirtualMachineSnapshot") {
        causes.invalid("spec.Source.Kind", "Source kind is not supported");
    }
    if target.is_object() && text(target, "/kind") != "VirtualMachine" {
        causes.invalid("spec.Target.Kind", "Target kind is not supported");
    }
    if text(source, "/apiGroup").is_empty() {
        causes.invalid("spec.Source.APIGroup", "Source's APIGroup cannot be empty");
    }
    if kind.is_empty() {
        causes.invalid("spec.Source", "Source's Kind cannot be empty");
    }
    if text(source, "/name").is_empty() {
        causes.invalid("spec.Source.Name", "Source's name cannot be empty");
    }
    let both = kind == "VirtualMachine" && text(target, "/kind") == "VirtualMachine";
    if both && text(target, "/name") == text(source, "/name") {
        let message = "Target name cannot be equal to source name when both are VirtualMachines";
        causes.invalid("spec.target.name", message);
    }
}
