//! Settings: objects whose value is a text.

use crd::atom::ObjectMeta;
use crd::record::record;

record! {
    Setting {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Value of the setting.
        value: String,
        /// What is observed.
        status: Option<SettingStatus>,
    }

    SettingStatus {
        /// The value is in use.
        applied: Option<bool>,
    }
}
