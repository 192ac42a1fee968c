//! `authorizer` of expressions: answers from the policy that is in force.

use auth::{Attributes, Decision, ResourceRequest, User};
use schema::cel::{AccessQuery, Authorize, AuthorizerTarget, AuthorizerVerdict, ResourceTarget};

use super::attributes;
use crate::access::rights;
use crate::api::Api;

/// Asks on behalf of the sender of a request.
#[derive(Debug)]
pub(super) struct Authority<'a> {
    pub(super) api: &'a Api,
    pub(super) user: &'a User,
}

impl Authorize for Authority<'_> {
    fn decide(&self, question: &AccessQuery) -> AuthorizerVerdict {
        let account = question
            .service_account
            .as_ref()
            .map(|(namespace, name)| User::service_account(namespace, name, "").authenticated());
        let user = account.as_ref().unwrap_or(self.user);
        if user.is_in(auth::user::MASTERS) {
            return AuthorizerVerdict { allowed: true, ..AuthorizerVerdict::default() };
        }
        let target = match &question.target {
            AuthorizerTarget::Path(path) => auth::AccessTarget::Path(path),
            AuthorizerTarget::Group(_) => return AuthorizerVerdict::default(),
            AuthorizerTarget::Resource(at) => auth::AccessTarget::Resource(ResourceRequest {
                group: &at.group,
                version: "*",
                resource: &at.resource,
                subresource: &at.subresource,
                namespace: &at.namespace,
                name: &at.name,
            }),
        };
        let asked = Attributes { verb: &question.verb, target };
        match rights::policy(self.api).authorize(user, &asked) {
            Decision::Allow(reason) => {
                AuthorizerVerdict { allowed: true, reason: reason.to_string(), error: None }
            }
            Decision::NoOpinion(reason) => {
                AuthorizerVerdict { allowed: false, reason: reason.to_string(), error: None }
            }
        }
    }
}

/// The resource that `authorizer.requestResource` checks.
pub(super) fn requested(attributes: &attributes::Attributes<'_, '_>) -> AuthorizerTarget {
    let path = &attributes.call.path;
    AuthorizerTarget::Resource(ResourceTarget {
        group: path.group.to_owned(),
        resource: path.resource.to_owned(),
        subresource: path.subresource.to_owned(),
        namespace: attributes.namespace.clone(),
        name: attributes.name.clone(),
    })
}
