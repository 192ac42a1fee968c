//! Instancetypes and preferences: found, recorded as revisions when first used, and applied.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use virt::ClusterConfig;
use virt::admit::Objects as Source;
use virt::instancetype::{
    ExpandError, Sizing, annotate, expand as write_out, prefer_devices, referenced, revision,
    status_reference, upgraded,
};
use virt::reason::MachineFailure;
use virt::restart_required::{CHANGED, needs_restart};

use super::status::{Findings, Restart};
use crate::object::{self, copied_map, namespace, text};
use crate::reconcile::{ErrorContext, ReconcileError};
use crate::resource::{KUBEVIRTS, Objects, REVISIONS, Resource, is_refused};

pub(crate) const GROUP: &str = "instancetype.kubevirt.io";
/// The two fields by which a machine refers to objects, and its failure when the object is
/// missing.
const FIELDS: [(&str, MachineFailure); 2] =
    [("instancetype", MachineFailure::Instancetype), ("preference", MachineFailure::Preference)];

/// A machine with its instancetype and preference applied.
#[derive(Debug)]
pub(crate) struct Expanded {
    /// `spec` of the machine.
    pub(crate) spec: Value,
    /// Annotations of the instance that name what was applied.
    pub(crate) annotations: Map<String, Value>,
}

/// The names that a machine refers to.
pub(crate) fn names(vm: &Value) -> impl Iterator<Item = &str> {
    FIELDS
        .iter()
        .map(|(field, _)| text(vm, &format!("/spec/{field}/name")))
        .filter(|name| !name.is_empty())
}

fn refers(vm: &Value) -> bool {
    FIELDS.iter().any(|(field, _)| vm["spec"][field].is_object())
}

/// Applies what the machine refers to; nothing if that cannot be done, which is noted.
pub(crate) async fn expand(
    objects: &Objects,
    vm: &Value,
    findings: &mut Findings,
) -> Result<Option<Expanded>, ReconcileError> {
    if !refers(vm) {
        for (field, _) in FIELDS {
            if vm["status"].get(format!("{field}Ref")).is_some() {
                findings.references.insert(format!("{field}Ref"), Value::Null);
            }
        }
        return Ok(Some(as_written(vm)));
    }
    let known = ReadObjects::of(objects, vm).await?;
    for (field, reason) in FIELDS {
        let name = text(vm, &format!("/spec/{field}/name"));
        let Some(found) = referenced(field, vm, namespace(vm), &known) else {
            if name.is_empty() {
                continue;
            }
            let message = format!("{field}.{GROUP} \"{name}\" not found");
            findings.failure = Some((reason, message));
            return Ok(None);
        };
        if let Some(conflict) = record(objects, vm, field, &found, findings).await? {
            findings.failure = Some((MachineFailure::Create, conflict));
            return Ok(None);
        }
        if let Some(old) = own_revision(vm, field, &known, findings) {
            upgrade(objects, vm, field, old, findings).await?;
        }
    }
    let config = configuration(objects).await?;
    match apply(vm, &known, &config) {
        Ok(expanded) => Ok(Some(expanded)),
        Err(failure) => {
            let cause = format!("Failed to apply instancetype: {failure}");
            findings.failure =
                Some((MachineFailure::Create, format!("failure while starting VMI: {cause}")));
            Ok(None)
        }
    }
}

/// A machine that refers to nothing.
fn as_written(vm: &Value) -> Expanded {
    Expanded { spec: vm["spec"].clone(), annotations: Map::new() }
}

async fn configuration(objects: &Objects) -> Result<ClusterConfig, ReconcileError> {
    let cluster = objects.list(KUBEVIRTS, "", "").await.doing("read the configuration")?;
    Ok(ClusterConfig::new(cluster.first().unwrap_or(&Value::Null), virt::ARCHITECTURE))
}

/// Keeps the version that the machine uses, so that later changes do not reach it. Answers a
/// complaint if another object exists under its name.
async fn record(
    objects: &Objects,
    vm: &Value,
    field: &str,
    found: &Value,
    findings: &mut Findings,
) -> Result<Option<String>, ReconcileError> {
    let mut kept = None;
    let reference = status_reference(field, vm, || {
        let wanted = revision(vm, found);
        let name = text(&wanted, "/metadata/name").to_owned();
        kept = Some(wanted);
        Ok::<_, std::convert::Infallible>(name)
    });
    let Ok(reference) = reference;
    if let Some(kept) = kept {
        match objects.create(REVISIONS, namespace(vm), &kept).await {
            Err(failure) if is_refused(&failure, 409) => {
                let name = text(&kept, "/metadata/name");
                let have = objects.get(REVISIONS, namespace(vm), name).await;
                let have = have.doing("read the revision of an instancetype")?;
                // It may have gone since: the next reconciliation makes it.
                if !have.is_some_and(|have| keeps_same(&have, &kept)) {
                    return Ok(Some(conflict(name)));
                }
            }
            made => drop(made.doing("record an instancetype")?),
        }
    }
    findings.references.insert(format!("{field}Ref"), reference);
    Ok(None)
}

/// Whether two revisions size a machine alike. Labels and names may differ.
fn keeps_same(have: &Value, wanted: &Value) -> bool {
    have["data"]["kind"] == wanted["data"]["kind"] && have["data"]["spec"] == wanted["data"]["spec"]
}

fn conflict(name: &str) -> String {
    format!(
        "error encountered while storing {GROUP} controllerRevisions: found existing \
         ControllerRevision with unexpected data: {name}; delete it, and it is made anew"
    )
}

