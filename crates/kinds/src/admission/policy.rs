//! Admission policies written in CEL.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const MUTATING: Resource = Resource {
    categories: &["api-extensions"],

    strategy: Strategy { generation: true, unconditional_update: false, ..Strategy::GENERIC },
    ..Resource::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicy",
        "MutatingAdmissionPolicy",
    )
};

pub(crate) const VALIDATING: Resource = Resource {
    categories: &["api-extensions"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, unconditional_update: false, ..Strategy::WITH_STATUS },
    ..Resource::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
        "ValidatingAdmissionPolicy",
    )
};
