//! The objects by which tools see whether KubeVirt and CDI are installed: they are part of
//! this server, so they always are, and say so.

use std::sync::Arc;

use base::clock;
use kube::Client;
use serde_json::{Value, json};
use virt::{ARCHITECTURE, KUBEVIRT, OPERATOR, first_objects};

use crate::condition;
use crate::object::{self, is_merged, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::condition::{ConditionFields, ConditionsStatus, conditions, of_type};
use crate::record::fields;
use crate::resource::{Objects, Resource, is_refused};

/// An object that reports what is installed.
#[derive(Debug, Clone, Copy)]
struct InstallationObject {
    kind: &'static str,
    resource: Resource,
    /// Whether the kind keeps its status apart.
    apart: bool,
}

const INSTALLATION_OBJECTS: [InstallationObject; 4] = [
    InstallationObject {
        kind: "KubeVirt",
        resource: Resource::new("kubevirt.io", "v1", "kubevirts"),
        apart: true,
    },
    InstallationObject { kind: "CDI", resource: CDIS, apart: false },
    InstallationObject { kind: "CDIConfig", resource: CONFIGS, apart: false },
    InstallationObject { kind: "Deployment", resource: DEPLOYMENTS, apart: true },
];
const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const CDIS: Resource = Resource::new("cdi.kubevirt.io", "v1beta1", "cdis");
const CONFIGS: Resource = Resource::new("cdi.kubevirt.io", "v1beta1", "cdiconfigs");
/// The only CDIConfig that clients read, and the index of its kind above.
const CONFIG: (usize, &str) = (2, "config");

/// Which of the kinds, the namespace (empty for CDI) and the name.
type InstallationKey = (usize, Arc<str>, Arc<str>);

/// Every installation object that changes.
#[derive(Debug, Default)]
pub(crate) struct Installations;

impl EventMapper for Installations {
    type Key = InstallationKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<InstallationKey> {
        let ObjectChange::Object { kind, namespace, name, state: ObjectState::Live } = touch else {
            return Vec::new();
        };
        let Some(which) = INSTALLATION_OBJECTS.iter().position(|own| own.resource.is(kind)) else {
            return Vec::new();
        };
        if !is_ours(INSTALLATION_OBJECTS[which].kind, namespace, name) {
            return Vec::new();
        }
        let mut keys = vec![(which, Arc::clone(namespace), Arc::clone(name))];
        // Where uploads go may be set in either.
        if INSTALLATION_OBJECTS[which].kind == "CDI" {
            keys.push((CONFIG.0, "".into(), CONFIG.1.into()));
        }
        keys
    }
}

/// Whether the server itself is what an object describes. No deployment but one is.
fn is_ours(kind: &str, namespace: &str, name: &str) -> bool {
    kind != "Deployment" || (namespace, name) == (KUBEVIRT.0, OPERATOR)
}

/// Where images are uploaded to.
#[derive(Debug, Clone)]
pub struct UploadProxy {
    /// As in `https://10.0.0.1:6443`.
    pub url: String,
    /// The CA of the proxy, PEM.
    pub ca: String,
}

pub(crate) struct Reporter {
    objects: Objects,
    proxy: Option<UploadProxy>,
}

impl Reconciler for Reporter {
    type Key = InstallationKey;

    async fn reconcile(
        &self,
        (which, namespace, name): &InstallationKey,
    ) -> Result<ReconcileResult, ReconcileError> {
        let InstallationObject { kind, resource, apart } = INSTALLATION_OBJECTS[*which];
        let objects = &self.objects;
        let found = objects.get(resource, namespace, name).await.doing("get the installation")?;
        let Some(found) = found else { return Ok(ReconcileResult::Done) };
        let patch = match &self.proxy {
            _ if kind != "CDIConfig" => status(kind, &found, &clock::now_rfc3339()),
            None => None,
            Some(proxy) => {
                let owners = objects.list(CDIS, "", "").await.doing("list installations")?;
                proxied(&found, &owners, proxy)
            }
        };
        let Some(patch) = patch else { return Ok(ReconcileResult::Done) };
        let written = if apart {
            objects.merge_status(resource, namespace, name, &patch).await
        } else {
            objects.merge(resource, namespace, name, &patch).await
        };
        match written {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("say that it is installed"),
        }
    }
}

impl Reporter {
    pub(crate) fn new(client: Client, proxy: Option<UploadProxy>) -> Self {
        Self { objects: Objects(client), proxy }
    }
}

fields! {
    /// A model of the installation.
    struct ModelFields<'a> {
        kind: &'a str,
    }

    struct CdiFields<'a> {
        spec: CdiSpec<'a>,
    }

    struct CdiSpec<'a> {
        config: CdiConfigSpec<'a>,
    }

    struct CdiConfigFields<'a> {
        spec: CdiConfigSpec<'a>,
    }

    struct CdiConfigSpec<'a> {
        upload_proxy as "uploadProxyURLOverride": &'a str,
    }
}

