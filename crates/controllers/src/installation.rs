//! The objects by which tools see whether KubeVirt and CDI are installed: they are part of
//! this server, so they always are, and say so.

use std::sync::Arc;

use base::clock;
use kube::Client;
use serde_json::{Value, json};
use virt::first_objects;

use crate::object::{self, is_merged, list, text};
use crate::reconcile::{Doing, Failure, Interest, Next, Reconciler, State, Touch};
use crate::resource::{Objects, Resource, is_refused};

const INSTALLATIONS: [(&str, Resource); 2] = [
    ("KubeVirt", Resource::new("kubevirt.io", "v1", "kubevirts")),
    ("CDI", Resource::new("cdi.kubevirt.io", "v1beta1", "cdis")),
];

/// Which of the kinds, the namespace (empty for CDI) and the name.
type Key = (usize, Arc<str>, Arc<str>);

/// Every installation object that changes.
#[derive(Debug, Default)]
pub(crate) struct Installations;

impl Interest for Installations {
    type Key = Key;

    fn keys(&mut self, touch: &Touch) -> Vec<Key> {
        let Touch::Object { kind, namespace, name, state: State::Live } = touch else {
            return Vec::new();
        };
        let which = INSTALLATIONS.iter().position(|(_, resource)| resource.is(kind));
        which.map(|which| (which, Arc::clone(namespace), Arc::clone(name))).into_iter().collect()
    }
}

pub(crate) struct Reporter(Objects);

impl Reconciler for Reporter {
    type Key = Key;

    async fn reconcile(&self, (which, namespace, name): &Key) -> Result<Next, Failure> {
        let (kind, resource) = INSTALLATIONS[*which];
        let found = self.0.get(resource, namespace, name).await.doing("get the installation")?;
        let Some(found) = found else { return Ok(Next::Done) };
        let Some(patch) = status(kind, &found, &clock::now_rfc3339()) else {
            return Ok(Next::Done);
        };
        match self.0.merge_status(resource, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(Next::Done),
            written => written.map(|_| Next::Done).doing("say that it is installed"),
        }
    }
}

impl Reporter {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

/// The patch that makes an installation object say what is so, if it does not.
fn status(kind: &str, found: &Value, now: &str) -> Option<Value> {
    let first = first_objects("amd64", now);
    let model = first.iter().find(|own| text(own, "/kind") == kind)?;
    let mut status = model.get("status")?.clone();
    if status.get("observedGeneration").is_some() {
        status["observedGeneration"] = json!(object::generation(found));
    }
    // Conditions that say the same already keep their times.
    let known = list(found, "/status/conditions");
    let says = |wanted: &Value| {
        let own = known.iter().find(|own| text(own, "/type") == text(wanted, "/type"));
        own.is_some_and(|own| text(own, "/status") == text(wanted, "/status"))
    };
    if list(&status, "/conditions").iter().all(says) {
        status["conditions"] = json!(known);
    }
    let patch = json!({"status": status});
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
}
