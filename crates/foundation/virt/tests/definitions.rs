//! The definitions are ones that the server takes, and manifests in upstream's shapes fit
//! their schemas without a field too many.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use schema::{
    ObjectLevel, Path, check_status_root, check_structural, parse, prune, unknown_fields,
};
use serde_json::{Value, json};

const EXAMPLES: &[&str] = &[
    include_str!("examples/machine.json"),
    include_str!("examples/capk-machine.json"),
    include_str!("examples/instance.json"),
    include_str!("examples/sets.json"),
    include_str!("examples/sizes.json"),
    include_str!("examples/cluster.json"),
    include_str!("examples/volumes.json"),
    include_str!("examples/copies.json"),
];

fn examples() -> Vec<Value> {
    let lists = EXAMPLES.iter().map(|text| serde_json::from_str::<Vec<Value>>(text).unwrap());
    lists.flatten().collect()
}

/// The schema of an object's kind at its version.
fn schema_of(object: &Value) -> schema::Schema {
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let definition = virt::definitions()
        .find(|definition| {
            definition["spec"]["group"] == group
                && definition["spec"]["names"]["kind"] == object["kind"]
        })
        .unwrap_or_else(|| panic!("no definition of {}", object["kind"]));
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let found = versions.iter().find(|candidate| candidate["name"] == version);
    let found = found.unwrap_or_else(|| panic!("{} has no {version}", object["kind"]));
    parse(&found["schema"]["openAPIV3Schema"]).unwrap()
}

fn texts(errors: &[schema::FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn every_definition_is_one_that_the_server_accepts() {
    let resource = kinds::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap();
    for definition in virt::definitions() {
        let name = &definition["metadata"]["name"];
        let mut object = definition.clone();
        (resource.strategy.default)(&mut object);
        (resource.strategy.prepare_create)(&mut object);
        let mut errors = Vec::new();
        (resource.strategy.validate)(&object, &mut errors);
        for version in object["spec"]["versions"].as_array().unwrap() {
            let raw = &version["schema"]["openAPIV3Schema"];
            errors.extend(check_structural(raw, &Path::Root));
            errors.extend(check_status_root(raw, &Path::Root));
            assert_eq!(unknown_fields(raw), Vec::<String>::new(), "{name}");
        }
        assert_eq!(texts(&errors), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn examples_are_valid_and_nothing_of_them_is_dropped() {
    for object in examples() {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let schema = schema_of(&object);
        let mut pruned = object.clone();
        assert_eq!(prune(&mut pruned, &schema, ObjectLevel::Root), Vec::<String>::new(), "{name}");
        assert_eq!(
            texts(&schema::validate(&object, None, &schema)),
            Vec::<String>::new(),
            "{name}"
        );
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, field)| !field.is_null());
            kept.map(|(name, field)| (name, without_nulls(field))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

#[test]
fn typed_objects_lose_nothing() {
    use virt::api::{cdi, instancetype, pool};
    use virt::v1;
    fn round<T: serde::Serialize + serde::de::DeserializeOwned>(object: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
    }
    let mut seen = 0;
    for object in examples() {
        let written = match object["kind"].as_str().unwrap() {
            "VirtualMachine" => round::<v1::VirtualMachine>(&object),
            "VirtualMachineInstance" => round::<v1::VirtualMachineInstance>(&object),
            "VirtualMachineInstanceReplicaSet" => {
                round::<v1::VirtualMachineInstanceReplicaSet>(&object)
            }
            "VirtualMachineInstanceMigration" => {
                round::<v1::VirtualMachineInstanceMigration>(&object)
            }
            "KubeVirt" => round::<v1::KubeVirt>(&object),
            "VirtualMachinePool" => round::<pool::VirtualMachinePool>(&object),
            "VirtualMachineInstancetype" => {
                round::<instancetype::VirtualMachineInstancetype>(&object)
            }
            "VirtualMachinePreference" => round::<instancetype::VirtualMachinePreference>(&object),
            "DataVolume" => round::<cdi::DataVolume>(&object),
            _ => continue,
        };
        assert_eq!(written, without_nulls(object));
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} examples have a type");
}

#[test]
fn a_misspelt_field_is_found() {
    let mut object = examples().remove(0);
    object["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["bootOder"] = json!(1);
    let schema = schema_of(&object);
    let dropped = prune(&mut object, &schema, ObjectLevel::Root);
    assert_eq!(dropped, ["spec.template.spec.domain.devices.disks[0].bootOder"]);
}

#[test]
fn first_objects_fit_their_schemas() {
    let mut seen = Vec::new();
    let first = virt::first_objects("amd64", "2026-01-02T03:04:05Z");
    for object in first.into_iter().chain(virt::shipped_objects()) {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let api = object["apiVersion"].as_str().unwrap();
        if api.ends_with("kubevirt.io/v1") || api.ends_with("kubevirt.io/v1beta1") {
            let schema = schema_of(&object);
            let mut pruned = object.clone();
            assert_eq!(
                prune(&mut pruned, &schema, ObjectLevel::Root),
                Vec::<String>::new(),
                "{name}"
            );
            let errors = schema::validate(&object, None, &schema);
            assert_eq!(texts(&errors), Vec::<String>::new(), "{name}");
        } else {
            let (kind, mut normal) = (object["kind"].as_str().unwrap(), object.clone());
            let unknown = types::Kind::of(api, kind).unwrap().normalize(&mut normal).unwrap();
            assert_eq!(unknown, Vec::<String>::new(), "{name}");
        }
        seen.push(name);
    }
    let mut unique = seen.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), seen.len(), "{seen:?}");
    assert!(seen.iter().any(|name| name.contains("kubevirt.io:migrate")));
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
    for definition in virt::definitions() {
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
