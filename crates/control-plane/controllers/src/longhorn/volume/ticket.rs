//! The attachment tickets of a volume: pure.
//!
//! Each reason to attach a volume is a ticket in its attachment object. The highest priority
//! wins; among equals the node where the volume is, so that no ticket is displaced by a later
//! one. Tickets of volumes that have to be at work for a while are written here as well.

use std::collections::BTreeMap;

use base::clock;
use hci::longhorn::MIGRATION_PARAMETER;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::condition::{self, Condition};
use crate::longhorn::record::{AttachmentFields, TicketFields};
use crate::object::read;

pub(super) const EXPANSION: &str = "volume-expansion-controller";
pub(super) const EVICTION: &str = "volume-eviction-controller";

fn priority(kind: &str) -> u32 {
    match kind {
        "volume-restore-controller" | EXPANSION => 2000,
        "longhorn-api" => 1000,
        "csi-attacher" | "salvage-controller" | "share-manager-controller" => 900,
        _ => 800,
    }
}

/// The node that is asked for, given where the volume is now.
pub(super) fn wanted<'a>(attachment: Option<&'a Value>, current: &str) -> Option<&'a str> {
    let asked = tickets(attachment?).into_iter().filter(|(_, own)| !own.node_id.is_empty());
    let best = asked.min_by_key(|(id, own)| {
        (std::cmp::Reverse(priority(own.kind)), own.node_id != current, *id)
    });
    best.map(|(_, own)| own.node_id)
}

/// The node that a machine moves to which uses the volume at `current`.
pub(super) fn migration_target<'a>(
    attachment: Option<&'a Value>,
    current: &str,
) -> Option<&'a str> {
    let mut nodes = tickets(attachment?)
        .into_values()
        .filter(is_migration)
        .map(|own| own.node_id)
        .filter(|node| !node.is_empty() && *node != current);
    nodes.next().filter(|_| !current.is_empty())
}

fn is_migration(ticket: &TicketFields<'_>) -> bool {
    ticket.parameters.get(MIGRATION_PARAMETER) == Some(&"true")
}

/// The tickets by their identifiers.
pub(in crate::longhorn) fn tickets(attachment: &Value) -> BTreeMap<&str, TicketFields<'_>> {
    read::<AttachmentFields<'_>>(attachment).spec.attachment_tickets
}

/// Whether there is a ticket with this identifier.
pub(crate) fn has(attachment: &Value, id: &str) -> bool {
    tickets(attachment).contains_key(id)
}

/// A ticket of ours that has to come or go; nothing if it is as it should be.
pub(super) fn own(
    attachment: Option<&Value>,
    volume: &str,
    kind: &str,
    node: Option<&str>,
) -> Option<Value> {
    let id = format!("{kind}-{volume}");
    let is_there = attachment.is_some_and(|own| has(own, &id));
    let wanted = match (is_there, node) {
        (false, None) | (true, Some(_)) => return None,
        (true, None) => Value::Null,
        (false, Some(node)) => ticket(&id, kind, node),
    };
    Some(json!({"spec": {"attachmentTickets": {id: wanted}}}))
}

/// Takes back all tickets for a node.
pub(super) fn without(attachment: &Value, node: &str) -> Option<Value> {
    let there = tickets(attachment).into_iter().filter(|(_, own)| own.node_id == node);
    let gone: Map<String, Value> = there.map(|(id, _)| (id.to_owned(), Value::Null)).collect();
    (!gone.is_empty()).then(|| json!({"spec": {"attachmentTickets": gone}}))
}

/// Whether a machine on another node wants the volume; their agents name such tickets by the uid of
/// the instance.
pub(super) fn is_machine_elsewhere(attachment: &Value, node: &str) -> bool {
    tickets(attachment)
        .iter()
        .any(|(id, own)| id.starts_with("vmi-") && !own.node_id.is_empty() && own.node_id != node)
}

pub(in crate::longhorn) fn ticket(id: &str, kind: &str, node: &str) -> Value {
    json!({"id": id, "type": kind, "nodeID": node, "generation": 0,
        "parameters": {"disableFrontend": "false", "lastAttachedBy": ""}})
}

