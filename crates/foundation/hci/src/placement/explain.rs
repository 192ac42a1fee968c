//! The reasons why no disk accepts a replica, as text: for each candidate node and disk.

use super::{
    Disk, PlacementError, PlacementPolicy, PlacementRequest, StorageNode, fits, has_room, percent,
};

/// More than these make no message clearer.
const MOST: usize = 6;

/// The obstacle as it is reported in a volume's condition.
pub fn explain(
    obstacle: PlacementError,
    nodes: &[StorageNode],
    wish: &PlacementRequest,
    policy: PlacementPolicy,
) -> String {
    let wanted = |node: &&StorageNode| wish.only.as_ref().is_none_or(|only| *only == node.name);
    let nodes = nodes.iter().filter(wanted);
    let is_up = |node: &&StorageNode| node.ready && node.open;
    let is_fit = |node: &&StorageNode| is_up(node) && fits(&node.tags, &wish.node_tags, policy);
    let details: Vec<String> = match obstacle {
        PlacementError::NoNodes | PlacementError::AntiAffinity => Vec::new(),
        PlacementError::NoNodeReady => nodes.map(down).collect(),
        PlacementError::NodeTags => nodes.filter(is_up).map(|node| untagged(node, wish)).collect(),
        _ => nodes.filter(is_fit).flat_map(|node| disks(node, wish, policy)).collect(),
    };
    let mut text = obstacle.text().to_owned();
    for (number, detail) in details.iter().take(MOST).enumerate() {
        text.push_str(if number == 0 { ": " } else { "; " });
        text.push_str(detail);
    }
    if let Some(more @ 1..) = details.len().checked_sub(MOST) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

fn down(node: &StorageNode) -> String {
    match (node.ready, node.trouble.as_str()) {
        (true, _) => format!("node {} takes no new replicas", node.name),
        (false, "") => format!("node {} is not ready", node.name),
        (false, trouble) => format!("node {} is not ready: {trouble}", node.name),
    }
}

fn untagged(node: &StorageNode, wish: &PlacementRequest) -> String {
    lacks(&format!("node {}", node.name), &node.tags, &wish.node_tags)
}

fn lacks(what: &str, tags: &[String], wanted: &[String]) -> String {
    match (tags, wanted) {
        (tags, []) => format!("{what} is for volumes that ask for {}", tags.join(", ")),
        ([], wanted) => format!("{what} has no tags, and {} is asked for", wanted.join(", ")),
        (tags, wanted) => {
            format!(
                "{what} has the tags {}, and {} is asked for",
                tags.join(", "),
                wanted.join(", ")
            )
        }
    }
}

fn disks(node: &StorageNode, wish: &PlacementRequest, policy: PlacementPolicy) -> Vec<String> {
    if node.disks.is_empty() {
        return vec![format!("node {} has no disks", node.name)];
    }
    node.disks.iter().filter_map(|disk| problem(node, disk, wish, policy)).collect()
}

fn problem(
    node: &StorageNode,
    disk: &Disk,
    wish: &PlacementRequest,
    policy: PlacementPolicy,
) -> Option<String> {
    let shown = format!("disk {} of node {}", disk.name, node.name);
    if !disk.open {
        return Some(format!("{shown} takes no new replicas"));
    }
    if !disk.ready {
        return Some(match disk.trouble.as_str() {
            "" => format!("{shown} is not ready"),
            trouble => format!("{shown} is not ready: {trouble}"),
        });
    }
    if !fits(&disk.tags, &wish.disk_tags, policy) {
        return Some(lacks(&shown, &disk.tags, &wish.disk_tags));
    }
    (!has_room(disk, wish, policy)).then(|| {
        let floor = percent(disk.maximum, policy.minimal_available);
        let ceiling = percent(disk.maximum - disk.reserved, policy.over_provisioning);
        if disk.scheduled.saturating_add(wish.size) > ceiling {
            format!(
                "{shown} may promise {ceiling} bytes, has promised {} and is asked for {}",
                disk.scheduled, wish.size
            )
        } else {
            format!("{shown} has {} bytes free, of which {floor} stay free", disk.available)
        }
    })
}
