//! Replication: one engine, its replicas, and the rules that keep them alike.
//!
//! A write is acknowledged when every member of the in-sync set has it; a flush, when every
//! member has made durable what was acknowledged before. The in-sync set and the generation of
//! the engine are in a record of the control plane, changed by compare-and-swap only.
//!
//! - **R1 Promise.** A replica durably promises a generation before it serves it, and refuses
//!   older ones ([`session`]).
//! - **R2 Activate.** An engine takes generation G+1 in the record, opens sessions with the
//!   in-sync replicas, and serves a guest only after at least one has promised and the record
//!   names exactly those that did ([`engine`], `activate`).
//! - **R3 Ack.** Nothing is acknowledged before all members of the in-sync set have answered.
//! - **R4 Shrink.** A member that fails leaves the record first; then what waits for it is
//!   acknowledged. Without the control plane I/O waits: it never lies.
//! - **R5 Grow.** A learner gets all writes and a copy of the rest; when it has everything,
//!   durably, it counts for acknowledgements, and then enters the record.
//!
//! Why two engines cannot both write: the old one needs an answer of every member; one of them
//! at least has promised the new generation and refuses; and the old one cannot remove that
//! member, because its compare-and-swap fails. Every member has every acknowledged write, so any
//! one that promised is enough to go on. No clock is involved.
//!
//! A replica that the record names may have been replaced by an older copy of itself. The record
//! and the other replicas keep the evidence against it ([`evidence`]).
//!
//! Everything here is pure: events and a time go in, actions come out. [`engine`] is the side of
//! the guest, [`session`] the side of a replica, [`disk`] what a session asks of the store under
//! it, [`control`] the record.

pub mod control;
pub mod disk;
pub mod engine;
pub mod evidence;
#[cfg(test)]
mod model;
pub mod sabotage;
pub mod session;
mod slots;
mod span;
