//! Whether a user may do what a request asks for.

use auth::{Attributes, Decision, ResourceRequest, Target, User};

use crate::api::Api;
use crate::call::Call;
use crate::rights;
use crate::status::{ApiError, ApiResult, Subject};

/// Refuses with upstream's words unless the policy allows it.
pub(crate) fn check(
    api: &Api,
    user: &User,
    attributes: &Attributes<'_>,
    subject: Subject<'_>,
) -> ApiResult<()> {
    // Masters need no policy, and must get in while there is none.
    if user.is_in(auth::user::MASTERS) {
        return Ok(());
    }
    match rights::policy(api).authorize(user, attributes) {
        Decision::Allow(_) => Ok(()),
        Decision::NoOpinion(reason) => {
            Err(ApiError::forbidden(subject, auth::forbidden_message(user, attributes, &reason)))
        }
    }
}

/// The same for a path outside of the resources.
pub(crate) fn check_path(api: &Api, user: &User, method: &str, path: &str) -> ApiResult<()> {
    let attributes = Attributes { verb: &method.to_ascii_lowercase(), target: Target::Path(path) };
    check(api, user, &attributes, Subject { group: "", resource: "", name: "" })
}

impl Call<'_> {
    /// Refuses unless the caller may use `verb` on what this call is about.
    pub(crate) fn require(&self, verb: &str) -> ApiResult<()> {
        let attributes = Attributes {
            verb,
            target: Target::Resource(ResourceRequest {
                group: self.path.group,
                version: self.path.version,
                resource: self.path.resource,
                subresource: self.path.subresource,
                namespace: self.path.namespace,
                name: self.path.name,
            }),
        };
        let subject =
            Subject { group: self.path.group, resource: self.path.resource, name: self.path.name };
        check(self.api, self.user, &attributes, subject)
    }
}
