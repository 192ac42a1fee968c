//! The factor for the memory that QEMU needs beside that of the guest: KubeVirt's
//! `additionalGuestMemoryOverheadRatio`. Pure.
//!
//! An instance keeps the ratio that it was placed with, so that accounting does not change under
//! running guests when the configuration does.

/// On an instance that has a node: the ratio of the configuration when it was placed.
pub const OVERHEAD_RATIO: &str = "sheaf.io/memory-overhead-ratio";

/// A factor of at least 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverheadRatio(f64);

impl Default for OverheadRatio {
    fn default() -> Self {
        Self(1.0)
    }
}

impl OverheadRatio {
    /// The ratio that a text has; values that are no ratio change nothing, as upstream.
    pub fn parse(text: &str) -> Self {
        let ratio = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio >= 1.0);
        ratio.map_or_else(Self::default, Self)
    }

    /// The value of the annotation; none if the ratio changes nothing.
    pub fn annotation(self) -> Option<String> {
        (self != Self::default()).then(|| self.0.to_string())
    }

    pub fn times(self, bytes: u64) -> u64 {
        if self == Self::default() {
            return bytes;
        }
        (bytes as f64 * self.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_multiplies_and_never_reduces() {
        for (text, expected, annotation) in [
            ("1.5", 150, Some("1.5")),
            ("10", 1000, Some("10")),
            ("1", 100, None),
            ("1.0", 100, None),
            ("", 100, None),
            ("0", 100, None),
            ("0.5", 100, None),
            ("-3", 100, None),
            ("NaN", 100, None),
            ("inf", 100, None),
            ("x", 100, None),
        ] {
            let ratio = OverheadRatio::parse(text);
            assert_eq!(ratio.times(100), expected, "{text}");
            assert_eq!(ratio.annotation().as_deref(), annotation, "{text}");
        }
        assert_eq!(OverheadRatio::parse("10").times(u64::MAX), u64::MAX);
    }
}
