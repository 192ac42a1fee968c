//! A record in memory, for engines that share a process, and for tests.

use std::sync::Mutex;

use super::{ControlError, ControlPlane, Record, Version, Versioned};

/// A record that lives as long as this does.
#[derive(Debug, Default)]
pub struct MemoryControl {
    state: Mutex<Versioned>,
}

impl MemoryControl {
    pub fn new(record: Record) -> Self {
        Self { state: Mutex::new(Versioned { version: Version(1), record }) }
    }
}

impl ControlPlane for MemoryControl {
    fn read(&self) -> Result<Versioned, ControlError> {
        Ok(self.state.lock().expect("no holder panics").clone())
    }

    fn compare_and_swap(&self, expect: Version, record: &Record) -> Result<Version, ControlError> {
        let mut state = self.state.lock().expect("no holder panics");
        if state.version != expect {
            return Err(ControlError::Conflict(Box::new(state.clone())));
        }
        state.version = Version(expect.0 + 1);
        state.record = record.clone();
        Ok(state.version)
    }
}