/// Which tickets have what they want: the patch of the attachment's status, if it says
/// otherwise. `attached` is the node where the volume can be used.
pub(super) fn statuses(
    attachment: &Value,
    attached: Option<&str>,
    now: Timestamp,
) -> Option<Value> {
    let AttachmentFields { spec, status } = read(attachment);
    let mut before = status.attachment_ticket_statuses;
    let mut wanted = Map::new();
    for (id, ticket) in &spec.attachment_tickets {
        let node = ticket.node_id;
        // Beside the engine that runs, a volume can be read where its machine moves to.
        let satisfied = attached == Some(node) || attached.is_some() && is_migration(ticket);
        let mut conditions = before.remove(id).unwrap_or_default().conditions;
        let reported = match (satisfied, attached) {
            (true, _) => Condition::new("Satisfied", "True"),
            (false, None) => Condition::new("Satisfied", "False")
                .because("", format!("waiting for the volume to be attached to node {node}")),
            (false, Some(other)) => Condition::new("Satisfied", "False")
                .because("", format!("the volume is currently attached to different node {other}")),
        };
        condition::set(&mut conditions, &reported, now);
        wanted.insert(
            (*id).to_owned(),
            json!({"id": id, "satisfied": satisfied, "conditions": conditions,
                "generation": ticket.generation}),
        );
    }
    wanted.extend(before.into_keys().map(|id| (id.to_owned(), Value::Null)));
    let patch = json!({"status": {"attachmentTicketStatuses": wanted}});
    (!crate::object::is_merged(attachment, &patch)).then_some(patch)
}

/// A time as Longhorn's fields hold it, empty for none.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

pub(super) fn stamp(now: Timestamp) -> Value {
    json!(clock::rfc3339(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::text;

    fn attachment(tickets: &[(&str, &str, &str)]) -> Value {
        let tickets: Map<String, Value> = tickets
            .iter()
            .map(|(id, kind, node)| ((*id).to_owned(), ticket(id, kind, node)))
            .collect();
        json!({"spec": {"attachmentTickets": tickets}})
    }

    #[test]
    fn the_highest_priority_wins_and_among_equals_who_is_there() {
        let csi = "csi-attacher";
        for (tickets, current, expected) in [
            (&[][..], "", None),
            (&[("a", csi, "one")][..], "", Some("one")),
            (&[("a", csi, "one"), ("b", csi, "two")][..], "", Some("one")),
            (&[("a", csi, "one"), ("b", csi, "two")][..], "two", Some("two")),
            (&[("a", "snapshot-controller", "one"), ("b", csi, "two")][..], "one", Some("two")),
            (&[("a", csi, "one"), ("b", EXPANSION, "two")][..], "one", Some("two")),
            (&[("a", csi, "")][..], "", None),
        ] {
            let own = attachment(tickets);
            assert_eq!(wanted(Some(&own), current), expected, "{tickets:?} at {current}");
        }
        assert_eq!(wanted(None, ""), None);
    }

    #[test]
    fn tickets_of_ours_come_and_go() {
        let none = attachment(&[]);
        let id = format!("{EXPANSION}-v");
        let there = attachment(&[(&id, EXPANSION, "one")]);
        let made = own(Some(&none), "v", EXPANSION, Some("one")).unwrap();
        assert_eq!(made["spec"]["attachmentTickets"][&id]["nodeID"], "one");
        let gone = own(Some(&there), "v", EXPANSION, None).unwrap();
        assert_eq!(gone, json!({"spec": {"attachmentTickets": {id: null}}}));
        assert_eq!(own(Some(&there), "v", EXPANSION, Some("two")), None);
        assert_eq!(own(Some(&none), "v", EXPANSION, None), None);
    }

    #[test]
    fn tickets_report_whether_they_are_satisfied() {
        let now = Timestamp::UNIX_EPOCH;
        let mut own = attachment(&[("a", "csi-attacher", "one"), ("b", "csi-attacher", "two")]);
        own["status"] = json!({"attachmentTicketStatuses": {"old": {"id": "old"}}});
        let patch = statuses(&own, Some("one"), now).unwrap();
        let report = &patch["status"]["attachmentTicketStatuses"];
        assert_eq!(
            (&report["a"]["satisfied"], &report["b"]["satisfied"]),
            (&json!(true), &json!(false))
        );
        assert_eq!(report["old"], Value::Null);
        assert_eq!(
            text(&report["b"], "/conditions/0/message"),
            "the volume is currently attached to different node one"
        );
        let mut settled = own.clone();
        settled["status"] =
            json!({"attachmentTicketStatuses": {"a": report["a"], "b": report["b"]}});
        assert_eq!(statuses(&settled, Some("one"), now), None);
    }
}
