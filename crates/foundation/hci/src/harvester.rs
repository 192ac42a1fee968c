//! The shapes of Harvester's objects, with upstream's names.

pub mod backup;
pub mod dhcp;
pub mod image;
pub mod key_pair;
pub mod load_balancer;
pub mod management;
pub mod network;
pub mod node_disk;
pub mod operation;
pub mod quota;
pub mod setting;
pub mod template;

use crd::record::record;

record! {
    /// Condition of a Harvester object. Its times are RFC 3339 strings.
    Condition {
        r#type: String,
        status: String,
        last_update_time: Option<String>,
        last_transition_time: Option<String>,
        reason: Option<String>,
        message: Option<String>,
    }

    /// Message and time of an error.
    Fault {
        /// When the error occurred.
        time: Option<String>,
        message: Option<String>,
    }
}
