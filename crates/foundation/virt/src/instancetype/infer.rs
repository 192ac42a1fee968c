//! Reading the size and preference of a machine off its volumes: labels of the claim, of the
//! data volume, or of the source that fills it.

use serde_json::{Value, json};

use crate::admit::Objects;
use crate::state::{list, text};

/// Why nothing can be read off a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    #[error("unable to find volume {0} to infer defaults")]
    NoVolume(String),
    #[error("unable to infer defaults from volume {0} as type is not supported")]
    VolumeType(String),
    #[error("unable to find required {0} label on the volume")]
    NoLabel(String),
    #[error("unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported")]
    Source,
    #[error("unable to infer defaults from DataVolumeSourceRef as Kind {0} is not supported")]
    Reference(String),
    #[error(
        "unable to infer defaults from DataSource that doesn't provide DataVolumeSourcePVC or DataVolumeSourceSnapshot"
    )]
    DataSource,
    #[error("{plural} {name:?} not found")]
    NotFound { plural: &'static str, name: String },
}

impl InferError {
    /// Failures that a machine may choose to ignore: the volume is there and says nothing.
    fn is_ignorable(&self) -> bool {
        !matches!(self, Self::NoVolume(_) | Self::NotFound { .. })
    }
}

/// Replaces matchers that point at a volume by what the volume says.
pub fn infer(vm: &mut Value, namespace: &str, objects: &dyn Objects) -> Result<(), InferError> {
    for field in ["instancetype", "preference"] {
        let matcher = &vm["spec"][field];
        let volume = text(matcher, "/inferFromVolume");
        if volume.is_empty() {
            continue;
        }
        let ignore = matcher["inferFromVolumeFailurePolicy"] == "Ignore";
        let reader = InferReader { field, namespace, objects };
        match reader.of_volume(vm, volume) {
            Ok(found) => {
                if ignore && field == "instancetype" {
                    remove(vm, "/spec/template/spec/domain", "memory");
                }
                vm["spec"][field] = found;
            }
            Err(error) if ignore && error.is_ignorable() => remove(vm, "/spec", field),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn remove(vm: &mut Value, pointer: &str, field: &str) {
    if let Some(Value::Object(fields)) = vm.pointer_mut(pointer) {
        fields.remove(field);
    }
}

struct InferReader<'a> {
    field: &'static str,
    namespace: &'a str,
    objects: &'a dyn Objects,
}

impl InferReader<'_> {
    fn get(
        &self,
        group: &str,
        plural: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, InferError> {
        let missing = || InferError::NotFound { plural, name: name.to_owned() };
        self.objects.get(group, plural, namespace, name).ok_or_else(missing)
    }

    fn of_volume(&self, vm: &Value, name: &str) -> Result<Value, InferError> {
        let volumes = list(&vm["spec"]["template"]["spec"]["volumes"]);
        let volume = volumes.iter().find(|volume| volume["name"] == name);
        let volume = volume.ok_or_else(|| InferError::NoVolume(name.to_owned()))?;
        if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            return self.of_claim(self.namespace, claim);
        }
        match volume["dataVolume"]["name"].as_str() {
            Some(data_volume) => self.of_data_volume(vm, data_volume),
            None => Err(InferError::VolumeType(name.to_owned())),
        }
    }

    fn of_labels(&self, object: &Value) -> Result<Value, InferError> {
        let label = format!("instancetype.kubevirt.io/default-{}", self.field);
        let labels = &object["metadata"]["labels"];
        let Some(name) = labels[&label].as_str() else { return Err(InferError::NoLabel(label)) };
        let mut matcher = json!({"name": name});
        if let Some(kind) = labels[format!("{label}-kind")].as_str() {
            matcher["kind"] = kind.into();
        }
        Ok(matcher)
    }

    fn of_claim(&self, namespace: &str, name: &str) -> Result<Value, InferError> {
        self.of_labels(&self.get("", "persistentvolumeclaims", namespace, name)?)
    }

    fn of_data_volume(&self, vm: &Value, name: &str) -> Result<Value, InferError> {
        let templates = list(&vm["spec"]["dataVolumeTemplates"]);
        if let Some(template) = templates.iter().find(|one| one["metadata"]["name"] == name) {
            return self.of_spec(&template["spec"]);
        }
        let found = self.objects.get("cdi.kubevirt.io", "datavolumes", self.namespace, name);
        // A data volume that has done its work may be gone; its claim has the same name.
        let Some(found) = found else { return self.of_claim(self.namespace, name) };
        self.of_labels(&found).or_else(|_| self.of_spec(&found["spec"]))
    }

    fn of_spec(&self, spec: &Value) -> Result<Value, InferError> {
        if let Some(found) = self.of_parts(&spec["source"]) {
            return found;
        }
        let reference = &spec["sourceRef"];
        match text(reference, "/kind") {
            "" => Err(InferError::Source),
            "DataSource" => {
                let namespace = reference["namespace"].as_str().unwrap_or(self.namespace);
                let name = text(reference, "/name");
                let source = self.get("cdi.kubevirt.io", "datasources", namespace, name)?;
                self.of_labels(&source).or_else(|_| {
                    self.of_parts(&source["spec"]["source"]).unwrap_or(Err(InferError::DataSource))
                })
            }
            kind => Err(InferError::Reference(kind.to_owned())),
        }
    }

    /// A claim or a snapshot that is copied.
    fn of_parts(&self, source: &Value) -> Option<Result<Value, InferError>> {
        let (claim, snapshot) = (&source["pvc"], &source["snapshot"]);
        if claim.is_object() {
            return Some(self.of_claim(text(claim, "/namespace"), text(claim, "/name")));
        }
        snapshot.is_object().then(|| {
            let (namespace, name) = (text(snapshot, "/namespace"), text(snapshot, "/name"));
            let group = "snapshot.storage.k8s.io";
            self.of_labels(&self.get(group, "volumesnapshots", namespace, name)?)
        })
    }
}
