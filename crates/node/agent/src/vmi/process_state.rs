//! State of one run of QEMU, which the actor of its machine remembers: of no use to the next machine, and found again or
//! repeated harmlessly by the next agent.

use jiff::Timestamp;
use tokio::time::Instant;

use super::grow::Size;
use crate::machine::MachineChanges;

#[derive(Default)]
pub(super) struct ProcessState {
    /// Changes of the running machine; none before it runs and after it has ended.
    pub(super) changes: Option<MachineChanges>,
    /// When the power button was last pressed.
    pub(super) pressed: Option<Timestamp>,
    /// Whether an event has reported that the guest is paused by a failed request.
    pub(super) is_pause_reported: bool,
    /// Whether an event has reported that QEMU does not answer.
    pub(super) is_silence_reported: bool,
    /// Memory that the guest was asked to use beyond its start.
    pub(super) requested_growth: Option<u64>,
    /// Sizes of the files that QEMU was last notified of.
    pub(super) sizes: Vec<Size>,
    /// Whether an earlier agent started the guest: the size last sent to it is unknown.
    pub(super) was_found: bool,
    /// Whether the guest was found, and its networks know nothing of it yet but its taps.
    pub(super) unknown_to_networks: bool,
    /// The last request to trim file systems that was carried out.
    pub(super) trimmed: Option<String>,
    /// When the tokens on its disks are renewed.
    pub(super) tokens_due: Option<Instant>,
    /// Since when the stream of a post-copy is broken.
    pub(super) broken_since: Option<Instant>,
}
