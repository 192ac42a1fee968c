//! KubeVirt's kinds.

use crate::api::record::Field;
use crate::api::{clone, export, instancetype, migrations, pool, snapshot, v1};
use crd::definition::{Column, DefinitionScope, DefinitionVersion, KindDefinition, Subresources};

const CORE: &[DefinitionVersion] = &[
    DefinitionVersion { name: "v1", stored: true, deprecated: None },
    DefinitionVersion {
        name: "v1alpha3",
        stored: false,
        deprecated: Some(
            "kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release.",
        ),
    },
];
const PRESET: &[DefinitionVersion] = &[
    DefinitionVersion {
        name: "v1",
        stored: false,
        deprecated: Some(
            "kubevirt.io/v1 VirtualMachineInstancePresets is now deprecated and will be removed in v2.",
        ),
    },
    DefinitionVersion {
        name: "v1alpha3",
        stored: true,
        deprecated: Some(
            "kubevirt.io/v1alpha3 VirtualMachineInstancePresets is now deprecated and will be removed in v2.",
        ),
    },
];
const EXPORT: &[DefinitionVersion] = &[
    DefinitionVersion {
        name: "v1beta1",
        stored: false,
        deprecated: Some(
            "export.kubevirt.io/v1beta1 VirtualMachineExport is now deprecated and will be removed in a future version.",
        ),
    },
    DefinitionVersion { name: "v1", stored: true, deprecated: None },
];
pub(super) const ALPHA_BETA: &[DefinitionVersion] = &[
    DefinitionVersion { name: "v1alpha1", stored: false, deprecated: None },
    DefinitionVersion { name: "v1beta1", stored: true, deprecated: None },
];
pub(super) const BETA: &[DefinitionVersion] =
    &[DefinitionVersion { name: "v1beta1", stored: true, deprecated: None }];
pub(super) const ALPHA: &[DefinitionVersion] =
    &[DefinitionVersion { name: "v1alpha1", stored: true, deprecated: None }];

pub(super) const AGE: Column = Column("Age", "date", ".metadata.creationTimestamp", "", 0);
pub(super) const PHASE: Column = Column("Phase", "string", ".status.phase", "", 0);
pub(super) const READY: Column =
    Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", "", 0);
