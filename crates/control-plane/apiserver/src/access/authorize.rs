//! Authorization of a request: whether its user may do it.

pub(crate) mod node;

use auth::{AccessTarget, Attributes, Decision, ResourceRequest, User};
use tracing::error;

use crate::access::rights;
use crate::api::{Api, Authorization};
use crate::audit;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;

/// Refuses with upstream's words unless the policy allows it.
pub(crate) fn check(
    api: &Api,
    user: &User,
    attributes: &Attributes<'_>,
    subject: StatusSubject<'_>,
) -> ApiResult<()> {
    // Masters need no policy, and must get in while there is none.
    if user.is_in(auth::user::MASTERS) {
        audit::note_allowed(None);
        return Ok(());
    }
    match decide(api, user, attributes) {
        Decision::Allow(reason) => {
            audit::note_allowed(Some(&reason));
            Ok(())
        }
        Decision::NoOpinion(reason) => {
            audit::note_refused(&reason);
            if user.is_in(auth::user::PLATFORM) {
                let message = auth::forbidden_message(user, attributes, &reason);
                error!(user = user.name, message, "a part of the platform lacks a right");
            }
            Err(ApiError::forbidden(subject, auth::forbidden_message(user, attributes, &reason)))
        }
    }
}

/// Asks those who decide, until one allows it.
pub(crate) fn decide(api: &Api, user: &User, attributes: &Attributes<'_>) -> Decision {
    let mut reasons = Vec::new();
    for authorizer in &api.settings.authorization {
        let decision = match authorizer {
            Authorization::AlwaysAllow => Decision::Allow("".into()),
            Authorization::AlwaysDeny if user.is_in(auth::user::MASTERS) => {
                Decision::Allow("".into())
            }
            Authorization::AlwaysDeny => Decision::NoOpinion("Everything is forbidden.".to_owned()),
            Authorization::Rbac => rights::policy(api).authorize(user, attributes),
            Authorization::Node => node::decide(api, user, attributes),
        };
        match decision {
            Decision::Allow(reason) => return Decision::Allow(reason),
            Decision::NoOpinion(reason) if reason.is_empty() => {}
            Decision::NoOpinion(reason) => reasons.push(reason),
        }
    }
    Decision::NoOpinion(reasons.join(", "))
}

/// The same for a path outside of the resources.
pub(crate) fn check_path(api: &Api, user: &User, method: &str, path: &str) -> ApiResult<()> {
    let attributes =
        Attributes { verb: &method.to_ascii_lowercase(), target: AccessTarget::Path(path) };
    check(api, user, &attributes, StatusSubject { group: "", resource: "", name: "" })
}

impl Call<'_> {
    /// Refuses unless the caller may use `verb` on the object of this call.
    pub(crate) fn require(&self, verb: &str) -> ApiResult<()> {
        let attributes = Attributes {
            verb,
            target: AccessTarget::Resource(ResourceRequest {
                group: self.path.group,
                version: self.path.version,
                resource: self.path.resource,
                subresource: self.path.subresource,
                namespace: self.path.namespace,
                name: self.path.name,
            }),
        };
        let subject = StatusSubject {
            group: self.path.group,
            resource: self.path.resource,
            name: self.path.name,
        };
        check(self.api, self.user, &attributes, subject)
    }
}
