//! The supported releases of etcd.

use std::fmt;
use std::io;
use std::process::Command;

/// The oldest release that is started at all.
const OLDEST: EtcdVersion = EtcdVersion(3, 4, 23);
/// Releases that lose data after a crash.
const INCONSISTENT: [EtcdVersion; 3] =
    [EtcdVersion(3, 5, 0), EtcdVersion(3, 5, 1), EtcdVersion(3, 5, 2)];
/// The first releases with all fixes that matter to a cluster, one of each series.
const FIXED: [EtcdVersion; 3] =
    [EtcdVersion(3, 4, 42), EtcdVersion(3, 5, 28), EtcdVersion(3, 6, 9)];

/// `3.4.23`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EtcdVersion(u16, u16, u16);

impl fmt::Display for EtcdVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Support for a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    Full,
    /// It works, and lacks fixes that this release has.
    Outdated {
        fixed_in: EtcdVersion,
    },
    Refused,
}

/// Why there is no etcd to start.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    #[error("cannot run etcd; install it, on Debian with `apt install etcd-server`")]
    Missing { source: io::Error },
    #[error("`etcd --version` does not print a version: {output:?}")]
    Unreadable { output: String },
    #[error("etcd {version} is not supported: install {OLDEST} or later, not 3.5.0 to 3.5.2")]
    Refused { version: EtcdVersion },
}

impl EtcdVersion {
    /// The version in what `etcd --version` prints.
    fn parse(output: &str) -> Option<Self> {
        let line = output.lines().find_map(|line| line.strip_prefix("etcd Version:"))?;
        let mut parts = line.trim().split(['.', '-', '+']).map(|part| part.parse().ok());
        Some(Self(parts.next()??, parts.next()??, parts.next()??))
    }

    pub fn support(self) -> Support {
        if self < OLDEST || INCONSISTENT.contains(&self) {
            return Support::Refused;
        }
        let same_series = |fixed: &&EtcdVersion| (fixed.0, fixed.1) == (self.0, self.1);
        match FIXED.iter().find(same_series) {
            Some(fixed) if self < *fixed => Support::Outdated { fixed_in: *fixed },
            _ => Support::Full,
        }
    }
}

/// The version of the etcd that would be started, if it may be.
pub fn find_etcd() -> Result<EtcdVersion, VersionError> {
    let output = Command::new("etcd").arg("--version").output();
    let output = output.map_err(|source| VersionError::Missing { source })?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some(version) = EtcdVersion::parse(&output) else {
        return Err(VersionError::Unreadable { output });
    };
    match version.support() {
        Support::Refused => Err(VersionError::Refused { version }),
        Support::Full | Support::Outdated { .. } => Ok(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_refused_used_with_a_warning_or_used() {
        for (text, expected) in [
            ("3.4.22", Support::Refused),
            ("3.3.25", Support::Refused),
            ("3.4.23", Support::Outdated { fixed_in: EtcdVersion(3, 4, 42) }),
            ("3.4.42", Support::Full),
            ("3.5.1", Support::Refused),
            ("3.5.16", Support::Outdated { fixed_in: EtcdVersion(3, 5, 28) }),
            ("3.5.28", Support::Full),
            ("3.6.9", Support::Full),
            ("3.7.0", Support::Full),
        ] {
            let version = EtcdVersion::parse(&format!("etcd Version: {text}\nGit SHA: x\n"));
            assert_eq!(version.unwrap().support(), expected, "{text}");
        }
        assert_eq!(EtcdVersion::parse("etcd Version: new"), None);
        assert_eq!(EtcdVersion::parse(""), None);
    }
}
