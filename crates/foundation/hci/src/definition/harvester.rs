//! Harvester's kinds.

use crd::record::Field as _;

use super::{AGE, BETA1, Column, DefinitionScope, KindDefinition, kind, with_status};
use crate::harvester::{backup, image, key_pair, node_disk, operation, quota, setting, template};

const GROUP: &str = "harvesterhci.io";

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[
            Column("HelmRepo", "string", ".spec.repo", "", 0),
            Column("ChartName", "string", ".spec.chart", "", 0),
            Column("Enabled", "boolean", ".spec.enabled", "", 0),
        ],
        ..with_status(GROUP, "Addon", "addons", &[], BETA1, operation::Addon::schema)
    },
    KindDefinition {
        columns: &[Column("FINGER_PRINT", "string", ".status.fingerPrint", "", 0), AGE],
        ..kind(GROUP, "KeyPair", "keypairs", &["kp", "kps"], BETA1, key_pair::KeyPair::schema)
    },
    kind(GROUP, "Preference", "preferences", &[], BETA1, setting::Preference::schema),
    KindDefinition {
        columns: &[
            Column(
                "NAMESPACE_TOTAL_SNAPSHOT_SIZE_QUOTA",
                "integer",
                ".spec.snapshotLimit.namespaceTotalSnapshotSizeQuota",
                "",
                0,
            ),
            Column(
                "NAMESPACE_TOTAL_SNAPSHOT_SIZE_USAGE",
                "integer",
                ".status.snapshotLimitStatus.namespaceTotalSnapshotSizeUsage",
                "",
                0,
            ),
        ],
        ..with_status(
            GROUP,
            "ResourceQuota",
            "resourcequotas",
            &["hrq", "hrqs"],
            BETA1,
            quota::ResourceQuota::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Cron", "string", ".spec.cron", "", 0),
            Column("Retain", "integer", ".spec.retain", "", 0),
            Column("MaxFailure", "integer", ".spec.maxFailure", "", 0),
            Column("SpecSuspend", "boolean", ".spec.suspend", "", 0),
            Column("Source", "string", ".spec.vmbackup.source.name", "", 0),
            Column("Suspended", "boolean", ".status.suspended", "", 0),
            Column("Failure", "integer", ".status.failure", "", 0),
        ],
        ..kind(
            GROUP,
            "ScheduleVMBackup",
            "schedulevmbackups",
            &["svmbackup", "svmbackups"],
            BETA1,
            backup::ScheduleVMBackup::schema,
        )
    },
    KindDefinition {
        columns: &[Column("VALUE", "string", ".value", "", 0)],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "Setting", "settings", &[], BETA1, setting::Setting::schema)
    },
    KindDefinition {
        columns: &[
            Column("ISSUE_URL", "string", ".spec.issueURL", "", 0),
            Column("DESCRIPTION", "string", ".spec.description", "", 0),
            AGE,
        ],
        ..kind(
            GROUP,
            "SupportBundle",
            "supportbundles",
            &["sb", "sbs"],
            BETA1,
            operation::SupportBundle::schema,
        )
    },
    kind(GROUP, "Upgrade", "upgrades", &[], BETA1, operation::Upgrade::schema),
    KindDefinition {
        columns: &[Column("UPGRADE", "string", ".spec.upgradeName", "", 0)],
        ..kind(GROUP, "UpgradeLog", "upgradelogs", &[], BETA1, operation::UpgradeLog::schema)
    },
    KindDefinition {
        columns: &[
            Column("ISO-URL", "string", ".spec.isoURL", "", 0),
            Column("ReleaseDate", "string", ".spec.releaseDate", "", 0),
            Column("MinUpgradableVersion", "string", ".spec.minUpgradableVersion", "", 0),
        ],
        ..kind(GROUP, "Version", "versions", &[], BETA1, operation::Version::schema)
    },
    KindDefinition {
        columns: &[
            Column("SOURCE_KIND", "string", ".spec.source.kind", "", 0),
            Column("SOURCE_NAME", "string", ".spec.source.name", "", 0),
            Column("TYPE", "string", ".spec.type", "", 0),
            Column("READY_TO_USE", "boolean", ".status.readyToUse", "", 0),
            AGE,
            Column("ERROR", "string", ".status.error.message", "", 0),
        ],
        ..kind(
            GROUP,
            "VirtualMachineBackup",
            "virtualmachinebackups",
            &["vmbackup", "vmbackups"],
            BETA1,
            backup::VirtualMachineBackup::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("BACKEND", "string", ".spec.backend", "", 0),
            Column("DISPLAY-NAME", "string", ".spec.displayName", "", 0),
            Column("SIZE", "integer", ".status.size", "", 0),
            Column("VIRTUALSIZE", "integer", ".status.virtualSize", "", 0),
            AGE,
        ],
        ..kind(
            GROUP,
            "VirtualMachineImage",
            "virtualmachineimages",
            &["vmimage", "vmimages"],
            BETA1,
            image::VirtualMachineImage::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("VMImage", "string", ".spec.imageName", "", 0),
            Column("CompressType", "string", ".spec.compressType", "", 0),
            Column("Status", "string", ".status.status", "", 0),
        ],
        ..with_status(
            GROUP,
            "VirtualMachineImageDownloader",
            "virtualmachineimagedownloaders",
            &["vmimagedownloader", "vmimagedownloaders"],
            BETA1,
            image::VirtualMachineImageDownloader::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("TARGET_KIND", "string", ".spec.target.kind", "", 0),
            Column("TARGET_NAME", "string", ".spec.target.name", "", 0),
            Column("COMPLETE", "boolean", ".status.complete", "", 0),
            AGE,
            Column("ERROR", "string", ".status.error.message", "", 0),
        ],
        ..kind(
            GROUP,
            "VirtualMachineRestore",
            "virtualmachinerestores",
            // `vmrestore` means KubeVirt's kind of the same name, as its manual uses it.
            &[],
            BETA1,
            backup::VirtualMachineRestore::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("VERSION_ID", "string", ".spec.defaultVersionId", "", 0),
            Column("DESCRIPTION", "string", ".spec.description", "", 10),
            Column("VERSION_DEFAULT", "integer", ".status.defaultVersion", "", 8),
            Column("VERSION_LATEST", "integer", ".status.latestVersion", "", 8),
            AGE,
        ],
        ..with_status(
            GROUP,
            "VirtualMachineTemplate",
            "virtualmachinetemplates",
            &["vmtemplate", "vmtemplates"],
            BETA1,
            template::VirtualMachineTemplate::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("TEMPLATE_ID", "string", ".spec.templateId", "", 0),
            Column("DESCRIPTION", "string", ".spec.description", "", 0),
            Column("VERSION", "integer", ".status.version", "", 0),
            AGE,
        ],
        ..kind(
            GROUP,
            "VirtualMachineTemplateVersion",
            "virtualmachinetemplateversions",
            &["vmtemplateversion", "vmtemplateversions"],
            BETA1,
            template::VirtualMachineTemplateVersion::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("type", "string", ".spec.type", "", 0),
            Column("source", "string", ".spec.source", "", 0),
            Column("Handle", "string", ".status.handle", "", 0),
            Column("Provider", "string", ".status.csiProvider", "", 0),
            Column("Success", "boolean", ".status.success", "", 0),
        ],
        ..kind(
            GROUP,
            "VolumeRemoteBackup",
            "volumeremotebackups",
            &["volumeremotebackup"],
            BETA1,
            backup::VolumeRemoteBackup::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("type", "string", ".spec.type", "", 0),
            Column("from", "string", ".spec.from", "", 0),
            Column("Success", "boolean", ".status.success", "", 0),
        ],
        ..kind(
            GROUP,
            "VolumeRemoteRestore",
            "volumeremoterestores",
            &["volumeremoterestore"],
            BETA1,
            backup::VolumeRemoteRestore::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Type", "string", ".status.deviceStatus.details.deviceType", "", 0),
            Column("DevPath", "string", ".spec.devPath", "", 0),
            Column("MountPoint", "string", ".status.deviceStatus.fileSystem.mountPoint", "", 0),
            Column("NodeName", "string", ".spec.nodeName", "", 0),
            Column("ProvisionPhase", "string", ".status.provisionPhase", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "BlockDevice",
            "blockdevices",
            &["bd", "bds"],
            BETA1,
            node_disk::BlockDevice::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Parameters", "string", ".spec.parameters", "", 0),
            Column("Status", "string", ".status.vgStatus", "", 0),
            Column("Node", "string", ".spec.nodeName", "", 0),
        ],
        ..with_status(
            GROUP,
            "LVMVolumeGroup",
            "lvmvolumegroups",
            &["lvmvg", "lvmvgs"],
            BETA1,
            node_disk::LVMVolumeGroup::schema,
        )
    },
];
