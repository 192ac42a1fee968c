//! The NBD protocol, as a server speaks it: fixed newstyle, structured replies, block status.
//!
//! ```text
//!   greeting ─► Handshake ──GO──► Transmission ──DISC, garbage──► closed
//!                   └──ABORT──► closed
//! ```
//!
//! Sans-I/O: bytes that arrived go in, requests and bytes to send come out. Payloads are never
//! copied: a write's data is a slice of what was received, and a read's data is sent from where
//! it is. What a request means is the business of whoever serves the export.

mod handshake;
mod proto;
mod reply;
mod request;

pub use handshake::{Export, Handshake, HandshakeError, HandshakeStep, Negotiated};
pub use reply::{Errno, Extent, Replies, Reply};
pub use request::{MAX_PAYLOAD, Request, RequestError, RequestKind, Requests};

#[cfg(test)]
mod tests;
