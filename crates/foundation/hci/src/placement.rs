//! On which disk a volume's next replica goes, or why on none.
//!
//! Rules as Longhorn's: nodes and disks that may be used, tags, space with over-provisioning,
//! then spread over zones, nodes and disks as hard or soft as the settings say; among equals
//! the one that leaves the cluster most even.

mod explain;

use std::collections::BTreeSet;

pub use explain::explain;

/// A disk that replicas may lie on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    pub id: String,
    /// The name of the disk on its node.
    pub name: String,
    pub tags: Vec<String>,
    /// Its owner lets replicas onto it and it is not being emptied.
    pub open: bool,
    /// It was found in order.
    pub ready: bool,
    /// The error that its node reports if not.
    pub trouble: String,
    /// Bytes, as Longhorn counts them.
    pub maximum: i64,
    pub available: i64,
    pub reserved: i64,
    pub scheduled: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageNode {
    pub name: String,
    /// Nodes without a zone are one zone together.
    pub zone: String,
    pub tags: Vec<String>,
    pub open: bool,
    pub ready: bool,
    /// The error if it is not ready.
    pub trouble: String,
    pub disks: Vec<Disk>,
}

/// A replica that exists already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExistingReplica {
    pub node: String,
    pub disk: String,
    /// It is being evicted, so its place counts as free when there is no better one.
    pub leaving: bool,
}

/// The requirements of a volume for the placement of its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementRequest {
    pub size: i64,
    /// Bytes that a new replica will soon take.
    pub actual_size: i64,
    pub node_tags: Vec<String>,
    pub disk_tags: Vec<String>,
    /// The node of the engine, if a copy there is worth more than evenness.
    pub near: Option<String>,
    /// No other node will do.
    pub only: Option<String>,
}

/// The settings that bear upon places, with the volume's own laid over the cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementPolicy {
    pub node_soft: bool,
    pub zone_soft: bool,
    pub disk_soft: bool,
    pub over_provisioning: i64,
    pub minimal_available: i64,
    /// Volumes that ask for no tags may use tagged nodes and disks.
    pub untagged_anywhere: bool,
}

impl Default for PlacementPolicy {
    fn default() -> Self {
        Self {
            node_soft: false,
            zone_soft: true,
            disk_soft: true,
            over_provisioning: 100,
            minimal_available: 25,
            untagged_anywhere: true,
        }
    }
}

/// Why there is no place, by what came nearest to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementError {
    NoNodes,
    NoNodeReady,
    NodeTags,
    NoDisks,
    DiskTags,
    NoSpace,
    /// Places are there, but the replicas must be further apart.
    AntiAffinity,
}

impl PlacementError {
    /// In short.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoNodes => "nodes are unavailable",
            Self::NoNodeReady => "none of the node candidates is ready and open to new replicas",
            Self::NodeTags => "the node tags do not match the volume's node selector",
            Self::NoDisks => "disks are unavailable",
            Self::DiskTags => "the disk tags do not match the volume's disk selector",
            Self::NoSpace => "insufficient storage",
            Self::AntiAffinity => "replicas cannot be scheduled apart from each other",
        }
    }
}

/// Where the next replica goes: a node's name and a disk's id.
pub fn place<'a>(
    nodes: &'a [StorageNode],
    placed: &[ExistingReplica],
    wish: &PlacementRequest,
    policy: PlacementPolicy,
) -> Result<(&'a str, &'a str), PlacementError> {
    let candidates = candidates(nodes, wish, policy)?;
    let used = Used::new(nodes, placed);
    if let Some(near) = &wish.near {
        let here: Vec<_> = candidates.iter().filter(|(node, _)| node.name == *near).collect();
        if !used.nodes.contains(near.as_str())
            && let Some(place) = best(nodes, &here, &used, wish, policy)
        {
            return Ok(place);
        }
    }
    for distance in distances(policy) {
        let far: Vec<_> =
            candidates.iter().filter(|(node, _)| used.allows(node, distance)).collect();
        if let Some(place) = best(nodes, &far, &used, wish, policy) {
            return Ok(place);
        }
    }
    Err(PlacementError::AntiAffinity)
}

