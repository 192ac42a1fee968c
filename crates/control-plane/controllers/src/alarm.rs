//! Alarms follow the objects that they concern: one is created when a rule finds a fault that
//! lasts, and deleted when it is repaired. Decisions of users about an alarm are kept.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::clock;
use hci::alarm::{Alarm, AlarmStatus, GROUP, PLURAL};
use kube::Client;
use serde_json::{Value, json};

use self::plan::{AlarmFinding, Subject};
use crate::key::ObjectKey;
use crate::longhorn::{BACKUP_TARGETS, LONGHORN_VOLUMES};
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::resource::{NODES, Objects, Resource, VMS, is_refused};
use crate::vm_backup::BACKUPS;

const ALARMS: Resource = Resource::new(GROUP, "v1", PLURAL);
const HARVESTER: &str = "harvesterhci.io";
const LONGHORN_NODES: Resource = Resource::new("longhorn.io", "v1beta2", "nodes");
const IMAGES: Resource = Resource::new(HARVESTER, "v1beta1", "virtualmachineimages");
const SCHEDULES: Resource = Resource::new(HARVESTER, "v1beta1", "schedulevmbackups");
const UPGRADES: Resource = Resource::new(HARVESTER, "v1beta1", "upgrades");
/// The label with the object of an alarm: alarms of an object are found without its name's hash.
const OBJECT_LABEL: &str = "sheaf.io/alarm-object";
/// A volume whose host is away is checked again, since the host's return does not change it.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

const SUBJECTS: [(Resource, Subject); 9] = [
    (NODES, Subject::Host),
    (LONGHORN_NODES, Subject::Disks),
    (LONGHORN_VOLUMES, Subject::Volume),
    (VMS, Subject::Machine),
    (IMAGES, Subject::Image),
    (BACKUP_TARGETS, Subject::BackupTarget),
    (BACKUPS, Subject::Backup),
    (SCHEDULES, Subject::BackupSchedule),
    (UPGRADES, Subject::Upgrade),
];

fn resource_of(subject: Subject) -> Resource {
    let found = SUBJECTS.iter().find(|(_, own)| *own == subject);
    found.map_or(NODES, |(resource, _)| *resource)
}

type AlarmKey = (Subject, ObjectKey);

/// Maps changes to the objects that rules check.
#[derive(Debug, Default)]
pub(crate) struct AlarmMapper;

impl EventMapper for AlarmMapper {
    type Key = AlarmKey;

    fn keys(&mut self, change: &ObjectChange) -> Vec<AlarmKey> {
        let ObjectChange::Object { kind, namespace, name, .. } = change else { return Vec::new() };
        let found = SUBJECTS.iter().find(|(resource, _)| resource.is(kind));
        let key = || ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        found.map(|(_, subject)| (*subject, key())).into_iter().collect()
    }
}

pub(crate) struct AlarmReconciler {
    objects: Objects,
    /// Since when this process knows of something that is not an alarm yet.
    noticed: Mutex<BTreeMap<(AlarmKey, &'static str), Instant>>,
}

impl Reconciler for AlarmReconciler {
    type Key = AlarmKey;

