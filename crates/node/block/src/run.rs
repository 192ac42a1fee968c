//! Drivers: they carry out the decisions of the state machines, with sockets and files.
//!
//! * [`Shard`] one thread with engines, replicas, their sockets and files
//! * `witness` proves that a replica's directory was not replaced by an older copy
//! * `host` a replica in a shard · `files`, `offload` its files, by io_uring or threads
//! * `stream`, `listen`, `poll` sockets · `tls`, `certificates` who is at the other end of a wire
//! * [`lab`] a volume with its replicas on one machine, for benches and tests
//!
//! Nothing here decides what is right: which replica has what, what may be answered and what
//! must be refused is said by [`repl`](crate::repl) and [`store`](crate::store).

mod certificates;
mod files;
mod host;
pub mod lab;
mod listen;
mod offload;
mod poll;
mod shard;
mod stream;
mod sys;
mod tls;
pub(crate) mod witness;

pub use self::certificates::{TlsFiles, TlsFilesError};
pub use self::host::NotServed;
#[cfg(any(test, feature = "sim"))]
pub(crate) use self::host::{damage, metadata, metadata_request, states};
pub use self::listen::Listener;
pub use self::offload::Driver;
pub use self::shard::{
    AdminError, AdminReply, AdminRequest, Encryption, Handle, KeyChange, ListenFault, MemberState,
    MemberStatus, OpenReplica, Place, Shard, VolumeKey, VolumeOptions, VolumeStatus,
};
pub use self::stream::Address;
pub use self::tls::{Role, Tls, TlsError};
pub use self::witness::check_answered;

/// Names this life of the kernel.
pub fn boot() -> crate::ids::BootId {
    host::boot_id()
}

/// An error with everything that caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
