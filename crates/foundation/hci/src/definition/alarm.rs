//! The kinds of alarms.

use crd::record::Field as _;

use super::{AGE, Column, DefinitionScope, KindDefinition, ONE, with_status};
use crate::alarm::{Alarm, AlarmReceiver, GROUP, PLURAL, RECEIVER_PLURAL};

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        scope: DefinitionScope::Cluster,
        columns: &[
            Column("Severity", "string", ".status.severity", "", 0),
            Column("Kind", "string", ".status.object.kind", "", 0),
            Column("Namespace", "string", ".status.object.namespace", "", 0),
            Column("Object", "string", ".status.object.name", "", 0),
            Column("Summary", "string", ".status.summary", "", 0),
            Column("Acknowledged", "boolean", ".spec.acknowledged", "", 0),
            Column("Remedy", "string", ".status.remedy", "", 1),
            AGE,
        ],
        ..with_status(GROUP, "Alarm", PLURAL, &[], ONE, Alarm::schema)
    },
    KindDefinition {
        scope: DefinitionScope::Cluster,
        columns: &[
            Column("Format", "string", ".spec.format", "", 0),
            Column("Severity", "string", ".spec.minimumSeverity", "", 0),
            Column(
                "Delivered",
                "string",
                ".status.conditions[?(@.type=='Delivered')].status",
                "",
                0,
            ),
            Column("Last", "date", ".status.lastDelivery", "", 0),
            Column(
                "Message",
                "string",
                ".status.conditions[?(@.type=='Delivered')].message",
                "",
                1,
            ),
            AGE,
        ],
        ..with_status(GROUP, "AlarmReceiver", RECEIVER_PLURAL, &[], ONE, AlarmReceiver::schema)
    },
];
