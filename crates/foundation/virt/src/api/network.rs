//! `k8s.cni.cncf.io`: networks beside that of the node, as Multus names them.

use crate::api::atom::ObjectMeta;
use crate::api::record::record;

record! {
    /// A network that interfaces may be connected to.
    NetworkAttachmentDefinition {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<NetworkAttachmentDefinitionSpec>,
    }

    NetworkAttachmentDefinitionSpec {
        /// A CNI configuration, as JSON.
        config: Option<String>,
    }
}
