//! Templates made of machines, with or without the data of their volumes.

use http::Method;
use serde_json::{Value, json};

use super::machine_change::{CLAIM_TEMPLATES, template_source};
use super::{ActionTarget, Input, invalid, suffix, volume_object};
use crate::error::SteveError;
use crate::objects::ResourceCall;

const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";

/// Creates a template and its first version.
pub(super) async fn create(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    vm: &Value,
    input: &Input,
) -> Result<(), SteveError> {
    let (name, namespace) = (input.text("name"), target.namespace);
    if name.is_empty() {
        return Err(invalid("Template name is required"));
    }
    let base = format!("{HARVESTER}/namespaces/{namespace}");
    let template = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"description": input.text("description")},
    });
    let templates = format!("{base}/virtualmachinetemplates");
    call.session.post(&templates, &template).await?;
    let made = first_version(call, target, vm, input).await;
    if made.is_err() {
        // A template without a version is of no use, and would hold the name. If it cannot be
        // removed either, the reason to report is still the first.
        let kind = "application/json";
        let path = format!("{templates}/{name}");
        let _ = call.session.send(Method::DELETE, &path, kind, &[], kind).await;
    }
    made
}

/// Creates the first version of a template that exists.
async fn first_version(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    vm: &Value,
    input: &Input,
) -> Result<(), SteveError> {
    let (name, namespace) = (input.text("name"), target.namespace);
    let base = format!("{HARVESTER}/namespaces/{namespace}");
    let version = format!("{name}-{}", suffix());
    let mut source = template_source(vm);
    if input.flag("withData") {
        let images = export(call, namespace, &version, &source).await?;
        use_images(&mut source, &images);
    }
    let version = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplateVersion",
        "metadata": {
            "name": version, "namespace": namespace,
            "labels": {"template.harvesterhci.io/templateID": name},
        },
        "spec": {
            "templateId": format!("{namespace}/{name}"),
            "description": input.text("description"), "vm": source,
        },
    });
    let path = format!("{base}/virtualmachinetemplateversions");
    call.session.post(&path, &version).await.map(drop)
}

/// Makes an image of each volume; with the names of their claims.
async fn export(
    call: &ResourceCall<'_>,
    namespace: &str,
    version: &str,
    source: &Value,
) -> Result<Vec<(String, Value)>, SteveError> {
    let mut images = Vec::new();
    for (at, claim) in claim_names(source).into_iter().enumerate() {
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}");
        let found = call.session.get(&path).await?;
        let class = found["spec"]["storageClassName"].as_str().unwrap_or_default();
        let name = format!("templateversion-{version}-image-{at}");
        let mut image = volume_object::image(&found, namespace, &name, class);
        image["metadata"] = json!({
            "name": name, "namespace": namespace,
            "annotations": image["metadata"]["annotations"],
        });
        let path = format!("{HARVESTER}/namespaces/{namespace}/virtualmachineimages");
        images.push((claim, call.session.post(&path, &image).await?));
    }
    Ok(images)
}

fn claim_names(source: &Value) -> Vec<String> {
    let volumes = source["spec"]["template"]["spec"]["volumes"].as_array();
    let claims = volumes.into_iter().flatten().filter_map(|volume| {
        volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned)
    });
    claims.collect()
}

/// Makes the claims of a template start with images: by claim, the image of its data.
fn use_images(source: &mut Value, images: &[(String, Value)]) {
    let text = source["metadata"]["annotations"][CLAIM_TEMPLATES].as_str().unwrap_or("[]");
    let mut templates: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    for template in &mut templates {
        let own = images.iter().find(|(claim, _)| template["metadata"]["name"] == **claim);
        let Some((_, image)) = own else { continue };
        let part = |field: &str| image["metadata"][field].as_str().unwrap_or_default();
        let id = format!("{}/{}", part("namespace"), part("name"));
        template["metadata"]["annotations"]["harvesterhci.io/imageId"] = id.into();
        template["spec"]["storageClassName"] = format!("lh-{}", part("uid")).into();
        if let Some(spec) = template["spec"].as_object_mut() {
            // The data comes from the image now.
            spec.remove("dataSource");
            spec.remove("dataSourceRef");
        }
    }
    if !templates.is_empty() {
        source["metadata"]["annotations"][CLAIM_TEMPLATES] =
            Value::Array(templates).to_string().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_a_template_with_data_start_with_images() {
        let claims = json!([
            {"metadata": {"name": "web-root"}, "spec": {"storageClassName": "a", "dataSource": {}}},
            {"metadata": {"name": "web-data"}, "spec": {}},
        ]);
        let mut source = json!({
            "metadata": {"annotations": {CLAIM_TEMPLATES: claims.to_string()}},
            "spec": {"template": {"spec": {"volumes": [
                {"name": "root", "persistentVolumeClaim": {"claimName": "web-root"}},
                {"name": "init", "cloudInitNoCloud": {}},
            ]}}},
        });
        assert_eq!(claim_names(&source), ["web-root"]);
        let image = json!({"metadata": {"namespace": "n", "name": "i", "uid": "7"}});
        use_images(&mut source, &[("web-root".to_owned(), image)]);
        let text = source["metadata"]["annotations"][CLAIM_TEMPLATES].as_str().unwrap();
        let made: Vec<Value> = serde_json::from_str(text).unwrap();
        let expected = json!({
            "metadata": {"name": "web-root", "annotations": {"harvesterhci.io/imageId": "n/i"}},
            "spec": {"storageClassName": "lh-7"},
        });
        assert_eq!(made[0], expected);
        assert_eq!(made[1], claims[1]);
    }
}
