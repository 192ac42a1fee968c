//! The status of an image while a plan is made: conditions that say the same keep their times.

use base::clock;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::condition::{self, Condition};
use crate::object::{is_merged, read};
use crate::record::condition::ConditionFields;

/// The status of an image as it becomes.
pub(super) struct ImageStatus {
    pub(super) fields: Map<String, Value>,
    pub(super) conditions: Vec<Value>,
    now: Timestamp,
}

impl ImageStatus {
    pub(super) fn of(image: &Value, now: Timestamp) -> Self {
        Self { fields: Map::new(), conditions: condition::of(image), now }
    }

    pub(super) fn set(&mut self, wanted: Condition) {
        let before = condition::find(&self.conditions, wanted.kind);
        let before: ConditionFields<'_> = before.map(read).unwrap_or_default();
        let same = before.status == wanted.status
            && before.reason == wanted.reason
            && before.message == wanted.message;
        if same {
            return;
        }
        condition::set(&mut self.conditions, &wanted, self.now);
        let is_it = |own: &Value| read::<ConditionFields<'_>>(own).kind == wanted.kind;
        if let Some(own) = self.conditions.iter_mut().find(|own| is_it(own)) {
            own["lastUpdateTime"] = json!(clock::rfc3339(self.now));
        }
    }

    /// The patch that makes it so, if it is not.
    pub(super) fn patch(mut self, image: &Value) -> Option<Value> {
        if !self.conditions.is_empty() {
            self.fields.insert("conditions".into(), self.conditions.into());
        }
        let is_empty = self.fields.is_empty();
        let patch = json!({"status": self.fields});
        (!is_empty && !is_merged(image, &patch)).then_some(patch)
    }
}
