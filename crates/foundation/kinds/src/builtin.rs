//! The table of built-in kinds.
//!
//! The order of groups decides which kind an unqualified name means to kubectl, so it
//! is upstream's order of priority; within a group rows are sorted by plural, except
//! that a group's preferred version comes first.

use crate::resource::Resource;
use crate::{
    admission, apps, autoscaling, batch, certificates, coordination, core, devices, discovery,
    events, extension, flowcontrol, networking, node, policy, rbac, review, scheduling, storage,
};

/// Every built-in kind at every served version, most important group first.
pub fn builtin() -> &'static [Resource] {
    &BUILTIN
}

/// The row of one resource.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    BUILTIN.iter().find(|row| row.group == group && row.version == version && row.plural == plural)
}

static BUILTIN: [Resource; 70] = [
    core::BINDING,
    core::component_status::RESOURCE,
    core::config_map::RESOURCE,
    core::endpoints::RESOURCE,
    events::CORE,
    core::limit_range::RESOURCE,
    core::namespace::RESOURCE,
    core::node::RESOURCE,
    core::claim::RESOURCE,
    core::volume::RESOURCE,
    core::pod::RESOURCE,
    core::pod_template::RESOURCE,
    core::replication_controller::RESOURCE,
    core::quota::RESOURCE,
    core::secret::RESOURCE,
    core::service_account::RESOURCE,
    core::service::RESOURCE,
    extension::api_service::RESOURCE,
    apps::controller_revision::RESOURCE,
    apps::daemon_set::RESOURCE,
    apps::deployment::RESOURCE,
    apps::replica_set::RESOURCE,
    apps::stateful_set::RESOURCE,
    events::EVENTS,
    review::SELF_SUBJECT,
    review::TOKEN,
    review::LOCAL_SUBJECT_ACCESS,
    review::SELF_SUBJECT_ACCESS,
    review::SELF_SUBJECT_RULES,
    review::SUBJECT_ACCESS,
    autoscaling::V2,
    autoscaling::V1,
    batch::cron_job::RESOURCE,
    batch::job::RESOURCE,
    certificates::RESOURCE,
    certificates::trust_bundle::RESOURCE,
    networking::ingress_class::RESOURCE,
    networking::ingress::RESOURCE,
    networking::ip_address::RESOURCE,
    networking::network_policy::RESOURCE,
    networking::service_cidr::RESOURCE,
    policy::RESOURCE,
    rbac::CLUSTER_ROLE_BINDING,
    rbac::CLUSTER_ROLE,
    rbac::ROLE_BINDING,
    rbac::ROLE,
    storage::csi_driver::RESOURCE,
    storage::csi_node::RESOURCE,
    storage::csi_capacity::RESOURCE,
    storage::class::RESOURCE,
    storage::attachment::RESOURCE,
    storage::attributes_class::RESOURCE,
    admission::policy::MUTATING,
    admission::binding::MUTATING,
    admission::webhook::MUTATING,
    admission::policy::VALIDATING,
    admission::binding::VALIDATING,
    admission::webhook::VALIDATING,
    extension::definition::RESOURCE,
    scheduling::RESOURCE,
    coordination::RESOURCE,
    node::RESOURCE,
    discovery::RESOURCE,
    flowcontrol::schema::RESOURCE,
    flowcontrol::level::RESOURCE,
    storage::migration::RESOURCE,
    devices::CLASS,
    devices::CLAIM,
    devices::TEMPLATE,
    devices::SLICE,
];

#[cfg(test)]
mod tests;
