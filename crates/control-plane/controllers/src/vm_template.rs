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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VmTemplateKey {
    Template(ObjectKey),
    Version(ObjectKey),
    /// Versions of any template may wait for an image.
    Images,
}

#[derive(Debug, Default)]
pub(crate) struct Templates;

impl EventMapper for Templates {
    type Key = VmTemplateKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<VmTemplateKey> {
        let ObjectChange::Object { kind, namespace, name, .. } = touch else { return Vec::new() };
        let key = || ObjectKey::new(namespace, name);
        if TEMPLATES.is(kind) {
            vec![VmTemplateKey::Template(key())]
        } else if VERSIONS.is(kind) {
            vec![VmTemplateKey::Version(key())]
        } else if IMAGES.is(kind) {
            vec![VmTemplateKey::Images]
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct VmTemplateReconciler(Objects);

impl VmTemplateReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    /// Numbers all versions of a template that have none, the oldest first, and keeps the
    /// template's own account of them.
    async fn template(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let (namespace, name) = (&*key.namespace, &*key.name);
        let found = self.0.get(TEMPLATES, namespace, name).await.doing("get the template")?;
        let Some(template) = found.filter(|own| !object::is_deleting(own)) else {
            return Ok(ReconcileResult::Done);
        };
        let all = self.0.list(VERSIONS, namespace, "").await.doing("list versions")?;
        let mut versions = plan::versions_of(&template, all);
        let images = self.0.list(IMAGES, "", "").await.doing("list images")?;
        for version in &mut versions {
            let number = plan::next_number(&template, version);
            let Some(patch) = plan::version(&template, version, number, &images, clock::now())
            else {
                continue;
            };
            let name = object::name(version).to_owned();
            *version = match self.0.merge(VERSIONS, namespace, &name, &patch).await {
                Err(failure) if is_refused(&failure, 404) => continue,
                written => written.doing("number a version")?,
            };
            // The number is taken before the next one is given.
            return self
                .account(key, &template, &versions)
                .await
                .map(|_| ReconcileResult::Again(NOW));
        }
        self.account(key, &template, &versions).await
    }

    async fn account(
        &self,
        key: &ObjectKey,
        template: &Value,
        versions: &[Value],
    ) -> Result<ReconcileResult, ReconcileError> {
        let (namespace, name) = (&*key.namespace, &*key.name);
        if let Some(patch) = plan::default_version(template, versions) {
            let written = self.0.merge(TEMPLATES, namespace, name, &patch).await;
            written.doing("name the default version")?;
        }
        if let Some(patch) = plan::status(template, versions) {
            let written = self.0.merge_status(TEMPLATES, namespace, name, &patch).await;
            written.doing("write the template's status")?;
        }
        Ok(ReconcileResult::Done)
    }

    async fn version(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(VERSIONS, &key.namespace, &key.name).await.doing("get a version")?;
        let template = found.as_ref().and_then(plan::template_of);
        match template {
            Some(template) => self.template(&template).await,
            None => Ok(ReconcileResult::Done),
        }
    }

    async fn images(&self) -> Result<ReconcileResult, ReconcileError> {
        let all = self.0.list(TEMPLATES, "", "").await.doing("list templates")?;
        for template in &all {
            self.template(&ObjectKey::of(template)).await?;
        }
        Ok(ReconcileResult::Done)
    }
}

/// Another version may wait for its number.
const NOW: std::time::Duration = std::time::Duration::ZERO;

impl Reconciler for VmTemplateReconciler {
    type Key = VmTemplateKey;

    async fn reconcile(&self, work: &VmTemplateKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            VmTemplateKey::Template(key) => self.template(key).await,
            VmTemplateKey::Version(key) => self.version(key).await,
            VmTemplateKey::Images => self.images().await,
        }
    }
}
