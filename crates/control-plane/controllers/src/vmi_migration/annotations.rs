//! Harvester's annotations of an instance that is being migrated, which its clients show. Pure.

use serde_json::{Map, Value, json};

use super::plan::MigrationPhase;
use crate::object::annotation;

const UID: &str = "harvesterhci.io/migrationUID";
const STATE: &str = "harvesterhci.io/migrationState";
const TARGET: &str = "harvesterhci.io/migrationTargetNodeName";

/// A migration as the annotations of its instance show it.
#[derive(Debug, Clone, Copy)]
pub(super) struct MigrationAnnotations<'a> {
    pub(super) uid: &'a str,
    pub(super) phase: MigrationPhase,
    pub(super) is_deleting: bool,
    pub(super) target: Option<&'a str>,
}

impl MigrationAnnotations<'_> {
    /// Nothing once it is over.
    fn state(&self) -> Option<&'static str> {
        match self.phase {
            phase if phase.is_final() => None,
            _ if self.is_deleting => Some("Aborting migration"),
            MigrationPhase::Unset | MigrationPhase::Pending => Some("Pending migration"),
            _ => Some("Migrating"),
        }
    }

    /// The patch that sets the annotations, or removes those of this migration; nothing if the instance
    /// is up to date.
    pub(super) fn patch(&self, vmi: &Value) -> Option<Value> {
        let state = self.state();
        let is_own = annotation(vmi, UID) == Some(self.uid);
        if state.is_none() && !is_own {
            return None;
        }
        let target = self.target.filter(|_| state.is_some());
        let wanted = [(UID, state.map(|_| self.uid)), (STATE, state), (TARGET, target)];
        let changed = wanted.into_iter().filter(|(key, value)| annotation(vmi, key) != *value);
        let changed: Map<String, Value> =
            changed.map(|(key, value)| (key.to_owned(), json!(value))).collect();
        (!changed.is_empty()).then(|| json!({"metadata": {"annotations": changed}}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_marked_while_it_is_migrated() {
        let vmi = |marks: &Value| json!({"metadata": {"annotations": marks}});
        let own = |state: &str| json!({UID: "m", STATE: state, TARGET: "n2"});
        for (name, phase, is_deleting, before, expected) in [
            ("new", MigrationPhase::Pending, false, json!({}), Some(own("Pending migration"))),
            (
                "begins",
                MigrationPhase::Scheduling,
                false,
                own("Pending migration"),
                Some(json!({STATE: "Migrating"})),
            ),
            ("goes on", MigrationPhase::Running, false, own("Migrating"), None),
            (
                "is cancelled",
                MigrationPhase::Running,
                true,
                own("Migrating"),
                Some(json!({STATE: "Aborting migration"})),
            ),
            (
                "is over",
                MigrationPhase::Succeeded,
                false,
                own("Migrating"),
                Some(json!({UID: null, STATE: null, TARGET: null})),
            ),
            ("is over and forgotten", MigrationPhase::Failed, true, json!({}), None),
            (
                "another goes on",
                MigrationPhase::Failed,
                false,
                json!({UID: "other", STATE: "Migrating"}),
                None,
            ),
        ] {
            let mark = MigrationAnnotations { uid: "m", phase, is_deleting, target: Some("n2") };
            let patch = mark.patch(&vmi(&before));
            let changed = patch.map(|patch| patch["metadata"]["annotations"].clone());
            assert_eq!(changed, expected, "{name}");
        }
    }
}
