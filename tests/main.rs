//! End to end: the built binary, real clients, one private server per test.
//!
//! One module per feature. [`harness`] starts servers and clients; see docs/testing.md.

#![expect(clippy::unwrap_used, reason = "a test that meets something unexpected has failed")]
#![expect(clippy::too_many_lines, reason = "a test is one scenario from its start to its end")]

mod harness;

mod aggregation;
mod alarms;
mod api_details;
mod appliance;
mod audit;
mod bad_input;
mod certificates;
mod cli;
mod clients;
mod cluster;
mod conversion;
mod crd;
mod dashboard;
mod encryption;
mod etcd;
mod fairness;
mod faults;
mod garbage;
mod golden;
mod harvester_clients;
mod harvester_rest;
mod identity;
mod images;
mod kube_apiserver;
mod kubectl;
mod limits;
mod lists;
mod metrics;
mod policy;
mod security;
mod store;
mod upgrade;
mod upstream;
mod vm_access;
mod vm_chaos;
mod vm_controller;
mod vm_devices;
mod vm_drain;
mod vm_faults;
mod vm_guest;
mod vm_inside;
mod vm_life;
mod vm_shapes;
mod volume;
mod volumes;
mod volumes_node;
mod watch;
mod webhook;
