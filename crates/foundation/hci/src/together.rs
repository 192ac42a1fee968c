//! Snapshots of several volumes at one instant: the annotation that groups them.
//!
//! The creator annotates each snapshot of a group with the same text; the node that runs the
//! machine waits until all of them are requested, quiesces the guest, and takes them together.

use serde::{Deserialize, Serialize};

/// The annotation of a VolumeSnapshot, its content and Longhorn's snapshot.
pub const TOGETHER: &str = "sheaf.io/together";

/// On a machine that was restored, and then on the instance that it is started as: the instant
/// whose memory the guest goes on with. The machine loses it with its next start.
pub const RESUME: &str = "sheaf.io/resume-from";

/// On each snapshot of a group, beside the labels that were asked for: a [`Quiesce`].
pub const QUIESCE_LABEL: &str = "sheaf.io/quiesce";

/// How a running guest was prepared for a snapshot of its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiesce {
    /// Its agent froze the file systems.
    Frozen,
    /// Its agent refused, or did not answer in time.
    Failed,
    /// No agent is connected.
    NoAgent,
    /// Not asked for: the guest is paused, or its memory belongs to the snapshot, and it would
    /// resume with frozen file systems.
    Skipped,
}

impl Quiesce {
    pub const ALL: [Self; 4] = [Self::Frozen, Self::Failed, Self::NoAgent, Self::Skipped];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::Failed => "failed",
            Self::NoAgent => "no-agent",
            Self::Skipped => "skipped",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotGroup {
    /// The instant, by the uid of the machine's snapshot. Nodes name files after it.
    pub instant: String,
    /// How many snapshots there are of it.
    pub count: usize,
    /// The machine whose disks they are.
    pub namespace: String,
    pub machine: String,
    /// Whether the guest's memory belongs to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory: bool,
}

impl SnapshotGroup {
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers can be written")
    }

    /// Nothing for what no controller wrote: such a snapshot is taken alone.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|own: &Self| is_instant(&own.instant))
    }
}

/// Whether a text is the name of an instant: a UUID as in `metadata.uid`, and nothing that could
/// be a path.
pub fn is_instant(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => is_digit(byte),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANT: &str = "5f0c9d3a-1b2c-4d5e-8f90-112233445566";

    #[test]
    fn an_instant_is_a_uuid_and_never_a_path() {
        assert!(is_instant(INSTANT));
        for forged in [
            "",
            "u",
            "/etc/cron.d/x",
            "../../../../etc/cron.d/x",
            "../9d3a-1b2c-4d5e-8f90-112233445566xx",
            "5f0c9d3a/1b2c-4d5e-8f90-112233445566",
            "5F0C9D3A-1B2C-4D5E-8F90-112233445566",
            "5f0c9d3a-1b2c-4d5e-8f90-112233445566\n",
            "5f0c9d3a-1b2c-4d5e-8f90-11223344556\u{e9}",
        ] {
            assert!(!is_instant(forged), "{forged:?}");
            let group = SnapshotGroup {
                instant: forged.into(),
                count: 1,
                namespace: "victim".into(),
                machine: "db".into(),
                memory: true,
            };
            assert_eq!(SnapshotGroup::parse(&group.to_text()), None, "{forged:?}");
        }
    }

    #[test]
    fn written_values_are_read() {
        let own = SnapshotGroup {
            instant: INSTANT.into(),
            count: 3,
            namespace: "n".into(),
            machine: "m".into(),
            memory: false,
        };
        let text = own.to_text();
        let expected =
            format!(r#"{{"instant":"{INSTANT}","count":3,"namespace":"n","machine":"m"}}"#);
        assert_eq!(text, expected);
        assert_eq!(SnapshotGroup::parse(&text), Some(own));
        assert_eq!(SnapshotGroup::parse("3"), None);
    }

    #[test]
    fn each_quiesce_label_is_read_back() {
        for own in Quiesce::ALL {
            assert_eq!(Quiesce::parse(own.as_str()), Some(own));
        }
        assert_eq!(Quiesce::parse("thawed"), None);
    }
}
