//! Processors of the host that belong to one machine alone.
//!
//! The assignment is written into the machine's folder, so that it is known again after a restart.
//! Machines that request none share all the others, and may run on these too: the kernel moves
//! them away when the owner is busy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use parking_lot::Mutex;
use qemu::machine::NumaNode;

/// The file in a machine's folder that remembers its processors.
pub(crate) const RECORD: &str = "processors.json";

/// All processors of the host and whose they are, by machine.
#[derive(Debug)]
pub(crate) struct Processors {
    all: Vec<usize>,
    /// The NUMA node of each.
    nodes: BTreeMap<usize, u32>,
    given: Mutex<BTreeMap<String, Vec<usize>>>,
}

/// There are not enough left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} dedicated CPUs requested, {left} available")]
pub(crate) struct TooFew {
    wanted: usize,
    left: usize,
}

impl Processors {
    pub(crate) fn new(
        count: usize,
        nodes: BTreeMap<usize, u32>,
        given: BTreeMap<String, Vec<usize>>,
    ) -> Self {
        Self { all: (0..count).collect(), nodes, given: Mutex::new(given) }
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
        let mut free_of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for cpu in &free[from..] {
            free_of.entry(self.node_of(*cpu)).or_default().push(*cpu);
        }
        // All on one node if one has enough, or else in the order of nodes.
        let near = free_of.values().find(|cpus| cpus.len() >= wanted);
        let own: Vec<usize> = match near {
            Some(cpus) => cpus[..wanted].to_vec(),
            None => free_of.into_values().flatten().take(wanted).collect(),
        };
        if own.len() < wanted {
            return Err(TooFew { wanted, left: free.len() });
        }
        given.insert(machine.to_owned(), own.clone());
        Ok(own)
    }

    fn node_of(&self, cpu: usize) -> u32 {
        self.nodes.get(&cpu).copied().unwrap_or(0)
    }

    /// Nodes of a guest that mirror those of its processors: `own` are in the order of the
    /// guest's, and its memory is divided among the nodes in whole `page`s.
    pub(crate) fn mirror(&self, own: &[usize], memory: u64, page: u64) -> Vec<NumaNode> {
        let mut guests: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (guest, cpu) in (0..).zip(own) {
            guests.entry(self.node_of(*cpu)).or_default().push(guest);
        }
        let count = guests.len().max(1) as u64;
        let share = memory / count / page.max(1) * page.max(1);
        let rest = memory - share * count;
        let nodes = guests.into_iter().enumerate();
        nodes
            .map(|(index, (host, cpus))| NumaNode {
                memory: if index == 0 { share + rest } else { share },
                cpus,
                host_node: Some(host),
            })
            .collect()
    }

    pub(crate) fn release(&self, machine: &str) {
        self.given.lock().remove(machine);
    }
}

/// The NUMA node of each processor, as the kernel reports it; nothing where it does not.
pub(crate) fn nodes(folder: &Path) -> BTreeMap<usize, u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut nodes = BTreeMap::new();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(node) = name.strip_prefix("node").and_then(|node| node.parse().ok()) else {
            continue;
        };
        let list = std::fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        nodes.extend(parse(&list).into_iter().map(|cpu| (cpu, node)));
    }
    nodes
}

/// `0-2,5` in the kernel's words.
fn parse(list: &str) -> Vec<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse::<usize>().ok()?..=to.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_stay_on_one_node_if_they_can() {
        let nodes: BTreeMap<usize, u32> =
            parse("0-1,4").into_iter().map(|cpu| (cpu, 0)).chain([(2, 1), (3, 1)]).collect();
        let processors = Processors::new(5, nodes, BTreeMap::new());
        let own = processors.take("a", 2).unwrap();
        assert_eq!(own, [1, 4]);
        let page = 2 << 20;
        let node = |memory, cpus: &[u32], host| NumaNode {
            memory,
            cpus: cpus.to_vec(),
            host_node: Some(host),
        };
        assert_eq!(processors.mirror(&own, 64 << 20, page), [node(64 << 20, &[0, 1], 0)]);
        // One must spread.
        let own = processors.take("b", 3).unwrap();
        assert_eq!(own, [0, 2, 3]);
        assert_eq!(
            processors.mirror(&own, 66 << 20, page),
            [node(34 << 20, &[0], 0), node(32 << 20, &[1, 2], 1)]
        );
    }

    #[test]
    fn no_processor_belongs_to_two_machines() {
        let processors =
            Processors::new(4, BTreeMap::new(), BTreeMap::from([("old".into(), vec![2])]));
        assert_eq!(processors.take("a", 1).unwrap(), [1]);
        assert_eq!(processors.take("a", 1).unwrap(), [1]);
        assert_eq!(processors.take("b", 2).unwrap(), [0, 3]);
        let error = processors.take("c", 1).unwrap_err();
        assert_eq!(error.to_string(), "1 dedicated CPUs requested, 0 available");
        processors.release("old");
        assert_eq!(processors.take("c", 1).unwrap(), [2]);
    }
}
