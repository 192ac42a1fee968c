//! Presets: parts of a domain that are written into every new instance whose labels they
//! select. Upstream has deprecated them and applies them still.

use serde_json::{Value, json};

use super::object;
use crate::state::text;

const EXCLUDED: &str = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";
/// Parts of a domain that a preset may bring, each as a whole.
const PARTS: &[&str] = &[
    "/resources/requests",
    "/cpu",
    "/firmware",
    "/features",
    "/devices/watchdog",
    "/ioThreadsPolicy",
];
/// A clock's offset and timers come one by one.
const CLOCK: &[&str] = &["/clock/utc", "/clock/timezone", "/clock/timer"];

/// Presets that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("VirtualMachinePresets cannot be applied due to conflicts: {0}")]
pub(crate) struct PresetConflict(String);

/// Writes the presets that select `vmi` into it. Fields that the instance sets itself stay.
pub(crate) fn apply_presets(vmi: &mut Value, presets: Vec<Value>) -> Result<(), PresetConflict> {
    if vmi.pointer("/metadata/annotations").is_some_and(|own| own[EXCLUDED] == "true") {
        return Ok(());
    }
    let labels = vmi.pointer("/metadata/labels").cloned().unwrap_or_default();
    let mut presets: Vec<Value> = presets
        .into_iter()
        .filter(|preset| kinds::labels::matches(&preset["spec"]["selector"], &labels))
        .collect();
    presets.sort_by(|one, other| text(one, "/metadata/name").cmp(text(other, "/metadata/name")));
    for (index, one) in presets.iter().enumerate() {
        for other in &presets[..index] {
            check(one, other)?;
        }
    }
    for preset in &presets {
        let domain = object(object(vmi, "spec"), "domain");
        if merge(domain, &preset["spec"]["domain"]) {
            let key =
                format!("virtualmachinepreset.kubevirt.io/{}", text(preset, "/metadata/name"));
            object(object(vmi, "metadata"), "annotations")[key] = json!("kubevirt.io/v1");
        }
    }
    Ok(())
}

fn check(one: &Value, other: &Value) -> Result<(), PresetConflict> {
    let conflicts: Vec<String> = PARTS
        .iter()
        .chain(CLOCK)
        .filter_map(|part| {
            let found = |preset: &Value| preset.pointer(&format!("/spec/domain{part}")).cloned();
            let (own, others) = (found(one)?, found(other)?);
            let field = part.replace('/', ".");
            (own != others).then(|| format!("spec{field}: {own} != {others}"))
        })
        .collect();
    if conflicts.is_empty() {
        return Ok(());
    }
    let name = |preset| text(preset, "/metadata/name");
    let conflicts = conflicts.join(", ");
    let what = format!("presets '{}' and '{}' conflict: {conflicts}", name(one), name(other));
    Err(PresetConflict(what))
}

/// Fills what is missing; answers whether the domain now has any part as the preset wants it.
fn merge(domain: &mut Value, preset: &Value) -> bool {
    let mut applied = false;
    for part in PARTS.iter().chain(CLOCK) {
        let Some(wanted) = preset.pointer(part) else { continue };
        if domain.pointer(part).is_none() {
            let (above, last) = part.rsplit_once('/').unwrap_or_default();
            let mut at = &mut *domain;
            for step in above.split('/').filter(|step| !step.is_empty()) {
                at = object(at, step);
            }
            at[last] = wanted.clone();
        }
        applied |= domain.pointer(part) == Some(wanted);
    }
    applied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str, selector: Value, domain: Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"selector": selector, "domain": domain}})
    }

    fn instance(domain: Value) -> Value {
        json!({"metadata": {"labels": {"os": "win"}}, "spec": {"domain": domain}})
    }

    #[test]
    fn unset_fields_of_an_instance_come_from_its_presets() {
        let windows = json!({"matchLabels": {"os": "win"}});
        let presets = vec![
            preset("cores", windows.clone(), json!({"cpu": {"cores": 4}})),
            preset(
                "rest",
                windows.clone(),
                json!({"clock": {"utc": {}, "timer": {"hpet": {}}}, "devices": {"watchdog": {"name": "w"}}}),
            ),
            preset("other", json!({"matchLabels": {"os": "bsd"}}), json!({"features": {"x": 1}})),
        ];
        let mut vmi = instance(json!({"clock": {"timezone": "UTC"}}));
        apply_presets(&mut vmi, presets.clone()).unwrap();
        let domain = &vmi["spec"]["domain"];
        assert_eq!(domain["cpu"], json!({"cores": 4}));
        assert_eq!(domain["devices"]["watchdog"]["name"], "w");
        assert_eq!(domain["clock"]["timer"], json!({"hpet": {}}));
        assert!(domain.get("features").is_none());
        let annotations = vmi["metadata"]["annotations"].as_object().unwrap();
        let annotations: Vec<&String> = annotations.keys().collect();
        assert_eq!(
            annotations,
            ["virtualmachinepreset.kubevirt.io/cores", "virtualmachinepreset.kubevirt.io/rest"]
        );

        let mut own = instance(json!({"cpu": {"cores": 1}}));
        apply_presets(&mut own, presets[..1].to_vec()).unwrap();
        assert_eq!(own["spec"]["domain"]["cpu"], json!({"cores": 1}));
        assert!(own["metadata"].get("annotations").is_none(), "nothing was applied");

        let mut left_out = instance(json!({}));
        left_out["metadata"]["annotations"] = json!({EXCLUDED: "true"});
        apply_presets(&mut left_out, presets).unwrap();
        assert_eq!(left_out["spec"]["domain"], json!({}));
    }

    #[test]
    fn presets_that_contradict_each_other_are_refused() {
        let cores = |name: &str, cores: u32| {
            preset(name, json!({"matchLabels": {"os": "win"}}), json!({"cpu": {"cores": cores}}))
        };
        let refusal = apply_presets(&mut instance(json!({})), vec![cores("b", 2), cores("a", 1)]);
        assert_eq!(
            refusal.unwrap_err().to_string(),
            "VirtualMachinePresets cannot be applied due to conflicts: presets 'b' and 'a' \
             conflict: spec.cpu: {\"cores\":2} != {\"cores\":1}"
        );
    }
}
