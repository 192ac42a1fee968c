//! The cluster's own reconcilers: garbage, namespaces, service accounts, quotas, …
//!
//! Each is a pure planner (`<name>/plan.rs`) and a thin executor (`<name>.rs`) that is an
//! ordinary Kubernetes client. They know neither the API server nor the store.

mod event;
mod garbage;
mod queue;
