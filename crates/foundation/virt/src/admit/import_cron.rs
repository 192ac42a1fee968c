//! DataImportCrons, with the texts of CDI's webhook.

use crd::schedule::Schedule;
use serde_json::Value;

use super::storage::check_data_volume;
use super::{Causes, Denial, Write};
use crate::api::cdi::DataImportCron;

/// The longest name of a label, which the managed DataSource has to be.
const LONGEST_NAME: usize = 63;

pub(super) fn validate(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let new = write.object;
    let mut causes = Causes::default();
    match write.old {
        Some(old) if old["spec"] != new["spec"] => {
            causes.duplicate("DataImportCron.Spec", "Cannot update DataImportCron Spec");
        }
        Some(_) => {}
        None => check(new, &super::read(new)?, &mut causes),
    }
    causes.finish()?;
    Ok(Vec::new())
}

fn check(object: &Value, cron: &DataImportCron, causes: &mut Causes) {
    let spec = &cron.spec;
    let template = &spec.template.spec;
    let source = template.source.as_ref();
    // CDI has no http here; its content is identified by the ETag or the date of the server.
    let known = source.is_some_and(|own| own.registry.is_some() || own.http.is_some());
    if !known {
        return causes.invalid("spec.Template", "Missing source");
    }
    let settable = template.source_ref.is_none()
        && template.content_type.as_deref().unwrap_or_default().is_empty()
        && template.checkpoints.is_empty()
        && template.final_checkpoint != Some(true);
    if !settable {
        let message = "Unsettable fields: SourceRef, ContentType, Checkpoints, FinalCheckpoint";
        return causes.invalid("spec.Template", message);
    }
    check_data_volume(&object["spec"]["template"]["spec"], causes);
    if !causes.is_empty() {
        return;
    }
    if !spec.schedule.is_empty() && Schedule::parse(&spec.schedule).is_err() {
        return causes.invalid("spec.Schedule", "Illegal cron schedule");
    }
    if spec.imports_to_keep.is_some_and(|keep| keep < 0) {
        return causes.invalid("spec.ImportsToKeep", "Illegal ImportsToKeep value");
    }
    if spec.garbage_collect.as_deref().is_some_and(|own| !matches!(own, "Never" | "Outdated")) {
        return causes.invalid("spec.GarbageCollect", "Illegal GarbageCollect value");
    }
    if spec.managed_data_source.is_empty() {
        return causes.invalid("spec.ManagedDataSource", "Illegal ManagedDataSource value");
    }
    if spec.managed_data_source.len() > LONGEST_NAME {
        let message = format!("Name of data volume cannot be more than {LONGEST_NAME} characters");
        causes.invalid("", message);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(change: impl Fn(&mut Value)) -> String {
        let mut object = json!({"spec": {
            "schedule": "0 1 * * *", "managedDataSource": "d",
            "template": {"spec": {
                "source": {"registry": {"url": "docker://h/d"}},
                "storage": {"resources": {"requests": {"storage": "5Gi"}}},
            }},
        }});
        change(&mut object["spec"]);
        let mut causes = Causes::default();
        check(&object, &serde_json::from_value(object.clone()).unwrap(), &mut causes);
        causes.finish().err().map(|denial| denial.message()).unwrap_or_default()
    }

    #[test]
    fn an_import_cron_is_checked_before_it_is_kept() {
        assert_eq!(complaints(|_| {}), "");
        assert_eq!(complaints(|spec| spec["schedule"] = json!("")), "");
        let cases: [(&str, Value, &str); 5] = [
            ("schedule", json!("not a cron"), "Illegal cron schedule"),
            ("importsToKeep", json!(-1), "Illegal ImportsToKeep value"),
            ("garbageCollect", json!("Sometimes"), "Illegal GarbageCollect value"),
            ("managedDataSource", json!(""), "Illegal ManagedDataSource value"),
            ("template", json!({"spec": {"source": {"blank": {}}}}), "Missing source"),
        ];
        for (field, value, expected) in cases {
            assert_eq!(complaints(|spec| spec[field] = value.clone()), expected, "{field}");
        }
    }
}
