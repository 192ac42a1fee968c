//! Saying where services are answered: the addresses of the machines whose pods they select,
//! as EndpointSlices and as Endpoints.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use serde_json::{Value, json};

use crate::active::refused_by_namespace;
use crate::key::ObjectKey;
use crate::object::{self, is_merged, name};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, PODS, Resource, is_refused};

const SERVICES: Resource = Resource::new("", "v1", "services");
const ENDPOINTS: Resource = Resource::new("", "v1", "endpoints");
const SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");

/// Remembers the services of each namespace, any of which a pod may be behind.
#[derive(Debug, Default)]
pub(crate) struct Services(BTreeMap<Arc<str>, BTreeSet<Arc<str>>>);

impl EventMapper for Services {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return self.0.keys().flat_map(|namespace| self.all(namespace)).collect();
        };
        if SERVICES.is(kind) {
            let names = self.0.entry(Arc::clone(namespace)).or_default();
            if *state == ObjectState::Gone {
                names.remove(name);
            } else {
                names.insert(Arc::clone(name));
            }
            vec![ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) }]
        } else if PODS.is(kind) {
            self.all(namespace)
        } else if (ENDPOINTS.is(kind) || SLICES.is(kind)) && *state == ObjectState::Gone {
            // A slice is named after its service.
            let owns = |key: &ObjectKey| name.starts_with(&*key.name);
            self.all(namespace).into_iter().filter(owns).collect()
        } else {
            Vec::new()
        }
    }
}

impl Services {
    fn all(&self, namespace: &Arc<str>) -> Vec<ObjectKey> {
        let names = self.0.get(namespace).into_iter().flatten();
        let key = |name: &Arc<str>| ObjectKey {
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        };
        names.map(key).collect()
    }
}

pub(crate) struct EndpointsReconciler(Objects);

impl Reconciler for EndpointsReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found =
            self.0.get(SERVICES, &key.namespace, &key.name).await.doing("get the service")?;
        let Some(service) = found.filter(|service| !object::is_deleting(service)) else {
            self.forget(key).await?;
            return Ok(ReconcileResult::Done);
        };
        let Some(selector) = plan::selector(&service) else { return Ok(ReconcileResult::Done) };
        let pods = self.0.list(PODS, &key.namespace, &selector).await.doing("list pods")?;
        self.slices(key, &plan::slices(&service, &pods)).await?;
        self.endpoints(key, &plan::endpoints(&service, &pods)).await?;
        Ok(ReconcileResult::Done)
    }
}

impl EndpointsReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn slices(&self, key: &ObjectKey, wanted: &[Value]) -> Result<(), ReconcileError> {
        let labels =
            format!("{}={},{}={}", plan::SERVICE, key.name, plan::SLICES_OF, plan::SLICES_BY);
        let found = self.0.list(SLICES, &key.namespace, &labels).await.doing("list slices")?;
        for slice in wanted {
            let known = found.iter().find(|own| name(own) == name(slice));
            self.put(SLICES, key, known, slice).await?;
        }
        for old in found.iter().filter(|own| !wanted.iter().any(|new| name(new) == name(own))) {
            let deleted = self.0.delete(SLICES, &key.namespace, name(old), object::uid(old)).await;
            deleted.doing("delete a slice")?;
        }
        Ok(())
    }

    async fn endpoints(&self, key: &ObjectKey, wanted: &Value) -> Result<(), ReconcileError> {
        let known = self.0.get(ENDPOINTS, &key.namespace, &key.name).await;
        let known = known.doing("get the endpoints")?;
        self.put(ENDPOINTS, key, known.as_ref(), wanted).await
    }

    async fn put(
        &self,
        resource: Resource,
        key: &ObjectKey,
        known: Option<&Value>,
        wanted: &Value,
    ) -> Result<(), ReconcileError> {
        let namespace = &key.namespace;
        let written = match known {
            None => self.0.create(resource, namespace, wanted).await,
            Some(known) if is_merged(known, wanted) => return Ok(()),
            // Old ones are known not to leave out an empty list.
            Some(known) if is_empty_either_way(known, wanted) => return Ok(()),
            Some(_) => self.0.merge(resource, namespace, name(wanted), wanted).await,
        };
        match written {
            Err(failure) if refused_by_namespace(&failure) => Ok(()),
            written => written.map(drop).doing("write where a service is answered"),
        }
    }

    /// Slices go with their service; the old form does not.
    async fn forget(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        let found = self.0.get(ENDPOINTS, &key.namespace, &key.name).await;
        let Some(old) = found.doing("get the endpoints")? else { return Ok(()) };
        if object::label(&old, plan::ENDPOINTS_OF) != Some(plan::ENDPOINTS_BY) {
            return Ok(());
        }
        match self.0.delete(ENDPOINTS, &key.namespace, &key.name, object::uid(&old)).await {
            Err(failure) if is_refused(&failure, 409) => Ok(()),
            deleted => deleted.doing("delete the endpoints"),
        }
    }
}

