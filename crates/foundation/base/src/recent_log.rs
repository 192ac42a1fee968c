//! The last lines of a process's log, for support bundles: a fixed amount of memory, from which the
//! oldest whole lines go first.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are kept.
const LIMIT: usize = 256 << 10;

/// Clones share the lines.
#[derive(Debug, Clone, Default)]
pub struct RecentLog(Arc<Mutex<VecDeque<u8>>>);

impl RecentLog {
    /// The lines, oldest first.
    pub fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (front, back) = lines.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }

    fn push(&self, line: &[u8]) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a line that is larger than everything, the end is kept.
        let line = &line[line.len().saturating_sub(LIMIT)..];
        lines.extend(line);
        let excess = lines.len().saturating_sub(LIMIT);
        if excess > 0 {
            let end = lines.iter().skip(excess).position(|byte| *byte == b'\n');
            lines.drain(..end.map_or(excess, |end| excess + end + 1));
        }
    }
}

impl io::Write for RecentLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_oldest_lines_go_and_no_line_is_cut() {
        let mut log = RecentLog::default();
        for number in 0..40_000 {
            writeln!(log, "line {number}").unwrap();
        }
        let text = log.text();
        assert!(text.len() <= LIMIT && text.len() > LIMIT / 2, "{}", text.len());
        assert!(text.starts_with("line ") && text.ends_with("line 39999\n"));
        let first: u32 = text.lines().next().unwrap()[5..].parse().unwrap();
        assert_eq!(text.lines().count(), 40_000 - first as usize);
        log.write_all(&vec![b'x'; LIMIT * 2]).unwrap();
        assert!(log.text().len() <= LIMIT);
    }
}
