//! Settings, both of Harvester and of Longhorn.

use serde_json::Value;

use crate::object::read;

fields! {
    pub(crate) struct SettingFields<'a> {
        value: &'a str,
    }
}

/// The value of a setting, empty if it has none.
pub(crate) fn value(setting: &Value) -> &str {
    read::<SettingFields<'_>>(setting).value
}
