//! KubeVirt's kinds.

use crate::api::record::Field;
use crate::api::{clone, export, instancetype, migrations, pool, snapshot, v1};
use crd::definition::{Column, Kind, Scope, Subresources, Version};

const CORE: &[Version] = &[
    Version { name: "v1", stored: true, deprecated: None },
    Version {
        name: "v1alpha3",
        stored: false,
        deprecated: Some(
            "kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release.",
        ),
    },
];
const PRESET: &[Version] = &[
    Version {
        name: "v1",
        stored: false,
        deprecated: Some(
            "kubevirt.io/v1 VirtualMachineInstancePresets is now deprecated and will be removed in v2.",
        ),
    },
    Version {
        name: "v1alpha3",
        stored: true,
        deprecated: Some(
            "kubevirt.io/v1alpha3 VirtualMachineInstancePresets is now deprecated and will be removed in v2.",
        ),
    },
];
const EXPORT: &[Version] = &[
    Version {
        name: "v1beta1",
        stored: false,
        deprecated: Some(
            "export.kubevirt.io/v1beta1 VirtualMachineExport is now deprecated and will be removed in a future version.",
        ),
    },
    Version { name: "v1", stored: true, deprecated: None },
];
pub(super) const ALPHA_BETA: &[Version] = &[
    Version { name: "v1alpha1", stored: false, deprecated: None },
    Version { name: "v1beta1", stored: true, deprecated: None },
];
pub(super) const BETA: &[Version] = &[Version { name: "v1beta1", stored: true, deprecated: None }];
pub(super) const ALPHA: &[Version] =
    &[Version { name: "v1alpha1", stored: true, deprecated: None }];

pub(super) const AGE: Column = Column("Age", "date", ".metadata.creationTimestamp", "", 0);
pub(super) const PHASE: Column = Column("Phase", "string", ".status.phase", "", 0);
pub(super) const READY: Column =
    Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", "", 0);
const ERROR: Column = Column("Error", "string", ".status.error.message", "", 0);
const READY_TO_USE: Column = Column("ReadyToUse", "boolean", ".status.readyToUse", "", 0);
const CREATED: Column = Column("CreationTime", "date", ".status.creationTime", "", 0);
const SOURCE_KIND: Column = Column("SourceKind", "string", ".spec.source.kind", "", 0);
const SOURCE_NAME: Column = Column("SourceName", "string", ".spec.source.name", "", 0);

