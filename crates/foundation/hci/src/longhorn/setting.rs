//! Settings: objects whose value is a text.

use crd::atom::ObjectMeta;
use crd::record::record;

record! {
    /// Setting of the storage.
    Setting {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Value of the setting.
        value: String,
        /// Observed state of the setting.
        status: Option<SettingStatus>,
    }

    SettingStatus {
        /// Whether the value of the setting is applied.
        applied: Option<bool>,
    }
}
