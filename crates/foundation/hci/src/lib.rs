//! Harvester's and Longhorn's kinds, as their clients know them: types, definitions, defaults,
//! rules, the objects of a fresh cluster, and where replicas are placed. No I/O, no clock.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

pub mod addon;
pub mod address_pool;
pub mod admit;
pub mod alarm;
pub mod announcement;
pub mod backend_health;
mod bootstrap;
mod claim_template;
pub mod cluster;
pub mod cluster_network_policy;
pub mod cluster_setting;
pub mod cpu_manager;
mod definition;
pub mod device_capacity;
pub mod dhcp;
pub mod failover;
pub mod guest_network;
pub mod harvester;
pub mod host_network;
pub mod import_cron;
pub mod inactive;
pub mod launcher;
pub mod link_monitor;
pub mod local_volume;
pub mod longhorn;
pub mod machine_quota;
pub mod maintenance;
pub mod multi_network_policy;
pub mod network;
pub mod node_network;
pub mod node_restriction;
pub mod ntp;
pub mod placement;
pub mod project;
pub mod public_key;
pub mod removed_claims;
pub mod setting;
pub mod snapshot;
pub mod snapshot_usage;
pub mod together;
pub mod upgrade;
pub mod vm_backup_metadata;

pub use admit::DRIVER;
pub use bootstrap::{driver_objects, first_objects};
pub use claim_template::{ClaimTemplate, claim_templates, is_internal_key};
pub use crd::schedule;
pub use definition::definitions;
pub use ipnet::Ipv4Net;
