//! One request to a resource, understood and authorized.

use std::sync::Arc;

use auth::User;
use http::HeaderMap;
use http::header::USER_AGENT;

use crate::api::Api;
use crate::http::negotiate::AcceptedForm;
use crate::http::options::Query;
use crate::http::route::ResourcePath;
use crate::http::warnings::Warnings;
use crate::schemas::served::ServedKind;

/// The request that the verbs work on.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) api: &'a Api,
    pub(crate) user: &'a User,
    pub(crate) served: Arc<ServedKind>,
    pub(crate) path: ResourcePath<'a>,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) wanted: AcceptedForm,
    pub(crate) warnings: Vec<String>,
    /// Warnings of webhooks, policies and other checks.
    pub(crate) notes: Warnings,
}

impl Call<'_> {
    /// The namespace of the request; empty for cluster scope and for all namespaces.
    pub(crate) fn namespace(&self) -> &str {
        if self.served.namespaced { self.path.namespace } else { "" }
    }

    /// The owner of the fields that this request writes: the given manager, or the program's name.
    pub(crate) fn manager(&self, given: Option<&str>) -> String {
        if let Some(manager) = given {
            return manager.to_owned();
        }
        let agent = self.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
        let program = agent.unwrap_or("").split('/').next().unwrap_or("");
        let printable: String = program.chars().filter(|c| !c.is_control()).collect();
        let mut end = printable.len().min(128);
        while !printable.is_char_boundary(end) {
            end -= 1;
        }
        if end == 0 { "unknown".to_owned() } else { printable[..end].to_owned() }
    }

    /// Warns of what the object's kind has to say about it.
    pub(crate) fn warn_of(&mut self, object: &serde_json::Value) {
        for warning in self.served.warnings(object) {
            if warning != kinds::NO_RUNTIME || !self.api.settings.runs_pods {
                self.warn(warning);
            }
        }
    }

    /// Adds a warning that the client shows to its user; each once.
    pub(crate) fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}
