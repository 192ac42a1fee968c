//! Settings of the cluster and preferences of people: objects without a spec.

use crd::atom::ObjectMeta;
use crd::record::record;

use super::Condition;

record! {
    Setting {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What somebody chose; the default holds while it is empty.
        value: Option<String>,
        /// Value of the setting where none is given.
        default: Option<String>,
        /// Whether the value differs from the default.
        customized: Option<bool>,
        /// Where the value comes from, if not from this object.
        source: Option<String>,
        status: Option<SettingStatus>,
    }

    SettingStatus {
        conditions: Vec<Condition>,
    }

    Preference {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Value of the preference.
        value: Option<String>,
    }
}
