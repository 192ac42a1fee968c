//! Operations of a cluster: add-ons, upgrades, support bundles.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
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
        /// What happened, for the readers of the bundle.
        description: String,
        /// Namespaces to collect in addition to the system's own.
        extra_collection_namespaces: Vec<String>,
        /// Minutes until it is given up; 0 is never.
        timeout: Option<i32>,
        /// Minutes until a finished bundle is removed.
        expiration: Option<i32>,
        /// Minutes that the collection may take on one node.
        node_timeout: Option<i32>,
    }

    SupportBundleStatus {
        /// How far the collection is: generating, ready or error.
        state: Option<String>,
        /// Progress of the collection in percent.
        progress: Option<i32>,
        /// Name of the file to download.
        filename: Option<String>,
        /// Size of the file in bytes.
        filesize: Option<i64>,
        conditions: Vec<Condition>,
    }

    Upgrade {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<UpgradeSpec>,
        status: Option<UpgradeStatus>,
    }

    UpgradeSpec {
        /// Name of the Version to upgrade to.
        version: Option<String>,
        /// Name of the image with the new version.
        image: Option<String>,
        /// Whether logs of the upgrade are collected.
        log_enabled: Option<bool> = {"default": true},
        /// Container image that carries out the upgrade.
        upgrade_image: Option<String>,
    }

    UpgradeStatus {
        /// Version before the upgrade.
        previous_version: Option<String>,
        /// Namespace and name of the image that is used.
        image_id as "imageID": Option<String>,
        /// What the repository of the new version says about itself.
        repo_info: Option<String>,
        /// Name of the node, if it is the only one.
        single_node: Option<String>,
        /// Progress by node.
        node_statuses: Map<NodeUpgrade>,
        /// Name of the UpgradeLog.
        upgrade_log: Option<String>,
        conditions: Vec<Condition>,
    }

    NodeUpgrade {
        /// Step of the upgrade that the node is at.
        state: Option<String>,
        reason: Option<String>,
        message: Option<String>,
    }

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
