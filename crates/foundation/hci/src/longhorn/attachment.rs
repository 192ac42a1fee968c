//! Attachment tickets: the nodes that a volume is to be attached to.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// Requests to attach a volume to a node.
    VolumeAttachment {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired attachments of the volume.
        spec: Option<VolumeAttachmentSpec>,
        /// Observed state of the attachments.
        status: Option<VolumeAttachmentStatus>,
    }

    VolumeAttachmentSpec {
        /// Name of the volume.
        volume: String,
        /// Requests to attach the volume, by ID.
        attachment_tickets: Map<AttachmentTicket>,
    }

    /// Request to attach the volume to a node. The request with the highest priority is satisfied.
    AttachmentTicket {
        /// ID of the request.
        id: Option<String>,
        /// Component that requests the attachment, for example csi-attacher.
        r#type: Option<String>,
        /// Node that the volume is to be attached to.
        node_id as "nodeID": Option<String>,
        /// Parameters of the attachment, for example disableFrontend.
        parameters: Map<String>,
        /// Generation of the request, increased with every change of it.
        generation: Option<i64>,
    }

    VolumeAttachmentStatus {
        /// State of the requests, by ID.
        attachment_ticket_statuses: Map<AttachmentTicketStatus>,
    }

    AttachmentTicketStatus {
        /// ID of the request.
        id: Option<String>,
        /// Whether the volume is attached as requested.
        satisfied: bool,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// Generation of the request that the status belongs to.
        generation: Option<i64>,
    }
}
