//! Longhorn's settings: their defaults and the values that they accept. Pure; values that a setting
//! does not accept are refused with the valid ones. `setting/effect.rs` says which have an effect.

mod effect;

use serde_json::Value;

pub use self::effect::{SettingEffect, effect, unheeded};

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingType {
    Text,
    Bool,
    /// A whole number within bounds, both included.
    Number(i64, i64),
    OneOf(&'static [&'static str]),
    /// JSON with a whole number per data engine: `{"v1":"3","v2":"3"}`; a plain number applies to
    /// both.
    NumberByEngine(i64, i64),
    BoolByEngine,
}

/// A setting with its default.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub default: &'static str,
    pub takes: SettingType,
}

const fn setting(name: &'static str, default: &'static str, takes: SettingType) -> Setting {
    Setting { name, default, takes }
}

use SettingType::{Bool, BoolByEngine, Number, NumberByEngine, OneOf, Text};

const MANY: i64 = i64::MAX;

/// All of them, in the order of Longhorn's manual.
pub const SETTINGS: &[Setting] = &[
    setting("replica-soft-anti-affinity", "false", Bool),
    setting("replica-zone-soft-anti-affinity", "true", Bool),
    setting("replica-disk-soft-anti-affinity", "true", Bool),
    setting(
        "replica-auto-balance",
        "disabled",
        OneOf(&["disabled", "least-effort", "best-effort"]),
    ),
    setting("replica-auto-balance-disk-pressure-percentage", "90", Number(0, 99)),
    setting("storage-over-provisioning-percentage", "100", Number(0, MANY)),
    setting("storage-minimal-available-percentage", "10", Number(0, 100)),
    setting("storage-reserved-percentage-for-default-disk", "30", Number(0, 100)),
    setting("disable-scheduling-on-cordoned-node", "true", Bool),
    setting("allow-volume-creation-with-degraded-availability", "true", Bool),
    setting("allow-empty-node-selector-volume", "true", Bool),
    setting("allow-empty-disk-selector-volume", "true", Bool),
    setting("default-replica-count", r#"{"v1":"3","v2":"3"}"#, NumberByEngine(1, 20)),
    setting(
        "default-data-locality",
        "disabled",
        OneOf(&["disabled", "best-effort", "strict-local"]),
    ),
    setting("default-data-path", "/var/lib/longhorn", Text),
    setting("create-default-disk-labeled-nodes", "false", Bool),
    setting("auto-salvage", "true", Bool),
    setting("auto-delete-pod-when-volume-detached-unexpectedly", "true", Bool),
    setting(
        "node-down-pod-deletion-policy",
        "do-nothing",
        OneOf(&[
            "do-nothing",
            "delete-statefulset-pod",
            "delete-deployment-pod",
            "delete-both-statefulset-and-deployment-pod",
        ]),
    ),
    setting(
        "node-drain-policy",
        "block-if-contains-last-replica",
        OneOf(&[
            "block-for-eviction",
            "block-for-eviction-if-contains-last-replica",
            "block-if-contains-last-replica",
            "allow-if-replica-is-stopped",
            "always-allow",
        ]),
    ),
    setting("detach-manually-attached-volumes-when-cordoned", "false", Bool),
    setting("disable-revision-counter", r#"{"v1":"true"}"#, BoolByEngine),
    setting("replica-replenishment-wait-interval", "600", Number(0, MANY)),
    setting("concurrent-replica-rebuild-per-node-limit", "5", Number(0, MANY)),
    setting("replica-rebuild-concurrent-sync-limit", r#"{"v1":"1"}"#, NumberByEngine(1, 5)),
    setting("engine-replica-timeout", "8", Number(8, 30)),
    setting("fast-replica-rebuild-enabled", "true", Bool),
    setting("offline-replica-rebuilding", "false", Bool),
    setting("replica-rebuilding-bandwidth-limit", r#"{"v2":"0"}"#, NumberByEngine(0, MANY)),
    setting("remove-snapshots-during-filesystem-trim", "false", Bool),
    setting("concurrent-automatic-engine-upgrade-per-node-limit", "0", Number(0, MANY)),
    setting("backing-image-cleanup-wait-interval", "60", Number(0, MANY)),
    setting("backing-image-recovery-wait-interval", "300", Number(0, MANY)),
    setting("concurrent-backing-image-replenish-per-node-limit", "5", Number(0, MANY)),
    setting("default-min-number-of-backing-image-copies", "3", Number(1, MANY)),
    setting("default-longhorn-static-storage-class", "longhorn-static", Text),
    setting("kubernetes-cluster-autoscaler-enabled", "false", Bool),
    setting("rwx-volume-fast-failover", "false", Bool),
    setting(
        "log-level",
        "Info",
        OneOf(&["Panic", "Fatal", "Error", "Warn", "Info", "Debug", "Trace"]),
    ),
    setting("node-disk-health-monitoring", "true", Bool),
    setting("snapshot-heavy-task-concurrent-limit", "5", Number(0, MANY)),
    setting("deleting-confirmation-flag", "false", Bool),
    setting("upgrade-checker", "true", Bool),
    setting("snapshot-data-integrity", "fast-check", OneOf(&["disabled", "enabled", "fast-check"])),
    setting("snapshot-data-integrity-immediate-check-after-snapshot-creation", "false", Bool),
    setting("snapshot-data-integrity-cronjob", "0 0 */7 * *", Text),
    setting("snapshot-max-count", "250", Number(2, 250)),
    setting("snapshot-count-warning-threshold", "100", Number(0, 250)),
    setting("freeze-filesystem-for-snapshot", "false", Bool),
    setting("auto-cleanup-system-generated-snapshot", "true", Bool),
    setting("auto-cleanup-recurring-job-backup-snapshot", "true", Bool),
    setting("auto-cleanup-when-delete-backup", "false", Bool),
    setting("auto-cleanup-snapshot-after-on-demand-backup-completed", "false", Bool),
    setting("backup-compression-method", "lz4", OneOf(&["none", "lz4", "gzip"])),
    setting("backup-concurrent-limit", "2", Number(1, MANY)),
    setting("restore-concurrent-limit", "2", Number(1, MANY)),
    setting("default-backup-block-size", "2", OneOf(&["2", "16"])),
    setting("failed-backup-ttl", "1440", Number(0, MANY)),
    setting("backup-execution-timeout", "1", Number(1, MANY)),
    setting("concurrent-volume-backup-restore-per-node-limit", "5", Number(0, MANY)),
    setting("allow-recurring-job-while-volume-detached", "false", Bool),
    setting("restore-volume-recurring-jobs", "false", Bool),
    setting("recurring-successful-jobs-history-limit", "1", Number(0, MANY)),
    setting("recurring-failed-jobs-history-limit", "1", Number(0, MANY)),
    setting("recurring-job-max-retention", "100", Number(1, MANY)),
    setting("guaranteed-instance-manager-cpu", r#"{"v1":"12","v2":"12"}"#, NumberByEngine(0, 40)),
    setting("priority-class", "", Text),
    setting("storage-network", "", Text),
    setting("taint-toleration", "", Text),
    setting("system-managed-components-node-selector", "", Text),
    setting("v1-data-engine", "true", Bool),
    setting("v2-data-engine", "false", Bool),
    setting("disable-snapshot-purge", "false", Bool),
    setting("orphan-resource-auto-deletion", "", Text),
    setting("orphan-resource-auto-deletion-grace-period", "300", Number(0, MANY)),
];

/// The setting of that name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The effective value: that of the object of that name, or the default if it has none.
pub fn value<'a>(name: &str, own: Option<&'a str>) -> &'a str {
    let default = || find(name).map_or("", |known| known.default);
    own.filter(|own| !own.is_empty()).unwrap_or_else(default)
}

impl Setting {
    /// The error of a value, with the values that are allowed.
    pub fn validation_error(&self, value: &str) -> Option<String> {
        let wants = match self.takes {
            Text => return None,
            Bool => wanted_bool(value),
            Number(least, most) => wanted_number(value, least, most),
            OneOf(words) => {
                (!words.contains(&value)).then(|| format!("one of {}", words.join(", ")))
            }
            NumberByEngine(least, most) => {
                by_engine(value, &|value| wanted_number(value, least, most))
            }
            BoolByEngine => by_engine(value, &wanted_bool),
        }?;
        let name = self.name;
        Some(format!("the value \"{value}\" of setting {name} is invalid: it must be {wants}"))
    }
}

fn wanted_bool(value: &str) -> Option<String> {
    (!matches!(value, "true" | "false")).then(|| "true or false".to_owned())
}

fn wanted_number(value: &str, least: i64, most: i64) -> Option<String> {
    if value.parse().is_ok_and(|number: i64| (least..=most).contains(&number)) {
        return None;
    }
    Some(match most {
        MANY => format!("a whole number from {least}"),
        most => format!("a whole number from {least} to {most}"),
    })
}

/// Checks the value of each engine.
fn by_engine(value: &str, judge: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let Ok(Value::Object(engines)) = serde_json::from_str(value) else {
        return judge(value);
    };
    engines.iter().find_map(|(engine, value)| {
        let known = matches!(engine.as_str(), "v1" | "v2");
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if known { judge(&text) } else { Some("given for v1 and v2 only".to_owned()) }
    })
}

/// The value for one engine of a setting that may have a value for each.
pub fn for_engine(value: &str, engine: &str) -> Option<String> {
    match serde_json::from_str(value) {
        Ok(Value::Object(engines)) => match engines.get(engine)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        },
        _ => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{SETTINGS, find, for_engine};

    #[test]
    fn every_default_is_a_value_that_its_setting_takes() {
        for setting in SETTINGS {
            let error = setting.validation_error(setting.default);
            assert_eq!(error, None, "{}", setting.name);
        }
    }

    #[test]
    fn errors_of_wrong_values_name_the_right_ones() {
        let cases = [
            ("auto-salvage", "yes", "true or false"),
            ("storage-minimal-available-percentage", "101", "a whole number from 0 to 100"),
            ("storage-over-provisioning-percentage", "-1", "a whole number from 0"),
            ("default-replica-count", "0", "a whole number from 1 to 20"),
            ("default-replica-count", r#"{"v1":"0"}"#, "a whole number from 1 to 20"),
            ("default-replica-count", r#"{"v3":"1"}"#, "given for v1 and v2 only"),
            ("backup-compression-method", "zip", "one of none, lz4, gzip"),
        ];
        for (name, value, right) in cases {
            let error = find(name).unwrap().validation_error(value).unwrap();
            assert!(error.ends_with(&format!("it must be {right}")), "{error}");
        }
    }

    #[test]
    fn a_value_holds_for_both_engines_or_for_each() {
        assert_eq!(for_engine("2", "v1").as_deref(), Some("2"));
        assert_eq!(for_engine(r#"{"v1":"3","v2":2}"#, "v1").as_deref(), Some("3"));
        assert_eq!(for_engine(r#"{"v1":"3","v2":2}"#, "v2").as_deref(), Some("2"));
        assert_eq!(for_engine(r#"{"v2":"0"}"#, "v1"), None);
    }
}
