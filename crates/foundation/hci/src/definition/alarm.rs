//! The kind of alarms.

use crd::record::Field as _;

use super::{AGE, Column, DefinitionScope, KindDefinition, ONE, with_status};
use crate::alarm::{Alarm, GROUP, PLURAL};

pub(super) const CATALOG: &[KindDefinition] = &[KindDefinition {
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
}];
