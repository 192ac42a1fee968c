//! Who wants a volume where.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    VolumeAttachment {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<VolumeAttachmentSpec>,
        status: Option<VolumeAttachmentStatus>,
    }

    VolumeAttachmentSpec {
        volume: String,
        attachment_tickets: Map<AttachmentTicket>,
    }

    /// One reason to attach the volume to a node. The highest priority wins.
    AttachmentTicket {
        id: Option<String>,
        r#type: Option<String>,
        node_id as "nodeID": Option<String>,
        parameters: Map<String>,
        generation: Option<i64>,
    }

    VolumeAttachmentStatus {
        attachment_ticket_statuses: Map<AttachmentTicketStatus>,
    }

    AttachmentTicketStatus {
        id: Option<String>,
        satisfied: bool,
        conditions: Vec<Condition> = {"nullable": true},
        generation: Option<i64>,
    }
}
