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
        /// What is wanted.
        spec: MigrationPolicySpec,
        /// What is observed.
        status: Option<Empty> = {"nullable": true},
    }

    MigrationPolicySpec {
        /// Namespaces and instances that the policy is for.
        selectors: Selectors,
        /// Slow the guest down if its memory changes too fast.
        allow_auto_converge: Option<bool>,
        /// Bandwidth limit of one migration.
        bandwidth_per_migration: Option<Quantity>,
        /// Seconds per gibibyte until a migration is canceled.
        completion_timeout_per_gi_b: Option<i64>,
        /// Longest pause of the guest in milliseconds.
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        /// Continue the guest on the target before all memory is copied.
        allow_post_copy: Option<bool>,
        /// Pause the guest if a migration does not converge.
        allow_workload_disruption: Option<bool>,
        /// Experimental options.
        experimental: Option<v1::ExperimentalMigrationOptions>,
    }

    Selectors {
        /// Labels of namespaces.
        namespace_selector: Map<String>,
        /// Labels of instances.
        virtual_machine_instance_selector: Map<String>,
    }
}
