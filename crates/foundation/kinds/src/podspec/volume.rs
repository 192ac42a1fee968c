//! Volumes of a pod: unique names, and exactly one source each.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::{check, json, syntax};

pub(super) fn validate(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("volumes");
    let volumes = json::list(spec, "/volumes");
    for (index, volume) in volumes.iter().enumerate() {
        let at = list.index(index);
        validate_source(volume, &at, errors);
        let Some(name) = check::required(volume, "name", &at, errors) else { continue };
        check::each(syntax::label(name), name, &at.field("name"), errors);
        if volumes[..index].iter().any(|other| json::text(other, "/name") == name) {
            errors.push(FieldError::duplicate(at.field("name"), name));
        }
    }
}

fn validate_source(volume: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let sources: Vec<(&String, &Value)> = volume
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, source)| *key != "name" && !source.is_null())
        .collect();
    let Some((key, source)) = sources.first() else {
        errors.push(FieldError::required(path, "must specify a volume type"));
        return;
    };
    for (key, _) in sources.iter().skip(1) {
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(path.field(key), detail));
    }
    let at = path.field(key);
    let required = match key.as_str() {
        "secret" => "secretName",
        "configMap" => "name",
        "persistentVolumeClaim" => "claimName",
        "hostPath" => "path",
        "csi" => "driver",
        "image" => "reference",
        _ => return,
    };
    check::required(source, required, &at, errors);
}