    async fn reconcile(&self, key: &AlarmKey) -> Result<ReconcileResult, ReconcileError> {
        let (subject, object) = key;
        let resource = resource_of(*subject);
        let found = self.objects.get(resource, &object.namespace, &object.name).await;
        let found = found.doing("get the object of an alarm")?;
        let findings = match &found {
            Some(found) => {
                let absent = self.absent_hosts(*subject).await?;
                plan::findings(*subject, found, &absent)
            }
            None => Vec::new(),
        };
        let label = plan::label(*subject, &object.namespace, &object.name);
        let selector = format!("{OBJECT_LABEL}={label}");
        let existing = self.objects.list(ALARMS, "", &selector).await.doing("list alarms")?;
        let (lasting, again) = self.lasting(key, &findings, &existing);
        for finding in &lasting {
            let name = plan::alarm_name(finding.rule, &label);
            let known = existing.iter().find(|own| object::name(own) == name);
            let subject_object = found.as_ref().unwrap_or(&Value::Null);
            self.raise(&name, &label, known, &|since| {
                finding.status(*subject, subject_object, since)
            })
            .await?;
        }
        for own in &existing {
            let is_wanted = |finding: &AlarmFinding| {
                plan::alarm_name(finding.rule, &label) == object::name(own)
            };
            if !lasting.iter().any(is_wanted) {
                let (name, uid) = (object::name(own), object::uid(own));
                self.objects.delete(ALARMS, "", name, uid).await.doing("delete an alarm")?;
            }
        }
        Ok(again.map_or(ReconcileResult::Done, ReconcileResult::Again))
    }
}

impl AlarmReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects(client), noticed: Mutex::default() }
    }

    async fn absent_hosts(&self, subject: Subject) -> Result<Vec<String>, ReconcileError> {
        if !matches!(subject, Subject::Volume | Subject::Disks) {
            return Ok(Vec::new());
        }
        let nodes = self.objects.list(NODES, "", "").await.doing("list nodes")?;
        let absent = nodes.iter().filter(|node| plan::is_absent(node));
        Ok(absent.map(|node| object::name(node).to_owned()).collect())
    }

    /// The findings that have lasted for their grace period, and when to check the others again.
    /// An existing alarm has waited for it already.
    fn lasting(
        &self,
        key: &AlarmKey,
        findings: &[AlarmFinding],
        existing: &[Value],
    ) -> (Vec<AlarmFinding>, Option<Duration>) {
        let now = Instant::now();
        let label = plan::label(key.0, &key.1.namespace, &key.1.name);
        let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        noticed.retain(|(own, rule), _| {
            own != key || findings.iter().any(|finding| finding.rule == *rule)
        });
        let mut again = None::<Duration>;
        let mut lasting = Vec::new();
        for finding in findings {
            let name = plan::alarm_name(finding.rule, &label);
            let is_known = existing.iter().any(|own| object::name(own) == name);
            let since = *noticed.entry((key.clone(), finding.rule)).or_insert(now);
            let left = finding.grace.saturating_sub(now.duration_since(since));
            if is_known || left.is_zero() {
                lasting.push(finding.clone());
                continue;
            }
            again = Some(again.map_or(left, |known| known.min(left)));
        }
        if key.0 == Subject::Volume && (!findings.is_empty() || !existing.is_empty()) {
            again = Some(again.map_or(RECHECK_INTERVAL, |known| known.min(RECHECK_INTERVAL)));
        }
        (lasting, again)
    }

    /// Creates the alarm, or brings it up to date.
    async fn raise(
        &self,
        name: &str,
        label: &str,
        known: Option<&Value>,
        status: &(dyn Fn(&str) -> AlarmStatus + Sync),
    ) -> Result<(), ReconcileError> {
        let read: Option<Alarm> = known.and_then(|own| serde_json::from_value(own.clone()).ok());
        let before = read.and_then(|own| own.status);
        let now = clock::now_rfc3339();
        let wanted = status(before.as_ref().map_or(now.as_str(), |own| own.since.as_str()));
        if before.as_ref() == Some(&wanted) {
            return Ok(());
        }
        if known.is_none() {
            let alarm = json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "Alarm", "spec": {},
                "metadata": {"name": name, "labels": {OBJECT_LABEL: label}},
            });
            match self.objects.create(ALARMS, "", &alarm).await {
                Err(failure) if is_refused(&failure, 409) => {}
                made => drop(made.doing("create an alarm")?),
            }
        }
        let mut status = serde_json::to_value(&wanted).unwrap_or_default();
        for field in ["reason", "remedy"] {
            // A merge patch removes what is not said any more.
            if status.get(field).is_none() {
                status[field] = Value::Null;
            }
        }
        let patch = json!({"status": status});
        match self.objects.merge_status(ALARMS, "", name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(()),
            written => written.map(drop).doing("write an alarm"),
        }
    }
}

#[cfg(test)]
mod tests;
