//! `k8s.cni.cncf.io`: networks beside that of the node, as Multus names them.

use crate::api::atom::ObjectMeta;
use crate::api::record::record;

record! {
    /// Network that interfaces of guests can be connected to.
    NetworkAttachmentDefinition {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<NetworkAttachmentDefinitionSpec>,
    }

    NetworkAttachmentDefinitionSpec {
        /// CNI configuration of the network, as JSON.
        config: Option<String>,
    }
}
