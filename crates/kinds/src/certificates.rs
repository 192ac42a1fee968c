//! CertificateSigningRequests.

use crate::resource::{NameRule, Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["csr"],
    subresources: &[
        Subresource { name: "approval", kind: None, verbs: &["get", "patch", "update"] },
        Subresource::STATUS,
    ],
    strategy: Strategy { name: NameRule::PathSegment, ..Strategy::WITH_STATUS },
    ..Resource::cluster(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "certificatesigningrequest",
        "CertificateSigningRequest",
    )
};
