//! Tickets: a user of a volume adds one to its VolumeAttachment, for as long as it needs the
//! volume.

use client::Fault;
use hci::longhorn::{FINALIZER, MIGRATION_PARAMETER, NAMESPACE};
use kube::Client;
use kube::api::{DynamicObject, PostParams};
use serde_json::json;

use super::longhorn;
use crate::api::{merge, present};

/// Longhorn's name for a volume that a machine uses.
const CSI: &str = "csi-attacher";

/// Why a ticket was not put or taken back.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} the attachment of volume {volume}")]
pub(crate) struct TicketError {
    doing: &'static str,
    volume: String,
    source: Fault,
}

/// The purpose of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Use,
    /// A machine that uses the volume elsewhere moves to this node.
    Migration,
}

/// Asks for a volume on a node.
pub(super) async fn put(
    client: &Client,
    volume: &str,
    node: &str,
    ticket: &str,
    purpose: Purpose,
) -> Result<(), TicketError> {
    let fail =
        |source| TicketError { doing: "change", volume: volume.into(), source: Fault(source) };
    let attachments = longhorn(client, "VolumeAttachment", "volumeattachments");
    let found = present(attachments.get(volume).await).map_err(fail)?;
    let parameters = match purpose {
        Purpose::Use => json!({}),
        Purpose::Migration => json!({MIGRATION_PARAMETER: "true"}),
    };
    let value = json!({"id": ticket, "type": CSI, "nodeID": node, "parameters": parameters});
    let tickets = json!({ticket: value});
    let patch = json!({"spec": {"attachmentTickets": tickets}});
    match found {
        Some(found) if found.data["spec"]["attachmentTickets"][ticket]["nodeID"] == node => Ok(()),
        Some(_) => merge(&attachments, volume, &patch).await.map(drop).map_err(fail),
        None => {
            let object = json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "VolumeAttachment",
                "metadata": {"name": volume, "namespace": NAMESPACE, "finalizers": [FINALIZER],
                             "labels": {hci::longhorn::VOLUME_LABEL: volume}},
                "spec": {"volume": volume, "attachmentTickets": tickets},
            });
            let object: DynamicObject =
                serde_json::from_value(object).expect("an attachment of ours is an object");
            match attachments.create(&PostParams::default(), &object).await {
                // Another user of the volume was quicker, and both have it.
                Err(kube::Error::Api(refused)) if refused.is_already_exists() => {
                    merge(&attachments, volume, &patch).await.map(drop).map_err(fail)
                }
                created => created.map(drop).map_err(fail),
            }
        }
    }
}

/// Removes the ticket for a volume; one that does not exist is not needed either.
pub(super) async fn take_back(
    client: &Client,
    volume: &str,
    ticket: &str,
) -> Result<(), TicketError> {
    let fail =
        |source| TicketError { doing: "change", volume: volume.into(), source: Fault(source) };
    let attachments = longhorn(client, "VolumeAttachment", "volumeattachments");
    let patch = json!({"spec": {"attachmentTickets": {ticket: null}}});
    present(merge(&attachments, volume, &patch).await).map(drop).map_err(fail)
}
