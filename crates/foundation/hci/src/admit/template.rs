//! Templates and their versions: versions never change, and the default one stays.

use serde_json::Value;

use super::reference::authorize_id;
use super::{AdmissionResult, HARVESTER, Refusal, Write, split_id, text};
use crate::claim_template::claim_templates;

/// A version is named after its template.
pub(super) fn complete(object: &mut Value) {
    let is_named = ["name", "generateName"]
        .iter()
        .any(|field| object["metadata"][field].as_str().is_some_and(|name| !name.is_empty()));
    if let (false, Some((_, template))) = (is_named, split_id(text(object, "/spec/templateId"))) {
        object["metadata"]["generateName"] = format!("{template}-").into();
    }
}

pub(super) fn validate_version(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (None, Some(_)) => validate_deletion(write),
        (Some(object), Some(old)) if !write.trusted => {
            if object["spec"] == old["spec"] {
                return Ok(());
            }
            Err(Refusal::new(405, "spec", "Update templateVersion is not supported"))
        }
        (Some(object), None) => validate_creation(write, object),
        _ => Ok(()),
    }
}

fn validate_creation(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let id = text(object, "/spec/templateId");
    if id.is_empty() {
        return Err(Refusal::invalid("spec.templateId", "TemplateId is empty"));
    }
    let Some((namespace, name)) = split_id(id) else {
        return Err(Refusal::invalid(
            "spec.templateId",
            format!("TemplateId {id} is invalid: it must be NAMESPACE/NAME"),
        ));
    };
    if namespace != write.namespace {
        return Err(Refusal::invalid(
            "spec.templateId",
            "Template version and template should reside in the same namespace",
        ));
    }
    // A fresh cluster gets its templates and their versions at once.
    let is_there =
        || write.objects.get(HARVESTER, "virtualmachinetemplates", namespace, name).is_some();
    if !write.trusted && !is_there() {
        return Err(Refusal::invalid("spec.templateId", format!("template {id} is not found")));
    }
    authorize_id(write, "spec.imageId", "virtualmachineimages", text(object, "/spec/imageId"))?;
    for pair in object["spec"]["keyPairIds"].as_array().into_iter().flatten() {
        let pair = pair.as_str().unwrap_or_default();
        authorize_id(write, "spec.keyPairIds", "keypairs", pair)?;
        let found = split_id(pair).and_then(|(namespace, name)| {
            write.objects.get(HARVESTER, "keypairs", namespace, name)
        });
        if found.is_none() {
            return Err(Refusal::invalid(
                "spec.keyPairIds",
                format!("keyPair {pair} is not found"),
            ));
        }
    }
    validate_machine(&object["spec"]["vm"])
}

fn validate_machine(machine: &Value) -> AdmissionResult {
    if machine.is_null() {
        return Ok(());
    }
    claim_templates(&machine["metadata"])
        .map_err(|complaint| Refusal::invalid("spec.vm.metadata.annotations", complaint))?;
    let limits = machine.pointer("/spec/template/spec/domain/resources/limits");
    let has = |what: &str| limits.is_some_and(|limits| !limits[what].is_null());
    let message = match (has("cpu"), has("memory")) {
        (true, true) => return Ok(()),
        (false, false) => {
            "CPU and Memory limits are required fields, but are missing from the input"
        }
        (true, false) => "Memory limit is an required field, but is missing from the input",
        (false, true) => "CPU limit is an required field, but is missing from the input",
    };
    let field = "spec.vm.spec.template.spec.domain.resources.limits";
    Err(Refusal::invalid(field, message))
}

fn validate_deletion(write: &Write<'_>) -> AdmissionResult {
    // The collector removes versions of templates that are gone.
    let own = format!("{}/{}", write.namespace, write.name);
    let templates = write.objects.list(HARVESTER, "virtualmachinetemplates", write.namespace);
    let is_default = |template: &Value| {
        text(template, "/spec/defaultVersionId") == own
            && template["metadata"]["deletionTimestamp"].is_null()
    };
    if templates.iter().any(is_default) && !write.trusted {
        return Err(Refusal::new(400, "", "Cannot delete the default templateVersion"));
    }
    Ok(())
}

/// The default version must be one of the template's own.
pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    let id = text(object, "/spec/defaultVersionId");
    let before = write.old.map(|old| text(old, "/spec/defaultVersionId"));
    if id.is_empty() || before == Some(id) || write.old.is_none() {
        return Ok(());
    }
    let version = split_id(id).and_then(|(namespace, name)| {
        write.objects.get(HARVESTER, "virtualmachinetemplateversions", namespace, name)
    });
    let own = format!("{}/{}", write.namespace, write.name);
    match version {
        Some(version) if text(&version, "/spec/templateId") == own => Ok(()),
        Some(_) => Err(Refusal::invalid(
            "spec.defaultVersionId",
            format!("version {id} does not belong to template {own}"),
        )),
        None => {
            Err(Refusal::invalid("spec.defaultVersionId", format!("version {id} is not found")))
        }
    }
}
