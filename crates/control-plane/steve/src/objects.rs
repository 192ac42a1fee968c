//! One resource: get, create, update, delete, and links that it has.

use client::{Catalog, CatalogKind};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::action::{self, ActionTarget};
use crate::caller::{Session, TABLE};
use crate::envelope::{self, EnvelopeContext, ObjectRow};
use crate::error::SteveError;
use crate::object_rights::{self, ObjectRights};
use crate::reply::{self, SteveResult};
use crate::request::{self, Body, RequestHead};
use crate::route::{SteveRoute, Target};
use crate::{Steve, collection, upgrade_log, why};

/// Machines remove these claims together with themselves.
const REMOVED_CLAIMS: &str = "harvesterhci.io/removedPersistentVolumeClaims";

/// A request about the resources of one type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceCall<'a> {
    pub(crate) steve: &'a Steve,
    pub(crate) session: Session<'a>,
    pub(crate) route: &'a SteveRoute,
    pub(crate) catalog: &'a Catalog,
    pub(crate) kind: &'a CatalogKind,
}

impl ResourceCall<'_> {
    pub(crate) async fn answer(&self, asked: &RequestHead, body: Body) -> SteveResult {
        let Some(target) = self.route.target(self.kind.namespaced) else {
            let path = asked.parts.uri.path();
            return Err(SteveError::not_found(format!("path {path:?} does not exist")));
        };
        match target {
            Target::Collection { namespace } => self.of_collection(asked, body, &namespace).await,
            Target::Object { namespace, name, link } => {
                let path = format!("{}/{}", self.kind.path(&namespace), name);
                if asked.parts.method == Method::POST
                    && let Some(action) = asked.parameter("action")
                {
                    let (namespace, name, path) = (&*namespace, &*name, &*path);
                    let target = ActionTarget { namespace, name, path };
                    if action == "generate" && upgrade_log::is_log(self.kind) {
                        return upgrade_log::generate(self, target).await;
                    }
                    let unknown = self.no_action(asked);
                    let outcome = action::answer(self, asked, body, target, &action).await;
                    return outcome.unwrap_or(Err(unknown));
                }
                match link.or_else(|| asked.parameter("link")).filter(|link| !link.is_empty()) {
                    Some(link) if link == "why" && why::explains(self.kind) => {
                        why::answer(self, asked, &namespace, &name).await
                    }
                    Some(link) if link == "maintenance" && self.kind.is("", "nodes") => {
                        action::maintenance_preview(self, asked, &name).await
                    }
                    Some(link)
                        if link == "versions"
                            && self.kind.is("harvesterhci.io", "virtualmachinetemplates") =>
                    {
                        collection::template_versions(self, asked, &namespace, &name).await
                    }
                    Some(link) if link == "download" && upgrade_log::is_log(self.kind) => {
                        upgrade_log::download(self, asked, &path).await
                    }
                    Some(link) => self.linked(asked, &path, &link).await,
                    None => self.of_object(asked, body, &namespace, &path).await,
                }
            }
        }
    }

    async fn of_collection(&self, asked: &RequestHead, body: Body, namespace: &str) -> SteveResult {
        match asked.parts.method {
            Method::GET | Method::HEAD => collection::answer(self, asked, namespace).await,
            Method::POST => match asked.parameter("action") {
                Some(action) => {
                    let outcome = action::of_collection(self, asked, body, &action).await;
                    outcome.unwrap_or_else(|| Err(self.no_action(asked)))
                }
                None => self.create(asked, body, namespace).await,
            },
            ref other => Err(SteveError::method_not_allowed(other)),
        }
    }

    async fn of_object(
        &self,
        asked: &RequestHead,
        body: Body,
        namespace: &str,
        path: &str,
    ) -> SteveResult {
        match asked.parts.method {
            Method::GET | Method::HEAD => {
                let query = format!("{path}?includeObject=Object");
                let object = self.ask(Method::GET, &query, "application/json", &[]).await?;
                self.resource(asked, StatusCode::OK, object).await
            }
            Method::PUT => self.update(asked, body, namespace, path).await,
            Method::PATCH => self.patch(asked, body, path).await,
            Method::DELETE => self.delete(asked, path).await,
            Method::POST => Err(self.no_action(asked)),
            ref other => Err(SteveError::method_not_allowed(other)),
        }
    }

    fn no_action(&self, asked: &RequestHead) -> SteveError {
        match asked.parameter("action") {
            Some(action) => {
                SteveError::invalid("InvalidAction", format!("Invalid action: {action}"))
            }
            None => SteveError::method_not_allowed(&asked.parts.method),
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<ObjectRow, SteveError> {
        let answer = self.session.send(method, path, content_type, body, TABLE).await?;
        Ok(envelope::rows(answer).into_iter().next().unwrap_or_default())
    }

    async fn create(&self, asked: &RequestHead, body: Body, namespace: &str) -> SteveResult {
        let bytes = request::read(body).await?;
        let fields = request::parse(&asked.parts, &bytes)?;
        let mut object = envelope::unwrap(self.kind, fields);
        let namespace = self.complete(&mut object, namespace);
        let path = format!("{}?includeObject=Object", self.kind.path(&namespace));
        let bytes = serde_json::to_vec(&object).unwrap_or_default();
        let created = self.ask(Method::POST, &path, "application/json", &bytes).await?;
        self.resource(asked, StatusCode::CREATED, created).await
    }

    /// Fills in namespace and name as Steve does, and says which namespace it is.
    fn complete(&self, object: &mut Value, namespace: &str) -> String {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let metadata = &mut object["metadata"];
        let named = |metadata: &Value, field: &str| {
            metadata[field].as_str().is_some_and(|text| !text.is_empty())
        };
        if !named(metadata, "name") && !named(metadata, "generateName") {
            let first = self.kind.kind.to_lowercase().chars().next().unwrap_or('x');
            metadata["generateName"] = format!("{first}-").into();
        }
        if !self.kind.namespaced {
            return String::new();
        }
        let own = metadata["namespace"].as_str().filter(|own| !own.is_empty());
        let namespace = match (namespace, own) {
            ("", None) => "default".to_owned(),
            ("", Some(own)) => own.to_owned(),
            (path, _) => path.to_owned(),
        };
        if !named(metadata, "namespace") {
            metadata["namespace"] = namespace.clone().into();
        }
        namespace
    }

    async fn update(
        &self,
        asked: &RequestHead,
        body: Body,
        namespace: &str,
        path: &str,
    ) -> SteveResult {
        let bytes = request::read(body).await?;
        let fields = request::parse(&asked.parts, &bytes)?;
        let mut object = envelope::unwrap(self.kind, fields);
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let revision = object["metadata"]["resourceVersion"].as_str();
        if revision.is_none_or(str::is_empty) {
            let message = "metadata.resourceVersion is required for update";
            return Err(SteveError::invalid("MissingRequired", message));
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        for (field, value) in [("name", name), ("namespace", namespace)] {
            if object["metadata"][field].is_null() && !value.is_empty() {
                object["metadata"][field] = value.into();
            }
        }
        let bytes = serde_json::to_vec(&object).unwrap_or_default();
        let query = format!("{path}?includeObject=Object");
        let updated = self.ask(Method::PUT, &query, "application/json", &bytes).await?;
        self.resource(asked, StatusCode::OK, updated).await
    }

    async fn patch(&self, asked: &RequestHead, body: Body, path: &str) -> SteveResult {
        let bytes = request::read(body).await?;
        let kind = asked.parts.headers.get(http::header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = if kind.contains("patch") { kind } else { "application/merge-patch+json" };
        let query = format!("{path}?includeObject=Object");
        let patched = self.ask(Method::PATCH, &query, kind, &bytes).await?;
        self.resource(asked, StatusCode::OK, patched).await
    }

    /// Deletes an object, and answers with it as it was last seen: it may be gone at once.
    async fn delete(&self, asked: &RequestHead, path: &str) -> SteveResult {
        let query = format!("{path}?includeObject=Object");
        let before = match self.ask(Method::GET, &query, "application/json", &[]).await {
            Err(error) if error.status == StatusCode::FORBIDDEN => None,
            outcome => Some(outcome?),
        };
        if self.kind.is("kubevirt.io", "virtualmachines") {
            self.mark_removed_claims(asked, path, before.as_ref()).await?;
        }
        let target = format!("{path}?{}", delete_options(asked));
        let deleted = self
            .session
            .send(Method::DELETE, &target, "application/json", &[], "application/json")
            .await?;
        let last = match deleted["kind"].as_str() {
            Some("Status") | None => before,
            Some(_) => Some(ObjectRow { object: deleted, cells: None }),
        };
        let Some(mut last) = last else { return Ok(reply::empty(StatusCode::NO_CONTENT)) };
        if last.object["metadata"]["deletionTimestamp"].is_null() {
            last.object["metadata"]["deletionTimestamp"] = base::clock::now_rfc3339().into();
        }
        self.resource(asked, StatusCode::OK, last).await
    }

    /// Notes on a machine which claims go with it: those of the disks in `removedDisks`.
    async fn mark_removed_claims(
        &self,
        asked: &RequestHead,
        path: &str,
        machine: Option<&ObjectRow>,
    ) -> Result<(), SteveError> {
        let disks = asked.list_parameter("removedDisks");
        let Some(machine) = machine.filter(|_| !disks.is_empty()) else { return Ok(()) };
        let claims = claims_of(&machine.object, &disks);
        if claims.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {REMOVED_CLAIMS: claims.join(",")}}});
        self.session.merge(path, &patch).await.map(drop)
    }

    async fn linked(&self, asked: &RequestHead, path: &str, link: &str) -> SteveResult {
        if !matches!(asked.parts.method, Method::GET | Method::HEAD) {
            return Err(SteveError::method_not_allowed(&asked.parts.method));
        }
        if link != "view" {
            return Err(SteveError::not_found(format!("link {link:?} does not exist")));
        }
        let object = self.session.get(path).await?;
        if reply::wants_yaml(&asked.parts.headers) {
            return reply::yaml(StatusCode::OK, &object);
        }
        Ok(reply::json(StatusCode::OK, &object))
    }

    /// Answers with one resource.
    async fn resource(
        &self,
        asked: &RequestHead,
        status: StatusCode,
        row: ObjectRow,
    ) -> SteveResult {
        if reply::wants_yaml(&asked.parts.headers) {
            return reply::yaml(status, &row.object);
        }
        let namespace = row.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let (origin, pods) = (asked.origin(), self.pods(&namespace).await);
        let context = EnvelopeContext {
            kind: self.kind,
            catalog: self.catalog,
            origin: &origin,
            prefix: self.route.prefix,
            pods: &pods,
        };
        let rights = self.rights(&row.object).await?;
        Ok(reply::json(status, &envelope::wrap(&context, row, &rights)))
    }

    /// The rights of the caller on an object.
    async fn rights(&self, object: &Value) -> Result<ObjectRights, SteveError> {
        let namespace = object_rights::namespace_of(self.kind, object);
        object_rights::ask(&self.session, self.kind, namespace).await
    }

    pub(crate) async fn pods(&self, namespace: &str) -> Vec<Value> {
        pods(&self.session, self.kind, namespace).await
    }
}