const ERROR: Column = Column("Error", "string", ".status.error.message", "", 0);
const READY_TO_USE: Column = Column("ReadyToUse", "boolean", ".status.readyToUse", "", 0);
const CREATED: Column = Column("CreationTime", "date", ".status.creationTime", "", 0);
const SOURCE_KIND: Column = Column("SourceKind", "string", ".spec.source.kind", "", 0);
const SOURCE_NAME: Column = Column("SourceName", "string", ".spec.source.name", "", 0);

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[
            AGE,
            Column("Status", "string", ".status.printableStatus", "Human Readable Status", 0),
            READY,
        ],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "kubevirt.io",
            "VirtualMachine",
            "virtualmachines",
            &["vm", "vms"],
            CORE,
            v1::VirtualMachine::schema,
        )
    },
    KindDefinition {
        columns: &[
            AGE,
            PHASE,
            Column("IP", "string", ".status.interfaces[0].ipAddress", "", 0),
            Column("NodeName", "string", ".status.nodeName", "", 0),
            READY,
            Column(
                "Live-Migratable",
                "string",
                ".status.conditions[?(@.type=='LiveMigratable')].status",
                "",
                1,
            ),
            Column("Paused", "string", ".status.conditions[?(@.type=='Paused')].status", "", 1),
        ],
        ..KindDefinition::new(
            "kubevirt.io",
            "VirtualMachineInstance",
            "virtualmachineinstances",
            &["vmi", "vmis"],
            CORE,
            v1::VirtualMachineInstance::schema,
        )
    },
    KindDefinition::new(
        "kubevirt.io",
        "VirtualMachineInstancePreset",
        "virtualmachineinstancepresets",
        &["vmipreset", "vmipresets"],
        PRESET,
        v1::VirtualMachineInstancePreset::schema,
    ),
    KindDefinition {
        columns: &[
            Column(
                "Desired",
                "integer",
                ".spec.replicas",
                "Number of desired VirtualMachineInstances",
                0,
            ),
            Column(
                "Current",
                "integer",
                ".status.replicas",
                "Number of managed and not final or deleted VirtualMachineInstances",
                0,
            ),
            Column(
                "Ready",
                "integer",
                ".status.readyReplicas",
                "Number of managed VirtualMachineInstances which are ready to receive traffic",
                0,
            ),
            AGE,
        ],
        subresources: Subresources::Scale,
        ..KindDefinition::new(
            "kubevirt.io",
            "VirtualMachineInstanceReplicaSet",
            "virtualmachineinstancereplicasets",
            &["vmirs", "vmirss"],
            CORE,
            v1::VirtualMachineInstanceReplicaSet::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column(
                "Phase",
                "string",
                ".status.phase",
                "The current phase of VM instance migration",
                0,
            ),
            Column(
                "VMI",
                "string",
                ".spec.vmiName",
                "The name of the VMI to perform the migration on",
                0,
            ),
        ],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "kubevirt.io",
            "VirtualMachineInstanceMigration",
            "virtualmachineinstancemigrations",
            &["vmim", "vmims"],
            CORE,
            v1::VirtualMachineInstanceMigration::schema,
        )
    },
    KindDefinition {
        columns: &[AGE, PHASE],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "kubevirt.io",
            "KubeVirt",
            "kubevirts",
            &["kv", "kvs"],
            CORE,
            v1::KubeVirt::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Desired", "integer", ".spec.replicas", "Number of desired VirtualMachines", 0),
            Column(
                "Current",
                "integer",
                ".status.replicas",
                "Number of managed and not final or deleted VirtualMachines",
                0,
            ),
            Column(
                "Ready",
                "integer",
                ".status.readyReplicas",
                "Number of managed VirtualMachines which are ready to receive traffic",
                0,
            ),
            AGE,
        ],
        subresources: Subresources::Scale,
        ..KindDefinition::new(
            "pool.kubevirt.io",
            "VirtualMachinePool",
            "virtualmachinepools",
            &["vmpool", "vmpools"],
            ALPHA_BETA,
            pool::VirtualMachinePool::schema,
        )
    },
    KindDefinition {
        columns: &[SOURCE_KIND, SOURCE_NAME, PHASE, READY_TO_USE, CREATED, ERROR],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "snapshot.kubevirt.io",
            "VirtualMachineSnapshot",
            "virtualmachinesnapshots",
            &["vmsnapshot", "vmsnapshots"],
            ALPHA_BETA,
            snapshot::VirtualMachineSnapshot::schema,
        )
    },
    KindDefinition {
        columns: &[READY_TO_USE, CREATED, ERROR],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "snapshot.kubevirt.io",
            "VirtualMachineSnapshotContent",
            "virtualmachinesnapshotcontents",
            &["vmsnapshotcontent", "vmsnapshotcontents"],
            ALPHA_BETA,
            snapshot::VirtualMachineSnapshotContent::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("TargetKind", "string", ".spec.target.kind", "", 0),
            Column("TargetName", "string", ".spec.target.name", "", 0),
            Column("Complete", "boolean", ".status.complete", "", 0),
            Column("RestoreTime", "date", ".status.restoreTime", "", 0),
        ],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "snapshot.kubevirt.io",
            "VirtualMachineRestore",
            "virtualmachinerestores",
            &["vmrestore", "vmrestores"],
            ALPHA_BETA,
            snapshot::VirtualMachineRestore::schema,
        )
    },
    KindDefinition {
        columns: &[SOURCE_KIND, SOURCE_NAME, PHASE],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "export.kubevirt.io",
            "VirtualMachineExport",
            "virtualmachineexports",
            &["vmexport", "vmexports"],
            EXPORT,
            export::VirtualMachineExport::schema,
        )
    },
    KindDefinition {
        columns: &[
            PHASE,
            Column("SourceVirtualMachine", "string", ".spec.source.name", "", 0),
            Column("TargetVirtualMachine", "string", ".spec.target.name", "", 0),
        ],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "clone.kubevirt.io",
            "VirtualMachineClone",
            "virtualmachineclones",
            &["vmclone", "vmclones"],
            ALPHA_BETA,
            clone::VirtualMachineClone::schema,
        )
    },
    KindDefinition::new(
        "instancetype.kubevirt.io",
        "VirtualMachineInstancetype",
        "virtualmachineinstancetypes",
        &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
        BETA,
        instancetype::VirtualMachineInstancetype::schema,
    ),
    KindDefinition {
        scope: DefinitionScope::Cluster,
        ..KindDefinition::new(
            "instancetype.kubevirt.io",
            "VirtualMachineClusterInstancetype",
            "virtualmachineclusterinstancetypes",
            &["vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"],
            BETA,
            instancetype::VirtualMachineClusterInstancetype::schema,
        )
    },
    KindDefinition::new(
        "instancetype.kubevirt.io",
        "VirtualMachinePreference",
        "virtualmachinepreferences",
        &["vmpref", "vmprefs", "vmp", "vmps"],
        BETA,
        instancetype::VirtualMachinePreference::schema,
    ),
    KindDefinition {
        scope: DefinitionScope::Cluster,
        ..KindDefinition::new(
            "instancetype.kubevirt.io",
            "VirtualMachineClusterPreference",
            "virtualmachineclusterpreferences",
            &["vmcp", "vmcps"],
            BETA,
            instancetype::VirtualMachineClusterPreference::schema,
        )
    },
    KindDefinition {
        scope: DefinitionScope::Cluster,
        subresources: Subresources::Status,
        ..KindDefinition::new(
            "migrations.kubevirt.io",
            "MigrationPolicy",
            "migrationpolicies",
            &[],
            ALPHA,
            migrations::MigrationPolicy::schema,
        )
    },
];
