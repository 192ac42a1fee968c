//! Networks that interfaces name.

use crd::definition::{DefinitionScope, DefinitionVersion, KindDefinition};

use crate::api::network;
use crate::api::record::Field;

const STABLE: &[DefinitionVersion] =
    &[DefinitionVersion { name: "v1", stored: true, deprecated: None }];

pub(super) const CATALOG: &[KindDefinition] = &[KindDefinition {
    scope: DefinitionScope::Namespaced,
    ..KindDefinition::new(
        "k8s.cni.cncf.io",
        "NetworkAttachmentDefinition",
        "network-attachment-definitions",
        &["net-attach-def"],
        STABLE,
        network::NetworkAttachmentDefinition::schema,
    )
}];
