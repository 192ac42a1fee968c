//! Which settings change something here, and why the others do not. Pure.

/// The effect of a value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingEffect {
    /// The cluster follows it.
    Applied,
    /// It is kept for clients; the text says why nothing follows.
    Stored(&'static str),
}

use SettingEffect::{Applied, Stored};

use super::TlsParameters;

const NO_CHARTS: &str = "there are no charts or containers of the system to configure";
const NO_UPGRADE: &str =
    "an upgrade is begun by an administrator (sheaf upgrade), and looks for nothing by itself";
const NO_CHECKER: &str = "the checker is off: no version is looked for, and nothing is sent";
/// Its default, as upstream's, says that it is on.
const UPGRADE_CHECKER: &str = "upgrade-checker-enabled";
const NO_V2_ENGINE: &str = "there is one data engine";
const NO_OWN_NETWORK: &str = "volumes of several machines use the storage network";
const OWN_PAGES: &str = "the dashboard is part of the program";
const HOST: &str = "the operating system of the nodes is configured by its administrator";
const STORED: &str = "the value is kept for clients";

/// The effect of this value: some settings take values that have none.
pub fn effect_of(name: &str, value: &str) -> SettingEffect {
    match effect(name) {
        Applied if name == "ssl-parameters" && TlsParameters::parse(value).is_none() => {
            Stored("no client could connect with these protocols and ciphers; all are served")
        }
        Stored(NO_CHECKER) if value == "false" => Applied,
        known => known,
    }
}

/// Whether the default of a setting promises an effect that there is none of here, so that its
/// condition is there without a value too.
pub fn explains_default(name: &str) -> bool {
    name == UPGRADE_CHECKER
}

/// The effect of a value of the setting of this name. Unknown settings are kept.
pub fn effect(name: &str) -> SettingEffect {
    match name {
        "additional-ca"
        | "additional-guest-memory-overhead-ratio"
        | "backup-target"
        | "csi-driver-config"
        | "csi-online-expand-validation"
        | "default-vm-termination-grace-period-seconds"
        | "http-proxy"
        | "kubeconfig-default-token-ttl-minutes"
        | "kubevirt-migration"
        | "log-level"
        | "max-hotplug-ratio"
        // Its condition says which nodes do not follow.
        | "ntp-servers"
        | "overcommit-config"
        | "server-version"
        // Its condition says which nodes have no address yet; the same for migrations.
        | "storage-network"
        | "ssl-certificates"
        | "ssl-parameters"
        | "support-bundle-expiration"
        | "support-bundle-file-name"
        | "support-bundle-node-collection-timeout"
        | "support-bundle-timeout"
        | "support-bundle-namespaces"
        | "vm-force-reset-policy"
        | "vm-migration-network" => Applied,
        "api-ui-version"
        | "ui-index"
        | "ui-path"
        | "ui-plugin-bundled-version"
        | "ui-plugin-index"
        | "ui-source" => Stored(OWN_PAGES),
        "auto-disk-provision-paths" => Stored(HOST),
        "auto-rotate-rke2-certs" => Stored("certificates are always renewed before they expire"),
        "volume-snapshot-class" => Stored("the classes of csi-driver-config are used"),
        "containerd-registry"
        | "cluster-pod-security-standard"
        | "harvester-csi-ccm-versions"
        | "instance-manager-resources"
        | "support-bundle-image"
        | "traefik-default-tls-options" => Stored(NO_CHARTS),
        "longhorn-v2-data-engine-enabled"
        | "longhorn-v2-data-engine-hugepage-enabled"
        | "longhorn-v2-data-engine-memory-size" => Stored(NO_V2_ENGINE),
        "release-download-url"
        | "upgradable-versions"
        | "upgrade-checker-url"
        | "upgrade-config" => Stored(NO_UPGRADE),
        "rwx-network" => Stored(NO_OWN_NETWORK),
        "cluster-registration-url" | "rancher-cluster" => {
            Stored("the cluster does not register itself with Rancher; the value is kept")
        }
        UPGRADE_CHECKER => Stored(NO_CHECKER),
        "default-storage-class" => Stored("the annotation of a storage class makes it the default"),
        "vip-pools" => Stored("pools of addresses are IPPool objects"),
        _ => Stored(STORED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_setting::CLUSTER_SETTINGS;

    #[test]
    fn every_setting_is_applied_or_says_why_not() {
        let unknown: Vec<&str> = CLUSTER_SETTINGS
            .iter()
            .map(|setting| setting.name)
            .filter(|name| effect(name) == Stored(STORED))
            .collect();
        assert_eq!(unknown, [""; 0], "settings without a reason of their own");
        assert_eq!(effect("overcommit-config"), Applied);
        assert_eq!(effect("kubevirt-migration"), Applied);
        assert_eq!(effect("support-bundle-timeout"), Applied);
        for (value, expected) in [("true", Stored(NO_CHECKER)), ("false", Applied)] {
            assert_eq!(effect_of(UPGRADE_CHECKER, value), expected);
        }
    }
}
