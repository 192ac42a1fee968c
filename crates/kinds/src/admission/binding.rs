//! Bindings of admission policies to what they apply to.

use crate::resource::{Resource, Strategy};

pub(crate) const MUTATING: Resource = Resource {
    categories: &["api-extensions"],

    strategy: Strategy { generation: true, unconditional_update: false, ..Strategy::GENERIC },
    ..Resource::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybinding",
        "MutatingAdmissionPolicyBinding",
    )
};

pub(crate) const VALIDATING: Resource = Resource {
    categories: &["api-extensions"],

    strategy: Strategy { generation: true, unconditional_update: false, ..Strategy::GENERIC },
    ..Resource::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
        "ValidatingAdmissionPolicyBinding",
    )
};
