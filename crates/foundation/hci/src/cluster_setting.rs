//! Harvester's settings: their defaults, and which values they take. Pure.

mod effect;
mod proxy;
mod rule;
mod tls_parameters;
pub(crate) mod upgrade_config;
mod vip_pools;

use serde_json::{Map, Value};

/// The rule for the value of a setting. An empty value is the default, and always allowed.
#[derive(Clone, Copy, Debug)]
pub enum ValueRule {
    Any,
    /// A whole number within bounds, both included, without leading zeros or a sign.
    Number(u64, u64),
    Bool,
    OneOf(&'static [&'static str]),
    /// JSON that a further rule checks.
    Object(fn(&Map<String, Value>) -> Result<(), String>),
    /// Text that a further rule checks.
    Text(fn(&str) -> Result<(), String>),
}

/// A setting with its default value.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSetting {
    pub name: &'static str,
    pub default: &'static str,
    pub rule: ValueRule,
}

/// The version of Harvester whose API this is; clients choose their behaviour by it.
pub const SERVER_VERSION: &str = "v1.8.1";

const fn row(name: &'static str, default: &'static str, rule: ValueRule) -> ClusterSetting {
    ClusterSetting { name, default, rule }
}

pub use effect::{SettingEffect, effect, effect_of, explains_default};
pub use proxy::HttpProxy;
pub use tls_parameters::TlsParameters;

use ValueRule::{Any, Bool, Number, Object, OneOf, Text};
use rule::{
    accept, backup_target, bundle_image, certificates, force_reset, hugepages, label, migration,
    network, ntp_servers, number, overcommit, overhead_ratio, registration_url, rotation,
    rwx_network, serving_certificates, tls_parameters, token_lifetime,
};

const MANY: u64 = u64::MAX;
const MIGRATION: &str = r#"{"parallelOutboundMigrationsPerNode":2,"parallelMigrationsPerCluster":5,"allowAutoConverge":false,"bandwidthPerMigration":"0","completionTimeoutPerGiB":150,"progressTimeout":150,"unsafeMigrationOverride":false,"allowPostCopy":false,"allowWorkloadDisruption":false,"disableTLS":false}"#;
const UPGRADE: &str = r#"{"imagePreloadOption":{"strategy":{"type":"sequential"}},"nodeUpgradeOption":{"strategy":{"mode":"auto"}},"restoreVM":false,"logReadyTimeout":"5"}"#;

