//! Attachment tickets: the nodes that a volume is to be attached to.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    VolumeAttachment {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<VolumeAttachmentSpec>,
        /// What is observed.
        status: Option<VolumeAttachmentStatus>,
    }

    VolumeAttachmentSpec {
        /// Name of the volume.
        volume: String,
        /// Requests to attach the volume, by identifier.
        attachment_tickets: Map<AttachmentTicket>,
    }

    /// One reason to attach the volume to a node. The highest priority wins.
    AttachmentTicket {
        /// Identifier.
        id: Option<String>,
        /// Who requests it, for example csi-attacher.
        r#type: Option<String>,
        /// Node that the object belongs to.
        node_id as "nodeID": Option<String>,
        /// Parameters.
        parameters: Map<String>,
        /// Changes with every request.
        generation: Option<i64>,
    }

    VolumeAttachmentStatus {
        /// State of the requests, by identifier.
        attachment_ticket_statuses: Map<AttachmentTicketStatus>,
    }

    AttachmentTicketStatus {
        /// Identifier.
        id: Option<String>,
        /// The volume is attached as requested.
        satisfied: bool,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// Changes with every request.
        generation: Option<i64>,
    }
}
