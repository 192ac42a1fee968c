//! Projects of Rancher: namespaces that belong together get the bindings of their project's
//! members, and its default quota, which is larger while machines move.
//!
//! A namespace names its project in an annotation. Members are bindings of role templates in the
//! namespace of the project.

mod plan;
mod record;

use hci::machine_quota::MachineLimits;
use kube::Client;

use crate::key::ObjectKey;
use crate::object::{namespace, text, uid};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::resource::{Objects, Resource, VMIS, is_refused};
use crate::vmi::requests::overhead;
use plan::{MovingInstance, ProjectChange, ProjectState};

const GROUP: &str = "management.cattle.io";
const PROJECTS: Resource = Resource::new(GROUP, "v3", "projects");
const MEMBERS: Resource = Resource::new(GROUP, "v3", "projectroletemplatebindings");
const TEMPLATES: Resource = Resource::new(GROUP, "v3", "roletemplates");
const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
const BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "rolebindings");
const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
const QUOTAS: Resource = Resource::new("", "v1", "resourcequotas");
const MIGRATIONS: Resource = Resource::new("kubevirt.io", "v1", "virtualmachineinstancemigrations");

/// Everything about projects is decided together, under one key.
#[derive(Debug, Default)]
pub(crate) struct ProjectMapper;

impl EventMapper for ProjectMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let kind = match touch {
            ObjectChange::Object { kind, .. } | ObjectChange::Missed(kind) => kind,
        };
        let kinds = [PROJECTS, MEMBERS, TEMPLATES, NAMESPACES, MIGRATIONS];
        let concerns = kinds.iter().any(|own| own.is(kind));
        if concerns { vec![ObjectKey::new("", "projects")] } else { Vec::new() }
    }
}

pub(crate) struct ProjectReconciler(Objects);

impl ProjectReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn state(&self) -> Result<ProjectState, ReconcileError> {
        let label = plan::OWNED;
        let quotas = self.0.list(QUOTAS, "", label).await.doing("list quotas")?;
        // Without a quota nothing has to be raised.
        let moving = if quotas.is_empty() { Vec::new() } else { self.moving().await? };
        Ok(ProjectState {
            moving,
            quotas,
            projects: self.0.list(PROJECTS, "", "").await.doing("list projects")?,
            members: self.0.list(MEMBERS, "", "").await.doing("list members of projects")?,
            templates: self.0.list(TEMPLATES, "", "").await.doing("list role templates")?,
            namespaces: self.0.list(NAMESPACES, "", "").await.doing("list namespaces")?,
            bindings: self.0.list(BINDINGS, "", label).await.doing("list role bindings")?,
            roles: self.0.list(ROLES, "", label).await.doing("list cluster roles")?,
        })
    }

    /// The instances whose migrations have not ended.
    async fn moving(&self) -> Result<Vec<MovingInstance>, ReconcileError> {
        let all = self.0.list(MIGRATIONS, "", "").await.doing("list migrations")?;
        let mut moving = Vec::new();
        for migration in
            all.iter().filter(|own| !matches!(text(own, "/status/phase"), "Succeeded" | "Failed"))
        {
            let (namespace, name) = (namespace(migration), text(migration, "/spec/vmiName"));
            let found = self.0.get(VMIS, namespace, name).await.doing("get an instance")?;
            let Some(vmi) = found else { continue };
            let limits = MachineLimits::of(&vmi["spec"], |_| overhead(&vmi).units());
            let (namespace, uid) = (namespace.to_owned(), uid(&vmi).to_owned());
            moving.push(MovingInstance { namespace, uid, limits });
        }
        Ok(moving)
    }

    async fn apply(&self, change: ProjectChange) -> Result<(), kube::Error> {
        let resource = |kind: &str| match kind {
            "Namespace" => NAMESPACES,
            "Project" => PROJECTS,
            "ClusterRole" => ROLES,
            "ResourceQuota" => QUOTAS,
            _ => BINDINGS,
        };
        let written = match change {
            ProjectChange::Create { kind, namespace, object } => {
                self.0.create(resource(kind), &namespace, &object).await.map(drop)
            }
            ProjectChange::Patch { kind, namespace, name, patch } => {
                self.0.merge(resource(kind), &namespace, &name, &patch).await.map(drop)
            }
            ProjectChange::Delete { kind, namespace, name, uid } => {
                self.0.delete(resource(kind), &namespace, &name, &uid).await
            }
        };
        match written {
            // Conflict, or the namespace is being deleted: the next event decides again.
            Err(failure) if [403, 404, 409].iter().any(|code| is_refused(&failure, *code)) => {
                Ok(())
            }
            written => written,
        }
    }
}

impl Reconciler for ProjectReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, _: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        for change in plan::plan(&self.state().await?) {
            self.apply(change).await.doing("write what a project gives")?;
        }
        Ok(ReconcileResult::Done)
    }
}
