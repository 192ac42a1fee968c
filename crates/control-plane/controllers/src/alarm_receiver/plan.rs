//! Alarms that a receiver has still to be notified of, and those that have ended since: pure.
//!
//! The status of the receiver holds the alarms that were delivered. A message is repeated until it is
//! delivered, and may be delivered twice if the server ends between the delivery and the status.

use std::time::Duration;

use hci::alarm::{Alarm, AlarmReceiverSpec, AnnouncedAlarm, Decision};
use jiff::Timestamp;

/// Alarms that a status remembers. Further ones wait until others end.
pub(super) const MOST_ANNOUNCED: usize = 500;

const CRITICAL: &str = "critical";

/// The next message, and the alarms that are known to the receiver once it is delivered.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Delivery {
    pub(super) firing: Vec<AnnouncedAlarm>,
    pub(super) resolved: Vec<AnnouncedAlarm>,
    pub(super) announced: Vec<AnnouncedAlarm>,
    /// When the next silence ends.
    pub(super) recheck: Option<Duration>,
}

impl Delivery {
    pub(super) fn has_message(&self) -> bool {
        !self.firing.is_empty() || !self.resolved.is_empty()
    }
}

pub(super) fn delivery(
    spec: &AlarmReceiverSpec,
    announced: &[AnnouncedAlarm],
    alarms: &[Alarm],
    now: Timestamp,
) -> Delivery {
    if spec.paused == Some(true) {
        return Delivery { announced: announced.to_vec(), ..Delivery::default() };
    }
    let current: Vec<AnnouncedAlarm> = alarms.iter().filter_map(announcement).collect();
    let mut delivery = Delivery::default();
    for known in announced {
        match current.iter().find(|alarm| alarm.uid == known.uid) {
            Some(alarm) if is_worse(alarm, known) => {}
            Some(_) => delivery.announced.push(known.clone()),
            None if spec.send_resolved == Some(false) => {}
            None => delivery.resolved.push(known.clone()),
        }
    }
    let only_critical = spec.minimum_severity.as_deref() == Some(CRITICAL);
    for alarm in alarms {
        let Some(new) = announcement(alarm) else { continue };
        let is_known = delivery.announced.iter().any(|known| known.uid == new.uid);
        if is_known || only_critical && new.severity != CRITICAL {
            continue;
        }
        match alarm.decision(now) {
            Decision::Acknowledged => {}
            Decision::SilencedUntil(end) => {
                let wait = Duration::try_from(end.duration_since(now)).unwrap_or_default();
                delivery.recheck = Some(delivery.recheck.map_or(wait, |known| known.min(wait)));
            }
            Decision::Open if delivery.announced.len() < MOST_ANNOUNCED => {
                delivery.announced.push(new.clone());
                delivery.firing.push(new);
            }
            Decision::Open => {}
        }
    }
    delivery
}

/// An alarm that became critical is sent again.
fn is_worse(alarm: &AnnouncedAlarm, known: &AnnouncedAlarm) -> bool {
    alarm.severity == CRITICAL && known.severity != CRITICAL
}

/// An alarm as the status remembers it; nothing while its own status has not been written.
fn announcement(alarm: &Alarm) -> Option<AnnouncedAlarm> {
    let status = alarm.status.clone()?;
    Some(AnnouncedAlarm {
        name: alarm.metadata.name.clone()?,
        uid: alarm.metadata.uid.clone()?,
        rule: status.rule,
        severity: status.severity,
        object: status.object,
        summary: status.summary,
        reason: status.reason,
        remedy: status.remedy,
        since: status.since,
    })
}