pub(super) const CATALOG: &[Kind] = &[
    Kind {
        columns: &[
            AGE,
            Column("Status", "string", ".status.printableStatus", "Human Readable Status", 0),
            READY,
        ],
        subresources: Subresources::Status,
        ..Kind::new(
            "kubevirt.io",
            "VirtualMachine",
            "virtualmachines",
            &["vm", "vms"],
            CORE,
            v1::VirtualMachine::schema,
        )
    },
    Kind {
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
        ..Kind::new(
            "kubevirt.io",
            "VirtualMachineInstance",
            "virtualmachineinstances",
            &["vmi", "vmis"],
            CORE,
            v1::VirtualMachineInstance::schema,
        )
    },
    Kind::new(
        "kubevirt.io",
        "VirtualMachineInstancePreset",
        "virtualmachineinstancepresets",
        &["vmipreset", "vmipresets"],
        PRESET,
        v1::VirtualMachineInstancePreset::schema,
    ),
    Kind {
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
        ..Kind::new(
            "kubevirt.io",
            "VirtualMachineInstanceReplicaSet",
            "virtualmachineinstancereplicasets",
            &["vmirs", "vmirss"],
            CORE,
            v1::VirtualMachineInstanceReplicaSet::schema,
        )
    },
    Kind {
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
        ..Kind::new(
            "kubevirt.io",
            "VirtualMachineInstanceMigration",
            "virtualmachineinstancemigrations",
            &["vmim", "vmims"],
            CORE,
            v1::VirtualMachineInstanceMigration::schema,
        )
    },
    Kind {
        columns: &[AGE, PHASE],
        subresources: Subresources::Status,
        ..Kind::new(
            "kubevirt.io",
            "KubeVirt",
            "kubevirts",
            &["kv", "kvs"],
            CORE,
            v1::KubeVirt::schema,
        )
    },
    Kind {
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
        ..Kind::new(
            "pool.kubevirt.io",
            "VirtualMachinePool",
            "virtualmachinepools",
            &["vmpool", "vmpools"],
            ALPHA_BETA,
            pool::VirtualMachinePool::schema,
        )
    },
    Kind {
        columns: &[SOURCE_KIND, SOURCE_NAME, PHASE, READY_TO_USE, CREATED, ERROR],
        subresources: Subresources::Status,
        ..Kind::new(
            "snapshot.kubevirt.io",
            "VirtualMachineSnapshot",
            "virtualmachinesnapshots",
            &["vmsnapshot", "vmsnapshots"],
            ALPHA_BETA,
            snapshot::VirtualMachineSnapshot::schema,
        )
    },
    Kind {
        columns: &[READY_TO_USE, CREATED, ERROR],
        subresources: Subresources::Status,
        ..Kind::new(
            "snapshot.kubevirt.io",
            "VirtualMachineSnapshotContent",
            "virtualmachinesnapshotcontents",
            &["vmsnapshotcontent", "vmsnapshotcontents"],
            ALPHA_BETA,
            snapshot::VirtualMachineSnapshotContent::schema,
        )
    },
    Kind {
        columns: &[
            Column("TargetKind", "string", ".spec.target.kind", "", 0),
            Column("TargetName", "string", ".spec.target.name", "", 0),
            Column("Complete", "boolean", ".status.complete", "", 0),
            Column("RestoreTime", "date", ".status.restoreTime", "", 0),
        ],
        subresources: Subresources::Status,
        ..Kind::new(
            "snapshot.kubevirt.io",
            "VirtualMachineRestore",
            "virtualmachinerestores",
            &["vmrestore", "vmrestores"],
            ALPHA_BETA,
            snapshot::VirtualMachineRestore::schema,
        )
    },
    Kind {
        columns: &[SOURCE_KIND, SOURCE_NAME, PHASE],
        subresources: Subresources::Status,
        ..Kind::new(
            "export.kubevirt.io",
            "VirtualMachineExport",
            "virtualmachineexports",
            &["vmexport", "vmexports"],
            EXPORT,
            export::VirtualMachineExport::schema,
        )
    },
    Kind {
        columns: &[
            PHASE,
            Column("SourceVirtualMachine", "string", ".spec.source.name", "", 0),
            Column("TargetVirtualMachine", "string", ".spec.target.name", "", 0),
        ],
        subresources: Subresources::Status,
        ..Kind::new(
            "clone.kubevirt.io",
            "VirtualMachineClone",
            "virtualmachineclones",
            &["vmclone", "vmclones"],
            ALPHA_BETA,
            clone::VirtualMachineClone::schema,
        )
    },
    Kind::new(
        "instancetype.kubevirt.io",
        "VirtualMachineInstancetype",
        "virtualmachineinstancetypes",
        &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
        BETA,
        instancetype::VirtualMachineInstancetype::schema,
    ),
    Kind {
        scope: Scope::Cluster,
        ..Kind::new(
            "instancetype.kubevirt.io",
            "VirtualMachineClusterInstancetype",
            "virtualmachineclusterinstancetypes",
            &["vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"],
            BETA,
            instancetype::VirtualMachineClusterInstancetype::schema,
        )
    },
    Kind::new(
        "instancetype.kubevirt.io",
        "VirtualMachinePreference",
        "virtualmachinepreferences",
        &["vmpref", "vmprefs", "vmp", "vmps"],
        BETA,
        instancetype::VirtualMachinePreference::schema,
    ),
    Kind {
        scope: Scope::Cluster,
        ..Kind::new(
            "instancetype.kubevirt.io",
            "VirtualMachineClusterPreference",
            "virtualmachineclusterpreferences",
            &["vmcp", "vmcps"],
            BETA,
            instancetype::VirtualMachineClusterPreference::schema,
        )
    },
    Kind {
        scope: Scope::Cluster,
        subresources: Subresources::Status,
        ..Kind::new(
            "migrations.kubevirt.io",
            "MigrationPolicy",
            "migrationpolicies",
            &[],
            ALPHA,
            migrations::MigrationPolicy::schema,
        )
    },
];
