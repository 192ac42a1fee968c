//! The NBD protocol, as a server speaks it: fixed newstyle, structured replies, block status.
//!
//! ```text
//!   greeting ─► Handshake ──GO──► Transmission ──DISC, garbage──► closed
//!                   └──ABORT──► closed
//! ```
//!
//! Sans-I/O: received bytes are the input, requests and bytes to send are the output. Payloads are
//! never copied: a write's data is a slice of the received bytes, and a read's data is sent from
//! where it is. The server of the export gives requests their meaning.

mod handshake;
mod proto;
mod reply;
mod request;

pub use handshake::{Export, Handshake, HandshakeError, HandshakeStep, Negotiated};
pub use reply::{Errno, Extent, Replies, Reply};
pub use request::{MAX_PAYLOAD, Request, RequestError, RequestKind, Requests};

#[cfg(test)]
mod tests;
