//! The reasons that our own code writes into conditions and statuses of machines, one enum per
//! place. Code that writes such a condition takes the reason from here, and
//! [`diagnosis`](crate::diagnosis) explains every one of them: a new reason does not compile
//! without an explanation.

macro_rules! reasons {
    ($($(#[doc = $about:literal])* $name:ident { $($variant:ident = $text:literal),* $(,)? })*) => { $(
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// As it is written into objects.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }
        }
    )* };
}

reasons! {
    /// Why an instance is not as its specification says: `Synchronized` is False.
    NotSynchronized {
        PvcNotFound = "FailedPvcNotFound",
        Mount = "FailedMount",
        VolumeNotReady = "VolumeNotReady",
        Attaching = "AttachingVolume",
        Attach = "FailedAttachVolume",
        Pulling = "Pulling",
        ImagePull = "ErrImagePull",
        ImagePullBackOff = "ImagePullBackOff",
        ImageNeverPull = "ErrImageNeverPull",
        InvalidImage = "InvalidImage",
        Network = "NetworkNotReady",
        Node = "NodeNotReady",
        Processors = "NotEnoughProcessors",
        StartOrder = "WaitingForStartOrder",
        // The words of KubeVirt for whatever the hypervisor refused.
        Domain = "Synchronizing with the Domain failed.",
        Create = "FailedCreate",
        Liveness = "LivenessProbeFailed",
        Hotplug = "HotplugFailed",
    }

    /// Why `Ready` is False.
    NotReady {
        NoInstance = "VMINotExists",
        NoCondition = "VMIConditionMissing",
        NotScheduled = "PodNotExists",
        Terminating = "PodTerminating",
        NotRunning = "GuestNotRunning",
        Probe = "ContainersNotReady",
        NotResponding = "GuestNotResponding",
        Paused = "ReadinessGatesNotReady",
        NodeSilent = "NodeNotReady",
    }

    /// Why the controller cannot bring a machine to the state it asks for: `Failure` is True.
    MachineFailure {
        Create = "FailedCreate",
        Delete = "FailedDelete",
        Update = "FailedUpdate",
        Instancetype = "FailedFindInstancetype",
        Preference = "FailedFindPreference",
    }

    /// Why a guest is paused: `Paused` is True.
    Pause {
        User = "PausedByUser",
        IoError = "PausedIOError",
    }

    /// Why an instance has ended without its guest: `status.reason`.
    InstanceFailure {
        DataVolume = "DataVolumeFailed",
        NodeLost = "NodeLost",
    }

    /// Why an instance of a lost node is not started elsewhere: `RestartElsewhere` is False.
    NotRestarted {
        Disabled = "RestartDisabled",
        NoReplicatedDisk = "NoReplicatedDisk",
        LocalDisk = "DiskNotReplicated",
        LocalState = "StateNotReplicated",
        LastCopy = "LastCopyLost",
    }

    /// Why a data volume is not being filled: its `Running` is False.
    FillFailure {
        Error = "Error",
        ImagePull = "ImagePullFailed",
        SourceInUse = "CloneSourceInUse",
        Invalid = "CloneValidationFailed",
        NoSource = "CloneWithoutSource",
        SourceNotReady = "CloneSourceNotReady",
        NotAuthorized = "CloneNotAuthorized",
        // A claim of the name exists already, or cannot be made from the source.
        Claim = "ErrClaimNotValid",
    }

    /// Why a running guest cannot move to another node: `LiveMigratable` is False.
    NotMigratable {
        Interface = "InterfaceNotLiveMigratable",
        HostDevice = "HostDeviceNotLiveMigratable",
        Hyperv = "HypervPassthroughNotLiveMigratable",
        Disks = "DisksNotLiveMigratable",
        Other = "NotMigratable",
    }

    /// How far volumes of a running guest are on their way to other claims: `VolumesChange`. The
    /// last one is upstream's.
    VolumesChange {
        Copying = "CopyingVolumes",
        Switching = "SwitchingVolumes",
        Failed = "VolumeCopyFailed",
        Canceled = "VolumesChangeCancellation",
    }

    /// Why a replicated volume cannot be used as it should: a condition of it is False.
    VolumeFailure {
        Scheduling = "ReplicaSchedulingFailure",
        Attach = "InstanceFailure",
        ReplicasDiffer = "ReplicasDiffer",
        NoGoodCopy = "NoGoodCopy",
        SnapshotDamaged = "SnapshotDamaged",
        MetadataDamaged = "MetadataDamaged",
    }

    /// Why an image is not imported, or not whole: `Initialized`, `Imported` or `Intact` is not True.
    ImageFailure {
        Unsupported = "Unsupported",
        NoDisk = "NoDisk",
        Initialize = "InitializeFailed",
        Import = "ImportFailed",
        Upload = "UploadFailed",
        Damaged = "ImageDamaged",
    }

    /// Why a node does not take an instance, in the words of the Kubernetes scheduler.
    Unfit {
        Cordoned = "node(s) were unschedulable",
        Tainted = "node(s) had untolerated taint(s)",
        NotSelected = "node(s) didn't match Pod's node affinity/selector",
        Full = "Too many pods",
        VolumeElsewhere = "node(s) didn't match PersistentVolume's node affinity",
        Spread = "node(s) didn't match pod topology spread constraints",
        Affinity = "node(s) didn't match pod affinity rules",
        AntiAffinity = "node(s) didn't match pod anti-affinity rules",
        Repelled = "node(s) didn't satisfy existing pods anti-affinity rules",
        NoNodes = "no nodes available to schedule pods",
    }
}

/// A node lacks a resource: `Insufficient memory`.
pub const INSUFFICIENT: &str = "Insufficient ";