/// The patch that makes an installation object say what is so, if it does not.
fn status(kind: &str, found: &Value, now: &str) -> Option<Value> {
    let first = first_objects(ARCHITECTURE, now);
    let model = first.iter().find(|own| read::<ModelFields<'_>>(own).kind == kind)?;
    let mut status = model.get("status")?.clone();
    if status.get("observedGeneration").is_some() {
        status["observedGeneration"] = json!(object::generation(found));
    }
    // Conditions that say the same already keep their times.
    let known = conditions(found);
    let wanted = read::<ConditionsStatus<'_>>(&status).conditions;
    let says = |wanted: &ConditionFields<'_>| {
        of_type(&known, wanted.kind).is_some_and(|own| own.status == wanted.status)
    };
    if wanted.iter().all(says) {
        status["conditions"] = condition::of(found).into();
    }
    let patch = json!({"status": status});
    (!is_merged(found, &patch)).then_some(patch)
}

/// The patch that makes the configuration of imports say where uploads go. An administrator
/// may name another place, in the installation or in the configuration itself.
fn proxied(found: &Value, owners: &[Value], proxy: &UploadProxy) -> Option<Value> {
    let mut named = owners
        .iter()
        .map(|owner| read::<CdiFields<'_>>(owner).spec.config.upload_proxy)
        .chain([read::<CdiConfigFields<'_>>(found).spec.upload_proxy]);
    let patch = match named.find(|url| !url.is_empty()) {
        Some(url) => json!({"status": {"uploadProxyURL": url, "uploadProxyCA": null}}),
        None => json!({"status": {"uploadProxyURL": proxy.url, "uploadProxyCA": proxy.ca}}),
    };
    (!is_merged(found, &patch)).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_says_so_once() {
        let mut found = json!({"metadata": {"name": "kubevirt", "generation": 3}});
        let patch = status("KubeVirt", &found, "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(patch["status"]["phase"], "Deployed");
        assert_eq!(patch["status"]["observedGeneration"], 3);
        found["status"] = patch["status"].clone();
        assert_eq!(status("KubeVirt", &found, "2026-01-02T00:00:00Z"), None);
        found["status"]["conditions"][0]["status"] = json!("Unknown");
        assert!(status("KubeVirt", &found, "2026-01-02T00:00:00Z").is_some());
        assert!(status("CDI", &json!({}), "2026-01-01T00:00:00Z").is_some());
    }

    #[test]
    fn only_the_operator_of_kubevirt_is_said_to_be_ready() {
        assert!(is_ours("Deployment", "kubevirt", "virt-operator"));
        assert!(!is_ours("Deployment", "kubevirt", "other"));
        assert!(!is_ours("Deployment", "default", "virt-operator"));
        assert!(is_ours("CDI", "", "cdi"));
        let patch = status("Deployment", &json!({}), "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(patch["status"]["readyReplicas"], 1);
    }

    #[test]
    fn uploads_go_to_this_server_unless_the_user_names_another() {
        let proxy = UploadProxy { url: "https://here:6443".into(), ca: "pem".into() };
        let mut found = json!({"metadata": {"name": "config"}});
        let patch = proxied(&found, &[], &proxy).unwrap();
        assert_eq!(patch["status"]["uploadProxyURL"], "https://here:6443");
        assert_eq!(patch["status"]["uploadProxyCA"], "pem");
        found["status"] = patch["status"].clone();
        assert_eq!(proxied(&found, &[], &proxy), None);
        let owner = json!({"spec": {"config": {"uploadProxyURLOverride": "https://there"}}});
        let patch = proxied(&found, &[owner], &proxy).unwrap();
        assert_eq!(
            patch["status"],
            json!({"uploadProxyURL": "https://there", "uploadProxyCA": null})
        );
        found["spec"] = json!({"uploadProxyURLOverride": "https://elsewhere"});
        let patch = proxied(&found, &[], &proxy).unwrap();
        assert_eq!(patch["status"]["uploadProxyURL"], "https://elsewhere");
    }
}