/// A server leaves out lists that are empty.
fn is_empty_either_way(known: &Value, wanted: &Value) -> bool {
    let mut wanted = wanted.clone();
    if let Some(fields) = wanted.as_object_mut() {
        fields.retain(|field, value| {
            known.get(field).is_some() || !(value == &json!([]) || value.is_null())
        });
    }
    is_merged(known, &wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, touch};

    #[test]
    fn a_pod_concerns_the_services_of_its_namespace() {
        let mut services = Services::default();
        let mut keys = |touch: ObjectChange| services.keys(&touch).len();
        assert_eq!(keys(touch("pods", "n", "p", ObjectState::Live)), 0);
        assert_eq!(keys(touch("services", "n", "s", ObjectState::Live)), 1);
        assert_eq!(keys(touch("services", "n", "t", ObjectState::Live)), 1);
        assert_eq!(keys(touch("pods", "n", "p", ObjectState::Live)), 2);
        assert_eq!(keys(touch("pods", "m", "p", ObjectState::Live)), 0);
        assert_eq!(keys(touch("endpoints", "n", "s", ObjectState::Gone)), 1);
        assert_eq!(keys(touch("endpoints", "n", "s", ObjectState::Live)), 0);
        assert_eq!(keys(touch("services", "n", "t", ObjectState::Gone)), 1);
        assert_eq!(keys(touch("pods", "n", "p", ObjectState::Live)), 1);
    }

    #[tokio::test]
    async fn a_service_points_at_the_machines_that_it_selects() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let pod = |name: &str, app: &str, ip: &str| {
            json!({"metadata": {"name": name, "labels": {"app": app}},
                "spec": {"nodeName": "one"}, "status": {"phase": "Running", "podIP": ip,
                    "conditions": [{"type": "Ready", "status": "True"}]}})
        };
        fake.create("/pods", "n", pod("a", "web", "10.0.0.1"));
        fake.create("/pods", "n", pod("b", "other", "10.0.0.2"));
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}],
            "ipFamilies": ["IPv4"]});
        fake.create("/services", "n", json!({"metadata": {"name": "s"}, "spec": spec}));
        let publisher = EndpointsReconciler::new(fake.client());
        let key = ObjectKey::new("n", "s");
        publisher.reconcile(&key).await.unwrap();
        let slices = "discovery.k8s.io/endpointslices";
        let slice = fake.get(slices, "n", "s-ipv4").unwrap();
        assert_eq!(slice["endpoints"][0]["addresses"], json!(["10.0.0.1"]));
        assert_eq!(slice["endpoints"].as_array().unwrap().len(), 1);
        publisher.reconcile(&key).await.unwrap();
        assert_eq!(fake.get(slices, "n", "s-ipv4").unwrap(), slice, "nothing changed");
        fake.delete("/pods", "n", "a", "Background");
        publisher.reconcile(&key).await.unwrap();
        assert_eq!(fake.get(slices, "n", "s-ipv4").unwrap()["endpoints"], json!([]));
        assert_eq!(fake.get("/endpoints", "n", "s").unwrap()["subsets"], json!([]));
        fake.delete("/services", "n", "s", "Background");
        publisher.reconcile(&key).await.unwrap();
        assert!(fake.get("/endpoints", "n", "s").is_none());
    }
}
