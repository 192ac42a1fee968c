//! CDI's kinds: volumes that are filled with images.

use super::catalog::{AGE, BETA, PHASE};
use crate::api::cdi;
use crate::api::record::Field;
use crd::definition::{Column, DefinitionScope, KindDefinition, Subresources};

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[
            Column("Phase", "string", ".status.phase", "The phase the data volume is in", 0),
            Column(
                "Progress",
                "string",
                ".status.progress",
                "Transfer progress in percentage if known, N/A otherwise",
                0,
            ),
            Column(
                "Restarts",
                "integer",
                ".status.restartCount",
                "The number of times the transfer has been restarted.",
                0,
            ),
            AGE,
        ],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "cdi.kubevirt.io",
            "DataVolume",
            "datavolumes",
            &["dv", "dvs"],
            BETA,
            cdi::DataVolume::schema,
        )
    },
    KindDefinition::new(
        "cdi.kubevirt.io",
        "DataSource",
        "datasources",
        &["das"],
        BETA,
        cdi::DataSource::schema,
    ),
    KindDefinition {
        columns: &[Column(
            "Format",
            "string",
            ".status.sourceFormat",
            "The format in which created sources are saved",
            0,
        )],
        ..KindDefinition::new(
            "cdi.kubevirt.io",
            "DataImportCron",
            "dataimportcrons",
            &["dic", "dics"],
            BETA,
            cdi::DataImportCron::schema,
        )
    },
    KindDefinition {
        scope: DefinitionScope::Cluster,
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "cdi.kubevirt.io",
            "StorageProfile",
            "storageprofiles",
            &[],
            BETA,
            cdi::StorageProfile::schema,
        )
    },
    KindDefinition {
        scope: DefinitionScope::Cluster,
        ..KindDefinition::new(
            "cdi.kubevirt.io",
            "CDIConfig",
            "cdiconfigs",
            &[],
            BETA,
            cdi::CDIConfig::schema,
        )
    },
    KindDefinition {
        scope: DefinitionScope::Cluster,
        columns: &[AGE, PHASE],
        ..KindDefinition::new("cdi.kubevirt.io", "CDI", "cdis", &["cdi"], BETA, cdi::CDI::schema)
    },
    KindDefinition {
        scope: DefinitionScope::Namespaced,
        ..KindDefinition::new(
            "cdi.kubevirt.io",
            "VolumeImportSource",
            "volumeimportsources",
            &[],
            BETA,
            cdi::VolumeImportSource::schema,
        )
    },
    KindDefinition {
        scope: DefinitionScope::Namespaced,
        ..KindDefinition::new(
            "cdi.kubevirt.io",
            "VolumeUploadSource",
            "volumeuploadsources",
            &[],
            BETA,
            cdi::VolumeUploadSource::schema,
        )
    },
    KindDefinition {
        scope: DefinitionScope::Namespaced,
        ..KindDefinition::new(
            "cdi.kubevirt.io",
            "VolumeCloneSource",
            "volumeclonesources",
            &[],
            BETA,
            cdi::VolumeCloneSource::schema,
        )
    },
];
