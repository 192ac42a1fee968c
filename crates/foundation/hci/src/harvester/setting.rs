//! Settings of the cluster and preferences of people: objects without a spec.

use crd::atom::ObjectMeta;
use crd::record::record;

use super::Condition;

record! {
    /// Setting of the cluster.
    Setting {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Value chosen by an administrator; the default applies if it is empty.
        value: Option<String>,
        /// Default value of the setting.
        default: Option<String>,
        /// Whether the value differs from the default.
        customized: Option<bool>,
        /// Origin of the value if it is not set in this object, for example env.
        source: Option<String>,
        status: Option<SettingStatus>,
    }

    SettingStatus {
        conditions: Vec<Condition>,
    }

    /// Preferences of a user of the dashboard.
    Preference {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Value of the preference.
        value: Option<String>,
    }
}
