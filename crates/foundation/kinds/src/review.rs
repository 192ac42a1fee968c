//! Reviews: questions a client posts and gets answered; nothing is stored.

use crate::resource::{CREATE_ONLY, Resource};

const fn review(resource: Resource) -> Resource {
    Resource { verbs: CREATE_ONLY, table: "", ..resource }
}

pub(crate) const SELF_SUBJECT: Resource = review(Resource::cluster(
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    "selfsubjectreview",
    "SelfSubjectReview",
));

pub(crate) const TOKEN: Resource = review(Resource::cluster(
    "authentication.k8s.io",
    "v1",
    "tokenreviews",
    "tokenreview",
    "TokenReview",
));

pub(crate) const LOCAL_SUBJECT_ACCESS: Resource = review(Resource::namespaced(
    "authorization.k8s.io",
    "v1",
    "localsubjectaccessreviews",
    "localsubjectaccessreview",
    "LocalSubjectAccessReview",
));

pub(crate) const SELF_SUBJECT_ACCESS: Resource = review(Resource::cluster(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "selfsubjectaccessreview",
    "SelfSubjectAccessReview",
));

pub(crate) const SELF_SUBJECT_RULES: Resource = review(Resource::cluster(
    "authorization.k8s.io",
    "v1",
    "selfsubjectrulesreviews",
    "selfsubjectrulesreview",
    "SelfSubjectRulesReview",
));

pub(crate) const SUBJECT_ACCESS: Resource = review(Resource::cluster(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "subjectaccessreview",
    "SubjectAccessReview",
));