/// The pods in which instances run, as far as the caller may see them; none for other kinds.
pub(crate) async fn pods(session: &Session<'_>, kind: &CatalogKind, namespace: &str) -> Vec<Value> {
    if !kind.is("kubevirt.io", "virtualmachineinstances") {
        return Vec::new();
    }
    let path = match namespace {
        "" => "/api/v1/pods".to_owned(),
        namespace => format!("/api/v1/namespaces/{namespace}/pods"),
    };
    let found = session.get(&format!("{path}?labelSelector=kubevirt.io")).await;
    let found = found.map(envelope::rows).unwrap_or_default();
    found.into_iter().map(|row| row.object).collect()
}

/// The options of a deletion that are passed on.
fn delete_options(asked: &RequestHead) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for option in ["propagationPolicy", "gracePeriodSeconds", "dryRun"] {
        if let Some(value) = asked.parameter(option) {
            query.append_pair(option, &value);
        }
    }
    query.finish()
}

/// The claims behind disks of a machine, by the names of the disks.
fn claims_of(machine: &Value, disks: &[String]) -> Vec<String> {
    let volumes = machine["spec"]["template"]["spec"]["volumes"].as_array();
    let volumes = volumes.into_iter().flatten();
    let named = volumes.filter(|volume| disks.iter().any(|disk| volume["name"] == **disk));
    let claims = named.filter_map(|volume| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
        claim.or_else(|| volume["dataVolume"]["name"].as_str())
    });
    claims.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_found_behind_disks() {
        let machine = json!({"spec": {"template": {"spec": {"volumes": [
            {"name": "disk-0", "persistentVolumeClaim": {"claimName": "web-disk-0"}},
            {"name": "disk-1", "dataVolume": {"name": "web-disk-1"}},
            {"name": "cloudinit", "cloudInitNoCloud": {}},
        ]}}}});
        let claims = |disks: &[&str]| {
            let disks: Vec<String> = disks.iter().map(|&disk| disk.to_owned()).collect();
            claims_of(&machine, &disks).join(" ")
        };
        assert_eq!(claims(&["disk-0"]), "web-disk-0");
        assert_eq!(claims(&["disk-1", "cloudinit", "none", "disk-0"]), "web-disk-0 web-disk-1");
    }
}
