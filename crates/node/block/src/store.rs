//! A replica of a volume in a directory: thin, checksummed, with snapshots, and honest about
//! what is durable.
//!
//! * [`geometry`] blocks and regions · [`files`] the files and who performs operations on them
//! * on disk: [`super_block`] · [`log`] · [`map`] · [`index`](self::index) · [`recent`] ·
//!   [`sums`] · data files are plain sparse files
//! * [`layer`] the tree of snapshots · [`region`](self::region) the dirty-region log
//! * [`Replica`] the state machine · [`create`](fn@create), [`open`](fn@open),
//!   [`check`](fn@check)
//!
//! It knows nothing of other replicas, engines or sockets: the replication core asks, and
//! decides who is right.

mod bytes_at;
mod cache;
mod check;
pub mod crc;
mod create;
pub mod drive;
pub mod files;
pub mod geometry;
mod image_sums;
pub mod index;
pub mod layer;
pub mod log;
pub mod map;
mod metadata;
mod open;
pub mod recent;
mod region;
mod replica;
mod request;
mod sabotage;
mod slab;
pub mod sums;
pub mod super_block;

#[cfg(test)]
mod tests;

pub use self::check::{
    CheckProgress, Depth, Finding, LayerReport, Problem, Report, Severity, check, check_under,
};
pub use self::create::{
    CreateError, CreateOptions, LOG_PAGES, RECENT, RESERVE, RemoveError, create, remove,
};
pub use self::image_sums::{
    ImageSums, SumsError, check_image, record_sums, repair_image, sums_path,
};
pub use self::metadata::{MetadataFault, MetadataReport, Peers};
pub use self::open::{
    BaseError, BasePlace, Bases, DirectoryBases, NoBases, OpenError, OpenOptions, ReplicaFault,
    describe_image, open, read_super,
};
pub use self::replica::{Limits, Progress, Replica, SnapshotStatus, Status};
pub use self::request::{
    Action, BadBlock, BlockInfo, Io, IoFault, IoId, IoOp, IoResult, LayerRef, MapOf, Part, Pin,
    ReadData, Reply, Request, RequestError, RequestId, StopReason, View,
};
#[cfg(all(feature = "sim", not(test)))]
pub use self::sabotage::leave_out_sums;
