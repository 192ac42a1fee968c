//! Templates of machines: versions are numbered in the order they come, the first is the
//! default, and each goes with its template.

mod plan;

use base::clock;
use kube::Client;
use serde_json::Value;

use crate::key::ObjectKey;
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::resource::{Objects, Resource, is_refused};

const TEMPLATES: Resource = Resource::new("harvesterhci.io", "v1beta1", "virtualmachinetemplates");
const VERSIONS: Resource =
    Resource::new("harvesterhci.io", "v1beta1", "virtualmachinetemplateversions");
const IMAGES: Resource = Resource::new("harvesterhci.io", "v1beta1", "virtualmachineimages");

/// All templates are decided together, under one key: two versions that come at the same time would
/// get the same number otherwise.
#[derive(Debug, Default)]
pub(crate) struct Templates;

impl EventMapper for Templates {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let (ObjectChange::Object { kind, .. } | ObjectChange::Missed(kind)) = touch;
        let concerns = [TEMPLATES, VERSIONS, IMAGES].iter().any(|own| own.is(kind));
        if concerns { vec![ObjectKey::new("", TEMPLATES.plural)] } else { Vec::new() }
    }
}

pub(crate) struct VmTemplateReconciler(Objects);

impl VmTemplateReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    /// Numbers all versions of a template that have none, the oldest first, and keeps the
    /// template's own account of them.
    async fn template(
        &self,
        template: &Value,
        all: &[Value],
        images: &[Value],
    ) -> Result<(), ReconcileError> {
        let mut versions = plan::versions_of(template, all);
        let mut last = plan::last_number(template, &versions);
        for version in &mut versions {
            let number = plan::number(version).unwrap_or(last + 1);
            last = last.max(number);
            let Some(patch) = plan::version(template, version, number, images, clock::now()) else {
                continue;
            };
            let (namespace, name) = (object::namespace(version), object::name(version).to_owned());
            *version = match self.0.merge(VERSIONS, namespace, &name, &patch).await {
                Err(failure) if is_refused(&failure, 404) => continue,
                written => written.doing("number a version")?,
            };
        }
        self.account(template, &versions).await
    }

    async fn account(&self, template: &Value, versions: &[Value]) -> Result<(), ReconcileError> {
        let (namespace, name) = (object::namespace(template), object::name(template));
        if let Some(patch) = plan::default_version(template, versions) {
            let written = self.0.merge(TEMPLATES, namespace, name, &patch).await;
            written.doing("name the default version")?;
        }
        if let Some(patch) = plan::status(template, versions) {
            let written = self.0.merge_status(TEMPLATES, namespace, name, &patch).await;
            written.doing("write the template's status")?;
        }
        Ok(())
    }
}

impl Reconciler for VmTemplateReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, _: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let templates = self.0.list(TEMPLATES, "", "").await.doing("list templates")?;
        let versions = self.0.list(VERSIONS, "", "").await.doing("list versions")?;
        let images = self.0.list(IMAGES, "", "").await.doing("list images")?;
        let mut result = Ok(ReconcileResult::Done);
        for template in templates.iter().filter(|own| !object::is_deleting(own)) {
            // One that cannot be written does not keep the others from being complete.
            if let Err(failure) = self.template(template, &versions, &images).await {
                result = Err(failure);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    const KINDS: &str = "harvesterhci.io";

    #[tokio::test]
    async fn versions_get_different_numbers_whatever_the_template_knows() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let kind = |plural: &str| format!("{KINDS}/{plural}");
        let (templates, versions) = (kind(TEMPLATES.plural), kind(VERSIONS.plural));
        fake.create(&templates, "n", json!({"metadata": {"name": "linux"}, "spec": {}}));
        let reconciler = VmTemplateReconciler::new(fake.client());
        let number =
            |name: &str| fake.get(&versions, "n", name).unwrap()["status"]["version"].clone();
        for (name, expected) in [("a", 1), ("b", 2)] {
            let version = json!({"metadata": {"name": name}, "spec": {"templateId": "n/linux"}});
            fake.create(&versions, "n", version);
            // As if its account had not been written yet.
            fake.merge(&templates, "n", "linux", &json!({"status": null}));
            reconciler.reconcile(&ObjectKey::new("", TEMPLATES.plural)).await.unwrap();
            assert_eq!(number(name), expected);
        }
        let template = fake.get(&templates, "n", "linux").unwrap();
        assert_eq!(template["status"]["latestVersion"], 2);
        assert_eq!(template["spec"]["defaultVersionId"], "n/a");
    }
}
