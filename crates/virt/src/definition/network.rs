//! Networks that interfaces name.

use crd::definition::{Kind, Scope, Version};

use crate::api::network;
use crate::api::record::Field;

const STABLE: &[Version] = &[Version { name: "v1", stored: true, deprecated: None }];

pub(super) const CATALOG: &[Kind] = &[Kind {
    scope: Scope::Namespaced,
    ..Kind::new(
        "k8s.cni.cncf.io",
        "NetworkAttachmentDefinition",
        "network-attachment-definitions",
        &["net-attach-def"],
        STABLE,
        network::NetworkAttachmentDefinition::schema,
    )
}];
