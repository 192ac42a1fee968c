//! Sets of instances, presets, and pools of machines.

use schema::Path;
use serde_json::Value;

use super::spec::{CheckedSpec, check};
use super::{Causes, Denial, Write, machine, read};
use crate::v1::VirtualMachineInstanceSpec;

pub(super) fn validate_replica_set(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let spec = &write.object["spec"];
    let mut causes = Causes::default();
    if !spec["template"].is_object() {
        causes.required("spec.template", "missing virtual machine template.");
        causes.finish()?;
        return Ok(Vec::new());
    }
    let typed: VirtualMachineInstanceSpec = read(&spec["template"]["spec"])?;
    let judged = CheckedSpec { at: "spec.template.spec", spec: &typed, config: write.config };
    check(&judged, &mut causes);
    check_selector(&spec["selector"], &spec["template"]["metadata"]["labels"], &mut causes);
    causes.finish()?;
    Ok(Vec::new())
}

pub(super) fn validate_preset(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let mut causes = Causes::default();
    if !write.object["spec"]["domain"].is_object() {
        causes.required("spec.domain", "missing domain.");
    }
    causes.finish()?;
    Ok(Vec::new())
}

pub(super) fn validate_pool(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let spec = &write.object["spec"];
    let mut causes = Causes::default();
    let template = &spec["virtualMachineTemplate"];
    if !template.is_object() {
        causes.required("spec.template", "missing virtual machine template.");
        causes.finish()?;
        return Ok(Vec::new());
    }
    machine::check_spec("spec.virtualMachineTemplate.spec", &template["spec"], write, &mut causes)?;
    check_selector(&spec["selector"], &template["metadata"]["labels"], &mut causes);
    check_unavailable(&spec["maxUnavailable"], &mut causes);
    for strategy in ["updateStrategy", "scaleInStrategy"] {
        let chosen = &spec[strategy];
        let chosen: Vec<&str> = ["unmanaged", "opportunistic", "proactive"]
            .into_iter()
            .filter(|kind| chosen[kind].is_object())
            .collect();
        if chosen.len() > 1 {
            let message = format!(
                "only one strategy can be configured at a time: but found {} strategies",
                chosen.join(", ")
            );
            causes.invalid(format!("spec.{strategy}"), message);
        }
    }
    if write.old.is_some_and(|old| old["spec"]["selector"] != spec["selector"]) {
        causes.invalid("spec.selector", "selector is immutable after creation.");
    }
    causes.finish()?;
    Ok(Vec::new())
}

fn check_selector(selector: &Value, labels: &Value, causes: &mut Causes) {
    let mut errors = Vec::new();
    kinds::labels::validate_selector(Some(selector), &Path::Root, &mut errors);
    if let Some(error) = errors.first() {
        causes.invalid("spec.selector", error.to_string());
    } else if !selector.is_object() || !kinds::labels::matches(selector, labels) {
        causes.invalid("spec.selector", "selector does not match labels.");
    }
}

fn check_unavailable(most: &Value, causes: &mut Causes) {
    let message = match most {
        Value::String(text) => {
            match text.strip_suffix('%').map(|percent| (percent, percent.parse::<i64>())) {
                None => "maxUnavailable percentage must end with %".to_owned(),
                Some((_, Ok(1..=100))) => return,
                Some((_, Ok(percent))) => {
                    format!("maxUnavailable percentage value {percent} must be between 1 and 100")
                }
                Some((percent, Err(_))) => format!(
                    "maxUnavailable percentage value {percent:?} is invalid: strconv.Atoi: parsing {percent:?}: invalid syntax"
                ),
            }
        }
        Value::Number(number) if number.as_i64().is_some_and(|number| number <= 0) => {
            "maxUnavailable must be greater than 0".to_owned()
        }
        _ => return,
    };
    causes.invalid("spec.maxUnavailable", message);
}