/// All of them, by name.
pub const CLUSTER_SETTINGS: &[ClusterSetting] = &[
    row("additional-ca", "", Text(certificates)),
    row("additional-guest-memory-overhead-ratio", "1.5", Text(overhead_ratio)),
    row("api-ui-version", "1.1.9", Any),
    row("auto-disk-provision-paths", "", Any),
    row("auto-rotate-rke2-certs", r#"{"enable":false,"expiringInHours":240}"#, Object(rotation)),
    row("backup-target", "", Object(backup_target)),
    row(
        "cluster-pod-security-standard",
        r#"{"enabled":false,"whitelistedNamespacesList":"","privilegedNamespacesList":"","restrictedNamespacesList":""}"#,
        Object(accept),
    ),
    row(
        "cluster-registration-url",
        r#"{"url":"","insecureSkipTLSVerify":false}"#,
        Text(registration_url),
    ),
    row("containerd-registry", "", Object(accept)),
    row(
        "csi-driver-config",
        r#"{"driver.longhorn.io":{"volumeSnapshotClassName":"longhorn-snapshot","backupVolumeSnapshotClassName":"longhorn"}}"#,
        Object(accept),
    ),
    row("csi-online-expand-validation", r#"{"driver.longhorn.io":true}"#, Object(accept)),
    row("default-storage-class", "longhorn", Any),
    row("default-vm-termination-grace-period-seconds", "120", Number(0, MANY)),
    row(
        "harvester-csi-ccm-versions",
        r#"{"harvester-cloud-provider":">=0.0.1 <0.3.0","harvester-csi-provider":">=0.0.1 <0.3.0"}"#,
        Object(accept),
    ),
    row("http-proxy", "{}", Object(proxy::http_proxy)),
    row("instance-manager-resources", r#"{"cpu":{}}"#, Object(accept)),
    row("kubeconfig-default-token-ttl-minutes", "0", Text(token_lifetime)),
    row("kubevirt-migration", MIGRATION, Object(migration)),
    row("log-level", "info", Any),
    row("longhorn-v2-data-engine-enabled", "false", Bool),
    row("longhorn-v2-data-engine-hugepage-enabled", "true", Bool),
    row("longhorn-v2-data-engine-memory-size", "2048", Text(hugepages)),
    row("max-hotplug-ratio", "4", Number(1, 20)),
    row("ntp-servers", "", Object(ntp_servers)),
    row("overcommit-config", r#"{"cpu":1000,"memory":150,"storage":100}"#, Object(overcommit)),
    row("rancher-cluster", "{}", Object(accept)),
    row("release-download-url", "https://releases.rancher.com/harvester", Any),
    row("rwx-network", r#"{"share-storage-network":false}"#, Object(rwx_network)),
    row("server-version", SERVER_VERSION, Any),
    row("ssl-certificates", "{}", Object(serving_certificates)),
    row("ssl-parameters", "{}", Object(tls_parameters)),
    row("storage-network", "", Object(network)),
    row("support-bundle-expiration", "30", Number(0, MANY)),
    row("support-bundle-file-name", "", Text(label)),
    row("support-bundle-image", "{}", Object(bundle_image)),
    row("support-bundle-namespaces", "", Any),
    row("support-bundle-node-collection-timeout", "30", Number(0, MANY)),
    row("support-bundle-timeout", "50", Number(0, MANY)),
    row("traefik-default-tls-options", "{}", Object(accept)),
    row("ui-index", "https://releases.rancher.com/harvester-ui/dashboard/latest/index.html", Any),
    row("ui-path", "/usr/share/harvester/harvester", Any),
    row("ui-plugin-bundled-version", "", Any),
    row(
        "ui-plugin-index",
        "https://releases.rancher.com/harvester-ui/plugin/harvester-latest/harvester-latest.umd.min.js",
        Any,
    ),
    row("ui-source", "auto", OneOf(&["auto", "external", "bundled"])),
    row("upgradable-versions", "", Any),
    row("upgrade-checker-enabled", "true", Bool),
    row(
        "upgrade-checker-url",
        "https://harvester-upgrade-responder.rancher.io/v1/checkupgrade",
        Any,
    ),
    row("upgrade-config", UPGRADE, Object(upgrade_config::upgrade_config)),
    row("vip-pools", "", Object(vip_pools::vip_pools)),
    row(
        "vm-force-reset-policy",
        r#"{"enable":true,"period":15,"vmMigrationTimeout":180}"#,
        Object(force_reset),
    ),
    row("vm-migration-network", "", Object(network)),
    row("volume-snapshot-class", "longhorn", Any),
];

/// Settings that stay, because others depend on their presence.
pub const UNDELETABLE: &[&str] = &[
    "cluster-pod-security-standard",
    "instance-manager-resources",
    "rwx-network",
    "storage-network",
    "vm-migration-network",
];

/// The value of a setting that counts: the one that a user chose, or the default. `object` is
/// the setting as it is stored, if it is.
pub fn effective(name: &str, object: Option<&Value>) -> String {
    let text = |field: &str| object.and_then(|object| object[field].as_str());
    let chosen = text("value").filter(|value| !value.is_empty());
    let stored = chosen.or_else(|| text("default").filter(|value| !value.is_empty()));
    let built_in = || CLUSTER_SETTINGS.iter().find(|setting| setting.name == name);
    stored.or_else(|| built_in().map(|setting| setting.default)).unwrap_or_default().to_owned()
}

/// Why a value is not possible for the setting of a name. Unknown settings take any.
pub fn check(name: &str, value: &str) -> Result<(), String> {
    let Some(setting) = CLUSTER_SETTINGS.iter().find(|setting| setting.name == name) else {
        return Ok(());
    };
    if value.is_empty() {
        return Ok(());
    }
    match setting.rule {
        Any => Ok(()),
        Number(least, most) => number(value, least, most).map(drop),
        Bool if matches!(value, "true" | "false") => Ok(()),
        Bool => Err(format!("{value:?} is not possible: it has to be true or false")),
        OneOf(possible) if possible.contains(&value) => Ok(()),
        OneOf(possible) => {
            Err(format!("{value:?} is not possible: it has to be one of {}", possible.join(", ")))
        }
        Object(rule) => match serde_json::from_str(value) {
            Ok(Value::Object(fields)) => rule(&fields),
            Ok(_) => Err(format!("failed to parse {name}: it has to be a JSON object")),
            Err(error) => Err(format!("failed to parse {name}: {error}")),
        },
        Text(rule) => rule(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_possible_value() {
        let mut names: Vec<&str> = CLUSTER_SETTINGS.iter().map(|setting| setting.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), 52);
        for setting in CLUSTER_SETTINGS {
            assert_eq!(check(setting.name, setting.default), Ok(()), "{}", setting.name);
            assert_eq!(check(setting.name, ""), Ok(()), "{}", setting.name);
        }
    }

    #[test]
    fn values_are_checked() {
        for (name, value, expected) in [
            ("additional-guest-memory-overhead-ratio", "0", ""),
            ("additional-guest-memory-overhead-ratio", "10.0", ""),
            ("additional-guest-memory-overhead-ratio", "0.9", "can't be less than 1"),
            ("additional-guest-memory-overhead-ratio", "10.1", "can't be greater than 10"),
            ("additional-guest-memory-overhead-ratio", "x", "not a float"),
            ("additional-guest-memory-overhead-ratio", "NaN", "not a float"),
            (
                "overcommit-config",
                r#"{"cpu":99}"#,
                "Cannot undercommit. Should be greater than or equal to 100 but got 99",
            ),
            ("overcommit-config", "12", "JSON object"),
            ("support-bundle-timeout", "-1", "not a whole number"),
            ("support-bundle-timeout", "010", "not a whole number"),
            ("support-bundle-timeout", "10", ""),
            ("backup-target", "{}", ""),
            ("backup-target", r#"{"type":"s3"}"#, "S3 backup target should have access key"),
            (
                "backup-target",
                r#"{"type":"s3","accessKeyId":"k","secretAccessKey":"s","bucketName":"b","bucketRegion":"bogus_region"}"#,
                "failed to connect to backup target, reason: \"s3.bogus_region.amazonaws.com\"",
            ),
            (
                "backup-target",
                r#"{"type":"s3","accessKeyId":"k","secretAccessKey":"s","bucketName":"b","bucketRegion":"eu-west-1"}"#,
                "",
            ),
            (
                "backup-target",
                r#"{"type":"s3","accessKeyId":"k","secretAccessKey":"s","bucketName":"b","bucketRegion":"my_own","endpoint":"http://10.0.0.1:9000"}"#,
                "",
            ),
            (
                "backup-target",
                r#"{"type":"nfs","endpoint":"nfs://:/x"}"#,
                "NFS path must follow format",
            ),
            (
                "backup-target",
                r#"{"type":"nfs","endpoint":"nfs://10.0.0.1"}"#,
                "cannot find nfs path",
            ),
            ("backup-target", r#"{"type":"nfs","endpoint":"nfs://10.0.0.1:/backups"}"#, ""),
            ("backup-target", r#"{"type":"tape"}"#, "Invalid backup target type"),
            ("longhorn-v2-data-engine-memory-size", "2048", ""),
            ("longhorn-v2-data-engine-memory-size", "3", "evenly divisible by two"),
            ("longhorn-v2-data-engine-memory-size", "0", "greater than zero"),
            ("rwx-network", r#"{"share-storage-network":true}"#, ""),
            ("rwx-network", r#"{"other":1}"#, "unknown field \"other\""),
            ("rwx-network", r#"{"share-storage-network":1}"#, "true or false"),
            (
                "rwx-network",
                r#"{"network":{"vlan":4095,"clusterNetwork":"a","range":"10.0.0.0/24"}}"#,
                "0 to 4094",
            ),
            ("ntp-servers", r#"{"ntpServers":["0.pool.ntp.org","10.0.0.1"]}"#, ""),
            ("ntp-servers", r#"{"ntpServers":["http://a.b"]}"#, "should not start with http"),
            ("ntp-servers", r#"{"ntpServers":["a.b","a.b"]}"#, "duplicate"),
            ("kubevirt-migration", r#"{"bandwidthPerMigration":"64Mi","other":1}"#, ""),
            ("kubevirt-migration", r#"{"network":"n"}"#, "network is not allowed to be set"),
            ("kubevirt-migration", r#"{"progressTimeout":"x"}"#, "seconds, from 0 on"),
            ("kubevirt-migration", r#"{"bandwidthPerMigration":"-1"}"#, "for example 64Mi"),
            ("kubevirt-migration", r#"{"maxDowntimeMs":0}"#, "1 to 2000000"),
            ("kubevirt-migration", r#"{"allowAutoConverge":1}"#, "true or false"),
            (
                "kubevirt-migration",
                r#"{"parallelMigrationsPerCluster":1.5}"#,
                "parallelMigrationsPerCluster is 1.5",
            ),
            ("vm-force-reset-policy", r#"{"period":0}"#, "greater than 0"),
            (
                "storage-network",
                r#"{"vlan":4095,"clusterNetwork":"a","range":"10.0.0.0/24"}"#,
                "0 to 4094",
            ),
            (
                "storage-network",
                r#"{"vlan":100,"clusterNetwork":"a","range":"10.0.0.1/24"}"#,
                "range should be subnet CIDR 10.0.0.0/24",
            ),
            ("storage-network", r#"{"vlan":100,"clusterNetwork":"a","range":"10.0.0.0/24"}"#, ""),
            (
                "ssl-parameters",
                r#"{"protocols":"TLSv1.2 TLSv9"}"#,
                "Unsupported SSL protocol: TLSv9",
            ),
            ("kubeconfig-default-token-ttl-minutes", "52560001", "exceeds 100 years"),
            ("upgrade-checker-enabled", "maybe", "true or false"),
            ("log-level", "Debug", ""),
            ("unknown", "anything", ""),
        ] {
            match check(name, value) {
                Ok(()) => assert_eq!(expected, "", "{name} {value}"),
                Err(error) => {
                    assert!(
                        !expected.is_empty() && error.contains(expected),
                        "{name} {value}: {error}"
                    );
                }
            }
        }
    }
}
