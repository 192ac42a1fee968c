//! The definitions are ones that the server accepts, and the first objects keep their schemas.

use schema::{FieldError, ObjectLevel, Path, check_status_root, check_structural, parse, prune};
use serde_json::Value;

#[test]
fn every_definition_is_one_that_the_server_accepts() {
    let resource = kinds::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap();
    for definition in hci::definitions() {
        let name = &definition["metadata"]["name"];
        let mut object = definition.clone();
        (resource.strategy.default)(&mut object);
        (resource.strategy.prepare_create)(&mut object);
        let mut errors: Vec<FieldError> = Vec::new();
        (resource.strategy.validate)(&object, &mut errors);
        for version in object["spec"]["versions"].as_array().unwrap() {
            let raw = &version["schema"]["openAPIV3Schema"];
            errors.extend(check_structural(raw, &Path::Root));
            errors.extend(check_status_root(raw, &Path::Root));
        }
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_first_objects_keep_their_schemas() {
    let definitions: Vec<Value> = hci::definitions().collect();
    let mut seen = 0;
    for object in hci::first_objects().into_iter().chain(hci::driver_objects()) {
        let Some((group, _)) = object["apiVersion"].as_str().unwrap().split_once('/') else {
            continue;
        };
        let found = definitions.iter().find(|definition| {
            definition["spec"]["group"] == group
                && definition["spec"]["names"]["kind"] == object["kind"]
        });
        let Some(definition) = found else { continue };
        let raw = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let schema = parse(raw).unwrap();
        let name = &object["metadata"]["name"];
        assert_eq!(
            prune(&mut object.clone(), &schema, ObjectLevel::Root),
            Vec::<String>::new(),
            "{name}"
        );
        let errors = schema::validate(&object, None, &schema);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, Vec::<String>::new(), "{} {name}", object["kind"]);
        seen += 1;
    }
    assert!(seen > 80, "{seen}");
}

/// Adds the paths of fields without a description. Lists and maps are described by their field.
fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        // Kubernetes describes the metadata of objects itself.
        let is_metadata = name == "metadata" && !path.contains('.');
        let path = format!("{path}.{name}");
        let is_described = field["description"].as_str().is_some_and(|text| !text.is_empty());
        if !is_described && !is_metadata {
            found.push(path.clone());
        }
        undescribed(field, &path, found);
    }
    for inner in ["items", "additionalProperties"].iter().filter_map(|name| schema.get(name)) {
        undescribed(inner, path, found);
    }
}

#[test]
fn every_kind_and_field_has_a_description() {
    let mut found = Vec::new();
    for definition in hci::definitions() {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            if schema["description"].as_str().is_none_or(str::is_empty) {
                found.push(kind.to_owned());
            }
            undescribed(schema, kind, &mut found);
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