/// The revision that was recorded for a machine before. A revision that the machine names itself
/// is not its own.
fn own_revision(
    vm: &Value,
    field: &str,
    known: &ReadObjects,
    findings: &Findings,
) -> Option<Value> {
    let key = format!("{field}Ref");
    let used = text(vm, &format!("/status/{key}/controllerRevisionRef/name"));
    let named = text(findings.references.get(&key)?, "/controllerRevisionRef/name");
    let pinned = !text(vm, &format!("/spec/{field}/revisionName")).is_empty();
    if used.is_empty() || used != named || pinned {
        return None;
    }
    known.get("apps", "controllerrevisions", namespace(vm), used)
}

/// Keeps what an older release kept in the latest version. The old revision goes when nothing
/// refers to it any more.
async fn upgrade(
    objects: &Objects,
    vm: &Value,
    field: &str,
    old: Value,
    findings: &mut Findings,
) -> Result<(), ReconcileError> {
    let Some(new) = upgraded(vm, &old) else { return Ok(()) };
    let name = text(&new, "/metadata/name");
    if name == text(&old, "/metadata/name") {
        let labels = json!({"metadata": {"labels": new["metadata"]["labels"]}});
        let written = objects.merge(REVISIONS, namespace(vm), name, &labels).await;
        return written.map(drop).doing("label the revision of an instancetype");
    }
    match objects.create(REVISIONS, namespace(vm), &new).await {
        Err(failure) if is_refused(&failure, 409) => {}
        made => drop(made.doing("upgrade the revision of an instancetype")?),
    }
    if let Some(reference) = findings.references.get_mut(&format!("{field}Ref")) {
        reference["controllerRevisionRef"]["name"] = json!(name);
    }
    findings.superseded.push(old);
    Ok(())
}

fn apply(vm: &Value, known: &ReadObjects, config: &ClusterConfig) -> Result<Expanded, ExpandError> {
    let mut vm = vm.clone();
    let sizing = Sizing::find(&vm, namespace(&vm), known);
    prefer_devices(&sizing, &mut vm["spec"]["template"]["spec"]);
    let expanded = write_out(&vm, namespace(&vm), known, config)?;
    let mut named = Value::Object(Map::new());
    annotate(&vm, &mut named);
    let annotations = copied_map(object::annotations(&named));
    Ok(Expanded { spec: expanded["spec"].clone(), annotations })
}

/// Whether the difference to what the instance was started from needs a restart.
pub(crate) async fn restart(
    objects: &Objects,
    vm: &Value,
    expanded: &Expanded,
    started: &Value,
    vmi: &Value,
) -> Result<Restart, ReconcileError> {
    let config = configuration(objects).await?;
    let mut before = vm.clone();
    before["spec"] = started.clone();
    let before = if refers(&before) {
        let known = ReadObjects::of(objects, &before).await?;
        apply(&before, &known, &config).ok()
    } else {
        Some(as_written(&before))
    };
    // The state that it was started from is no longer known: no statement is possible.
    let Some(before) = before else { return Ok(Restart::Unknown) };
    Ok(match needs_restart(&before.spec, &expanded.spec, Some(vmi), &config) {
        true => Restart::Needed(CHANGED.to_owned()),
        false => Restart::NotNeeded,
    })
}

/// Group, plural, namespace and name.
type ObjectPath = (String, String, String, String);

/// Objects that were read for a decision that cannot wait.
#[derive(Debug, Default)]
struct ReadObjects {
    found: BTreeMap<ObjectPath, Option<Value>>,
    /// Asked for and not known.
    asked: RefCell<Vec<ObjectPath>>,
}

impl ReadObjects {
    /// All that a machine refers to.
    async fn of(objects: &Objects, vm: &Value) -> Result<Self, ReconcileError> {
        let mut known = Self::default();
        let decide = |known: &Self| {
            for (field, _) in FIELDS {
                referenced(field, vm, namespace(vm), known);
            }
        };
        known.learn(objects, decide).await?;
        Ok(known)
    }

    /// Tries `decide` until it has asked for nothing that is not known.
    async fn learn(
        &mut self,
        objects: &Objects,
        decide: impl Fn(&Self),
    ) -> Result<(), ReconcileError> {
        loop {
            decide(self);
            let asked = self.asked.take();
            if asked.is_empty() {
                return Ok(());
            }
            for place in asked {
                let found = read(objects, &place).await?;
                self.found.insert(place, found);
            }
        }
    }
}

impl Source for ReadObjects {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let place = (group.into(), plural.into(), namespace.into(), name.into());
        match self.found.get(&place) {
            Some(found) => found.clone(),
            None => {
                self.asked.borrow_mut().push(place);
                None
            }
        }
    }

    fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
        Vec::new()
    }
}

async fn read(objects: &Objects, place: &ObjectPath) -> Result<Option<Value>, ReconcileError> {
    let (group, plural, namespace, name) = place;
    let kinds = [
        "virtualmachineinstancetypes",
        "virtualmachineclusterinstancetypes",
        "virtualmachinepreferences",
        "virtualmachineclusterpreferences",
    ];
    let resource = match kinds.iter().find(|own| *own == plural) {
        _ if group == "apps" => REVISIONS,
        Some(plural) => Resource::new(GROUP, "v1beta1", plural),
        None => return Ok(None),
    };
    objects.get(resource, namespace, name).await.doing("get an instancetype or preference")
}
