//! `migrations.kubevirt.io`: which guests move how.

use crate::api::atom::{Empty, Map, ObjectMeta, Quantity};
use crate::api::record::record;
use crate::api::v1;

record! {
    /// Migration options for selected instances.
    MigrationPolicy {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired migration options and the instances that they apply to.
        spec: MigrationPolicySpec,
        /// Observed state of the policy; not used.
        status: Option<Empty> = {"nullable": true},
    }

    MigrationPolicySpec {
        /// Namespaces and instances that the policy applies to.
        selectors: Selectors,
        /// Whether the CPUs of the guest are throttled if its memory changes too fast
        /// (auto-converge).
        allow_auto_converge: Option<bool>,
        /// Bandwidth limit of one migration in bytes per second.
        bandwidth_per_migration: Option<Quantity>,
        /// Seconds per GiB of memory after which a migration is canceled.
        completion_timeout_per_gi_b: Option<i64>,
        /// Maximum downtime of the guest at the switchover, in milliseconds.
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        /// Whether the guest can continue on the target before all memory is copied (post-copy).
        allow_post_copy: Option<bool>,
        /// Whether the guest can be paused if the migration does not converge.
        allow_workload_disruption: Option<bool>,
        /// Experimental options of the migration.
        experimental: Option<v1::ExperimentalMigrationOptions>,
    }

    Selectors {
        /// Labels that the namespace of an instance must have.
        namespace_selector: Map<String>,
        /// Labels that an instance must have.
        virtual_machine_instance_selector: Map<String>,
    }
}
