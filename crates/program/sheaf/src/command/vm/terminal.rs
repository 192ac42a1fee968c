//! The terminal in raw mode, and back.

use std::io::IsTerminal as _;

use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Every key goes to the guest until this is dropped.
#[derive(Debug)]
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    /// Nothing to do where input is not a terminal.
    pub(super) fn enter() -> Option<Self> {
        if !std::io::stdin().is_terminal() {
            return None;
        }
        let before = tcgetattr(stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // If the terminal is gone, a failure cannot be shown anywhere.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}
