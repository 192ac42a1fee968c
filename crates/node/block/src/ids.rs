//! Names and counters that the store, the replication core and the wire share.
//!
//! Each is a type of its own, so that an epoch cannot be passed where a generation is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A name that nothing else has.
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }

            pub const fn from_u128(value: u128) -> Self {
                Self(Uuid::from_u128(value))
            }

            pub const fn as_u128(self) -> u128 {
                self.0.as_u128()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The value after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

uuid_id!(
    /// A volume: one virtual disk, whatever its replicas.
    VolumeId
);
uuid_id!(
    /// One copy of a volume, in one directory on one disk.
    ReplicaId
);
uuid_id!(
    /// One life of an engine; a restarted engine has another.
    EngineId
);
uuid_id!(
    /// A snapshot of a volume, the same on all replicas.
    SnapshotId
);
uuid_id!(
    /// One life of a replica's process.
    InstanceId
);
uuid_id!(
    /// One boot of a node's kernel; unflushed writes of an earlier boot may be lost.
    BootId
);

counter!(
    /// Counts the activations of a volume. A replica refuses a generation older than the one
    /// it promised.
    Generation
);
counter!(
    /// Counts the changes of the in-sync set.
    Epoch
);
counter!(
    /// Counts the changes that an engine sends to its replicas within a generation.
    Seq
);

/// Names a flush of a volume. Numbers grow within a generation, and any flush of a newer generation
/// is greater. The default is less than every flush.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub struct FlushMark {
    pub generation: Generation,
    pub number: u64,
}

impl fmt::Display for FlushMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.number)
    }
}

/// The flushes that a replica durably knows of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlushMarks {
    /// The newest flush that this replica carried out.
    pub flushed: FlushMark,
    /// The newest flush that every in-sync replica is known to have carried out.
    pub complete: FlushMark,
}

impl FlushMarks {
    /// Both marks at their greater value: marks never go back.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            flushed: self.flushed.max(other.flushed),
            complete: self.complete.max(other.complete),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_they_are_read() {
        let id = ReplicaId::random();
        assert_eq!(id.to_string().parse::<ReplicaId>().unwrap(), id);
        assert_eq!(serde_json::to_string(&Generation(7)).unwrap(), "7");
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<ReplicaId>(&json).unwrap(), id);
        assert!("seven".parse::<VolumeId>().is_err());
    }
}
