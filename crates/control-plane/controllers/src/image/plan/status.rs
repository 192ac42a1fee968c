//! The status of an image while a plan is made: conditions that say the same keep their times.

use base::clock;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::condition::{self, Condition};
use crate::object::{is_merged, text};

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
        let before = condition::find(&self.conditions, wanted.kind).cloned().unwrap_or_default();
        let same = text(&before, "/status") == wanted.status
            && text(&before, "/reason") == wanted.reason
            && text(&before, "/message") == wanted.message;
        if same {
            return;
        }
        condition::set(&mut self.conditions, &wanted, self.now);
        let own = self.conditions.iter_mut().find(|own| text(own, "/type") == wanted.kind);
        if let Some(own) = own {
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
