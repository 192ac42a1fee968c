//! Processors of the host that belong to one machine alone.
//!
//! What was given away is written into the machine's folder, so that it is known again after
//! a restart. Machines that ask for none share all the others, and may run on these too: the
//! kernel moves them away when the owner is busy.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// The file in a machine's folder that remembers its processors.
pub(crate) const RECORD: &str = "processors.json";

/// All processors of the host and whose they are, by machine.
#[derive(Debug)]
pub(crate) struct Processors {
    all: Vec<usize>,
    given: Mutex<BTreeMap<String, Vec<usize>>>,
}

/// There are not enough left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} processors of its own are wanted and {left} are left")]
pub(crate) struct TooFew {
    wanted: usize,
    left: usize,
}

impl Processors {
    pub(crate) fn new(count: usize, given: BTreeMap<String, Vec<usize>>) -> Self {
        Self { all: (0..count).collect(), given: Mutex::new(given) }
    }

    /// Gives `wanted` processors to a machine; the same again if it has some.
    pub(crate) fn take(&self, machine: &str, wanted: usize) -> Result<Vec<usize>, TooFew> {
        let mut given = self.given.lock();
        if let Some(own) = given.get(machine).filter(|own| own.len() == wanted) {
            return Ok(own.clone());
        }
        let others = given.iter().filter(|(owner, _)| *owner != machine);
        let taken: BTreeSet<usize> = others.flat_map(|(_, own)| own.iter().copied()).collect();
        let free: Vec<usize> =
            self.all.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
        // The first one is left to the host itself, if that is possible.
        let from = if free.len() > wanted && free.first() == Some(&0) { 1 } else { 0 };
        let own: Vec<usize> = free.iter().copied().skip(from).take(wanted).collect();
        if own.len() < wanted {
            return Err(TooFew { wanted, left: free.len() });
        }
        given.insert(machine.to_owned(), own.clone());
        Ok(own)
    }

    pub(crate) fn give_back(&self, machine: &str) {
        self.given.lock().remove(machine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_processor_belongs_to_two_machines() {
        let processors = Processors::new(4, BTreeMap::from([("old".into(), vec![2])]));
        assert_eq!(processors.take("a", 1).unwrap(), [1]);
        assert_eq!(processors.take("a", 1).unwrap(), [1]);
        assert_eq!(processors.take("b", 2).unwrap(), [0, 3]);
        let error = processors.take("c", 1).unwrap_err();
        assert_eq!(error.to_string(), "1 processors of its own are wanted and 0 are left");
        processors.give_back("old");
        assert_eq!(processors.take("c", 1).unwrap(), [2]);
    }
}
