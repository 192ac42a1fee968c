//! Drivers: what carries out, with sockets and files, what the state machines decide.
//!
//! * [`Shard`] one thread with engines, replicas, their sockets and files
//! * `host` a replica in a shard · `files`, `offload` its files, by io_uring or threads
//! * `stream`, `listen`, `poll` sockets
//! * [`lab`] a volume with its replicas on one machine, for benches and tests
//!
//! Nothing here decides what is right: which replica has what, what may be answered and what
//! must be refused is said by [`repl`](crate::repl) and [`store`](crate::store).

mod files;
mod host;
pub mod lab;
mod listen;
mod offload;
mod poll;
mod shard;
mod stream;
mod sys;

pub use self::listen::Listener;
pub use self::offload::Driver;
pub use self::shard::{
    AdminError, AdminReply, AdminRequest, Handle, MemberStatus, Place, Shard, VolumeOptions,
    VolumeStatus,
};
pub use self::stream::Address;
