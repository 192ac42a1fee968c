//! The cluster's own reconcilers: garbage, namespaces, service accounts, quotas, …
//!
//! Each is a pure planner (`<name>/plan.rs`) and a thin executor (`<name>.rs`) that is an
//! ordinary Kubernetes client. They know neither the API server nor the store. All learn
//! of changes through one feed of metadata, and keep no copies of objects.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

mod active;
mod addon;
mod alarm;
mod alarm_receiver;
mod announcement;
mod api_endpoints;
mod balance;
mod certificate;
mod claim;
mod cluster_setting;
mod condition;
mod copied_spec;
mod cpu_manager_job;
mod data_import_cron;
mod data_source;
mod data_volume;
mod dhcp;
mod disruption;
mod endpoints;
mod event;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod field_name_tests;
mod garbage;
mod guest_address;
mod horizontal_pod_autoscaler;
mod host_network;
mod hub;
mod image;
mod installation;
mod json_patch;
mod key;
mod key_pair;
mod link_monitor;
mod load_balancer;
mod local_volume;
mod longhorn;
mod machine_quota;
mod maintenance;
mod namespace;
mod node;
mod node_network;
mod node_requests;
mod object;
mod populate;
mod populator;
mod project;
mod queue;
mod quota;
mod reconcile;
mod record;
mod resource;
#[cfg(test)]
mod retry_tests;
mod role_aggregation;
mod root_ca;
#[cfg(test)]
mod seeded_rng;
mod selector;
#[cfg(test)]
mod served_kind_tests;
mod service_account;
mod snapshot_quota;
#[cfg(test)]
mod source_files;
mod start;
mod storage_profile;
mod storage_protection;
mod support_bundle;
#[cfg(test)]
mod tests;
mod upgrade;
mod vm;
mod vm_backup;
mod vm_backup_schedule;
mod vm_claims;
mod vm_clone;
mod vm_export;
mod vm_history;
mod vm_memory_dump;
mod vm_pool;
mod vm_restore;
mod vm_snapshot;
mod vm_template;
mod vm_template_request;
mod vmi;
mod vmi_migration;
mod vmi_replica_set;

pub use alarm_receiver::{AlarmMessage, AlarmSender, DeliveryResult};
pub use certificate::{CertificateAsk, CertificateSigner, ReviewedRequest, SignerError};
pub use installation::UploadProxy;
pub use service_account::TokenMinter;
pub use start::{Config, ControllerClients, ControllerGroup, ControllerSet, Leadership, start};
pub use vmi::what_if::{ClusterLists, MachineFate, MachineLoss, NodeLoss, VolumeLoss, lose_node};