/// How far from the other replicas a place must be, the furthest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AntiAffinityLevel {
    OtherZone,
    /// A zone that is free once what leaves has left.
    ZoneThatClears,
    OtherNode,
    NodeThatClears,
    Anywhere,
}

fn distances(policy: PlacementPolicy) -> Vec<AntiAffinityLevel> {
    let mut all = vec![AntiAffinityLevel::OtherZone];
    match (policy.zone_soft, policy.node_soft) {
        (false, _) => all.push(AntiAffinityLevel::ZoneThatClears),
        (true, false) => {
            all.extend([AntiAffinityLevel::OtherNode, AntiAffinityLevel::NodeThatClears])
        }
        (true, true) => {
            all.extend([
                AntiAffinityLevel::OtherNode,
                AntiAffinityLevel::NodeThatClears,
                AntiAffinityLevel::Anywhere,
            ]);
        }
    }
    all
}

struct Used<'a> {
    zones: BTreeSet<&'a str>,
    zones_kept: BTreeSet<&'a str>,
    nodes: BTreeSet<&'a str>,
    nodes_kept: BTreeSet<&'a str>,
    disks: BTreeSet<&'a str>,
}

impl<'a> Used<'a> {
    fn new(nodes: &'a [StorageNode], placed: &'a [ExistingReplica]) -> Self {
        let zone = |name: &str| {
            nodes.iter().find(|node| node.name == name).map_or("", |node| node.zone.as_str())
        };
        let kept = || placed.iter().filter(|replica| !replica.leaving);
        Self {
            zones: placed.iter().map(|replica| zone(&replica.node)).collect(),
            zones_kept: kept().map(|replica| zone(&replica.node)).collect(),
            nodes: placed.iter().map(|replica| replica.node.as_str()).collect(),
            nodes_kept: kept().map(|replica| replica.node.as_str()).collect(),
            disks: placed.iter().map(|replica| replica.disk.as_str()).collect(),
        }
    }

    fn allows(&self, node: &StorageNode, distance: AntiAffinityLevel) -> bool {
        let (name, zone) = (node.name.as_str(), node.zone.as_str());
        match distance {
            AntiAffinityLevel::OtherZone => {
                !self.zones.contains(zone) && !self.nodes.contains(name)
            }
            AntiAffinityLevel::ZoneThatClears => !self.zones_kept.contains(zone),
            AntiAffinityLevel::OtherNode => !self.nodes.contains(name),
            AntiAffinityLevel::NodeThatClears => !self.nodes_kept.contains(name),
            AntiAffinityLevel::Anywhere => true,
        }
    }
}

type Candidate<'a> = (&'a StorageNode, &'a Disk);

/// Everything that could hold a replica, were there no others.
fn candidates<'a>(
    nodes: &'a [StorageNode],
    wish: &PlacementRequest,
    policy: PlacementPolicy,
) -> Result<Vec<Candidate<'a>>, PlacementError> {
    let wanted = |node: &&StorageNode| wish.only.as_ref().is_none_or(|only| *only == node.name);
    let nodes = some(nodes.iter().filter(wanted).collect(), PlacementError::NoNodes)?;
    let up = nodes.into_iter().filter(|node| node.ready && node.open).collect();
    let up = some(up, PlacementError::NoNodeReady)?;
    let tagged = |node: &&StorageNode| fits(&node.tags, &wish.node_tags, policy);
    let nodes = some(up.into_iter().filter(tagged).collect(), PlacementError::NodeTags)?;
    let disks = nodes.iter().flat_map(|node| node.disks.iter().map(move |disk| (*node, disk)));
    let disks = disks.filter(|(_, disk)| disk.open && disk.ready).collect();
    let disks = some(disks, PlacementError::NoDisks)?;
    let tagged = |(_, disk): &Candidate<'_>| fits(&disk.tags, &wish.disk_tags, policy);
    let disks = some(disks.into_iter().filter(tagged).collect(), PlacementError::DiskTags)?;
    let roomy = |(_, disk): &Candidate<'_>| has_room(disk, wish, policy);
    some(disks.into_iter().filter(roomy).collect(), PlacementError::NoSpace)
}

