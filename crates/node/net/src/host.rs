//! Changes of the host's own network: each is tried, and rolled back unless the node proves that it
//! can still be reached.
//!
//! [`trial`] is the state machine and decides (pure), [`record`] is the file that outlives this
//! process, [`watchdog`] is the process that rolls back when nothing else does, [`health`] judges
//! whether the node is still seen (pure), and [`ping`] asks.

pub(crate) mod health;
pub(crate) mod ping;
pub(crate) mod record;
#[cfg(test)]
mod tests;
pub(crate) mod trial;
pub(crate) mod watchdog;
