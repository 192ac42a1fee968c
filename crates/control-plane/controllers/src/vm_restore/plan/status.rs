//! The status of a restore: pure.

use base::clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Restored;
use crate::condition::{self, Condition};

fn with_conditions(restore: &Value, wanted: &[Condition], now: Timestamp) -> Vec<Value> {
    let mut conditions = condition::of(restore);
    for own in wanted {
        condition::set(&mut conditions, own, now);
    }
    conditions
}

pub(in super::super) fn waiting(restore: &Value, why: &str, now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "False").because(why, why),
        Condition::new("Ready", "False").because(why, why),
    ];
    json!({"status": {
        "complete": false, "conditions": with_conditions(restore, &conditions, now),
    }})
}

pub(in super::super) fn begun(restore: &Value, disks: &[Restored], now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "True").because("Creating new PVCs", "Creating new PVCs"),
        Condition::new("Ready", "False").because("Waiting for new PVCs", "Waiting for new PVCs"),
    ];
    let restores: Vec<Value> = disks
        .iter()
        .map(|disk| {
            json!({"volumeName": disk.volume, "persistentVolumeClaim": disk.claim,
                "volumeSnapshotName": disk.snapshot})
        })
        .collect();
    json!({"status": {
        "complete": false, "restores": restores,
        "conditions": with_conditions(restore, &conditions, now),
    }})
}

pub(in super::super) fn complete(restore: &Value, former: &[String], now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "False").because("Operation complete", "Operation complete"),
        Condition::new("Ready", "True").because("Operation complete", "Operation complete"),
    ];
    json!({"status": {
        "complete": true, "restoreTime": clock::rfc3339(now), "deletedDataVolumes": former,
        "conditions": with_conditions(restore, &conditions, now),
    }})
}

pub(in super::super) fn failed(restore: &Value, why: &str, now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "False").because(why, why),
        Condition::new("Ready", "False").because(why, why),
        Condition::new("Failure", "True").because(why, why),
    ];
    json!({"status": {
        "complete": false, "conditions": with_conditions(restore, &conditions, now),
    }})
}
