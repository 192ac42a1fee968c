//! Annotations through which the node that polls the source of a DataImportCron and the controller
//! that imports it work together. CDI uses the same names.

/// Digest of what the source held when it was last polled.
pub const SOURCE_DIGEST: &str = "cdi.kubevirt.io/storage.import.sourceDesiredDigest";
/// When the source was last polled.
pub const LAST_CRON_TIME: &str = "cdi.kubevirt.io/storage.import.lastCronTime";
