//! What operators do with a cluster: add-ons, upgrades, bundles for support.

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
        repo: String,
        chart: String,
        version: String,
        enabled: bool,
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
        issue_url as "issueURL": Option<String>,
        description: String,
        extra_collection_namespaces: Vec<String>,
        /// Minutes until it is given up; 0 is never.
        timeout: Option<i32>,
        /// Minutes until a finished bundle is removed.
        expiration: Option<i32>,
        node_timeout: Option<i32>,
    }

    SupportBundleStatus {
        state: Option<String>,
        progress: Option<i32>,
        filename: Option<String>,
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
        version: Option<String>,
        image: Option<String>,
        log_enabled: Option<bool> = {"default": true},
        upgrade_image: Option<String>,
    }

    UpgradeStatus {
        previous_version: Option<String>,
        image_id as "imageID": Option<String>,
        repo_info: Option<String>,
        single_node: Option<String>,
        node_statuses: Map<NodeUpgrade>,
        upgrade_log: Option<String>,
        conditions: Vec<Condition>,
    }

    NodeUpgrade {
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
        upgrade_name: String,
    }

    UpgradeLogStatus {
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
        iso_url as "isoURL": Option<String>,
        iso_checksum: Option<String>,
        release_date: Option<String>,
        min_upgradable_version: Option<String>,
        tags: Vec<String>,
    }
}
