//! `migrations.kubevirt.io`: which guests move how.

use crate::api::atom::{Empty, Map, ObjectMeta, Quantity};
use crate::api::record::record;
use crate::api::v1;

record! {
    /// Rules for the migration of some guests.
    MigrationPolicy {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: MigrationPolicySpec,
        status: Option<Empty> = {"nullable": true},
    }

    MigrationPolicySpec {
        selectors: Selectors,
        allow_auto_converge: Option<bool>,
        bandwidth_per_migration: Option<Quantity>,
        completion_timeout_per_gi_b: Option<i64>,
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        allow_post_copy: Option<bool>,
        allow_workload_disruption: Option<bool>,
        experimental: Option<v1::ExperimentalMigrationOptions>,
    }

    Selectors {
        namespace_selector: Map<String>,
        virtual_machine_instance_selector: Map<String>,
    }
}
