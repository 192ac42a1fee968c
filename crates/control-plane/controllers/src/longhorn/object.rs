//! Names and sizes of Longhorn's objects.

use serde_json::Value;

use crate::object::read;
use crate::record::claim::PersistentVolumeFields;
use crate::record::quantity::WrittenQuantity;

/// Volumes grow in steps of this many bytes.
const STEP: i64 = 2 << 20;
/// No volume is smaller.
const LEAST: i64 = 10 << 20;

/// The engine of a volume. There is one, since no volume moves while it is attached.
pub(crate) fn engine_name(volume: &str) -> String {
    format!("{volume}-e-0")
}

/// The volume of an engine or a replica, by its name.
pub(super) fn volume_of<'a>(instance: &'a str, mark: &str) -> Option<&'a str> {
    instance.rsplit_once(mark).map(|(volume, _)| volume).filter(|volume| !volume.is_empty())
}

/// Bytes of a volume that is asked for by a quantity.
pub(super) fn volume_bytes(asked: &WrittenQuantity) -> Option<i64> {
    let asked = asked.amount()?.units();
    if asked <= 0 {
        return None;
    }
    let steps = asked.max(LEAST).checked_add(STEP - 1)? / STEP;
    steps.checked_mul(STEP)
}

/// A size that is reported as a text, in bytes.
pub(super) fn bytes(size: &str) -> i64 {
    size.parse().unwrap_or_default()
}

/// The driver's name of the volume behind a persistent volume, if it is the driver's.
pub(crate) fn handle(volume: &Value) -> Option<&str> {
    let csi = read::<PersistentVolumeFields<'_>>(volume).spec.csi;
    Some(csi.volume_handle).filter(|handle| csi.driver == hci::DRIVER && !handle.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn engines_and_replicas_name_their_volume() {
        assert_eq!(volume_of("pvc-1-e-0", "-e-"), Some("pvc-1"));
        assert_eq!(volume_of("a-e-b-e-0", "-e-"), Some("a-e-b"));
        assert_eq!(volume_of("pvc-1-r-0a1b2c3d", "-r-"), Some("pvc-1"));
        assert_eq!(volume_of("something", "-r-"), None);
    }

    #[test]
    fn sizes_are_whole_steps_and_never_tiny() {
        for (asked, expected) in [
            (json!("1Gi"), Some(1 << 30)),
            (json!("1"), Some(LEAST)),
            (json!("1G"), Some(1_000_341_504)),
            (json!("0"), None),
            (json!("-1Gi"), None),
            (json!("x"), None),
            (json!("9223372036854775807"), None),
        ] {
            assert_eq!(volume_bytes(&read(&asked)), expected, "{asked}");
        }
    }
}
