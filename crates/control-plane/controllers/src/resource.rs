//! Requests on whole objects as JSON, of the kinds that machines are made of.

use client::CatalogKind;
use kube::Client;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{Request, params::Preconditions};
use serde_json::Value;

use crate::object;

/// Objects per page of a list.
const PAGE: u32 = 500;

/// A kind whose name and version are known when this is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    version: &'static str,
    pub(crate) plural: &'static str,
}

pub(crate) const VMS: Resource = Resource::new("kubevirt.io", "v1", "virtualmachines");
pub(crate) const VMIS: Resource = Resource::new("kubevirt.io", "v1", "virtualmachineinstances");
pub(crate) const NODES: Resource = Resource::new("", "v1", "nodes");
pub(crate) const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
pub(crate) const QUOTAS: Resource = Resource::new("", "v1", "resourcequotas");
pub(crate) const LIMIT_RANGES: Resource = Resource::new("", "v1", "limitranges");
pub(crate) const KUBEVIRTS: Resource = Resource::new("kubevirt.io", "v1", "kubevirts");
pub(crate) const PODS: Resource = Resource::new("", "v1", "pods");
pub(crate) const CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");
pub(crate) const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes");
pub(crate) const CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
pub(crate) const ATTRIBUTES_CLASSES: Resource =
    Resource::new("storage.k8s.io", "v1", "volumeattributesclasses");
pub(crate) const DATA_SOURCES: Resource =
    Resource::new("cdi.kubevirt.io", "v1beta1", "datasources");
pub(crate) const DATA_VOLUMES: Resource =
    Resource::new("cdi.kubevirt.io", "v1beta1", "datavolumes");
pub(crate) const VM_SNAPSHOTS: Resource =
    Resource::new("snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshots");
pub(crate) const VM_CONTENTS: Resource =
    Resource::new("snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshotcontents");
pub(crate) const VM_RESTORES: Resource =
    Resource::new("snapshot.kubevirt.io", "v1beta1", "virtualmachinerestores");
pub(crate) const ADDRESSES: Resource = Resource::new("networking.k8s.io", "v1", "ipaddresses");
pub(crate) const SECRETS: Resource = Resource::new("", "v1", "secrets");
pub(crate) const REVISIONS: Resource = Resource::new("apps", "v1", "controllerrevisions");

impl Resource {
    pub(crate) const fn new(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, plural }
    }

    pub(crate) fn is(self, kind: &CatalogKind) -> bool {
        kind.is(self.group, self.plural)
    }

    pub(crate) fn path(self, namespace: &str) -> String {
        let Self { group, version, plural } = self;
        let root = if group.is_empty() { "/api".into() } else { format!("/apis/{group}") };
        match namespace {
            "" => format!("{root}/{version}/{plural}"),
            _ => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        }
    }
}

/// The API, seen as JSON.
#[derive(Clone)]
pub(crate) struct Objects(pub(crate) Client);

impl Objects {
    /// The object, if it exists and its kind is served; nothing has an empty name.
    pub(crate) async fn get(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, kube::Error> {
        if name.is_empty() {
            return Ok(None);
        }
        let request = Request::new(resource.path(namespace))
            .get(name, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        present(self.0.request(request).await)
    }

    /// The persistent volume that a claim is bound to.
    pub(crate) async fn volume_of(
        &self,
        claim: Option<&Value>,
    ) -> Result<Option<Value>, kube::Error> {
        let Some(claim) = claim else { return Ok(None) };
        let volume = self.get(VOLUMES, "", object::text(claim, "/spec/volumeName")).await?;
        Ok(volume.filter(|volume| virt::claim_binding::are_bound(claim, volume)))
    }

    /// All objects in `namespace` (or everywhere, if that is empty) with these labels.
    pub(crate) async fn list(
        &self,
        resource: Resource,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<Value>, kube::Error> {
        let mut found = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        if !labels.is_empty() {
            params = params.labels(labels);
        }
        loop {
            let request = Request::new(resource.path(namespace))
                .list(&params)
                .map_err(kube::Error::BuildRequest)?;
            let Some(mut page) = present::<Value>(self.0.request(request).await)? else {
                return Ok(found);
            };
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                found.extend(items);
            }
            match object::continue_token(&page) {
                Some(token) => params = params.continue_token(token),
                None => return Ok(found),
            }
        }
    }

    pub(crate) async fn create(
        &self,
        resource: Resource,
        namespace: &str,
        object: &Value,
    ) -> Result<Value, kube::Error> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = Request::new(resource.path(namespace))
            .create(&PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        self.0.request(request).await
    }

    /// Applies a JSON merge patch and answers the object as it is then.
    pub(crate) async fn merge(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        let request = Request::new(resource.path(namespace))
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .map_err(kube::Error::BuildRequest)?;
        self.0.request(request).await
    }

    /// The same for `status` of a kind that keeps it apart.
    pub(crate) async fn merge_status(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        let request = Request::new(resource.path(namespace))
            .patch_subresource("status", name, &PatchParams::default(), &Patch::Merge(patch))
            .map_err(kube::Error::BuildRequest)?;
        self.0.request(request).await
    }

    /// Has something done to an object, by a subresource that only acts.
    pub(crate) async fn act(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        act: &str,
        options: &Value,
    ) -> Result<(), kube::Error> {
        let body = serde_json::to_vec(options).map_err(kube::Error::SerdeError)?;
        let request = Request::new(resource.path(namespace))
            .replace_subresource(act, name, &PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        self.0.request_text(request).await.map(drop)
    }

    /// Deletes the object with this uid, and no other of its name.
    pub(crate) async fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), kube::Error> {
        self.delete_by(resource, namespace, name, uid, DeleteParams::background()).await
    }

    /// Deletes the object with this uid, and gives it no time to end.
    pub(crate) async fn remove(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), kube::Error> {
        let params = DeleteParams::background().grace_period(0);
        self.delete_by(resource, namespace, name, uid, params).await
    }

    async fn delete_by(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        uid: &str,
        params: DeleteParams,
    ) -> Result<(), kube::Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Default::default() };
        let params = params.preconditions(preconditions);
        let request = Request::new(resource.path(namespace))
            .delete(name, &params)
            .map_err(kube::Error::BuildRequest)?;
        present(self.0.request_text(request).await).map(drop)
    }
}

/// Whether a write was refused for this reason.
pub(crate) fn is_refused(failure: &kube::Error, code: u16) -> bool {
    matches!(failure, kube::Error::Api(status) if status.code == code)
}

fn present<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(failure) if is_refused(&failure, 404) => Ok(None),
        Err(failure) => Err(failure),
    }
}
