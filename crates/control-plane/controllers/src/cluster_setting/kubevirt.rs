//! Settings that are fields of KubeVirt's configuration, where KubeVirt's clients see them and where
//! they are read. Pure.

use std::collections::BTreeMap;

use hci::cluster_setting::effective;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use virt::v1::MigrationConfiguration;

use crate::condition;
use crate::object::{is_merged, name, read};
use crate::record::{fields, setting};

const MIGRATION: &str = "kubevirt-migration";
const OVERHEAD_RATIO: &str = "additional-guest-memory-overhead-ratio";
const HOTPLUG_RATIO: &str = "max-hotplug-ratio";

fields! {
    struct KubeVirtFields {
        spec: KubeVirtSpec,
    }

    struct KubeVirtSpec {
        /// It is compared as a whole.
        configuration: Map<String, Value>,
    }

    /// The names of the fields of the configuration of migrations.
    struct MigrationFields<'a> {
        spec: MigrationFieldsSpec<'a>,
    }

    struct MigrationFieldsSpec<'a> {
        configuration: MigrationFieldsParent<'a>,
    }

    struct MigrationFieldsParent<'a> {
        migrations: BTreeMap<&'a str, IgnoredAny>,
    }
}

/// Whether the value of this setting is written into KubeVirt's configuration.
pub(super) fn is_mirrored(name: &str) -> bool {
    [MIGRATION, OVERHEAD_RATIO, HOTPLUG_RATIO].contains(&name)
}

/// The patch that gives KubeVirt the value of the setting, if it has another.
pub(super) fn patch(setting: &Value, kubevirt: &Value) -> Option<Value> {
    let configuration = match name(setting) {
        MIGRATION => migrations(setting, kubevirt)?,
        OVERHEAD_RATIO => overhead_ratio(setting),
        HOTPLUG_RATIO => hotplug_ratio(setting)?,
        _ => return None,
    };
    // Without a configuration, null fields are absent already.
    let before = Value::Object(read::<KubeVirtFields>(kubevirt).spec.configuration);
    let is_there = is_merged(&before, &configuration);
    (!is_there).then(|| json!({"spec": {"configuration": configuration}}))
}

fn is_untouched(setting: &Value) -> bool {
    setting::value(setting).is_empty() && condition::of(setting).is_empty()
}

/// As upstream, the default is written too, and 0 switches the ratio off.
fn overhead_ratio(setting: &Value) -> Value {
    let value = effective(OVERHEAD_RATIO, Some(setting));
    let is_off = value.parse::<f64>().is_ok_and(|ratio| ratio == 0.0);
    let value = if is_off { Value::Null } else { value.into() };
    json!({"additionalGuestMemoryOverheadRatio": value})
}

/// The default is KubeVirt's own.
fn hotplug_ratio(setting: &Value) -> Option<Value> {
    if is_untouched(setting) {
        return None;
    }
    let ratio: u64 = effective(HOTPLUG_RATIO, Some(setting)).parse().ok()?;
    Some(json!({"liveUpdateConfiguration": {"maxHotplugRatio": ratio}}))
}

/// A setting that was never changed leaves KubeVirt as it is.
fn migrations(setting: &Value, kubevirt: &Value) -> Option<Value> {
    if is_untouched(setting) {
        return None;
    }
    let wanted: Value = serde_json::from_str(&effective(MIGRATION, Some(setting))).ok()?;
    let known: MigrationConfiguration = serde_json::from_value(wanted.clone()).ok()?;
    let known = serde_json::to_value(known).ok()?;
    let mut fields = wanted.as_object()?.clone();
    fields.retain(|name, _| known.get(name).is_some());
    // Fields that the setting does not name are at their defaults; these two are not its own.
    let before = read::<MigrationFields<'_>>(kubevirt).spec.configuration.migrations;
    for name in before.into_keys() {
        if !["nodeDrainTaintKey", "network"].contains(&name) {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    Some(json!({"migrations": fields}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_fields_of_the_configuration() {
        let setting = |name: &str, value: &str| json!({"metadata": {"name": name}, "value": value});
        let empty = json!({"spec": {}});
        let rows = [
            (OVERHEAD_RATIO, "", Some(json!({"additionalGuestMemoryOverheadRatio": "1.5"}))),
            (OVERHEAD_RATIO, "2.25", Some(json!({"additionalGuestMemoryOverheadRatio": "2.25"}))),
            (OVERHEAD_RATIO, "0", None),
            (OVERHEAD_RATIO, "0.0", None),
            (HOTPLUG_RATIO, "", None),
            (HOTPLUG_RATIO, "8", Some(json!({"liveUpdateConfiguration": {"maxHotplugRatio": 8}}))),
            ("overcommit-config", "{}", None),
        ];
        for (name, value, expected) in rows {
            let expected = expected.map(|own| json!({"spec": {"configuration": own}}));
            assert_eq!(patch(&setting(name, value), &empty), expected, "{name} {value}");
        }
        let had = json!({"spec": {"configuration": {"additionalGuestMemoryOverheadRatio": "3"}}});
        assert_eq!(patch(&setting(OVERHEAD_RATIO, "3"), &had), None);
        let off = patch(&setting(OVERHEAD_RATIO, "0"), &had).unwrap();
        assert!(off["spec"]["configuration"]["additionalGuestMemoryOverheadRatio"].is_null());
    }
}
