//! `authorizer` of expressions: answers from the policy that is in force.

use auth::{Attributes, Decision, ResourceRequest, User};
use schema::cel::{Authorize, Question, ResourceTarget, Target, Verdict};

use super::attributes;
use crate::api::Api;
use crate::rights;

/// Asks on behalf of the sender of a request.
#[derive(Debug)]
pub(super) struct Authority<'a> {
    pub(super) api: &'a Api,
    pub(super) user: &'a User,
}

impl Authorize for Authority<'_> {
    fn decide(&self, question: &Question) -> Verdict {
        let account = question
            .service_account
            .as_ref()
            .map(|(namespace, name)| User::service_account(namespace, name, "").authenticated());
        let user = account.as_ref().unwrap_or(self.user);
        if user.is_in(auth::user::MASTERS) {
            return Verdict { allowed: true, ..Verdict::default() };
        }
        let target = match &question.target {
            Target::Path(path) => auth::Target::Path(path),
            Target::Group(_) => return Verdict::default(),
            Target::Resource(at) => auth::Target::Resource(ResourceRequest {
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
                Verdict { allowed: true, reason: reason.to_string(), error: None }
            }
            Decision::NoOpinion(reason) => {
                Verdict { allowed: false, reason: reason.to_string(), error: None }
            }
        }
    }
}

/// What `authorizer.requestResource` is about.
pub(super) fn requested(attributes: &attributes::Attributes<'_, '_>) -> Target {
    let path = &attributes.call.path;
    Target::Resource(ResourceTarget {
        group: path.group.to_owned(),
        resource: path.resource.to_owned(),
        subresource: path.subresource.to_owned(),
        namespace: attributes.namespace.clone(),
        name: attributes.name.clone(),
    })
}
