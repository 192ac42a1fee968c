//! Verifying a replica's directory without changing it.

use super::files::Files;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Note,
    Error,
}
#[derive(Clone, Debug)]
pub struct Finding;
#[derive(Clone, Debug)]
pub struct Report;
impl Report {
    pub fn is_healthy(&self) -> bool {
        true
    }
}
impl std::fmt::Display for Report {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
pub fn check(_files: &mut dyn Files) -> Report {
    Report
}
