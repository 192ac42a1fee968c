//! Settings: objects whose value is a text.

use crd::atom::ObjectMeta;
use crd::record::record;

record! {
    Setting {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        value: String,
        status: Option<SettingStatus>,
    }

    SettingStatus {
        applied: Option<bool>,
    }
}
