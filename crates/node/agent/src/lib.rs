//! The agent of one node: makes the objects that are assigned to it real.
//!
//! It registers the node and keeps its lease, turns VirtualMachineInstances into QEMU
//! processes and back into status, and serves the node endpoint that consoles and uploads go
//! through. It is a plain Kubernetes client: it names neither the API server nor the store.
//!
//! QEMU processes outlive it. Everything it must know to find them again lies in its
//! directory, written before the process exists; see `vmi`.

#![allow(clippy::too_many_lines, reason = "TODO(#14): split the functions that are too long")]

mod announce;
mod api;
mod backing_image;
mod backup;
mod change_notifier;
mod cluster_address;
mod config;
mod context;
mod dhcp;
mod egress;
mod endpoint;
mod event;
mod guard;
mod guest_name;
mod gzip;
mod health_check;
mod history;
mod host;
mod host_guard;
mod image;
mod known_objects;
mod link_monitor;
mod machine;
mod network;
mod node;
mod ntp;
mod object_cache;
mod order;
mod overlay;
mod own_addresses;
mod policy;
mod processors;
mod retry;
mod service;
mod start;
mod storage;
mod trace;
mod uplink;
mod usage;
mod vmi;
mod volume;

pub use cluster_address::ClusterAddress;
pub use config::{
    Config, EndpointPeer, EndpointWire, GrantVerification, GuestNetwork, GuestNetworkError,
    Network, NodeFiles, NodeRole, NodeWire, PeerWire, RequestGrant, StorageWire,
};
pub use egress::{OutboundError, outbound_client};
pub use ipnet::IpNet;
pub use net::{LinkName, RecordFile, WatchdogError, run_watchdog};
pub use start::{StartError, start, start_witness};
pub use trace::{TraceError, TraceObjects, TracePath, TraceProtocol, TraceQuery, TraceStep, trace};