fn some<T>(list: Vec<T>, otherwise: PlacementError) -> Result<Vec<T>, PlacementError> {
    if list.is_empty() { Err(otherwise) } else { Ok(list) }
}

fn fits(tags: &[String], wanted: &[String], policy: PlacementPolicy) -> bool {
    if wanted.is_empty() {
        return tags.is_empty() || policy.untagged_anywhere;
    }
    wanted.iter().all(|tag| tags.contains(tag))
}

fn has_room(disk: &Disk, wish: &PlacementRequest, policy: PlacementPolicy) -> bool {
    let floor = percent(disk.maximum, policy.minimal_available);
    let ceiling = percent(disk.maximum - disk.reserved, policy.over_provisioning);
    disk.available.saturating_sub(wish.actual_size) > floor
        && disk.scheduled.saturating_add(wish.size) <= ceiling
}

fn percent(amount: i64, share: i64) -> i64 {
    let result = i128::from(amount) * i128::from(share) / 100;
    i64::try_from(result).unwrap_or(i64::MAX)
}

/// The place that leaves the cluster most even: first the node, then its disk.
fn best<'a>(
    all: &'a [StorageNode],
    places: &[&Candidate<'a>],
    used: &Used<'_>,
    wish: &PlacementRequest,
    policy: PlacementPolicy,
) -> Option<(&'a str, &'a str)> {
    let is_free = |disk: &Disk| !used.disks.contains(disk.id.as_str());
    let places: Vec<_> =
        places.iter().filter(|(_, disk)| policy.disk_soft || is_free(disk)).collect();
    let node_usable = |node: &StorageNode, chosen: &str| {
        let own = if node.name == chosen { wish.size } else { 0 };
        node.disks.iter().map(usable).sum::<i64>() - own
    };
    let chosen = places.iter().map(|(node, _)| *node).min_by(|a, b| {
        let spread = |node: &StorageNode| {
            unevenness(all.iter().map(|other| node_usable(other, &node.name)).collect())
        };
        spread(a).total_cmp(&spread(b)).then_with(|| a.name.cmp(&b.name))
    })?;
    let disk =
        places.iter().filter(|(node, _)| node.name == chosen.name).min_by(|(_, a), (_, b)| {
            let spread = |disk: &Disk| {
                let own = |other: &Disk| if other.id == disk.id { wish.size } else { 0 };
                unevenness(chosen.disks.iter().map(|other| usable(other) - own(other)).collect())
            };
            // A disk without a replica of the volume survives what takes the other one.
            (!is_free(a))
                .cmp(&!is_free(b))
                .then_with(|| spread(a).total_cmp(&spread(b)))
                .then_with(|| a.id.cmp(&b.id))
        })?;
    Some((&chosen.name, &disk.1.id))
}

fn usable(disk: &Disk) -> i64 {
    disk.available - disk.reserved - disk.scheduled
}

/// How far apart the amounts are, in proportion to their mean.
#[expect(clippy::cast_precision_loss, reason = "a comparison of proportions")]
fn unevenness(amounts: Vec<i64>) -> f64 {
    let (Some(most), Some(least)) = (amounts.iter().max(), amounts.iter().min()) else {
        return 0.0;
    };
    let mean = amounts.iter().map(|amount| *amount as f64).sum::<f64>() / amounts.len() as f64;
    (*most as f64 - *least as f64) / mean.abs().max(1.0)
}

/// How many replicas a volume is to have: as many as it asks for, but one node cannot hold
/// more than one copy that is worth its space, so a small cluster is content with fewer and
/// grows into the number.
pub fn wanted_replicas(asked: usize, nodes: usize, policy: PlacementPolicy) -> usize {
    if policy.node_soft { asked.max(1) } else { asked.clamp(1, nodes.max(1)) }
}

#[cfg(test)]
mod tests;
