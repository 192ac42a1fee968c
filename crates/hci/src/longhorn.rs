//! The shapes of Longhorn's objects, with upstream's names. Sizes are texts, as there.

pub mod attachment;
pub mod backup;
pub mod image;
pub mod instance;
pub mod job;
pub mod node;
pub mod setting;
pub mod snapshot;
pub mod volume;

use crd::record::record;

/// The namespace that holds all of them.
pub const NAMESPACE: &str = "longhorn-system";
/// The finalizer of all of them.
pub const FINALIZER: &str = "longhorn.io";

record! {
    Condition {
        r#type: String,
        status: String,
        last_probe_time: Option<String>,
        last_transition_time: Option<String>,
        reason: Option<String>,
        message: Option<String>,
    }
}
