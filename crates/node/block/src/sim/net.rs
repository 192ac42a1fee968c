//! The network: connections that deliver in order, late, or not while they are cut.
//!
//! As with TCP, what was sent on a connection that the sender has closed may still arrive; and
//! while a direction is cut, what is sent waits and arrives when it heals.

use std::collections::{BTreeMap, BTreeSet};

use super::Time;

/// Which way: from an engine to a replica, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    There,
    Back,
}

/// A connection, named by its engine and the number that the engine gave it.
pub(crate) type Wire = (usize, u64);

#[derive(Debug, Default)]
pub(crate) struct Net {
    conns: BTreeMap<Wire, Conn>,
    /// Cuts between machines: (engine's, replica's, way).
    cuts: BTreeSet<(usize, usize, Way)>,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) replica: usize,
    /// The life of the replica's process that accepted it.
    pub(crate) life: u64,
    last: BTreeMap<Way, Time>,
}

impl Net {
    pub(crate) fn open(&mut self, wire: Wire, replica: usize, life: u64) {
        self.conns.insert(wire, Conn { replica, life, last: BTreeMap::new() });
    }

    pub(crate) fn conn(&self, wire: Wire) -> Option<&Conn> {
        self.conns.get(&wire)
    }

    pub(crate) fn close(&mut self, wire: Wire) {
        self.conns.remove(&wire);
    }

    pub(crate) fn of_replica(&self, replica: usize) -> Vec<Wire> {
        self.conns
            .iter()
            .filter(|(_, conn)| conn.replica == replica)
            .map(|(wire, _)| *wire)
            .collect()
    }

    pub(crate) fn of_engine(&self, engine: usize) -> Vec<Wire> {
        self.conns.keys().filter(|wire| wire.0 == engine).copied().collect()
    }

    /// When something sent now arrives: never before what was sent earlier.
    pub(crate) fn arrival(&mut self, wire: Wire, way: Way, at: Time) -> Time {
        let Some(conn) = self.conns.get_mut(&wire) else { return at };
        let last = conn.last.entry(way).or_default();
        *last = at.max(*last + Time::from_nanos(1));
        *last
    }

    pub(crate) fn cut(&mut self, engine_host: usize, replica: usize, way: Way) {
        if engine_host != replica {
            self.cuts.insert((engine_host, replica, way));
        }
    }

    pub(crate) fn heal(&mut self, engine_host: usize, replica: usize) {
        self.cuts.remove(&(engine_host, replica, Way::There));
        self.cuts.remove(&(engine_host, replica, Way::Back));
    }

    pub(crate) fn heal_all(&mut self) {
        self.cuts.clear();
    }

    pub(crate) fn is_cut(&self, engine_host: usize, replica: usize, way: Way) -> bool {
        self.cuts.contains(&(engine_host, replica, way))
    }
}
