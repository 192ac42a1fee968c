//! Operations of a cluster: add-ons, upgrades, support bundles.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// Optional part of the cluster that can be switched on.
    Addon {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: AddonSpec,
        status: Option<AddonStatus>,
    }

    AddonSpec {
        /// URL of the repository of the chart.
        repo: String,
        /// Name of the chart.
        chart: String,
        /// Version of the chart.
        version: String,
        /// Whether the add-on is installed.
        enabled: bool,
        /// Values of the chart, as YAML.
        values_content: Option<String>,
    }

    AddonStatus {
        status: Option<String>,
        conditions: Vec<Condition>,
    }

    /// Archive with objects and logs for support.
    SupportBundle {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: SupportBundleSpec,
        status: Option<SupportBundleStatus>,
    }

    SupportBundleSpec {
        /// URL of the issue that the bundle is for.
        issue_url as "issueURL": Option<String>,
        /// Description of the problem, for the readers of the bundle.
        description: String,
        /// Namespaces to collect in addition to those of the platform.
        extra_collection_namespaces: Vec<String>,
        /// Minutes after which the collection is aborted; 0 means no limit.
        timeout: Option<i32>,
        /// Minutes after which a completed bundle is deleted.
        expiration: Option<i32>,
        /// Timeout of the collection on one node in minutes.
        node_timeout: Option<i32>,
    }

    SupportBundleStatus {
        /// State of the bundle: generating, ready or error.
        state: Option<String>,
        /// Progress of the collection in percent.
        progress: Option<i32>,
        /// Name of the file to download.
        filename: Option<String>,
        /// Size of the file in bytes.
        filesize: Option<i64>,
        conditions: Vec<Condition>,
    }

    /// Upgrade of the program on all nodes.
    Upgrade {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<UpgradeSpec>,
        status: Option<UpgradeStatus>,
    }

    UpgradeSpec {
        /// Name of the Version object to upgrade to.
        version: Option<String>,
        /// Name of the image with the new version.
        image: Option<String>,
        /// Whether logs of the upgrade are collected.
        log_enabled: Option<bool> = {"default": true},
        /// Container image that runs the upgrade.
        upgrade_image: Option<String>,
    }

    UpgradeStatus {
        /// Version of the cluster before the upgrade.
        previous_version: Option<String>,
        /// Image of the upgrade, as NAMESPACE/NAME.
        image_id as "imageID": Option<String>,
        /// Release information from the repository of the new version.
        repo_info: Option<String>,
        /// Name of the node in a cluster with a single node.
        single_node: Option<String>,
        /// Progress of the upgrade, by name of the node.
        node_statuses: Map<NodeUpgrade>,
        /// Name of the UpgradeLog.
        upgrade_log: Option<String>,
        conditions: Vec<Condition>,
    }

    NodeUpgrade {
        /// Current step of the upgrade on the node.
        state: Option<String>,
        reason: Option<String>,
        message: Option<String>,
    }

    /// Logs of an upgrade.
    UpgradeLog {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: UpgradeLogSpec,
        status: Option<UpgradeLogStatus>,
    }

    UpgradeLogSpec {
        /// Name of the Upgrade whose logs are collected.
        upgrade_name: String,
    }

    UpgradeLogStatus {
        /// Archives of logs that can be downloaded, by name.
        archives: Map<Any>,
        conditions: Vec<Condition>,
    }

    /// Version that the cluster can be upgraded to.
    Version {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VersionSpec,
    }

    VersionSpec {
        /// URL of the installation image.
        iso_url as "isoURL": Option<String>,
        /// SHA-512 checksum of the installation image.
        iso_checksum: Option<String>,
        /// Date of the release.
        release_date: Option<String>,
        /// Oldest version from which an upgrade is possible.
        min_upgradable_version: Option<String>,
        /// Labels of the release, for instance prerelease.
        tags: Vec<String>,
    }
}
