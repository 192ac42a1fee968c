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
        default: Option<String>,
        customized: Option<bool>,
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
        value: Option<String>,
    }
}
